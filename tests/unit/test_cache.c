// SPDX-License-Identifier: GPL-2.0
/*
 * The cache and its slots (userd/cache/objects.c, userd/cache/slots.c), with the index map
 * replaced by a table here, so that no privilege is needed and the kernel's
 * view can be looked at. Time is what tbg_cache_tick() is told.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "../lib/ktap.h"
#include "cache/objects.h"
#include "core/csum.h"
#include "core/span.h"
#include "files/watch.h"
#include "tiers/wire.h"

#define NS_PER_S 1000000000ull
#define INDEX_NR 65536

/* The index map: as the kernel's hash, an update or a delete is atomic. */
static struct {
	pthread_mutex_t lock;
	bool broken;		/* updates fail */
	struct {
		bool used;
		struct tbg_key key;
		struct tbg_entry entry;
	} at[INDEX_NR];
} idx = { .lock = PTHREAD_MUTEX_INITIALIZER };

static unsigned int idx_slot(const struct tbg_key *key)
{
	return (key->h[0] ^ key->h[1]) % INDEX_NR;
}

int bpf_map_update_elem(int fd, const void *key, const void *value, __u64 flags)
{
	unsigned int i = idx_slot(key);
	int err = 0;

	pthread_mutex_lock(&idx.lock);
	if (idx.broken || (idx.at[i].used &&
			   memcmp(&idx.at[i].key, key, sizeof(struct tbg_key))))
		err = -E2BIG;
	if (!err) {
		idx.at[i].used = true;
		memcpy(&idx.at[i].key, key, sizeof(struct tbg_key));
		memcpy(&idx.at[i].entry, value, sizeof(struct tbg_entry));
	}
	pthread_mutex_unlock(&idx.lock);
	return err;
}

int bpf_map_delete_elem(int fd, const void *key)
{
	unsigned int i = idx_slot(key);
	int err = -ENOENT;

	pthread_mutex_lock(&idx.lock);
	if (idx.at[i].used &&
	    !memcmp(&idx.at[i].key, key, sizeof(struct tbg_key))) {
		idx.at[i].used = false;
		err = 0;
	}
	pthread_mutex_unlock(&idx.lock);
	return err;
}

static bool idx_find(const struct tbg_key *key, struct tbg_entry *ret)
{
	unsigned int i = idx_slot(key);
	bool found;

	pthread_mutex_lock(&idx.lock);
	found = idx.at[i].used &&
		!memcmp(&idx.at[i].key, key, sizeof(struct tbg_key));
	if (found)
		*ret = idx.at[i].entry;
	pthread_mutex_unlock(&idx.lock);
	return found;
}

static uint64_t heat[INDEX_NR];
static const struct tbg_cache_maps maps = { .index_fd = 1, .heat = heat };

static struct tbg_plan plan_of(uint32_t slots)
{
	struct tbg_plan p = { .conns = 1 };

	for (int c = 0; c < TBG_CLASS_NR; c++)
		p.blobs += p.slots[c] = slots;
	p.entries = p.blobs;
	return p;
}

static struct tbg_cache *open_with(const struct tbg_plan *plan, bool kernel)
{
	static const uint64_t key[2] = { 1, 2 };
	struct tbg_cache *c;

	memset(idx.at, 0, sizeof(idx.at));
	memset(heat, 0, sizeof(heat));
	idx.broken = false;
	return tbg_cache_open(&c, plan, kernel ? &maps : NULL, key) ? NULL : c;
}

static struct tbg_cache *open_cache(uint32_t slots, bool kernel)
{
	struct tbg_plan plan = plan_of(slots);

	return open_with(&plan, kernel);
}

static uint64_t mix(uint64_t v)
{
	v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull;
	v = (v ^ v >> 27) * 0x94d049bb133111ebull;
	return v ^ v >> 31;
}

/* Keys whose place in idx is their number: no collisions there. */
static struct tbg_key key_of(uint32_t nr)
{
	struct tbg_key k = { { mix(nr + 1), 0 } };

	k.h[1] = mix(nr + 77777) & ~(uint64_t)(INDEX_NR - 1);
	k.h[1] |= (nr ^ k.h[0]) % INDEX_NR;
	return k;
}

static const char head[] = "HTTP/1.1 200 OK\r\n"
	"Date: \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n\r\n";
#define HEAD_LEN (sizeof(head) - 1)
#define DATE_OFF 23

static uint8_t byte_of(uint32_t nr, uint32_t version, uint32_t i)
{
	return nr * 31 + version * 7 + i;
}

