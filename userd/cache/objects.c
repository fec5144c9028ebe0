// SPDX-License-Identifier: GPL-2.0
/*
 * Objects by key and by file name, with admission by popularity. Called by workers
 * (find, publish), the watch (withdraw by name) and the control thread. Must never
 * return another object's bytes for a key, nor, once a change is known, bytes from
 * before it.
 *
 * Locks, outermost first:
 *
 * names: the index by file name, the log of changes
 * shard: the table by key, in 64 parts; the entry in the index map
 * pool: slots (cache/slots.c)
 *
 * A hit takes one shard lock. Publishing and withdrawing take names, then a shard, and
 * write the index map inside both, so the map's writes for a key have the same order as
 * the table's.
 *
 * No change is lost between reading a file and publishing it: a lease holds the number
 * of changes from before the file was opened. A change is logged and applied to the
 * table in one critical section of names; a publish checks the log and enters the table
 * in one critical section of names. So either the change came first and is found in the
 * log (-ESTALE), or the object came first and the change withdraws it.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cache/objects.h"
#include "cache/internal.h"
#include "os/refcount.h"

#define ASKED_PER_LINE	32	/* per line of a sketch, before it is halved */
#define TICK_NODES	16384	/* approximate number of nodes whose kernel hits one tick counts */
#define WANTED_TICKS	(2 * TBG_QUARANTINE_S)
#define sub(counter, nr) \
	atomic_fetch_sub_explicit(&(counter), nr, memory_order_relaxed)

static uint64_t round_up_pow2(uint64_t v)
{
	uint64_t p = 1;

	while (p < v)
		p <<= 1;
	return p;
}

static int shard_open(struct shard *sh, uint32_t blobs)
{
	uint64_t buckets = round_up_pow2(blobs / SHARD_NR + 1);
	uint64_t lines = round_up_pow2(blobs / (2 * SHARD_NR) + 4);

	pthread_mutex_init(&sh->lock, NULL);
	sh->mask = buckets - 1;
	sh->buckets = calloc(buckets, sizeof(*sh->buckets));
	sh->sketch.mask = lines - 1;
	sh->sketch.lines = aligned_alloc(64, lines * 64);
	if (!sh->buckets || !sh->sketch.lines)
		return -ENOMEM;
	memset(sh->sketch.lines, 0, lines * 64);
	sh->sketch.age_at = lines * ASKED_PER_LINE;
	return 0;
}

int tbg_cache_open(struct tbg_cache **ret, const struct tbg_plan *plan,
		   const struct tbg_cache_maps *maps, const uint64_t key[2])
{
	struct tbg_cache *c;
	int err = -ENOMEM;

	c = aligned_alloc(64, sizeof(*c));
	if (!c)
		return -ENOMEM;
	memset(c, 0, sizeof(*c));
	c->plan = *plan;
	c->maps = maps;
	memcpy(c->hash_key, key, sizeof(c->hash_key));
	for (int i = 0; i < TBG_CLASS_NR; i++)
		c->bytes_budget += (uint64_t)plan->slots[i] * tbg_class_bytes(i);
	pthread_mutex_init(&c->names, NULL);
	c->name_mask = round_up_pow2(plan->blobs + 1) - 1;
	c->dir_mask = round_up_pow2(plan->blobs / 8 + 16) - 1;
	c->name_buckets = calloc(c->name_mask + 1, sizeof(*c->name_buckets));
	c->dir_buckets = calloc(c->dir_mask + 1, sizeof(*c->dir_buckets));
	if (!c->name_buckets || !c->dir_buckets)
		goto fail;
	for (int i = 0; i < SHARD_NR; i++)
		if (shard_open(&c->shards[i], plan->blobs))
			goto fail;
	err = tbg_blob_slots_open(&c->slots, plan, maps ? maps->blobs : NULL);
	if (err)
		goto fail;
	*ret = c;
	return 0;
fail:
	tbg_cache_close(c);
	return err;
}

const uint64_t *tbg_cache_hash_key(const struct tbg_cache *c)
{
	return c->hash_key;
}

uint64_t tbg_cache_changes(const struct tbg_cache *c)
{
	return atomic_load_explicit(&((struct tbg_cache *)c)->changes,
				    memory_order_acquire);
}

