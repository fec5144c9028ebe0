// SPDX-License-Identifier: GPL-2.0
/*
 * The cache and its slots (userd/cache/objects.c, userd/cache/slots.c), in one thread;
 * test_cache_threads.c has concurrent calls.
 */
#include "fake_index.h"

static uint64_t plan_bytes(const struct tbg_plan *p)
{
	/* kernel: element and bucket of a hash; daemon: an object */
	const uint64_t extra = sizeof(struct tbg_key) +
			       sizeof(struct tbg_entry) + 64 + 4 + 300;
	uint64_t sum = p->conns * (36 + 128 + 64 + 16 + 36ull);

	for (int c = 0; c < TBG_CLASS_NR; c++)
		sum += p->slots[c] * (tbg_class_bytes(c) + extra);
	return sum;
}

KTAP_TEST(t_plan_stays_within_every_budget)
{
	for (uint64_t b = 1 << 20; b <= 8ull << 30; b += b / 7) {
		uint32_t blobs = 0;
		struct tbg_plan p;

		tbg_plan_make(&p, b, 0);
		KTAP_CHECK(plan_bytes(&p) <= b);
		if (b >= 16 << 20)
			KTAP_CHECK(plan_bytes(&p) >= b / 100 * 85);
		for (int c = 0; c < TBG_CLASS_NR; c++) {
			KTAP_CHECK(p.slots[c] >= 1);
			blobs += p.slots[c];
		}
		KTAP_EQ(blobs, p.blobs);
		KTAP_EQ(blobs, p.entries);
		KTAP_CHECK(p.conns >= 850 && p.conns <= 131072);
		if (b >= 5 << 20)
			KTAP_CHECK(p.conns >= 4096);
	}
}

KTAP_TEST(t_plan_follows_as_many_connections_as_are_wanted)
{
	struct tbg_plan p;

	tbg_plan_make(&p, 256 << 20, 100000);
	KTAP_EQ(p.conns, 125000);
	KTAP_CHECK(plan_bytes(&p) <= 256 << 20);
	tbg_plan_make(&p, 256 << 20, 1000);	/* never fewer than by default */
	KTAP_EQ(p.conns, 65536);
	tbg_plan_make(&p, 16 << 20, 10000000);	/* and never more than a quarter of the memory */
	KTAP_CHECK(p.conns > 4096);
	KTAP_CHECK(p.conns * (36 + 128 + 64 + 16 + 36ull) <= 4 << 20);
	KTAP_CHECK(plan_bytes(&p) <= 16 << 20);
}

KTAP_TEST(t_smallest_cache_holds_one_of_each_class)
{
	struct tbg_plan p;
	struct tbg_cache *c;

	tbg_plan_make(&p, 1 << 20, 0);
	c = open_with(&p, true);
	KTAP_CHECK(c);
	for (int i = 0; i < TBG_CLASS_NR; i++) {
		struct tbg_object *o = publish(c, i, NULL, 1,
					       tbg_class_room(i) - 150);

		KTAP_CHECK(o);
		KTAP_EQ(TBG_BLOB_CLASS(o->blob_id), i);
		tbg_object_put(o);
	}
	tbg_cache_close(c);
}

KTAP_TEST(t_published_object_is_found_in_both_tiers)
{
	struct tbg_cache *c = open_cache(4, true);
	struct tbg_object *o = publish(c, 5, "p/5", 9, 777), *f;
	struct tbg_key key = key_of(5);
	struct tbg_entry e;
	uint32_t v;

	KTAP_CHECK(o && o->in_kernel);
	f = find(c, 5);
	KTAP_CHECK(f == o);
	KTAP_CHECK(blob_right(f->blob, 5, &v) && v == 9);
	KTAP_CHECK(idx_find(&key, &e));
	KTAP_EQ(e.blob, o->blob_id);
	KTAP_EQ(e.gen, o->blob->gen);
	KTAP_CHECK(e.gen != 0);
	KTAP_EQ(e.vhost, 3);
	KTAP_EQ(e.path_len, 4);
	KTAP_CHECK(!memcmp(e.path, "/p/5\0\0\0", 8));
	KTAP_EQ(e.etag_len, 5);
	KTAP_CHECK(!memcmp(e.etag, "\"5-9\"", 6));
	KTAP_CHECK(e.expires_ns == TBG_FRESH_ALWAYS);
	KTAP_CHECK(o->blob->key0 == key.h[0]);
	tbg_object_put(o);
	tbg_object_put(f);
	tbg_cache_close(c);
}

