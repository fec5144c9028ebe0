// SPDX-License-Identifier: GPL-2.0
/*
 * The effects of stored responses (userd/store/) elsewhere: they are published in the
 * cache and withdrawn with it, and requests wait for their fetches.
 */
#include "filled_store.h"

/*
 * Publishes the response found under uri with text number nr. Returns whether it is
 * known now.
 */
static bool publish_as(struct tbg_store *s, struct tbg_cache *c, const char *uri,
		       const char *req, uint64_t nr, uint64_t now_ns)
{
	struct tbg_key k = { { uri[strlen(uri) - 1], nr } };
	struct tbg_uri u = uri_of(uri);
	struct tbg_draft d = { 0 };
	struct tbg_stored *one;
	bool others, ret;

	one = tbg_store_find(s, &u, req, strlen(req), &others);
	ret = one && !tbg_draft_open(c, &k, 0, uri, strlen(uri), NULL, 600, &d);
	if (ret) {
		d.blob->part[TBG_PART_GET].len = 100;
		ret = tbg_store_publish(s, one, &d, now_ns);
	}
	tbg_stored_put(one);
	return ret;
}

static bool publish(struct tbg_store *s, struct tbg_cache *c, const char *uri,
		    const char *req)
{
	return publish_as(s, c, uri, req, 7, 0);
}

static bool known_as(struct tbg_cache *c, const char *uri, uint64_t nr)
{
	struct tbg_key k = { { uri[strlen(uri) - 1], nr } };
	struct tbg_object *o = tbg_cache_find(c, &k, 0, uri, strlen(uri));

	tbg_object_put(o);
	return o;
}

static bool known(struct tbg_cache *c, const char *uri)
{
	return known_as(c, uri, 7);
}

KTAP_TEST(t_what_is_published_goes_with_what_is_stored)
{
	struct tbg_store *s = open_store(1 << 20);
	struct tbg_uri a = uri_of("h/a"), gone = uri_of("h/d");
	struct tbg_draft d = { 0 };
	struct tbg_stored *one;
	struct tbg_plan plan;
	struct tbg_cache *c;
	struct tbg_key k = { { 'd', 7 } };
	bool others;

	tbg_plan_make(&plan, 1 << 20, 0);
	KTAP_EQ(tbg_cache_open(&c, &plan, NULL, key), 0);
	KTAP_CHECK(put(s, "h/a", "", "", "1", 0));
	KTAP_CHECK(publish(s, c, "h/a", "") && known(c, "h/a"));
	KTAP_CHECK(publish(s, c, "h/a", "") && known(c, "h/a"));
	KTAP_CHECK(put(s, "h/a", "", "", "2", 0));		/* replaced */
	KTAP_CHECK(!known(c, "h/a"));
	KTAP_CHECK(publish(s, c, "h/a", ""));
	KTAP_EQ(tbg_store_withdraw(s, &a), 1);
	KTAP_CHECK(!known(c, "h/a"));

	KTAP_CHECK(put(s, "h/b", "Surrogate-Key: x y\r\n", "", "1", tbg_store_seq(s)));
	KTAP_CHECK(publish(s, c, "h/b", ""));
	KTAP_EQ(tbg_store_purge_tag(s, "z"), 0);
	KTAP_CHECK(known(c, "h/b"));
	KTAP_EQ(tbg_store_purge_tag(s, "y"), 1);
	KTAP_CHECK(!known(c, "h/b"));

	/* variants that the kernel cannot select */
	KTAP_CHECK(put(s, "h/c", "", "", "1", tbg_store_seq(s)));
	KTAP_CHECK(publish(s, c, "h/c", ""));
	KTAP_CHECK(put(s, "h/c", "Vary: F\r\n", "F: 1\r\n", "2", tbg_store_seq(s)));
	KTAP_CHECK(!known(c, "h/c"));
	KTAP_CHECK(!publish(s, c, "h/c", "") && !known(c, "h/c"));

	/* withdrawn while the draft was written */
	KTAP_CHECK(put(s, "h/d", "", "", "1", tbg_store_seq(s)));
	one = tbg_store_find(s, &gone, "", 0, &others);
	KTAP_EQ(tbg_draft_open(c, &k, 0, "h/d", 3, NULL, 600, &d), 0);
	d.blob->part[TBG_PART_GET].len = 100;
	tbg_store_withdraw(s, &gone);
	KTAP_CHECK(!tbg_store_publish(s, one, &d, 0) && !known(c, "h/d"));
	tbg_stored_put(one);
	tbg_store_close(s);
	tbg_cache_close(c);
}