static void path_of(uint32_t nr, char ret[32])
{
	snprintf(ret, 32, "/p/%u", nr);
}

static int open_draft(struct tbg_cache *c, uint32_t nr, const char *name,
		      uint32_t version, uint32_t body, struct tbg_draft *d)
{
	struct tbg_key key = key_of(nr);
	char path[32];
	int err;

	path_of(nr, path);
	err = tbg_draft_open(c, &key, 3, path, strlen(path), name,
			     2 * HEAD_LEN + 8 + body, d);
	if (err)
		return err;
	memcpy(d->blob->data, head, HEAD_LEN);
	memcpy(d->blob->data + HEAD_LEN, &nr, 4);
	memcpy(d->blob->data + HEAD_LEN + 4, &version, 4);
	for (uint32_t i = 0; i < body; i++)
		d->blob->data[HEAD_LEN + 8 + i] = byte_of(nr, version, i);
	memcpy(d->blob->data + HEAD_LEN + 8 + body, head, HEAD_LEN);
	d->blob->part[TBG_PART_GET] = (struct tbg_part){
		.off = 0, .len = HEAD_LEN + 8 + body, .date_off = DATE_OFF,
		.status = 200,
	};
	d->blob->part[TBG_PART_HEAD] = (struct tbg_part){
		.off = 0, .len = HEAD_LEN, .date_off = DATE_OFF, .status = 200,
	};
	d->blob->part[TBG_PART_304] = (struct tbg_part){
		.off = HEAD_LEN + 8 + body, .len = HEAD_LEN,
		.date_off = DATE_OFF, .status = 304,
	};
	d->object->etag_len = snprintf(d->object->etag,
				       sizeof(d->object->etag), "\"%u-%u\"", nr,
				       version);
	return 0;
}

static struct tbg_object *publish(struct tbg_cache *c, uint32_t nr,
				  const char *name, uint32_t version,
				  uint32_t body)
{
	struct tbg_object *o;
	struct tbg_draft d;

	if (open_draft(c, nr, name, version, body, &d))
		return NULL;
	return tbg_draft_publish(&d, &o) ? NULL : o;
}

/* Publishes and lets go. */
static bool store(struct tbg_cache *c, uint32_t nr, const char *name)
{
	struct tbg_object *o = publish(c, nr, name, 1, 100);

	tbg_object_put(o);
	return o;
}

static struct tbg_object *find(struct tbg_cache *c, uint32_t nr)
{
	struct tbg_key key = key_of(nr);
	char path[32];

	path_of(nr, path);
	return tbg_cache_find(c, &key, 3, path, strlen(path));
}

static bool has(struct tbg_cache *c, uint32_t nr)
{
	struct tbg_object *o = find(c, nr);

	tbg_object_put(o);
	return o;
}

/* Are these the bytes of number nr, all of one version? */
static bool blob_right(const struct tbg_blob *b, uint32_t nr,
		       uint32_t *ret_version)
{
	uint32_t body = b->part[TBG_PART_GET].len - HEAD_LEN - 8, v[2];

	if (body > 65536)
		return false;
	memcpy(v, b->data + HEAD_LEN, 8);
	*ret_version = v[1];
	if (v[0] != nr || memcmp(b->data, head, HEAD_LEN))
		return false;
	for (uint32_t i = 0; i < body; i++)
		if (b->data[HEAD_LEN + 8 + i] != byte_of(nr, v[1], i))
			return false;
	return true;
}

