/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the parts of the cache of objects have in common: its structs, and what they
 * call of each other. Objects and the index (objects.c), how often each is asked for
 * (frequency.c), the tree of names (folders.c), withdrawal (withdraw.c), and what
 * becomes an object (draft.c). For this folder alone.
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
#define CHANGE_NR	4096	/* changes the log holds */
#define WANTED_NR	64	/* per class, see room_make() */
#define add(counter, nr) \
	atomic_fetch_add_explicit(&(counter), nr, memory_order_relaxed)

LIST_HEAD(node_list, node);
SLIST_HEAD(node_bucket, node);
SLIST_HEAD(dir_bucket, dir);

struct node {
	SLIST_ENTRY(node) bucket;	/* of the shard */
	uint64_t hits;			/* user tier; shard lock */
	struct tbg_object o;
	LIST_ENTRY(node) by_name;	/* in the name's bucket */
	LIST_ENTRY(node) in_dir;
	struct dir *dir;
	uint64_t name_hash;
	uint32_t heat_seen;		/* shard lock */
	uint32_t heat_last;		/* when it was taken out of the table */
	uint32_t gen;
	_Atomic uint32_t holds;		/* who watches it, and all references */
	_Atomic bool linked;		/* in the table; written under the shard lock */
	char text[];			/* path, name */
};

/* A folder with objects in or below it. nr counts both kinds of children. */
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
 * How often keys were asked for, found or not (TinyLFU): 8-bit counters, four
 * per key in one cache line, the least of which is the estimate. Halved after
 * 32 questions per line, 16 to 32 times the objects there is room for: more and
 * a scan's own counts blur it, fewer and what is asked for rarely is forgotten.
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
	_Atomic uint64_t changes;	/* written under names */
	uint64_t all_changed;		/* number of the last change of all */
	uint64_t change[CHANGE_NR];	/* hashes of the changed names */

	_Atomic bool pressed[TBG_CLASS_NR];	/* something good was refused */
	_Atomic uint64_t wanted[TBG_CLASS_NR][WANTED_NR];
	unsigned int ticks;
	unsigned int tick_shard;	/* next of shard_tick() */
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
 * What the sketch will say at the next tick: a burst of hits in the kernel
 * counts at once, or a scan evicts what has just become hot. No lock: a tick at
 * this very moment makes it wrong by one tick's hits, once.
 */
uint32_t tbg_cache_node_weight(void *owner);
/*
 * Takes n out of the table. names and the shard lock held. Drops the table's
 * reference, so n may be gone afterwards.
 */
void tbg_cache_unlink_node(struct tbg_cache *c, struct shard *sh, struct node *n,
			   bool from_index);

/* frequency.c */
/* Any thread, no lock: the counters are single bytes. */
uint32_t tbg_cache_sketch_ask(const struct sketch *s, const struct tbg_key *key);
void tbg_cache_sketch_halve(struct sketch *s);
/* Raises only the counters that stand lowest. Shard lock held. */
void tbg_cache_sketch_add(struct sketch *s, const struct tbg_key *key, uint32_t nr);
void tbg_cache_sketch_count(struct sketch *s, const struct tbg_key *key);

/* folders.c */
/* Frees a folder without children, and those above it that become so. */
void tbg_cache_dir_prune(struct tbg_cache *c, struct dir *d);
int tbg_cache_name_enter(struct tbg_cache *c, struct node *n);
void tbg_cache_name_leave(struct tbg_cache *c, struct node *n);
/* Has name, or a folder above it, changed since change number seq? names held */
bool tbg_cache_name_changed(const struct tbg_cache *c, const char *name, uint64_t seq);

/* withdraw.c */
unsigned int tbg_cache_withdraw_node(struct tbg_cache *c, struct node *n);
/* Withdraws what is in or below a folder, which goes away with the last. */
unsigned int tbg_cache_withdraw_folder(struct tbg_cache *c, struct dir *top);
/* The objects of the first len bytes of name, and the news of them. */
unsigned int tbg_cache_withdraw_file(struct tbg_cache *c, const char *name, size_t len);

#endif