/* RFC 1071 literally, on a copy with zeros in place of Date. */
static uint16_t plain_sum(const struct tbg_blob *b, const struct tbg_blob_part *p)
{
	uint8_t copy[70000] = { 0 };
	uint32_t sum = 0;

	memcpy(copy, b->data + p->off, p->len);
	memset(copy + p->date_off, 0, TBG_DATE_LEN);
	for (uint32_t i = 0; i < p->len; i += 2) {
		uint16_t word;

		memcpy(&word, copy + i, 2);
		sum += word;
		sum = (sum & 0xffff) + (sum >> 16);
	}
	return sum;
}

KTAP_TEST(t_checksums_leave_out_the_date_at_any_offset)
{
	struct tbg_cache *c = open_cache(2, false);

	for (uint32_t i = 0; i < 4000; i++) {
		uint32_t body = i % 500, total = 2 * HEAD_LEN + 8 + body;
		struct tbg_object *o;
		struct tbg_draft d;

		KTAP_CHECK(!open_draft(c, 1, NULL, i, body, &d));
		for (int p = 0; p < TBG_PART_NR; p++) {
			struct tbg_blob_part *part = &d.blob->part[p];

			/* one Date, which all of them contain */
			part->off = mix(i * 3) % (total - 40);
			part->date_off = 1 + mix(i) % (total - part->off -
						       TBG_DATE_LEN - 1);
			part->len = part->date_off + TBG_DATE_LEN;
			part->len += mix(i + p) % (total - part->off - part->len + 1);
		}
		KTAP_CHECK(!tbg_draft_publish(&d, &o));
		for (int p = 0; p < TBG_PART_NR; p++)
			KTAP_EQ(o->blob->part[p].csum,
				plain_sum(o->blob, &o->blob->part[p]));
		tbg_object_put(o);
	}
	tbg_cache_close(c);
}

KTAP_TEST(t_partial_sums_are_of_all_that_is_before_them)
{
	struct tbg_cache *c = open_cache(2, false);

	for (uint32_t body = 0; body < 66000; body = body * 5 / 4 + 1) {
		struct tbg_object *o = publish(c, 1, NULL, 1, body);
		const struct tbg_blob_part *last;
		uint16_t *sums;

		KTAP_CHECK(o);
		last = &o->blob->part[TBG_PART_304];
		sums = tbg_blob_sums((void *)o->blob, TBG_BLOB_CLASS(o->blob_id));
		KTAP_CHECK((uint8_t *)(sums + TBG_SUMS(tbg_class_bytes(
				TBG_BLOB_CLASS(o->blob_id)))) ==
			   (uint8_t *)o->blob +
			   tbg_class_bytes(TBG_BLOB_CLASS(o->blob_id)));
		for (uint32_t at = 0; at < last->off + last->len; at += TBG_SUM_STRIDE)
			KTAP_EQ(sums[at / TBG_SUM_STRIDE],
				tbg_csum_bytes(o->blob->data, at));
		tbg_object_put(o);
	}
	tbg_cache_close(c);
}