KTAP_TEST(t_variants_of_an_encoding_are_published_side_by_side)
{
	static const char vary[] = "Vary: accept-encoding\r\n", gzip[] = "Accept-Encoding: gzip\r\n";
	struct tbg_store *s = open_store(1 << 20);
	struct tbg_plan plan;
	struct tbg_cache *c;

	tbg_plan_make(&plan, 1 << 20, 0);
	KTAP_EQ(tbg_cache_open(&c, &plan, NULL, key), 0);
	KTAP_CHECK(put(s, "h/a", vary, "", "1", 0) && put(s, "h/a", vary, gzip, "2", 0));
	KTAP_CHECK(publish_as(s, c, "h/a", "", 1, 0) && publish_as(s, c, "h/a", gzip, 2, 0));
	KTAP_CHECK(publish_as(s, c, "h/a", gzip, 3, 0) && publish_as(s, c, "h/a", gzip, 2, 0));
	KTAP_CHECK(known_as(c, "h/a", 1) && known_as(c, "h/a", 2) && known_as(c, "h/a", 3));

	/* a new variant does not affect the others; its own successor replaces it */
	KTAP_CHECK(put(s, "h/a", vary, "Accept-Encoding: br\r\n", "3", 0));
	KTAP_CHECK(known_as(c, "h/a", 1) && known_as(c, "h/a", 2) && known_as(c, "h/a", 3));
	KTAP_CHECK(put(s, "h/a", vary, gzip, "4", 0));
	KTAP_CHECK(known_as(c, "h/a", 1) && !known_as(c, "h/a", 2) && !known_as(c, "h/a", 3));

	/* a field named twice is a different Vary: it is unknown which one is newer */
	KTAP_CHECK(put(s, "h/a", "Vary: Accept-Encoding, Accept-Encoding\r\n", gzip, "4", 0));
	KTAP_CHECK(!known_as(c, "h/a", 1) && !publish_as(s, c, "h/a", gzip, 2, 0));
	tbg_store_purge(s, NULL, 0);
	KTAP_CHECK(put(s, "h/a", vary, "", "1", tbg_store_seq(s)));
	KTAP_CHECK(put(s, "h/a", vary, gzip, "4", tbg_store_seq(s)));
	KTAP_CHECK(publish_as(s, c, "h/a", "", 1, 0));

	/* at most this many texts of one response, and one more per second */
	for (uint64_t i = 10; i < 10 + TBG_STORED_OBJECTS; i++)
		KTAP_CHECK(publish_as(s, c, "h/a", gzip, i, 0));
	KTAP_CHECK(publish_as(s, c, "h/a", gzip, 20, 2000000000));
	KTAP_CHECK(!publish_as(s, c, "h/a", gzip, 21, 2500000000));
	KTAP_CHECK(publish_as(s, c, "h/a", gzip, 20, 2500000000));
	KTAP_CHECK(publish_as(s, c, "h/a", gzip, 21, 3000000000));
	KTAP_CHECK(known_as(c, "h/a", 1) && known_as(c, "h/a", 21));

	/* now another field selects, too */
	KTAP_CHECK(put(s, "h/a", "Vary: Accept-Encoding, F\r\n", gzip, "5",
		       tbg_store_seq(s)));
	KTAP_CHECK(!known_as(c, "h/a", 1) && !known_as(c, "h/a", 21));
	KTAP_CHECK(!publish_as(s, c, "h/a", gzip, 1, 9000000000));
	tbg_store_close(s);
	tbg_cache_close(c);
}

/* An evicted object has released its slot, even while others watch it. */
KTAP_TEST(t_more_are_published_than_there_is_room_for)
{
	struct tbg_store *s = open_store(16 << 20);
	struct tbg_plan plan;
	struct tbg_cache *c;
	uint64_t slots = 0, nr = 0;
	char uri[24];

	tbg_plan_make(&plan, 1 << 20, 0);
	for (int i = 0; i < TBG_CLASS_NR; i++)
		slots += plan.slots[i];
	KTAP_EQ(tbg_cache_open(&c, &plan, NULL, key), 0);
	for (uint64_t i = 0; i < 2 * slots; i++) {
		snprintf(uri, sizeof(uri), "h/%llu", (unsigned long long)i);
		KTAP_CHECK(put(s, uri, "", "", "1", 0));
		for (int k = 0; k < 8; k++)
			known_as(c, uri, i);		/* it is requested often */
		nr += publish_as(s, c, uri, "", i, 0);
	}
	KTAP_CHECK(nr > slots + slots / 4);
	tbg_store_close(s);
	tbg_cache_close(c);
}