static uint64_t plan_bytes(const struct tbg_plan *p)
{
	/* Kernel: element and bucket of a hash; daemon: an object. */
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
	tbg_plan_make(&p, 256 << 20, 1000);	/* never less than without */
	KTAP_EQ(p.conns, 65536);
	tbg_plan_make(&p, 16 << 20, 10000000);	/* and never more than a quarter */
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

/* RFC 1071 straight from its text, over a copy with the Date cleared. */
static uint16_t plain_sum(const struct tbg_blob *b, const struct tbg_part *p)
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
			struct tbg_part *part = &d.blob->part[p];

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
		const struct tbg_part *last;
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

	/* Held by a slow reader: for as long as it takes. */
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

static int publish_leased(struct tbg_cache *c, const char *name, uint64_t seq)
{
	struct tbg_lease lease = { .seq = seq, .trusted = true };
	struct tbg_object *o;
	struct tbg_draft d;
	int err;

	err = open_draft(c, 1, name, 1, 10, &d);
	if (err)
		return err;
	d.lease = &lease;
	err = tbg_draft_publish(&d, &o);
	if (!err)
		tbg_object_put(o);
	return err;
}

KTAP_TEST(t_change_since_the_lease_refuses_the_publish)
{
	struct tbg_cache *c = open_cache(4, false);
	uint64_t seq = tbg_cache_changes(c);

	KTAP_EQ(publish_leased(c, "a/b/c", seq), 0);
	tbg_cache_withdraw_name(c, "a/b/d");
	tbg_cache_withdraw_name(c, "a/bb");
	tbg_cache_withdraw_name(c, "a/b/c/d");
	KTAP_EQ(publish_leased(c, "a/b/c", seq), 0);
	tbg_cache_withdraw_name(c, "a/b/c");
	KTAP_EQ(publish_leased(c, "a/b/c", seq), -ESTALE);
	KTAP_CHECK(!has(c, 1));
	seq = tbg_cache_changes(c);
	KTAP_EQ(publish_leased(c, "a/b/c", seq), 0);
	tbg_cache_withdraw_name(c, "a");
	KTAP_EQ(publish_leased(c, "a/b/c", seq), -ESTALE);
	seq = tbg_cache_changes(c);
	tbg_cache_withdraw_all(c);
	KTAP_EQ(publish_leased(c, "a/b/c", seq), -ESTALE);
	seq = tbg_cache_changes(c);
	tbg_cache_break_leases(c);
	KTAP_EQ(publish_leased(c, "a/b/c", seq), -ESTALE);
	seq = tbg_cache_changes(c);
	for (int i = 0; i < 4096; i++)
		tbg_cache_withdraw_name(c, "other");
	KTAP_EQ(publish_leased(c, "a/b/c", seq), 0);
	tbg_cache_withdraw_name(c, "other");
	KTAP_EQ(publish_leased(c, "a/b/c", seq), -ESTALE);
	tbg_cache_close(c);
}

/*
 * A file as a number: the writer changes it, then says so; the readers lease,
 * read, publish. Once the writer has said so, nobody finds the number before.
 */
static struct {
	struct tbg_cache *c;
	_Atomic uint32_t version;
	_Atomic bool stop;
	_Atomic uint64_t stale, published;
} race;

static void *race_publish(void *arg)
{
	while (!race.stop) {
		struct tbg_lease lease = { .seq = tbg_cache_changes(race.c) };
		uint32_t v = race.version;
		struct tbg_object *o;
		struct tbg_draft d;

		if (open_draft(race.c, 1, "d/f", v, 10, &d))
			continue;
		d.lease = &lease;
		if (tbg_draft_publish(&d, &o)) {
			race.stale++;
			continue;
		}
		race.published++;
		tbg_object_put(o);
	}
	return NULL;
}

KTAP_TEST(t_change_between_read_and_publish_is_never_lost)
{
	pthread_t threads[3];
	unsigned int bad = 0;

	memset(&race, 0, sizeof(race));
	race.c = open_cache(64, false);
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, race_publish, NULL);
	for (uint32_t v = 1; v < 30000 || (!race.stale && v < 3000000); v++) {
		struct tbg_object *o;
		uint32_t found;

		race.version = v;
		tbg_cache_withdraw_name(race.c, v % 3 ? "d/f" : "d");
		for (int i = 0; i < 3; i++) {
			o = find(race.c, 1);
			if (!o)
				continue;
			if (!blob_right(o->blob, 1, &found) || found < v)
				bad++;
			tbg_object_put(o);
		}
	}
	race.stop = true;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	tbg_cache_close(race.c);
	ktap_note("%llu published, %llu refused",
		  (unsigned long long)race.published,
		  (unsigned long long)race.stale);
	KTAP_EQ(bad, 0);
	KTAP_CHECK(race.published && race.stale);
}

/* Everything at once, with a reader that does as the BPF programs do. */
#define CROWD_KEYS 200

static struct {
	struct tbg_cache *c;
	_Atomic bool stop;
	_Atomic uint64_t bad, found, read, version;
} crowd;

static void *crowd_write(void *arg)
{
	uint64_t r = (uintptr_t)arg;
	char name[16];

	while (!crowd.stop) {
		uint32_t nr;

		r = mix(r + 1);
		nr = r % CROWD_KEYS;
		snprintf(name, sizeof(name), "%u/%u", nr % 8, nr);
		tbg_object_put(publish(crowd.c, nr, name, crowd.version++,
				       mix(r) % 3000));
		if (r >> 40 & 1)
			tbg_cache_withdraw_name(crowd.c, name);
		if (!(r >> 41 & 63))
			tbg_cache_withdraw_name(crowd.c, r & 1 ? "3" : "4");
	}
	return NULL;
}