KTAP_TEST(t_parts_outside_the_data_are_refused)
{
	struct tbg_cache *c = open_cache(1, false);
	struct tbg_object *o;
	struct tbg_draft d;

	KTAP_CHECK(!open_draft(c, 1, NULL, 1, 10, &d));
	d.blob->part[0].len = d.data_len + 1;
	KTAP_EQ(tbg_draft_publish(&d, &o), -EINVAL);
	KTAP_CHECK(!open_draft(c, 1, NULL, 1, 10, &d));
	d.blob->part[1].date_off = HEAD_LEN - TBG_DATE_LEN + 1;
	KTAP_EQ(tbg_draft_publish(&d, &o), -EINVAL);
	KTAP_CHECK(store(c, 1, NULL));
	tbg_cache_close(c);
}

KTAP_TEST(t_same_key_with_another_path_is_a_miss)
{
	struct tbg_cache *c = open_cache(4, true);
	struct tbg_key key = key_of(1);

	KTAP_CHECK(store(c, 1, NULL));
	KTAP_CHECK(!tbg_cache_find(c, &key, 3, "/p/2", 4));
	KTAP_CHECK(!tbg_cache_find(c, &key, 3, "/p/11", 5));
	KTAP_CHECK(!tbg_cache_find(c, &key, 4, "/p/1", 4));
	KTAP_CHECK(has(c, 1));
	tbg_cache_close(c);
}

KTAP_TEST(t_body_of_64_kib_fits_with_its_heads)
{
	KTAP_EQ(tbg_class_room(TBG_CLASS_NR - 1), 65536 + 1424 + TBG_304_ROOM);
}

/* see TBG_BLOB_APART */
KTAP_TEST(t_data_is_not_where_payload_is)
{
	static const uint32_t heads[] = { 20 + 20, 20 + 32, 40 + 20, 40 + 32 };
	uint32_t data = offsetof(struct tbg_blob, data);

	for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
		for (uint32_t tag = 0; tag <= 4; tag += 4) {
			uint32_t behind = (14 + tag + heads[i] - data) % 64;

			KTAP_CHECK(behind > 15);
		}
	}
#define X(name, bytes, percent) KTAP_CHECK((bytes) % 64 == 0 || (bytes) % 64 == 32);
	TBG_CLASS_LIST(X)
#undef X
}

KTAP_TEST(t_too_large_is_told_from_no_room)
{
	const uint32_t most = tbg_class_room(TBG_CLASS_NR - 1) - 2 * HEAD_LEN - 8;
	struct tbg_cache *c = open_cache(1, false);
	struct tbg_draft d;

	KTAP_EQ(open_draft(c, 1, NULL, 1, most + 1, &d), -EFBIG);
	KTAP_CHECK(!open_draft(c, 1, NULL, 1, most, &d));
	KTAP_EQ(open_draft(c, 2, NULL, 1, most, &(struct tbg_draft){ 0 }),
		-ENOSPC);
	tbg_draft_abandon(&d);
	tbg_cache_close(c);
}

KTAP_TEST(t_replaced_object_stays_whole_for_its_readers)
{
	struct tbg_cache *c = open_cache(4, true);
	struct tbg_object *old = publish(c, 1, "a", 1, 900), *new;
	struct tbg_key key = key_of(1);
	struct tbg_cache_stats s;
	struct tbg_entry e;
	uint32_t v;

	new = publish(c, 1, "a", 2, 900);
	KTAP_CHECK(old && new && old->blob_id != new->blob_id);
	KTAP_CHECK(blob_right(old->blob, 1, &v) && v == 1);
	KTAP_CHECK(idx_find(&key, &e));
	KTAP_EQ(e.blob, new->blob_id);
	KTAP_CHECK(find(c, 1) == new);
	tbg_object_put(new);
	tbg_cache_stats(c, &s);
	KTAP_EQ(s.objects, 1);
	KTAP_EQ(s.quarantined, 0);
	tbg_object_put(old);
	tbg_object_put(new);
	tbg_cache_stats(c, &s);
	KTAP_EQ(s.quarantined, 1);
	KTAP_EQ(tbg_cache_withdraw_name(c, "a"), 1);
	tbg_cache_stats(c, &s);
	KTAP_EQ(s.objects, 0);
	KTAP_EQ(s.in_kernel, 0);
	KTAP_EQ(s.bytes_used, 0);
	tbg_cache_close(c);
}