KTAP_TEST(t_one_leads_and_the_others_wait)
{
	struct tbg_store *s = open_store(1 << 20);
	static struct tbg_mailbox box;
	struct tbg_waiter w[4] = { { .mailbox = &box }, { .mailbox = &box },
				   { .mailbox = &box }, { .mailbox = &box } };
	struct tbg_pending_fetch *f, *none;

	KTAP_EQ(enter(s, "h/", "", &w[0], &f), TBG_TURN_LEAD);
	KTAP_EQ(enter(s, "h/", "", &w[1], &none), TBG_TURN_WAIT);
	KTAP_EQ(enter(s, "h/", "", &w[2], &none), TBG_TURN_WAIT);
	KTAP_EQ(enter(s, "h/", "", &w[3], &none), TBG_TURN_WAIT);
	KTAP_EQ(tbg_store_waiting(s, f), 3);
	tbg_store_leave(s, &w[2]);
	tbg_store_pending_end(s, f, 502, false, 0);
	KTAP_CHECK(mails == 2 && w[1].mail.posted && w[3].mail.posted &&
		   w[1].status == 502);
	tbg_store_leave(s, &w[3]);
	KTAP_EQ(mails, 1);
	KTAP_EQ(enter(s, "h/", "", &w[0], &f), TBG_TURN_LEAD);
	tbg_store_pending_end(s, f, 0, false, 0);
	tbg_store_close(s);
}

KTAP_TEST(t_nobody_joins_what_was_withdrawn_or_varies)
{
	struct tbg_store *s = open_store(1 << 20);
	static struct tbg_mailbox box;
	struct tbg_waiter w[3] = { { .mailbox = &box }, { .mailbox = &box }, { .mailbox = &box } };
	struct tbg_pending_fetch *f[3];
	struct tbg_uri u = uri_of("h/");

	KTAP_EQ(enter(s, "h/", "", &w[0], &f[0]), TBG_TURN_LEAD);
	tbg_store_withdraw(s, &u);
	KTAP_EQ(enter(s, "h/", "", &w[1], &f[1]), TBG_TURN_LEAD);
	tbg_store_pending_end(s, f[0], 0, false, 0);
	tbg_store_pending_end(s, f[1], 0, false, 0);
	KTAP_CHECK(put(s, "h/", "Vary: A\r\n", "A: 0\r\n", "x", tbg_store_seq(s)));
	KTAP_EQ(enter(s, "h/", "A: 1\r\n", &w[0], &f[0]), TBG_TURN_LEAD);
	KTAP_EQ(enter(s, "h/", "A: 2\r\n", &w[1], &f[1]), TBG_TURN_LEAD);
	KTAP_EQ(enter(s, "h/", "A: 1\r\n", &w[2], &f[2]), TBG_TURN_WAIT);
	tbg_store_leave(s, &w[2]);
	tbg_store_pending_end(s, f[0], 0, false, 0);
	tbg_store_pending_end(s, f[1], 0, false, 0);
	tbg_store_close(s);
}

KTAP_TEST(t_nobody_waits_where_it_was_of_no_use)
{
	struct tbg_store *s = open_store(1 << 20);
	static struct tbg_mailbox box;
	struct tbg_waiter w[2] = { { .mailbox = &box }, { .mailbox = &box } };
	struct tbg_uri u = uri_of("h/");
	struct tbg_pending_fetch *f, *none;

	KTAP_EQ(enter(s, "h/", "", &w[0], &f), TBG_TURN_LEAD);
	tbg_store_pending_end(s, f, 0, true, 0);
	KTAP_EQ(enter(s, "h/", "", &w[0], &f), TBG_TURN_LEAD);
	KTAP_EQ(enter(s, "h/", "", &w[1], &none), TBG_TURN_ALONE);
	tbg_store_pending_end(s, f, 0, true, 0);
	KTAP_EQ(tbg_store_enter(s, &u, "", 0, TBG_JOIN_HOPING, &w[0], now_ns, &f), TBG_TURN_ALONE);
	KTAP_EQ(enter(s, "h/", "", &w[0], &f), TBG_TURN_LEAD);
	now_ns = 1000 * 1000000000ull;	/* forgotten */
	KTAP_EQ(enter(s, "h/", "", &w[1], &none), TBG_TURN_WAIT);
	now_ns = 0;
	tbg_store_leave(s, &w[1]);
	tbg_store_pending_end(s, f, 0, true, 0);
	tbg_store_close(s);
}

KTAP_TEST(t_who_asks_for_less_waits_and_has_nobody_wait)
{
	struct tbg_store *s = open_store(1 << 20);
	static struct tbg_mailbox box;
	struct tbg_waiter w[2] = { { .mailbox = &box }, { .mailbox = &box } };
	struct tbg_uri u = uri_of("h/");
	struct tbg_store_stats stats;
	struct tbg_pending_fetch *f, *none;

	KTAP_EQ(tbg_store_enter(s, &u, "", 0, TBG_JOIN_AFTER, &w[0], now_ns, &none), TBG_TURN_ALONE);
	KTAP_CHECK(!none);
	tbg_store_stats(s, &stats);
	KTAP_EQ(stats.uris, 0);
	KTAP_EQ(enter(s, "h/", "", &w[0], &f), TBG_TURN_LEAD);
	KTAP_EQ(tbg_store_enter(s, &u, "", 0, TBG_JOIN_AFTER, &w[1], now_ns, &none), TBG_TURN_WAIT);
	tbg_store_leave(s, &w[1]);
	tbg_store_pending_end(s, f, 0, true, 0);
	tbg_store_close(s);
}

KTAP_MAIN()