static void *crowd_find(void *arg)
{
	uint64_t r = (uintptr_t)arg;

	while (!crowd.stop) {
		struct tbg_object *o;
		uint32_t v, nr;

		r = mix(r + 1);
		nr = r % CROWD_KEYS;
		o = find(crowd.c, nr);
		if (!o)
			continue;
		crowd.found++;
		crowd.bad += !blob_right(o->blob, nr, &v);
		if (!(r >> 40 & 31))
			tbg_object_renew(o, r);
		tbg_object_put(o);
	}
	return NULL;
}

#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
#else
#define AnnotateIgnoreReadsBegin(file, line)
#define AnnotateIgnoreReadsEnd(file, line)
#endif

/*
 * Finds blobs by number through any object's: slots are side by side. What it copies may
 * change meanwhile, as under the kernel; it looks afterwards, and throws the copy away.
 */
static void *crowd_kernel(void *arg)
{
	uint8_t *bases[TBG_CLASS_NR];
	uint64_t r = 1;

	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	memcpy(bases, arg, sizeof(bases));
	while (!crowd.stop) {
		static _Thread_local uint64_t copy[65536 / 8];
		const struct tbg_blob *b;
		struct tbg_entry e;
		struct tbg_key key;
		uint32_t nr, v, gen;

		r = mix(r + 1);
		nr = r % CROWD_KEYS;
		key = key_of(nr);
		if (!idx_find(&key, &e))
			continue;
		b = (void *)(bases[TBG_BLOB_CLASS(e.blob)] +
			     (size_t)TBG_BLOB_SLOT(e.blob) *
			     tbg_class_bytes(TBG_BLOB_CLASS(e.blob)));
		gen = __atomic_load_n(&b->gen, __ATOMIC_ACQUIRE);
		if (gen != e.gen)
			continue;
		memcpy(copy, b, tbg_class_bytes(TBG_BLOB_CLASS(e.blob)));
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (__atomic_load_n(&b->gen, __ATOMIC_RELAXED) != gen)
			continue;
		crowd.read++;
		b = (void *)copy;
		crowd.bad += !blob_right(b, nr, &v) || b->key0 != key.h[0];
	}
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
	return NULL;
}

static bool count_one(struct tbg_object *o, uint64_t hits, void *arg)
{
	++*(uint64_t *)arg;
	return true;
}

KTAP_TEST(t_bodies_are_whole_under_threads)
{
	struct tbg_plan plan = plan_of(64);
	uint8_t *bases[TBG_CLASS_NR] = { 0 };
	uint64_t now = NS_PER_S, seen = 0;
	struct tbg_cache_stats s;
	pthread_t t[6];

	memset(&crowd, 0, sizeof(crowd));
	crowd.c = open_with(&plan, true);
	for (int i = 0; i < TBG_CLASS_NR; i++) {
		struct tbg_object *o = publish(crowd.c, 1000 + i, "base", 1,
					       tbg_class_room(i) - 150);

		KTAP_CHECK(o && TBG_BLOB_CLASS(o->blob_id) == (uint32_t)i);
		bases[i] = (uint8_t *)o->blob -
			   (size_t)TBG_BLOB_SLOT(o->blob_id) *
			   tbg_class_bytes(i);
		tbg_object_put(o);
	}
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, crowd_write, (void *)(uintptr_t)i);
	for (int i = 3; i < 5; i++)
		pthread_create(&t[i], NULL, crowd_find, (void *)(uintptr_t)i);
	pthread_create(&t[5], NULL, crowd_kernel, bases);
	while (crowd.version < 60000 || crowd.read < 10000 ||
	       crowd.found < 10000) {
		tbg_cache_tick(crowd.c, now += 61 * NS_PER_S);
		usleep(200);
	}
	crowd.stop = true;
	for (int i = 0; i < 6; i++)
		pthread_join(t[i], NULL);
	tbg_cache_stats(crowd.c, &s);
	tbg_cache_each(crowd.c, count_one, &seen);
	ktap_note("%llu published, %llu found, %llu read as the kernel",
		  (unsigned long long)s.published,
		  (unsigned long long)crowd.found,
		  (unsigned long long)crowd.read);
	KTAP_EQ(crowd.bad, 0);
	KTAP_EQ(seen, s.objects);
	tbg_cache_withdraw_all(crowd.c);
	tbg_cache_tick(crowd.c, now += 61 * NS_PER_S);
	tbg_cache_tick(crowd.c, now += 61 * NS_PER_S);
	tbg_cache_stats(crowd.c, &s);
	KTAP_EQ(s.objects, 0);
	KTAP_EQ(s.in_kernel, 0);
	KTAP_EQ(s.quarantined, 0);
	KTAP_EQ(s.bytes_used, 0);
	for (int i = 0; i < INDEX_NR; i++)
		KTAP_CHECK(!idx.at[i].used);
	tbg_cache_close(crowd.c);
}