KTAP_TEST(t_slot_rests_before_it_is_used_again)
{
	struct tbg_plan plan = plan_of(1);
	uint64_t t = 1000 * NS_PER_S;
	struct tbg_cache *c;
	struct tbg_object *o;
	uint32_t gen, id;

	c = open_with(&plan, true);
	tbg_cache_tick(c, t);
	o = publish(c, 1, "a", 1, 63000);
	KTAP_CHECK(o);
	gen = o->blob->gen;
	id = o->blob_id;
	tbg_object_put(o);
	KTAP_EQ(tbg_cache_withdraw_name(c, "a"), 1);
	KTAP_CHECK(!publish(c, 1, "a", 2, 63000));
	tbg_cache_tick(c, t += NS_PER_S);
	tbg_cache_tick(c, t + TBG_QUARANTINE_S * NS_PER_S - 1);
	KTAP_CHECK(!publish(c, 1, "a", 2, 63000));
	tbg_cache_tick(c, t += TBG_QUARANTINE_S * NS_PER_S);
	o = publish(c, 1, "a", 2, 63000);
	KTAP_CHECK(o);
	KTAP_EQ(o->blob_id, id);
	KTAP_EQ(o->blob->gen, gen + 1);

	/* Held by a slow reader: the slot rests until it is released. */
	KTAP_EQ(tbg_cache_withdraw(c, o), 1);
	KTAP_EQ(tbg_cache_withdraw(c, o), 0);
	for (int i = 0; i < 10; i++)
		tbg_cache_tick(c, t += TBG_QUARANTINE_S * NS_PER_S);
	KTAP_CHECK(!publish(c, 1, "a", 3, 63000));
	tbg_object_put(o);
	tbg_cache_tick(c, t += NS_PER_S);
	KTAP_CHECK(!publish(c, 1, "a", 3, 63000));
	tbg_cache_tick(c, t += TBG_QUARANTINE_S * NS_PER_S);
	o = publish(c, 1, "a", 3, 63000);
	KTAP_CHECK(o);
	KTAP_EQ(o->blob->gen, gen + 2);
	tbg_object_put(o);
	tbg_cache_close(c);
}

KTAP_TEST(t_slot_the_kernel_never_knew_does_not_rest)
{
	struct tbg_cache *c = open_cache(1, false);
	struct tbg_draft d;

	for (int i = 0; i < 10; i++) {
		KTAP_CHECK(!open_draft(c, i, NULL, 1, 63000, &d));
		tbg_draft_abandon(&d);
		tbg_object_put(publish(c, i, "a", 1, 63000));
		KTAP_EQ(tbg_cache_withdraw_name(c, "a"), 1);
	}
	tbg_cache_close(c);
}

KTAP_TEST(t_full_class_borrows_from_the_next)
{
	struct tbg_cache *c = open_cache(8, false);
	int larger = 0;

	for (int i = 0; i < 12; i++) {
		struct tbg_object *o = publish(c, i, NULL, 1, 10);

		KTAP_CHECK(o);
		larger += TBG_BLOB_CLASS(o->blob_id) == TBG_CLASS_2K;
		tbg_object_put(o);
	}
	KTAP_EQ(larger, 4);
	tbg_cache_close(c);
}

KTAP_TEST(t_path_the_kernel_cannot_hold_is_for_the_daemon)
{
	struct tbg_cache *c = open_cache(4, true);
	char path[TBG_PATH_MAX + 2];
	struct tbg_key key = key_of(1);
	struct tbg_object *o;
	struct tbg_draft d;

	memset(path, 'x', sizeof(path));
	for (int len = TBG_PATH_MAX; len <= TBG_PATH_MAX + 1; len++) {
		KTAP_CHECK(!tbg_draft_open(c, &key, 0, path, len, NULL, 9, &d));
		KTAP_CHECK(!tbg_draft_publish(&d, &o));
		KTAP_EQ(o->in_kernel, len <= TBG_PATH_MAX);
		tbg_object_put(o);
	}
	o = tbg_cache_find(c, &key, 0, path, TBG_PATH_MAX + 1);
	KTAP_CHECK(o);
	tbg_object_put(o);
	tbg_cache_close(c);
}

