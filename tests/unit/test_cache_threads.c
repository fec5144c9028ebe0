// SPDX-License-Identifier: GPL-2.0
/*
 * The cache (userd/cache/objects.c) with threads and scans: publishes that race with
 * changes, bodies that are read while they are replaced, and which objects remain when
 * more are requested than fit.
 */
#include "fake_index.h"

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
 * A file whose content is a number: the writer changes it, then reports the change;
 * readers lease, read and publish. After the report, nobody finds an older number.
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

/* All operations at once, with a reader that behaves like the BPF programs. */
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
 * Finds blobs by number relative to any object's: slots are adjacent. The copied bytes
 * may change meanwhile, as in the kernel; it checks afterwards and discards the copy.
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

/* A request as the daemon handles it: find, else read and publish. */
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
	/* 50,000 others once each; every tenth request is for the hot set. */
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

	plan.slots[TBG_CLASS_4K] = 1;	/* which is too small to help */
	plan.blobs = plan.entries = 64 * 5 + 1;
	c = open_with(&plan, true);
	for (int i = 0; i < 64; i++)
		request(c, i);
	/* even ones are hit in the kernel, odd ones no more */
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
	/* and the new ones have replaced the others */
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
	/* A one-time request does not get the slot that was freed for another object. */
	for (int i = 0; i < 20; i++)
		tbg_object_put(publish(c, 2000 + i, NULL, 1, 10));
	tbg_object_put(publish(c, 1000, NULL, 1, 10));
	KTAP_CHECK(has(c, 1000));
	tbg_cache_close(c);
}

KTAP_MAIN()
