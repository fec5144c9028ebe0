/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The structs of the object cache and the functions that its files share: objects and
 * the index (objects.c), request frequency (frequency.c), the tree of names
 * (folders.c), withdrawal (withdraw.c), and new objects (draft.c). Not to be included
 * elsewhere.
 */
#ifndef TBG_USERD_CACHE_INTERNAL_H
#define TBG_USERD_CACHE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "cache/objects.h"

#define SHARD_NR	TBG_CACHE_SHARDS
#define SHARD_BITS	6
#define CHANGE_NR	4096	/* number of changes in the log */
#define WANTED_NR	64	/* per class, see room_make() */
#define add(counter, nr) \
	atomic_fetch_add_explicit(&(counter), nr, memory_order_relaxed)

LIST_HEAD(node_list, node);
SLIST_HEAD(node_bucket, node);
SLIST_HEAD(dir_bucket, dir);

struct node {
	SLIST_ENTRY(node) bucket;	/* in the shard's table */
	uint64_t hits;			/* in the user tier; shard lock */
	struct tbg_object o;
	LIST_ENTRY(node) by_name;	/* in the bucket of its name */
	LIST_ENTRY(node) in_dir;
	struct dir *dir;
	uint64_t name_hash;
	uint32_t heat_seen;		/* shard lock */
	uint32_t heat_last;		/* when it was removed from the table */
	uint32_t gen;
	_Atomic uint32_t holds;		/* watchers, and 1 for all references together */
	_Atomic bool linked;		/* in the table; written under the shard lock */
	char text[];			/* path, then name */
};

/* A folder with objects in it or below it. nr counts files and subfolders. */
struct dir {
	SLIST_ENTRY(dir) bucket;
	struct dir *parent;
	LIST_HEAD(, dir) children;
	LIST_ENTRY(dir) sibling;
	struct node_list files;
	uint64_t hash;
	uint32_t nr;
	uint32_t len;
	char name[];
};

/*
 * Estimates how often keys were requested, found or not (TinyLFU): 8-bit counters, four
 * per key in one cache line, of which the smallest is the estimate. Halved after 32
 * requests per line, which is 16 to 32 times the number of objects that fit: with more,
 * the counts of a scan blur it; with fewer, rarely requested keys are forgotten.
 */
struct sketch {
	uint8_t (*lines)[64];
	uint64_t mask;
	uint32_t asked, age_at;
};

struct shard {
	pthread_mutex_t lock;
	struct node_bucket *buckets;
	uint64_t mask;
	uint32_t nr;
	struct sketch sketch;
	uint64_t hits, misses;
} __attribute__((aligned(64)));

struct tbg_cache {
	struct shard shards[SHARD_NR];
	struct tbg_plan plan;
	struct tbg_blob_slots *slots;
	const struct tbg_cache_maps *maps;
	uint64_t hash_key[2];
	uint64_t bytes_budget;

	pthread_mutex_t names;
	struct node_list *name_buckets;
	struct dir_bucket *dir_buckets;
	uint64_t name_mask, dir_mask;
	_Atomic uint64_t changes;	/* written with `names` held */
	uint64_t all_changed;		/* number of the last change that concerned everything */
	uint64_t change[CHANGE_NR];	/* hashes of the changed names */

	_Atomic bool pressed[TBG_CLASS_NR];	/* a good candidate was refused */
	_Atomic uint64_t wanted[TBG_CLASS_NR][WANTED_NR];
	unsigned int ticks;
	unsigned int tick_shard;	/* next shard for shard_tick() */
	_Atomic uint32_t seed;

	_Atomic uint64_t objects, in_kernel, bytes_used;
	_Atomic uint64_t published, withdrawn, evicted, refused;
	_Atomic uint64_t stale, index_failed;
};

static inline struct node *node_of(struct tbg_object *o)
{
	return (struct node *)((char *)o - offsetof(struct node, o));
}

static inline struct shard *shard_of(struct tbg_cache *c, const struct tbg_key *key)
{
	return &c->shards[key->h[0] % SHARD_NR];
}

static inline struct node_bucket *bucket_of(struct shard *sh, const struct tbg_key *key)
{
	return &sh->buckets[(key->h[0] >> SHARD_BITS) & sh->mask];
}

static inline uint8_t *sketch_at(const struct sketch *s, const struct tbg_key *key,
				 unsigned int row)
{
	return &s->lines[key->h[1] & s->mask]
			[row * 16 + (key->h[1] >> (40 + row * 4) & 15)];
}

/* objects.c */
int tbg_cache_index_update(struct tbg_cache *c, struct node *n);
void tbg_cache_node_hold(void *owner);
/*
 * Returns the estimate including hits in the kernel since the last tick: otherwise a
 * scan could evict an object that has just become popular. Takes no lock: a concurrent
 * tick makes the result wrong once, by the hits of one tick.
 */
uint32_t tbg_cache_node_weight(void *owner);
/*
 * Removes n from the table. Called with `names` and the shard lock held. Drops the
 * table's reference, so n may be freed.
 */
void tbg_cache_unlink_node(struct tbg_cache *c, struct shard *sh, struct node *n,
			   bool from_index);

/* frequency.c */
/* Any thread, no lock: the counters are single bytes. */
uint32_t tbg_cache_sketch_ask(const struct sketch *s, const struct tbg_key *key);
void tbg_cache_sketch_halve(struct sketch *s);
/* Raises only the lowest counters. Called with the shard lock held. */
void tbg_cache_sketch_add(struct sketch *s, const struct tbg_key *key, uint32_t nr);
void tbg_cache_sketch_count(struct sketch *s, const struct tbg_key *key);

/* folders.c */
/* Frees a folder without children, and its ancestors that become empty. */
void tbg_cache_dir_prune(struct tbg_cache *c, struct dir *d);
int tbg_cache_name_enter(struct tbg_cache *c, struct node *n);
void tbg_cache_name_leave(struct tbg_cache *c, struct node *n);
/*
 * Returns whether name or a folder above it has changed since change number seq. Called
 * with `names` held.
 */
bool tbg_cache_name_changed(const struct tbg_cache *c, const char *name, uint64_t seq);

/* withdraw.c */
unsigned int tbg_cache_withdraw_node(struct tbg_cache *c, struct node *n);
/* Withdraws everything in or below a folder, which is freed with the last object. */
unsigned int tbg_cache_withdraw_folder(struct tbg_cache *c, struct dir *top);
/*
 * Withdraws the objects of the file named by the first len bytes of name, and logs the
 * change.
 */
unsigned int tbg_cache_withdraw_file(struct tbg_cache *c, const char *name, size_t len);

#endif