KTAP_TEST(t_full_index_leaves_no_old_entry_behind)
{
	struct tbg_cache *c = open_cache(4, true);
	struct tbg_key key = key_of(1);
	struct tbg_cache_stats s;
	struct tbg_object *o;
	struct tbg_entry e;

	KTAP_CHECK(store(c, 1, NULL));
	idx.broken = true;
	o = publish(c, 1, NULL, 2, 10);
	KTAP_CHECK(o && !o->in_kernel);
	KTAP_CHECK(!idx_find(&key, &e));
	tbg_object_put(o);
	tbg_cache_stats(c, &s);
	KTAP_EQ(s.index_failed, 1);
	KTAP_EQ(s.in_kernel, 0);
	KTAP_CHECK(has(c, 1));
	tbg_cache_close(c);
}

KTAP_TEST(t_renewal_reaches_the_kernel_unless_withdrawn)
{
	struct tbg_cache *c = open_cache(4, true);
	struct tbg_object *o = publish(c, 1, "a", 1, 10);
	struct tbg_key key = key_of(1);
	struct tbg_entry e;

	tbg_object_renew(o, 12345);
	KTAP_CHECK(idx_find(&key, &e));
	KTAP_EQ(e.expires_ns, 12345);
	KTAP_EQ(o->expires_ns, 12345);
	tbg_cache_withdraw_all(c);
	tbg_object_renew(o, 54321);
	KTAP_CHECK(!idx_find(&key, &e));
	tbg_object_put(o);
	tbg_cache_close(c);
}

KTAP_TEST(t_folder_withdraws_what_is_below_it_and_no_more)
{
	static const char *const names[] = {
		"a/b/c", "a/b/d", "a/b", "a/bc", "a/b.x", "ab", "b", "a/b/e/f",
		"a/b/e/g", "a",
	};
	struct tbg_cache *c = open_cache(32, true);
	struct tbg_cache_stats s;

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 10; i++)
			KTAP_CHECK(store(c, i, names[i]));
		KTAP_EQ(tbg_cache_withdraw_name(c, "a/b/e/f"), 1);
		KTAP_EQ(tbg_cache_withdraw_name(c, "a/b/e"), 1);
		KTAP_EQ(tbg_cache_withdraw_name(c, "a/b"), 3);
		KTAP_EQ(tbg_cache_withdraw_name(c, "a/b"), 0);
		KTAP_CHECK(has(c, 3) && has(c, 4) && has(c, 5) && has(c, 6));
		KTAP_EQ(tbg_cache_withdraw_name(c, "a"), 3);
		KTAP_EQ(tbg_cache_withdraw_name(c, "nothing/here"), 0);
		KTAP_EQ(tbg_cache_withdraw_name(c, ""), 2);
		tbg_cache_stats(c, &s);
		KTAP_EQ(s.objects, 0);
		tbg_cache_tick(c, round * 100 * NS_PER_S + NS_PER_S);
		tbg_cache_tick(c, round * 100 * NS_PER_S + 90 * NS_PER_S);
	}
	KTAP_CHECK(store(c, 1, "x"));
	KTAP_CHECK(store(c, 2, "x"));
	KTAP_EQ(tbg_cache_withdraw_path(c, 3, "/p/1", 4), 1);
	KTAP_EQ(tbg_cache_withdraw_path(c, 4, "/p/2", 4), 0);
	KTAP_EQ(tbg_cache_withdraw_name(c, "x"), 1);
	tbg_cache_close(c);
}

KTAP_MAIN()
