// SPDX-License-Identifier: GPL-2.0
/*
 * Stored responses (userd/store/responses.c): found by URI and Vary, replaced,
 * withdrawn, evicted. test_pending.c has their effects elsewhere.
 */
#include "filled_store.h"

/* Returns whether fn ends its process by an assertion. */
static bool aborts(void (*fn)(void))
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		close(STDERR_FILENO);
		fn();
		_exit(0);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
	       WTERMSIG(status) == SIGABRT;
}

static void put_once(void)
{
	_Atomic uint32_t refs = 1;

	tbg_refcount_put(&refs);
}

static void put_twice(void)
{
	_Atomic uint32_t refs = 1;

	tbg_refcount_put(&refs);
	tbg_refcount_put(&refs);
}

static void get_after_the_last(void)
{
	_Atomic uint32_t refs = 1;

	tbg_refcount_put(&refs);
	tbg_refcount_get(&refs);
}

KTAP_TEST(t_a_reference_too_many_or_too_late_is_asserted)
{
	KTAP_CHECK(!aborts(put_once));
	KTAP_CHECK(aborts(put_twice));
	KTAP_CHECK(aborts(get_after_the_last));
}

KTAP_TEST(t_what_is_kept_has_little_room_to_spare)
{
	struct tbg_byte_chain *p = tbg_byte_chain_new(), *kept;

	kept = tbg_byte_chain_keep(p);
	KTAP_CHECK(kept == p);
	tbg_byte_chain_put(kept);
	tbg_byte_chain_room(p, 10);
	tbg_byte_chain_add(p, "0123456789", 10);
	tbg_byte_chain_room(p, 16384);
	tbg_byte_chain_add(p, "abc", 3);
	kept = tbg_byte_chain_keep(p);
	KTAP_CHECK(kept && kept != p && kept->len == 13 && kept->room == 13);
	KTAP_CHECK(!memcmp(TAILQ_FIRST(&kept->pieces)->data, "0123456789abc", 13));
	tbg_byte_chain_put(p);
	p = tbg_byte_chain_keep(kept);
	KTAP_CHECK(p == kept);
	tbg_byte_chain_put(p);
	tbg_byte_chain_put(kept);
}

KTAP_TEST(t_found_by_uri_and_replaced)
{
	struct tbg_store *s = open_store(1 << 20);
	struct tbg_store_stats st;

	KTAP_CHECK(put(s, "h/a", "", "", "1", 0) && put(s, "h/a?q", "", "", "2", 0));
	KTAP_CHECK(finds(s, "h/a", "", '1') && finds(s, "h/a?q", "", '2'));
	KTAP_CHECK(finds(s, "g/a", "", 0) && finds(s, "h/b", "", 0));
	KTAP_CHECK(put(s, "h/a", "", "", "3", 0) && finds(s, "h/a", "", '3'));
	tbg_store_stats(s, &st);
	KTAP_CHECK(st.responses == 2 && st.uris == 2);
	tbg_store_close(s);
}

KTAP_TEST(t_vary_tells_variants_apart)
{
	struct tbg_store *s = open_store(1 << 20);
	const char *v = "Vary: A, b\r\n";

	KTAP_CHECK(put(s, "h/", v, "A: 1\r\nB: 1\r\n", "1", 0));
	KTAP_CHECK(put(s, "h/", v, "A: 1\r\nB: 2\r\n", "2", 0));
	KTAP_CHECK(put(s, "h/", v, "A: 1\r\n", "3", 0));
	KTAP_CHECK(finds(s, "h/", "b: 1\r\na: 1\r\n", '1'));
	KTAP_CHECK(finds(s, "h/", "A: 1\r\nX: y\r\nB:2\r\n", '2'));
	KTAP_CHECK(finds(s, "h/", "A: 1\r\n", '3'));
	KTAP_CHECK(finds(s, "h/", "A: 1\r\nB:\r\n", 0));
	KTAP_CHECK(finds(s, "h/", "", 0));
	KTAP_CHECK(finds(s, "h/", "A: 1\nb:2\r\n", '2'));
	tbg_store_close(s);
}

/*
 * Lines that the daemon reads as one list may differ for the server, which got them
 * unchanged.
 */