/* The index has changed: from now on, the kernel tiers give no answer that they have kept. */
static void index_changed(struct tbg_cache *c)
{
	if (c->maps->published)
		__atomic_fetch_add(c->maps->published, 1, __ATOMIC_SEQ_CST);
}

static void index_delete(struct tbg_cache *c, struct node *n)
{
	int err = bpf_map_delete_elem(c->maps->index_fd, &n->o.key);

	/*
	 * Even if this fails, the object must not be found any more: with generation 0,
	 * the blob matches no entry. A reply in progress is then reset rather than
	 * retransmitted.
	 */
	if (err && err != -ENOENT)
		__atomic_store_n((uint32_t *)&n->o.blob->gen, 0,
				 __ATOMIC_RELEASE);
	index_changed(c);
}

int tbg_cache_index_update(struct tbg_cache *c, struct node *n)
{
	struct tbg_object *o = &n->o;
	struct tbg_entry e = {
		.blob = o->blob_id,
		.gen = n->gen,
		.expires_ns = atomic_load(&o->expires_ns),
		.born_ns = o->born_ns,
		.vhost = o->vhost,
		.path_len = o->path_len,
		.etag_len = o->etag_len,
		.flags = o->flags,
		.modified_s = o->modified_s,
		.encoding = o->encoding,
		.variants = atomic_load(&o->variants),
	};
	int err;

	memcpy(e.etag, o->etag, sizeof(e.etag));
	memcpy(e.path, o->path, o->path_len);
	err = bpf_map_update_elem(c->maps->index_fd, &o->key, &e, BPF_ANY);
	index_changed(c);
	return err;
}

void tbg_cache_node_hold(void *owner)
{
	struct node *n = owner;

	atomic_fetch_add_explicit(&n->o.refs, 1, memory_order_relaxed);
}

static uint32_t heat_of(const struct tbg_cache *c, const struct node *n)
{
	if (!n->o.in_kernel || !c->maps->heat)
		return 0;
	return __atomic_load_n(&c->maps->heat[tbg_heat_index(&c->plan,
							     n->o.blob_id)],
			       __ATOMIC_RELAXED);
}

bool tbg_object_known(const struct tbg_object *o)
{
	return atomic_load(&node_of((struct tbg_object *)o)->linked);
}

uint64_t tbg_object_heat(const struct tbg_object *o)
{
	struct node *n = node_of((struct tbg_object *)o);

	return atomic_load(&n->linked) ? heat_of(o->cache, n) : n->heat_last;
}

uint32_t tbg_cache_node_weight(void *owner)
{
	struct node *n = owner;
	struct tbg_cache *c = n->o.cache;
	uint32_t v = tbg_cache_sketch_ask(&shard_of(c, &n->o.key)->sketch, &n->o.key);
	uint32_t nr = heat_of(c, n) - __atomic_load_n(&n->heat_seen,
						      __ATOMIC_RELAXED);

	return nr < UINT8_MAX - v ? v + nr : UINT8_MAX;
}

void tbg_object_get(struct tbg_object *o)
{
	tbg_refcount_get(&o->refs);
}

void tbg_object_put(struct tbg_object *o)
{
	if (!o || !tbg_refcount_put(&o->refs))
		return;
	tbg_slot_give(o->cache->slots, o->blob_id, o->in_kernel);
	tbg_object_unwatch(o);
}

void tbg_object_watch(struct tbg_object *o)
{
	add(node_of(o)->holds, 1);
	tbg_object_put(o);
}

void tbg_object_unwatch(struct tbg_object *o)
{
	struct node *n = node_of(o);

	if (tbg_refcount_put(&n->holds))
		free(n);
}

