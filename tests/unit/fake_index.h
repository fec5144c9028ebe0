/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A cache (userd/cache/) whose index map is a table here, so that tests need no
 * privilege and can check the kernel's view; and objects whose bytes contain their
 * number and version. tbg_cache_tick() gets its time from the test. Include it once per
 * test.
 */
#ifndef TBG_TESTS_UNIT_FAKE_INDEX_H
#define TBG_TESTS_UNIT_FAKE_INDEX_H

#include <bpf/bpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "cache/objects.h"
#include "core/csum.h"
#include "core/span.h"
#include "files/watch.h"
#include "ktap.h"
#include "tiers/wire.h"

#define NS_PER_S 1000000000ull
#define INDEX_NR 65536

/* The index map: updates and deletes are atomic, as in the kernel's hash. */
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

/* Returns a key whose position in idx is its number: no collisions. */
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
	d->blob->part[TBG_PART_GET] = (struct tbg_blob_part){
		.off = 0, .len = HEAD_LEN + 8 + body, .date_off = DATE_OFF,
		.status = 200,
	};
	d->blob->part[TBG_PART_HEAD] = (struct tbg_blob_part){
		.off = 0, .len = HEAD_LEN, .date_off = DATE_OFF, .status = 200,
	};
	d->blob->part[TBG_PART_304] = (struct tbg_blob_part){
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

/* Publishes and releases an object. */
__attribute__((unused))
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

/* Returns whether all bytes belong to number nr and to one version. */
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

#endif