KTAP_TEST(t_vary_is_of_the_bytes_that_are_sent)
{
	static const char *const rows[][3] = {
		{ "Origin", "Origin: https://a.example,\r\n", "Origin: https://a.example\r\n" },
		{ "Origin", "Origin: ,https://a.example\r\n", "Origin: https://a.example\r\n" },
		{ "Origin", "Origin: a\r\nOrigin:\r\n", "Origin: a\r\n" },
		{ "Foo", "Foo: 1, 2\r\n", "Foo: 1,2\r\n" },
		{ "Foo", "Foo: 1\r\nFoo: 2\r\n", "Foo: 1, 2\r\n" },
		{ "Foo", "Foo: 1\r\nFoo: 2\r\n", "Foo: 1:2\r\n" },
		{ "Accept-Language", "Accept-Language: d e\r\n", "Accept-Language: de\r\n" },
		{ "Accept-Language", "Accept-Language: DE\r\n", "Accept-Language: de\r\n" },
		{ "Accept", "Accept: a/b, c/d\r\n", "Accept: c/d, a/b\r\n" },
		{ "Accept-Encoding", "Accept-Encoding: g zip\r\n", "Accept-Encoding: gzip\r\n" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct tbg_store *s = open_store(1 << 20);
		char vary[64];

		sprintf(vary, "Vary: %s\r\n", rows[i][0]);
		KTAP_CHECK(put(s, "h/", vary, rows[i][1], "1", 0));
		KTAP_CHECK(finds(s, "h/", rows[i][1], '1'));
		if (!finds(s, "h/", rows[i][2], 0))
			ktap_fail("%s answers %s", rows[i][1], rows[i][2]);
		tbg_store_close(s);
	}
}

/* Variants of one URI with different Vary, in turn. */
KTAP_TEST(t_each_variant_is_chosen_by_its_own_vary)
{
	static const char *const vary[] = {
		"Vary: A\r\n", "Vary: B\r\n", "Vary: A, B\r\n", "Vary: A\r\nVary: B\r\n",
		"vary: B, a\r\n",
	};
	static const struct {
		const char *vary, *fields;
	} rows[] = {
		{ "Vary: A\r\n", "A: 1\r\n" }, { "Vary: B\r\n", "B: 1\r\n" },
		{ "Vary: A\r\n", "A: 2\r\n" }, { "Vary: A, B\r\n", "A: 3\r\nB: 3\r\n" },
		{ "Vary: B\r\n", "B: 2\r\n" }, { "Vary: A\r\nVary: B\r\n", "A: 4\r\nB: 4\r\n" },
		{ "vary: B, a\r\n", "A: 5\r\nB: 5\r\n" },
	};
	struct tbg_store *s = open_store(1 << 20);
	const size_t nr = sizeof(rows) / sizeof(*rows);

	for (size_t i = 0; i < nr; i++)
		KTAP_CHECK(put(s, "h/", rows[i].vary, rows[i].fields, (char[]){ '0' + i, 0 }, 0));
	for (size_t i = 0; i < nr; i++)
		if (!finds(s, "h/", rows[i].fields, '0' + i))
			ktap_fail("%s of %s is not found", rows[i].fields, rows[i].vary);
	for (size_t i = 0; i < sizeof(vary) / sizeof(*vary); i++)
		KTAP_CHECK(put(s, "h/", vary[i], "A: 9\r\nB: 9\r\n", "9", 0));
	KTAP_CHECK(finds(s, "h/", "A: 9\r\nB: 9\r\n", '9'));
	KTAP_CHECK(finds(s, "h/", "A: 8\r\nB: 9\r\n", '9'));
	KTAP_CHECK(finds(s, "h/", "A: 8\r\nB: 8\r\n", 0));
	tbg_store_close(s);
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t finding_ns(struct tbg_store *s, const char *uri, const char *fields)
{
	uint64_t begun = cpu_ns();

	for (int i = 0; i < 200; i++)
		if (!finds(s, uri, fields, 0))
			return 0;
	return cpu_ns() - begun;
}

/*
 * Clients can cause 64 variants with up to 32 fields each: the request is read once for
 * all of them. (Reading it for each was 50 times the work, a millisecond of a worker.)
 */
KTAP_TEST(t_many_variants_cost_little_more_than_one)
{
	char vary[512] = "Vary: X-0", fields[1024] = "", nobodys[1024] = "", *at = vary + strlen(vary);
	uint64_t one_ns = UINT64_MAX, all_ns = UINT64_MAX;
	struct tbg_store *s = open_store(1 << 20);

	for (int i = 1; i < 30; i++)
		at += sprintf(at, ", X-%d", i);
	strcpy(at, "\r\n");
	for (int i = 0; i < 30; i++)
		sprintf(nobodys + strlen(nobodys), "X-%d: nobody's\r\n", i);
	KTAP_CHECK(put(s, "h/one", vary, "", "1", 0));
	for (int i = 0; i < 64; i++) {
		sprintf(fields, "X-0: %d\r\n", i);
		KTAP_CHECK(put(s, "h/all", vary, fields, "1", 0));
	}
	for (int i = 0; i < 8; i++) {
		uint64_t one = finding_ns(s, "h/one", nobodys), all = finding_ns(s, "h/all", nobodys);

		one_ns = one < one_ns ? one : one_ns;
		all_ns = all < all_ns ? all : all_ns;
	}
	ktap_note("%.1f times", (double)all_ns / one_ns);
	KTAP_CHECK(one_ns && all_ns && all_ns < 12 * one_ns);
	tbg_store_close(s);
}

static bool put_uri(struct tbg_store *s, const struct tbg_uri *u, const char *body)
{
	struct tbg_byte_chain *p = tbg_byte_chain_new();
	struct tbg_response_directives t;

	tbg_byte_chain_add(p, body, strlen(body));
	tbg_response_directives_read(&t, 200, fields_of(""), 1000, 0, 0);
	return tbg_store_put(s, u, tbg_stored_new(&t, "OK", "", 0, "", 0, p), tbg_store_seq(s),
			     NULL);
}

/* 0: none */
static char found(struct tbg_store *s, const struct tbg_uri *u)
{
	bool others;
	struct tbg_stored *one = tbg_store_find(s, u, "", 0, &others);
	char ret = one ? TAILQ_FIRST(&one->body->pieces)->data[0] : 0;

	tbg_stored_put(one);
	return ret;
}

KTAP_TEST(t_scheme_and_host_of_a_proxy_are_of_the_uri)
{
	struct tbg_uri http = uri_of("h/"), https = http, one = http, other = http;

	https.https = true;
	one.proxy_host = TBG_SLICE("a");
	other.proxy_host = TBG_SLICE("b");
	for (int i = 0; i < 3; i++) {
		struct tbg_store *s = open_store(1 << 20);
		uint64_t seq;

		KTAP_CHECK(put_uri(s, &http, "1"));
		KTAP_CHECK(!found(s, &https) && !found(s, &one));
		KTAP_CHECK(put_uri(s, &https, "2") && put_uri(s, &one, "3"));
		KTAP_CHECK(found(s, &http) == '1' && found(s, &https) == '2');
		KTAP_CHECK(found(s, &one) == '3' && !found(s, &other));
		seq = tbg_store_seq(s);
		if (i == 0)	/* a withdrawal of a URI withdraws all of them */
			KTAP_EQ(tbg_store_withdraw(s, &other), 3);
		else if (i == 1)
			KTAP_CHECK(tbg_store_withdraw_own(s, &https, &seq));
		else
			KTAP_EQ(tbg_store_purge_host(s, "h"), 3);
		KTAP_CHECK(!found(s, &http) && !found(s, &https) && !found(s, &one));
		KTAP_CHECK(put_uri(s, &one, "3"));
		KTAP_EQ(tbg_store_purge_host(s, "a"), 1);
		tbg_store_close(s);
	}
}

KTAP_TEST(t_one_with_vary_goes_before_a_newer_without)
{
	struct tbg_store *s = open_store(1 << 20);
	struct tbg_uri u = uri_of("h/");
	struct tbg_stored *old;
	bool others;

	KTAP_CHECK(put(s, "h/", "Vary: A\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
		       "A: 1\r\n", "v", 0));
	KTAP_CHECK(put(s, "h/", "Date: Sun, 06 Nov 1994 08:49:38 GMT\r\n", "A: 2\r\n", "n", 0));
	KTAP_CHECK(finds(s, "h/", "A: 1\r\n", 'v'));
	KTAP_CHECK(finds(s, "h/", "A: 2\r\n", 'n') && finds(s, "h/", "", 'n'));
	/* unless it has replaced it */
	old = tbg_store_find(s, &u, "A: 1\r\n", 6, &others);
	KTAP_CHECK(put_for(s, "h/", "", "A: 1\r\n", "w", 0, old));
	tbg_stored_put(old);
	KTAP_CHECK(finds(s, "h/", "A: 1\r\n", 'w') && finds(s, "h/", "A: 2\r\n", 'w'));
	tbg_store_close(s);
}

KTAP_TEST(t_one_is_dropped_and_the_others_stay)
{
	struct tbg_store *s = open_store(1 << 20);
	struct tbg_uri u = uri_of("h/");
	struct tbg_stored *one;
	struct tbg_store_stats st;
	uint64_t seq;
	bool others;

	KTAP_CHECK(put(s, "h/", "Vary: A\r\n", "A: 1\r\n", "1", 0));
	KTAP_CHECK(put(s, "h/", "Vary: A\r\n", "A: 2\r\n", "2", 0));
	seq = tbg_store_seq(s);
	one = tbg_store_find(s, &u, "A: 1\r\n", 6, &others);
	tbg_store_drop(s, &u, one);
	tbg_store_drop(s, &u, one);
	tbg_stored_put(one);
	KTAP_CHECK(finds(s, "h/", "A: 1\r\n", 0) && finds(s, "h/", "A: 2\r\n", '2'));
	KTAP_EQ(tbg_store_seq(s), seq);
	one = tbg_store_find(s, &u, "A: 2\r\n", 6, &others);
	tbg_store_drop(s, &u, one);
	tbg_stored_put(one);
	tbg_store_stats(s, &st);
	KTAP_CHECK(!st.responses && !st.uris && !st.bytes_used);
	tbg_store_close(s);
}

KTAP_TEST(t_whole_goes_before_a_part)
{
	struct tbg_store *s = open_store(1 << 20);
	struct tbg_uri u = uri_of("h/");
	const char *head = "Vary: A\r\nContent-Range: bytes 0-0/9\r\n";
	struct tbg_byte_chain *p = tbg_byte_chain_new();
	struct tbg_response_directives t;

	tbg_byte_chain_add(p, "p", 1);
	tbg_response_directives_read(&t, 206, fields_of(head), 1000, 0, 0);
	KTAP_CHECK(tbg_store_put(s, &u, tbg_stored_new(&t, "Part", head, strlen(head),
						       "A: 1\r\n", 6, p), 0, NULL));
	KTAP_CHECK(finds(s, "h/", "A: 1\r\n", 'p'));
	KTAP_CHECK(put(s, "h/", "", "A: 1\r\n", "w", 0));
	KTAP_CHECK(finds(s, "h/", "A: 1\r\n", 'w'));
	tbg_store_close(s);
}

KTAP_TEST(t_most_recent_date_is_selected)
{
	struct tbg_store *s = open_store(1 << 20);

	KTAP_CHECK(put(s, "h/", "Vary: A\r\nDate: Sun, 06 Nov 1994 08:49:38 GMT\r\n",
		       "A: 1\r\nB: 1\r\n", "n", 0));
	KTAP_CHECK(put(s, "h/", "Vary: B\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
		       "A: 1\r\nB: 1\r\n", "o", 0));
	KTAP_CHECK(finds(s, "h/", "A: 1\r\nB: 1\r\n", 'n'));
	tbg_store_close(s);
}

KTAP_TEST(t_variants_are_bounded)
{
	struct tbg_store *s = open_store(16 << 20);
	struct tbg_store_stats st;
	char req[32];

	for (int i = 0; i < 1000; i++) {
		sprintf(req, "A: %d\r\n", i);
		KTAP_CHECK(put(s, "h/", "Vary: A\r\n", req, "x", 0));
	}
	tbg_store_stats(s, &st);
	KTAP_CHECK(st.responses <= 64 && finds(s, "h/", "A: 999\r\n", 'x'));
	tbg_store_close(s);
}

KTAP_TEST(t_variants_are_within_the_budget)
{
	struct tbg_store *s = open_store(1 << 20);
	static struct tbg_mailbox box;
	struct tbg_waiter w = { .mailbox = &box };
	struct tbg_store_stats st;
	struct tbg_pending_fetch *f;
	static char body[60000];
	char req[32];

	memset(body, 'x', sizeof(body) - 1);
	for (int i = 0; i < 100; i++) {
		sprintf(req, "A: %d\r\n", i);
		KTAP_CHECK(put(s, "h/", "Vary: A\r\n", req, body, 0) && finds(s, "h/", req, 'x'));
		tbg_store_stats(s, &st);
		KTAP_CHECK(st.bytes_used <= st.bytes_budget);
	}
	KTAP_CHECK(st.responses > 10 && st.evicted == 100 - st.responses);
	/* during its fetch, too: its newest variant stays */
	KTAP_EQ(enter(s, "h/", "A: x\r\n", &w, &f), TBG_TURN_LEAD);
	for (int i = 0; i < 40; i++) {
		sprintf(req, "B: %d\r\n", i);
		KTAP_CHECK(put(s, "h/b", "Vary: B\r\n", req, body, 0));
		tbg_store_stats(s, &st);
		KTAP_CHECK(st.bytes_used <= st.bytes_budget);
	}
	KTAP_CHECK(finds(s, "h/", "A: 99\r\n", 'x') && finds(s, "h/", "A: 98\r\n", 0));
	tbg_store_pending_end(s, f, 0, false, 0);
	tbg_store_close(s);
}

KTAP_TEST(t_budget_is_kept_and_the_used_stay)
{
	struct tbg_store *s = open_store(1 << 20);
	struct tbg_store_stats st;
	static char body[10000];
	char uri[32];

	memset(body, 'x', sizeof(body) - 1);
	KTAP_CHECK(put(s, "h/kept", "", "", "k", 0));
	for (int i = 0; i < 1000; i++) {
		sprintf(uri, "h/%d", i);
		KTAP_CHECK(put(s, uri, "", "", body, 0));
		KTAP_CHECK(finds(s, "h/kept", "", 'k'));
		tbg_store_stats(s, &st);
		KTAP_CHECK(st.bytes_used <= st.bytes_budget);
	}
	KTAP_CHECK(st.evicted > 800 && finds(s, "h/0", "", 0) && finds(s, "h/999", "", 'x'));
	tbg_store_purge(s, NULL, 0);
	tbg_store_stats(s, &st);
	KTAP_CHECK(!st.responses && !st.uris && !st.bytes_used);
	tbg_store_close(s);
}

KTAP_TEST(t_bodies_count_until_nobody_reads_them)
{
	struct tbg_store *s = open_store(1 << 20);
	struct tbg_byte_chain *p = tbg_byte_chain_new(), *other = tbg_byte_chain_new();
	struct tbg_uri u = uri_of("h/a");
	struct tbg_response_directives t;

	tbg_store_count(s, p);
	KTAP_CHECK(tbg_byte_chain_room(p, 500000) && tbg_store_has_room(s));
	TAILQ_LAST(&p->pieces, tbg_pieces)->len = p->len = 500000;
	KTAP_CHECK(tbg_byte_chain_room(p, 100000) && !tbg_store_has_room(s));
	tbg_response_directives_read(&t, 200, fields_of(""), 1000, 0, 0);
	atomic_fetch_add(&p->refs, 1);
	KTAP_CHECK(tbg_store_put(s, &u, tbg_stored_new(&t, "OK", "", 0, "", 0, p), 0, NULL));
	KTAP_CHECK(tbg_store_has_room(s));
	/* one that was not counted, and one that is freed piece by piece */
	tbg_byte_chain_room(other, 600000);
	atomic_fetch_add(&other->refs, 1);
	KTAP_CHECK(tbg_store_put(s, &u, tbg_stored_new(&t, "OK", "", 0, "", 0, other), 0, NULL));
	KTAP_CHECK(!tbg_store_has_room(s));
	tbg_byte_chain_cut(p, TAILQ_LAST(&p->pieces, tbg_pieces));
	KTAP_CHECK(tbg_store_has_room(s));
	tbg_store_purge(s, NULL, 0);
	KTAP_CHECK(!tbg_store_has_room(s));
	tbg_byte_chain_put(p);
	KTAP_CHECK(!tbg_store_has_room(s));
	tbg_byte_chain_put(other);
	KTAP_CHECK(tbg_store_has_room(s));
	tbg_store_close(s);
}

/* Of 100 that fit; those without further requests are evicted in the end. */
KTAP_TEST(t_scan_does_not_flush_what_is_asked_for_often)
{
	struct tbg_store *s = open_store(1 << 20);
	static char body[10000];
	int hot = 0, left = 0;
	char uri[32];

	memset(body, 'x', sizeof(body) - 1);
	for (int i = 0; i < 20; i++) {
		sprintf(uri, "h/hot%d", i);
		KTAP_CHECK(put(s, uri, "", "", body, 0));
		for (int k = 0; k < 30; k++)
			KTAP_CHECK(finds(s, uri, "", 'x'));
	}
	for (int i = 0; i < 300; i++) {
		sprintf(uri, "h/scan%d", i);
		KTAP_CHECK(put(s, uri, "", "", body, 0));
	}
	for (int i = 0; i < 20; i++) {
		sprintf(uri, "h/hot%d", i);
		hot += finds(s, uri, "", 'x');
	}
	KTAP_EQ(hot, 20);
	for (int i = 0; i < 2000; i++) {
		sprintf(uri, "h/again%d", i);
		KTAP_CHECK(put(s, uri, "", "", body, 0));
	}
	for (int i = 0; i < 20; i++) {
		sprintf(uri, "h/hot%d", i);
		left += finds(s, uri, "", 'x');
	}
	KTAP_EQ(left, 0);
	tbg_store_close(s);
}

KTAP_TEST(t_withdrawn_since_is_not_stored)
{
	struct tbg_store *s = open_store(1 << 20);
	struct tbg_uri u = uri_of("h/a");
	uint64_t seq = tbg_store_seq(s);

	KTAP_CHECK(put(s, "h/a", "", "", "1", seq));
	KTAP_EQ(tbg_store_withdraw(s, &u), 1);
	KTAP_CHECK(finds(s, "h/a", "", 0));
	KTAP_CHECK(!put(s, "h/a", "", "", "1", seq) && put(s, "h/b", "", "", "1", seq));
	KTAP_CHECK(put(s, "h/a", "", "", "2", tbg_store_seq(s)));
	seq = tbg_store_seq(s);
	tbg_store_purge(s, "/zzz", 4);
	KTAP_CHECK(!put(s, "h/c", "", "", "1", seq));
	seq = tbg_store_seq(s);
	for (int i = 0; i < 5000; i++)	/* more than the log holds */
		tbg_store_withdraw(s, &(struct tbg_uri){ .text = "h/x", .len = 3, .path_off = 1 });
	KTAP_CHECK(!put(s, "h/d", "", "", "1", seq));
	tbg_store_close(s);
}

KTAP_TEST(t_purged_by_path_and_tag)
{
	struct tbg_store *s = open_store(1 << 20);

	put(s, "h/a", "Surrogate-Key: x y\r\n", "", "1", 0);
	put(s, "h/a?q", "", "", "2", 0);
	put(s, "g/%61", "", "", "3", 0);
	put(s, "h/ab", "Surrogate-Key: xx\r\n", "", "4", 0);
	KTAP_EQ(tbg_store_purge_tag(s, "z"), 0);
	KTAP_EQ(tbg_store_purge_tag(s, "y"), 1);
	KTAP_EQ(tbg_store_purge(s, "/a", 2), 2);
	KTAP_CHECK(finds(s, "h/ab", "", '4'));
	tbg_store_close(s);
}

KTAP_TEST(t_purged_by_host_and_beginning)
{
	struct tbg_store *s = open_store(1 << 20);

	put(s, "h/a/b", "", "", "1", 0);
	put(s, "h:81/a", "", "", "2", 0);
	put(s, "hh/%61/c?q", "", "", "3", 0);
	put(s, "hh/b", "", "", "4", 0);
	KTAP_EQ(tbg_store_purge_below(s, "/a/", 3), 2);
	KTAP_EQ(tbg_store_purge_host(s, "x"), 0);
	KTAP_EQ(tbg_store_purge_host(s, "H"), 1);
	KTAP_CHECK(finds(s, "hh/b", "", '4'));
	KTAP_EQ(tbg_store_purge_host(s, "hh"), 1);
	tbg_store_close(s);
}

KTAP_MAIN()