static struct tbg_object *object_find(struct tbg_cache *c, const struct tbg_key *key,
				      uint32_t vhost, const char *path, size_t path_len,
				      bool counted)
{
	struct shard *sh = shard_of(c, key);
	struct node *n;

	__builtin_prefetch(bucket_of(sh, key));
	__builtin_prefetch(sketch_at(&sh->sketch, key, 0), 1);
	pthread_mutex_lock(&sh->lock);
	__builtin_prefetch(SLIST_FIRST(bucket_of(sh, key)), 1);
	tbg_cache_sketch_count(&sh->sketch, key);
	SLIST_FOREACH(n, bucket_of(sh, key), bucket)
		if (n->o.key.h[0] == key->h[0] && n->o.key.h[1] == key->h[1])
			break;
	if (n && n->o.vhost == vhost && n->o.path_len == path_len &&
	    !memcmp(n->o.path, path, path_len)) {
		tbg_cache_node_hold(n);
		n->hits += counted;
		sh->hits += counted;
	} else {
		n = NULL;
		sh->misses += counted;
	}
	pthread_mutex_unlock(&sh->lock);
	return n ? &n->o : NULL;
}

struct tbg_object *tbg_cache_find(struct tbg_cache *c,
				  const struct tbg_key *key, uint32_t vhost,
				  const char *path, size_t path_len)
{
	return object_find(c, key, vhost, path, path_len, true);
}

struct tbg_object *tbg_cache_look(struct tbg_cache *c,
				  const struct tbg_key *key, uint32_t vhost,
				  const char *path, size_t path_len)
{
	return object_find(c, key, vhost, path, path_len, false);
}

void tbg_cache_unlink_node(struct tbg_cache *c, struct shard *sh, struct node *n,
			   bool from_index)
{
	SLIST_REMOVE(bucket_of(sh, &n->o.key), n, node, bucket);
	n->heat_last = heat_of(c, n);
	n->linked = false;
	sh->nr--;
	if (n->o.name)
		tbg_cache_name_leave(c, n);
	if (n->o.in_kernel) {
		if (from_index)
			index_delete(c, n);
		sub(c->in_kernel, 1);
	}
	tbg_slot_own(c->slots, n->o.blob_id, NULL);
	sub(c->objects, 1);
	sub(c->bytes_used, tbg_class_bytes(TBG_BLOB_CLASS(n->o.blob_id)));
	tbg_object_put(&n->o);
}

/* Updates the kernel's entry. Called with the shard lock held. */
static void node_update(struct tbg_cache *c, struct node *n)
{
	if (n->linked && n->o.in_kernel && tbg_cache_index_update(c, n))
		add(c->index_failed, 1);
}

void tbg_object_renew(struct tbg_object *o, uint64_t expires_ns)
{
	struct shard *sh = shard_of(o->cache, &o->key);

	pthread_mutex_lock(&sh->lock);
	atomic_store(&o->expires_ns, expires_ns);
	/* if this fails, the kernel has the old expiry and passes requests up */
	node_update(o->cache, node_of(o));
	pthread_mutex_unlock(&sh->lock);
}

void tbg_object_vary(struct tbg_object *o, unsigned int variants)
{
	struct shard *sh = shard_of(o->cache, &o->key);

	pthread_mutex_lock(&sh->lock);
	atomic_store(&o->variants, variants);
	/* if this fails, the kernel passes up requests for unknown variants */
	node_update(o->cache, node_of(o));
	pthread_mutex_unlock(&sh->lock);
}

struct seen {
	struct node *n;
	uint64_t hits;
};

/* Returns false if fn has returned false. */
static bool shard_visit(struct tbg_cache *c, struct shard *sh,
			bool (*fn)(struct tbg_object *o, uint64_t hits,
				   void *arg),
			void *arg)
{
	struct seen *seen;
	struct node *n;
	uint32_t nr = 0;
	bool more = true;

	pthread_mutex_lock(&sh->lock);
	seen = malloc((sh->nr + 1) * sizeof(*seen));
	for (uint64_t b = 0; seen && b <= sh->mask; b++)
		SLIST_FOREACH(n, &sh->buckets[b], bucket) {
			tbg_cache_node_hold(n);
			seen[nr++] = (struct seen){
				n, n->hits + heat_of(c, n)
			};
		}
	pthread_mutex_unlock(&sh->lock);
	for (uint32_t i = 0; i < nr; i++) {
		more = more && fn(&seen[i].n->o, seen[i].hits, arg);
		tbg_object_put(&seen[i].n->o);
	}
	free(seen);
	return more;
}