/* A request as the daemon makes it: find, else read and publish. */
static bool request(struct tbg_cache *c, uint32_t nr)
{
	if (has(c, nr))
		return true;
	tbg_object_put(publish(c, nr, NULL, 1, 1200));
	return false;
}

static void scan_against_hot_set(bool kernel)
{
	struct tbg_plan plan = plan_of(1);
	uint32_t scan = 10000, hits = 0, asked = 0;
	uint64_t now = NS_PER_S;
	struct tbg_cache *c;

	plan.slots[TBG_CLASS_2K] = 500;
	plan.blobs = plan.entries = 505;
	c = open_with(&plan, kernel);
	for (int i = 0; i < 10 * 400; i++)
		request(c, i % 400);
	/* 50,000 others once each; one request in ten is for the hot set. */
	for (int i = 0; i < 50000; i++) {
		request(c, scan + i % 50000);
		if (i % 10)
			continue;
		asked++;
		hits += request(c, mix(i) % 400);
		if (!(i % 1000))
			tbg_cache_tick(c, now += NS_PER_S);
	}
	tbg_cache_close(c);
	ktap_note("hot set: %u of %u found", hits, asked);
	KTAP_CHECK(hits >= asked / 100 * 95);
}

KTAP_TEST(t_scan_does_not_flush_the_hot_set)
{
	scan_against_hot_set(false);
}

KTAP_TEST(t_scan_does_not_flush_the_hot_set_of_the_kernel)
{
	scan_against_hot_set(true);
}

KTAP_TEST(t_hits_in_the_kernel_protect_an_object)
{
	struct tbg_plan plan = plan_of(64);
	uint64_t now = NS_PER_S;
	struct tbg_cache *c;
	int kept = 0;

	plan.slots[TBG_CLASS_4K] = 1;	/* no help from there */
	plan.blobs = plan.entries = 64 * 5 + 1;
	c = open_with(&plan, true);
	for (int i = 0; i < 64; i++)
		request(c, i);
	/* The even ones are hit at the packet, the odd ones no more. */
	for (int s = 0; s < 400; s++) {
		for (int i = 0; i < 64; i += 2) {
			struct tbg_object *o = find(c, i);

			if (!o)
				continue;
			heat[tbg_heat_index(&plan, o->blob_id)] += 100;
			tbg_object_put(o);
		}
		for (int i = 0; i < 32; i++)
			request(c, 100 + i);
		tbg_cache_tick(c, now += NS_PER_S);
	}
	for (int i = 0; i < 64; i += 2)
		kept += has(c, i);
	KTAP_EQ(kept, 32);
	/* and the newcomers have the room of the others */
	kept = 0;
	for (int i = 0; i < 32; i++)
		kept += has(c, 100 + i);
	ktap_note("%d of 32 newcomers in after 400 s", kept);
	KTAP_CHECK(kept >= 16);
	tbg_cache_close(c);
}

KTAP_TEST(t_newcomer_in_demand_gets_in)
{
	uint64_t now = NS_PER_S;
	struct tbg_cache *c = open_cache(16, true);
	struct tbg_cache_stats s;

	for (int i = 0; i < 16 + 11; i++)	/* its class and the next */
		tbg_object_put(publish(c, i, NULL, 1, 10));
	for (int i = 0; i < 50; i++) {
		KTAP_CHECK(!has(c, 1000));
		KTAP_CHECK(!publish(c, 1000, NULL, 1, 10));
	}
	tbg_cache_stats(c, &s);
	KTAP_EQ(s.evicted, 1);
	for (int i = 0; i < 62; i++)
		tbg_cache_tick(c, now += NS_PER_S);
	/* A passer-by does not take what was freed for it. */
	for (int i = 0; i < 20; i++)
		tbg_object_put(publish(c, 2000 + i, NULL, 1, 10));
	tbg_object_put(publish(c, 1000, NULL, 1, 10));
	KTAP_CHECK(has(c, 1000));
	tbg_cache_close(c);
}

KTAP_MAIN()