void tbg_cache_shard(struct tbg_cache *c, unsigned int shard,
		     bool (*fn)(struct tbg_object *o, uint64_t hits, void *arg),
		     void *arg)
{
	shard_visit(c, &c->shards[shard % SHARD_NR], fn, arg);
}

void tbg_cache_each(struct tbg_cache *c,
		    bool (*fn)(struct tbg_object *o, uint64_t hits, void *arg),
		    void *arg)
{
	for (int i = 0; i < SHARD_NR; i++)
		if (!shard_visit(c, &c->shards[i], fn, arg))
			return;
}

void tbg_cache_stats(struct tbg_cache *c, struct tbg_cache_stats *ret)
{
	struct tbg_cache_stats s = {
		.objects = c->objects,
		.in_kernel = c->in_kernel,
		.bytes_used = c->bytes_used,
		.bytes_budget = c->bytes_budget,
		.published = c->published,
		.withdrawn = c->withdrawn,
		.evicted = c->evicted,
		.refused = c->refused,
		.stale = c->stale,
		.index_failed = c->index_failed,
	};

	for (int i = 0; i < SHARD_NR; i++) {
		struct shard *sh = &c->shards[i];

		pthread_mutex_lock(&sh->lock);
		s.hits += sh->hits;
		s.misses += sh->misses;
		pthread_mutex_unlock(&sh->lock);
	}
	for (int i = 0; i < TBG_CLASS_NR; i++) {
		struct tbg_blob_slots_use use;

		tbg_blob_slots_use(c->slots, i, &use);
		s.quarantined += use.resting;
	}
	*ret = s;
}

/*
 * Adds the kernel's hits since the last tick to the sketch. They are many and arrive in
 * bursts, so they age it at most once per tick. Returns the number of nodes.
 */
static uint32_t shard_tick(struct tbg_cache *c, struct shard *sh)
{
	uint64_t fed = 0;
	struct node *n;
	uint32_t ret;

	pthread_mutex_lock(&sh->lock);
	ret = sh->nr;
	for (uint64_t b = 0; ret && b <= sh->mask; b++)
		SLIST_FOREACH(n, &sh->buckets[b], bucket) {
			uint32_t heat = heat_of(c, n);
			uint32_t nr = heat - n->heat_seen;

			if (!nr)
				continue;
			n->heat_seen = heat;
			nr = nr < UINT8_MAX ? nr : UINT8_MAX;
			tbg_cache_sketch_add(&sh->sketch, &n->o.key, nr);
			fed += nr;
		}
	fed += sh->sketch.asked;
	sh->sketch.asked = fed < UINT32_MAX ? fed : UINT32_MAX;
	if (sh->sketch.asked >= sh->sketch.age_at)
		tbg_cache_sketch_halve(&sh->sketch);
	pthread_mutex_unlock(&sh->lock);
	return ret;
}

void tbg_cache_tick(struct tbg_cache *c, uint64_t now_ns)
{
	uint32_t nodes = 0;

	tbg_blob_slots_tick(c->slots, now_ns);
	if (c->maps && c->maps->heat)
		for (int i = 0; i < SHARD_NR && nodes < TICK_NODES; i++)
			nodes += shard_tick(c, &c->shards[c->tick_shard++ %
							  SHARD_NR]);
	if (++c->ticks % WANTED_TICKS)
		return;
	for (int i = 0; i < TBG_CLASS_NR; i++)
		for (int j = 0; j < WANTED_NR; j++)
			atomic_store_explicit(&c->wanted[i][j], 0,
					      memory_order_relaxed);
}

/* Called after the workers have stopped. Remaining references must not be put. */
void tbg_cache_close(struct tbg_cache *c)
{
	if (!c)
		return;
	for (int i = 0; i < SHARD_NR; i++) {
		struct shard *sh = &c->shards[i];

		for (uint64_t b = 0; sh->buckets && b <= sh->mask; b++)
			while (!SLIST_EMPTY(&sh->buckets[b]))
				tbg_cache_unlink_node(c, sh, SLIST_FIRST(&sh->buckets[b]), false);
		free(sh->buckets);
		free(sh->sketch.lines);
	}
	tbg_blob_slots_close(c->slots);
	free(c->name_buckets);
	free(c->dir_buckets);
	free(c);
}
