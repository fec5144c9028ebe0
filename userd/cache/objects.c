// SPDX-License-Identifier: GPL-2.0
/*
 * Objects by key and by file name, and which of them are worth their slot.
 * Called by the workers (find, publish), the watch (withdraw by name) and the
 * control thread. Must never let a key lead to bytes of another object or, once
 * a change is known, to bytes from before it.
 *
 * Locks, outermost first:
 *
 *	names	the index by file name, the log of changes
 *	shard	the table by key, one of 64 parts; the entry in the index map
 *	pool	slots (cache/slots.c)
 *
 * A hit takes one shard lock. Publishing and withdrawing take names, then a
 * shard, and write the index map inside both, so that the map's order of
 * writes for a key is the table's.
 *
 * No change is lost between reading a file and publishing it: a lease holds the
 * number of changes from before the file was opened. A change is logged and
 * applied to the table in one critical section of names, and a publish looks at
 * the log and enters the table in one critical section of names. So either the
 * change came first and is found in the log (-ESTALE), or the object came first
 * and the change withdraws it.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cache/objects.h"
#include "core/csum.h"
#include "files/root.h"
#include "files/watch.h"
#include "tiers/wire.h"

#define SHARD_NR	TBG_CACHE_SLICES
#define SHARD_BITS	6
#define CHANGE_NR	4096	/* changes the log holds */
#define DEPTH_MAX	64	/* folders of a name the log is searched for */
#define SAMPLE_NR	16	/* objects an eviction chooses from */
#define ASKED_PER_LINE	32	/* of a sketch, before it is halved */
#define TICK_NODES	16384	/* whose hits in the kernel a tick counts, about */
#define WANTED_NR	64	/* per class, see room_make() */
#define WANTED_TICKS	(2 * TBG_QUARANTINE_S)

_Static_assert(1 << SHARD_BITS == SHARD_NR, "shards");

struct node {
	struct node *next;		/* in the shard's bucket */
	uint64_t hits;			/* user tier; shard lock */
	struct tbg_object o;
	struct node *name_next, **name_prev;
	struct node *dir_next, **dir_prev;
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
	struct dir *next;		/* in the bucket */
	struct dir *parent, *child, *sib_next, **sib_prev;
	struct node *files;
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
	struct node **buckets;
	uint64_t mask;
	uint32_t nr;
	struct sketch sketch;
	uint64_t hits, misses;
} __attribute__((aligned(64)));

struct tbg_cache {
	struct shard shards[SHARD_NR];
	struct tbg_plan plan;
	struct tbg_blob_slots *store;
	const struct tbg_maps *maps;
	uint64_t hash_key[2];
	uint64_t bytes_budget;

	pthread_mutex_t names;
	struct node **name_buckets;
	struct dir **dir_buckets;
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

#define add(counter, nr) \
	atomic_fetch_add_explicit(&(counter), nr, memory_order_relaxed)
#define sub(counter, nr) \
	atomic_fetch_sub_explicit(&(counter), nr, memory_order_relaxed)

static struct node *node_of(struct tbg_object *o)
{
	return (struct node *)((char *)o - offsetof(struct node, o));
}

static struct shard *shard_of(struct tbg_cache *c, const struct tbg_key *key)
{
	return &c->shards[key->h[0] % SHARD_NR];
}

static struct node **bucket_of(struct shard *sh, const struct tbg_key *key)
{
	return &sh->buckets[(key->h[0] >> SHARD_BITS) & sh->mask];
}

static uint64_t round_up_pow2(uint64_t v)
{
	uint64_t p = 1;

	while (p < v)
		p <<= 1;
	return p;
}

/* Frequency */

static uint8_t *sketch_at(const struct sketch *s, const struct tbg_key *key,
			  unsigned int row)
{
	return &s->lines[key->h[1] & s->mask]
			[row * 16 + (key->h[1] >> (40 + row * 4) & 15)];
}

/* Any thread, no lock: the counters are single bytes. */
static uint32_t sketch_ask(const struct sketch *s, const struct tbg_key *key)
{
	uint8_t least = UINT8_MAX;

	for (unsigned int row = 0; row < 4; row++) {
		uint8_t v = __atomic_load_n(sketch_at(s, key, row),
					    __ATOMIC_RELAXED);

		least = v < least ? v : least;
	}
	return least;
}

static void sketch_halve(struct sketch *s)
{
	uint64_t *words = (uint64_t *)s->lines;

	for (uint64_t i = 0; i < (s->mask + 1) * 8; i++) {
		uint64_t w = __atomic_load_n(&words[i], __ATOMIC_RELAXED);

		if (w)
			__atomic_store_n(&words[i],
					 w >> 1 & 0x7f7f7f7f7f7f7f7full,
					 __ATOMIC_RELAXED);
	}
	s->asked = 0;
}

/* Raises only the counters that stand lowest. Shard lock held. */
static void sketch_add(struct sketch *s, const struct tbg_key *key,
		       uint32_t nr)
{
	uint32_t v = sketch_ask(s, key) + nr;

	if (v > UINT8_MAX)
		v = UINT8_MAX;
	for (unsigned int row = 0; row < 4; row++) {
		uint8_t *at = sketch_at(s, key, row);

		if (__atomic_load_n(at, __ATOMIC_RELAXED) < v)
			__atomic_store_n(at, (uint8_t)v, __ATOMIC_RELAXED);
	}
}

static void sketch_count(struct sketch *s, const struct tbg_key *key)
{
	sketch_add(s, key, 1);
	if (++s->asked >= s->age_at)
		sketch_halve(s);
}

/* Opening and closing */

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
		   const struct tbg_maps *maps, const uint64_t key[2])
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
	err = tbg_blob_slots_open(&c->store, plan, maps ? maps->blobs : NULL);
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

/* The index by file name; all of it under names */

static struct dir *dir_find(struct tbg_cache *c, const char *name, size_t len,
			    uint64_t hash)
{
	struct dir *d = c->dir_buckets[hash & c->dir_mask];

	while (d && (d->hash != hash || d->len != len ||
		     memcmp(d->name, name, len)))
		d = d->next;
	return d;
}

/* The folder of the first len bytes of name, and those above it. */
static struct dir *dir_make(struct tbg_cache *c, const char *name, size_t len)
{
	uint64_t hash = tbg_name_hash(name, len);
	struct dir *d = dir_find(c, name, len, hash), *up = NULL;
	size_t up_len = len;

	if (d)
		return d;
	d = calloc(1, sizeof(*d) + len);
	if (!d)
		return NULL;
	d->hash = hash;
	d->len = len;
	memcpy(d->name, name, len);
	while (up_len && name[up_len - 1] != '/')
		up_len--;
	if (up_len)
		up = dir_make(c, name, up_len - 1);
	if (up_len && !up) {
		free(d);
		return NULL;
	}
	if (up) {
		d->parent = up;
		d->sib_next = up->child;
		d->sib_prev = &up->child;
		if (up->child)
			up->child->sib_prev = &d->sib_next;
		up->child = d;
		up->nr++;
	}
	d->next = c->dir_buckets[hash & c->dir_mask];
	c->dir_buckets[hash & c->dir_mask] = d;
	return d;
}

/* Frees a folder without children, and those above it that become so. */
static void dir_prune(struct tbg_cache *c, struct dir *d)
{
	while (d && !d->nr) {
		struct dir **at = &c->dir_buckets[d->hash & c->dir_mask];
		struct dir *up = d->parent;

		while (*at != d)
			at = &(*at)->next;
		*at = d->next;
		if (up) {
			*d->sib_prev = d->sib_next;
			if (d->sib_next)
				d->sib_next->sib_prev = d->sib_prev;
			up->nr--;
		}
		free(d);
		d = up;
	}
}

static int name_enter(struct tbg_cache *c, struct node *n)
{
	const char *name = n->o.name, *slash = strrchr(name, '/');
	struct node **at = &c->name_buckets[n->name_hash & c->name_mask];
	struct dir *d = NULL;

	if (slash) {
		d = dir_make(c, name, slash - name);
		if (!d)
			return -ENOMEM;
		n->dir = d;
		n->dir_next = d->files;
		n->dir_prev = &d->files;
		if (d->files)
			d->files->dir_prev = &n->dir_next;
		d->files = n;
		d->nr++;
	}
	n->name_next = *at;
	n->name_prev = at;
	if (*at)
		(*at)->name_prev = &n->name_next;
	*at = n;
	return 0;
}

static void name_leave(struct tbg_cache *c, struct node *n)
{
	*n->name_prev = n->name_next;
	if (n->name_next)
		n->name_next->name_prev = n->name_prev;
	if (!n->dir)
		return;
	*n->dir_prev = n->dir_next;
	if (n->dir_next)
		n->dir_next->dir_prev = n->dir_prev;
	n->dir->nr--;
	dir_prune(c, n->dir);
}

/* Has name, or a folder above it, changed since change number seq? names held */
static bool name_changed(const struct tbg_cache *c, const char *name,
			 uint64_t seq)
{
	uint64_t now = tbg_cache_changes(c), hashes[DEPTH_MAX];
	unsigned int nr = 0;

	if (now == seq)
		return false;
	if (c->all_changed > seq || now - seq > CHANGE_NR)
		return true;
	hashes[nr++] = tbg_name_hash(name, strlen(name));
	for (const char *p = strchr(name, '/'); p; p = strchr(p + 1, '/')) {
		if (nr == DEPTH_MAX)
			return true;
		hashes[nr++] = tbg_name_hash(name, p - name);
	}
	for (; seq != now; seq++)
		for (unsigned int i = 0; i < nr; i++)
			if (c->change[seq % CHANGE_NR] == hashes[i])
				return true;
	return false;
}

bool tbg_cache_changed(struct tbg_cache *c, const char *name, uint64_t *seq)
{
	bool ret;

	if (tbg_cache_changes(c) == *seq)
		return false;
	pthread_mutex_lock(&c->names);
	ret = name_changed(c, name, *seq);
	*seq = tbg_cache_changes(c);
	pthread_mutex_unlock(&c->names);
	return ret;
}

/* The index map; the key's shard lock held */

static void index_delete(struct tbg_cache *c, struct node *n)
{
	int err = bpf_map_delete_elem(c->maps->index_fd, &n->o.key);

	/*
	 * It must not be found any more, whatever the map says: without a
	 * generation the blob fits no entry. A reply under way is then reset
	 * rather than repeated.
	 */
	if (err && err != -ENOENT)
		__atomic_store_n((uint32_t *)&n->o.blob->gen, 0,
				 __ATOMIC_RELEASE);
}

static int index_update(struct tbg_cache *c, struct node *n)
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

	memcpy(e.etag, o->etag, sizeof(e.etag));
	memcpy(e.path, o->path, o->path_len);
	return bpf_map_update_elem(c->maps->index_fd, &o->key, &e, BPF_ANY);
}

/* Objects */

static void node_hold(void *owner)
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

/*
 * What the sketch will say at the next tick: a burst of hits in the kernel
 * counts at once, or a scan evicts what has just become hot. No lock: a tick at
 * this very moment makes it wrong by one tick's hits, once.
 */
static uint32_t node_weight(void *owner)
{
	struct node *n = owner;
	struct tbg_cache *c = n->o.cache;
	uint32_t v = sketch_ask(&shard_of(c, &n->o.key)->sketch, &n->o.key);
	uint32_t nr = heat_of(c, n) - __atomic_load_n(&n->heat_seen,
						      __ATOMIC_RELAXED);

	return nr < UINT8_MAX - v ? v + nr : UINT8_MAX;
}

void tbg_object_get(struct tbg_object *o)
{
	atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
}

void tbg_object_put(struct tbg_object *o)
{
	if (!o || atomic_fetch_sub_explicit(&o->refs, 1,
					    memory_order_acq_rel) != 1)
		return;
	tbg_slot_give(o->cache->store, o->blob_id, o->in_kernel);
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

	if (atomic_fetch_sub_explicit(&n->holds, 1, memory_order_acq_rel) == 1)
		free(n);
}

struct tbg_object *tbg_cache_find(struct tbg_cache *c,
				  const struct tbg_key *key, uint32_t vhost,
				  const char *path, size_t path_len)
{
	struct shard *sh = shard_of(c, key);
	struct node *n;

	__builtin_prefetch(bucket_of(sh, key));
	__builtin_prefetch(sketch_at(&sh->sketch, key, 0), 1);
	pthread_mutex_lock(&sh->lock);
	__builtin_prefetch(*bucket_of(sh, key), 1);
	sketch_count(&sh->sketch, key);
	for (n = *bucket_of(sh, key); n; n = n->next)
		if (n->o.key.h[0] == key->h[0] && n->o.key.h[1] == key->h[1])
			break;
	if (n && n->o.vhost == vhost && n->o.path_len == path_len &&
	    !memcmp(n->o.path, path, path_len)) {
		node_hold(n);
		n->hits++;
		sh->hits++;
	} else {
		n = NULL;
		sh->misses++;
	}
	pthread_mutex_unlock(&sh->lock);
	return n ? &n->o : NULL;
}

/*
 * Takes n out of the table. names and the shard lock held. Drops the table's
 * reference, so n may be gone afterwards.
 */
static void unlink_node(struct tbg_cache *c, struct shard *sh, struct node *n,
			bool from_index)
{
	struct node **at = bucket_of(sh, &n->o.key);

	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	n->heat_last = heat_of(c, n);
	n->linked = false;
	sh->nr--;
	if (n->o.name)
		name_leave(c, n);
	if (n->o.in_kernel) {
		if (from_index)
			index_delete(c, n);
		sub(c->in_kernel, 1);
	}
	tbg_slot_own(c->store, n->o.blob_id, NULL);
	sub(c->objects, 1);
	sub(c->bytes_used, tbg_class_bytes(TBG_BLOB_CLASS(n->o.blob_id)));
	tbg_object_put(&n->o);
}

static unsigned int withdraw_node(struct tbg_cache *c, struct node *n)
{
	struct shard *sh = shard_of(c, &n->o.key);
	bool linked;

	pthread_mutex_lock(&sh->lock);
	linked = n->linked;
	if (linked)
		unlink_node(c, sh, n, true);
	pthread_mutex_unlock(&sh->lock);
	return linked;
}

unsigned int tbg_cache_withdraw(struct tbg_cache *c, struct tbg_object *o)
{
	unsigned int nr;

	pthread_mutex_lock(&c->names);
	nr = withdraw_node(c, node_of(o));
	pthread_mutex_unlock(&c->names);
	add(c->withdrawn, nr);
	return nr;
}

/* Everything that fn chooses. */
static unsigned int withdraw_if(struct tbg_cache *c,
				bool (*fn)(const struct node *n, void *arg),
				void *arg)
{
	unsigned int nr = 0;

	for (int i = 0; i < SHARD_NR; i++) {
		struct shard *sh = &c->shards[i];

		pthread_mutex_lock(&sh->lock);
		for (uint64_t b = 0; b <= sh->mask; b++) {
			struct node *n = sh->buckets[b], *next;

			for (; n; n = next) {
				next = n->next;
				if (!fn(n, arg))
					continue;
				unlink_node(c, sh, n, true);
				nr++;
			}
		}
		pthread_mutex_unlock(&sh->lock);
	}
	add(c->withdrawn, nr);
	return nr;
}

static bool node_any(const struct node *n, void *arg)
{
	return true;
}

struct wanted_path {
	uint32_t vhost;
	const char *path;
	size_t len;
};

static bool node_has_path(const struct node *n, void *arg)
{
	const struct wanted_path *w = arg;

	return (w->vhost == TBG_VHOST_ANY || n->o.vhost == w->vhost) &&
	       n->o.path_len == w->len &&
	       !memcmp(n->o.path, w->path, w->len);
}

/* Looks at every object: all variants of the path have keys of their own. */
unsigned int tbg_cache_withdraw_path(struct tbg_cache *c, uint32_t vhost,
				     const char *path, size_t path_len)
{
	struct wanted_path w = { vhost, path, path_len };
	unsigned int nr;

	pthread_mutex_lock(&c->names);
	nr = withdraw_if(c, node_has_path, &w);
	pthread_mutex_unlock(&c->names);
	return nr;
}

static bool node_is_below(const struct node *n, void *arg)
{
	const struct wanted_path *w = arg;

	return (w->vhost == TBG_VHOST_ANY || n->o.vhost == w->vhost) &&
	       n->o.path_len >= w->len && !memcmp(n->o.path, w->path, w->len);
}

unsigned int tbg_cache_withdraw_below(struct tbg_cache *c, uint32_t vhost,
				      const char *prefix, size_t prefix_len)
{
	struct wanted_path w = { vhost, prefix, prefix_len };
	unsigned int nr;

	pthread_mutex_lock(&c->names);
	nr = withdraw_if(c, node_is_below, &w);
	pthread_mutex_unlock(&c->names);
	return nr;
}

static void change_log(struct tbg_cache *c, uint64_t hash)
{
	uint64_t seq = tbg_cache_changes(c);

	c->change[seq % CHANGE_NR] = hash;
	atomic_store_explicit(&c->changes, seq + 1, memory_order_release);
}

/* names held */
static void change_log_all(struct tbg_cache *c)
{
	change_log(c, 0);
	c->all_changed = tbg_cache_changes(c);
}

void tbg_cache_break_leases(struct tbg_cache *c)
{
	pthread_mutex_lock(&c->names);
	change_log_all(c);
	pthread_mutex_unlock(&c->names);
}

unsigned int tbg_cache_withdraw_all(struct tbg_cache *c)
{
	unsigned int nr;

	pthread_mutex_lock(&c->names);
	change_log_all(c);
	nr = withdraw_if(c, node_any, NULL);
	pthread_mutex_unlock(&c->names);
	return nr;
}

/* Withdraws what is in or below a folder, which goes away with the last. */
static unsigned int withdraw_below(struct tbg_cache *c, struct dir *top)
{
	unsigned int nr = 0;

	top->nr++;
	while (top->nr > 1) {
		struct dir *d = top;

		while (!d->files)
			d = d->child;
		nr += withdraw_node(c, d->files);
	}
	top->nr--;
	dir_prune(c, top);
	return nr;
}

/* The objects of the first len bytes of name, and the news of them. */
static unsigned int withdraw_file(struct tbg_cache *c, const char *name,
				  size_t len)
{
	uint64_t hash = tbg_name_hash(name, len);
	struct node *n, *next;
	unsigned int nr = 0;

	change_log(c, hash);
	for (n = c->name_buckets[hash & c->name_mask]; n; n = next) {
		next = n->name_next;
		if (n->name_hash == hash && !strncmp(n->o.name, name, len) &&
		    !n->o.name[len])
			nr += withdraw_node(c, n);
	}
	return nr;
}

/* Bytes of the name that this one is a variant's of; 0: it is none. */
static size_t plain_len(const char *name)
{
	static const char *const suffixes[] = {
#define X(id, coding, suffix) suffix,
		TBG_ENCODING_LIST(X)
#undef X
	};
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; dot && i < sizeof(suffixes) / sizeof(*suffixes); i++)
		if (!strcmp(dot + 1, suffixes[i]))
			return dot - name;
	return 0;
}

unsigned int tbg_cache_withdraw_name(struct tbg_cache *c, const char *name)
{
	size_t len = strlen(name), plain = plain_len(name);
	unsigned int nr;
	struct dir *d;

	if (!len)
		return tbg_cache_withdraw_all(c);
	pthread_mutex_lock(&c->names);
	nr = withdraw_file(c, name, len);
	if (plain)
		nr += withdraw_file(c, name, plain);
	d = dir_find(c, name, len, tbg_name_hash(name, len));
	if (d)
		nr += withdraw_below(c, d);
	pthread_mutex_unlock(&c->names);
	add(c->withdrawn, nr);
	return nr;
}

bool tbg_cache_has_name(struct tbg_cache *c, const char *name)
{
	uint64_t hash = tbg_name_hash(name, strlen(name));
	struct node *n;

	pthread_mutex_lock(&c->names);
	n = c->name_buckets[hash & c->name_mask];
	while (n && (n->name_hash != hash || strcmp(n->o.name, name)))
		n = n->name_next;
	pthread_mutex_unlock(&c->names);
	return n;
}

/* What has changed, to the kernel; the shard lock held. */
static void node_update(struct tbg_cache *c, struct node *n)
{
	if (n->linked && n->o.in_kernel && index_update(c, n))
		add(c->index_failed, 1);
}

void tbg_object_renew(struct tbg_object *o, uint64_t expires_ns)
{
	struct shard *sh = shard_of(o->cache, &o->key);

	pthread_mutex_lock(&sh->lock);
	atomic_store(&o->expires_ns, expires_ns);
	/* A failed update leaves the old expiry: the kernel passes it up. */
	node_update(o->cache, node_of(o));
	pthread_mutex_unlock(&sh->lock);
}

void tbg_object_vary(struct tbg_object *o, unsigned int variants)
{
	struct shard *sh = shard_of(o->cache, &o->key);

	pthread_mutex_lock(&sh->lock);
	atomic_store(&o->variants, variants);
	/* A failed update: the kernel passes up those that it does not find. */
	node_update(o->cache, node_of(o));
	pthread_mutex_unlock(&sh->lock);
}

/* Admission */

/* Slots that a class under pressure keeps for what is better than its worst. */
static uint32_t reserve_of(const struct tbg_cache *c, unsigned int class)
{
	return c->plan.slots[class] / 16 + 1;
}

static void evict(struct tbg_cache *c, struct node *victim)
{
	unsigned int nr;

	pthread_mutex_lock(&c->names);
	nr = withdraw_node(c, victim);
	pthread_mutex_unlock(&c->names);
	add(c->evicted, nr);
}

/*
 * Whether the key has just asked for room for the first time: then one slot is
 * emptied for it, and it gets a slot when one has rested.
 */
static bool wanted_first(struct tbg_cache *c, unsigned int class,
			 const struct tbg_key *key)
{
	_Atomic uint64_t *at = &c->wanted[class][key->h[1] % WANTED_NR];

	return atomic_exchange_explicit(at, key->h[0],
					memory_order_relaxed) != key->h[0];
}

static bool rests_enough(struct tbg_cache *c, unsigned int class)
{
	struct tbg_blob_slots_use use;

	tbg_blob_slots_use(c->store, class, &use);
	return use.resting + use.free >= reserve_of(c, class);
}

/* The class is full: is the key worth more than the least of its objects? */
static int room_make(struct tbg_cache *c, unsigned int class,
		     const struct tbg_key *key, uint32_t *ret_id,
		     uint32_t *ret_gen)
{
	uint32_t seed = add(c->seed, 1) * 2654435761u ^ (uint32_t)key->h[0];
	struct node *victim;
	int err;

	victim = tbg_slot_sample(c->store, class, SAMPLE_NR, seed, node_weight,
				 node_hold);
	if (!victim)
		return tbg_slot_take(c->store, class, 0, ret_id, ret_gen);
	if (sketch_ask(&shard_of(c, key)->sketch, key) <= node_weight(victim)) {
		tbg_object_put(&victim->o);
		return -ENOSPC;
	}
	atomic_store_explicit(&c->pressed[class], true, memory_order_relaxed);
	err = tbg_slot_take(c->store, class, 0, ret_id, ret_gen);
	if (err && (!victim->o.in_kernel ||
		    (!rests_enough(c, class) && wanted_first(c, class, key)))) {
		evict(c, victim);
		tbg_object_put(&victim->o);
		return tbg_slot_take(c->store, class, 0, ret_id, ret_gen);
	}
	tbg_object_put(&victim->o);
	return err;
}

static int room_take(struct tbg_cache *c, unsigned int class,
		     const struct tbg_key *key, uint32_t *ret_id,
		     uint32_t *ret_gen)
{
	uint32_t leave = 0;

	if (atomic_load_explicit(&c->pressed[class], memory_order_relaxed))
		leave = reserve_of(c, class);
	if (!tbg_slot_take(c->store, class, leave, ret_id, ret_gen))
		return 0;
	/* The next class helps out while three quarters of it are in use. */
	if (class + 1 < TBG_CLASS_NR &&
	    !tbg_slot_take(c->store, class + 1,
			   c->plan.slots[class + 1] / 4 + 1, ret_id, ret_gen))
		return 0;
	return room_make(c, class, key, ret_id, ret_gen);
}

/* On a cache line: what a find touches of a node is in the first two. */
static struct node *node_alloc(size_t text_len)
{
	size_t bytes = (sizeof(struct node) + text_len + 63) & ~(size_t)63;
	struct node *n = aligned_alloc(64, bytes);

	if (n)
		memset(n, 0, bytes);
	return n;
}

int tbg_draft_open(struct tbg_cache *c, const struct tbg_key *key,
		   uint32_t vhost, const char *path, size_t path_len,
		   const char *name, uint32_t data_len, struct tbg_draft *ret)
{
	size_t name_len = name ? strlen(name) : 0;
	unsigned int class = 0;
	struct tbg_blob *blob;
	struct node *n;
	uint32_t id, gen;
	int err;

	while (class < TBG_CLASS_NR &&
	       data_len > tbg_class_room(class))
		class++;
	if (class == TBG_CLASS_NR || path_len > UINT16_MAX)
		return -EFBIG;
	err = room_take(c, class, key, &id, &gen);
	if (err) {
		add(c->refused, 1);
		return err;
	}
	n = node_alloc(path_len + 1 + name_len + 1);
	if (!n) {
		tbg_slot_give(c->store, id, false);
		return -ENOMEM;
	}

	blob = tbg_blob_slots_blob(c->store, id);
	memset(blob->part, 0, sizeof(blob->part));
	blob->age_len = 0;
	blob->key0 = key->h[0];
	if (c->maps && c->maps->heat)
		__atomic_store_n(&c->maps->heat[tbg_heat_index(&c->plan, id)],
				 0, __ATOMIC_RELAXED);

	n->gen = gen;
	n->o.key = *key;
	n->o.blob = blob;
	n->o.blob_id = id;
	n->o.vhost = vhost;
	n->o.path_len = path_len;
	n->o.path = n->text;
	memcpy(n->o.path, path, path_len);
	if (name) {
		n->o.name = n->text + path_len + 1;
		memcpy(n->o.name, name, name_len);
		n->name_hash = tbg_name_hash(name, name_len);
	}
	atomic_store(&n->o.expires_ns, TBG_FRESH_ALWAYS);
	atomic_store(&n->o.refs, 1);
	atomic_store(&n->holds, 1);
	n->o.cache = c;
	*ret = (struct tbg_draft){ .blob = blob, .data_len = data_len, .object = &n->o };
	return 0;
}

void tbg_draft_abandon(struct tbg_draft *d)
{
	struct tbg_object *o = d->object;

	if (!o)
		return;
	/* Never seen by anyone: in_kernel is false, the slot does not rest. */
	o->in_kernel = false;
	tbg_object_put(o);
	*d = (struct tbg_draft){ 0 };
}

/* The ones' complement sum of a part, its Date or Age made zero (abi/cache.h). */
static int part_sum(struct tbg_blob *blob, uint32_t data_len, struct tbg_part *p)
{
	uint8_t *data = blob->data + p->off;

	if (p->off > data_len || p->len > data_len - p->off)
		return -EINVAL;
	if (p->date_off) {
		if (p->date_off + (uint32_t)TBG_DATE_LEN > p->len)
			return -EINVAL;
		memset(data + p->date_off, 0, tbg_blob_timed(blob));
	}
	p->csum = tbg_csum_bytes(data, p->len);
	return 0;
}

/* The partial sums of a blob whose Dates are zero. */
static void blob_sums(struct tbg_blob *blob, uint32_t data_len, unsigned int class)
{
	uint16_t *sums = tbg_blob_sums(blob, class);
	uint16_t sum = 0;

	for (uint32_t at = 0; at < data_len; at += TBG_SUM_STRIDE) {
		sums[at / TBG_SUM_STRIDE] = sum;
		if (data_len - at > TBG_SUM_STRIDE)
			sum = tbg_csum_fold((uint64_t)sum +
				tbg_csum_bytes(blob->data + at, TBG_SUM_STRIDE));
	}
}

static bool fits_index(const struct tbg_cache *c, const struct tbg_object *o)
{
	return c->maps && o->path_len && o->path_len <= TBG_PATH_MAX &&
	       o->etag_len <= sizeof(o->etag);
}

/* names and the shard lock held; what was there before is unlinked. */
static int enter_node(struct tbg_cache *c, struct shard *sh, struct node *n)
{
	struct tbg_blob *blob = (struct tbg_blob *)n->o.blob;
	struct node **bucket = bucket_of(sh, &n->o.key), *old = *bucket;

	if (n->o.name && name_enter(c, n))
		return -ENOMEM;
	while (old && memcmp(&old->o.key, &n->o.key, sizeof(old->o.key)))
		old = old->next;

	__atomic_store_n(&blob->gen, n->gen, __ATOMIC_RELEASE);
	if (fits_index(c, &n->o)) {
		n->o.in_kernel = !index_update(c, n);
		if (!n->o.in_kernel)
			add(c->index_failed, 1);
	}
	/* An update has replaced the old entry; without one it must go. */
	if (old)
		unlink_node(c, sh, old, !n->o.in_kernel);

	n->next = *bucket;
	*bucket = n;
	n->linked = true;
	sh->nr++;
	node_hold(n);
	tbg_slot_own(c->store, n->o.blob_id, n);
	add(c->objects, 1);
	add(c->in_kernel, n->o.in_kernel);
	add(c->bytes_used, tbg_class_bytes(TBG_BLOB_CLASS(n->o.blob_id)));
	return 0;
}

int tbg_draft_publish(struct tbg_draft *d, struct tbg_object **ret)
{
	struct tbg_object *o = d->object;
	struct tbg_cache *c = o->cache;
	struct shard *sh = shard_of(c, &o->key);
	int err = 0;

	for (int i = 0; i < TBG_PART_NR && !err; i++)
		err = part_sum(d->blob, d->data_len, &d->blob->part[i]);
	if (err)
		goto fail;
	blob_sums(d->blob, d->data_len, TBG_BLOB_CLASS(o->blob_id));

	pthread_mutex_lock(&c->names);
	if (d->lease && o->name && name_changed(c, o->name, d->lease->seq)) {
		add(c->stale, 1);
		err = -ESTALE;
	} else {
		pthread_mutex_lock(&sh->lock);
		err = enter_node(c, sh, node_of(o));
		pthread_mutex_unlock(&sh->lock);
	}
	pthread_mutex_unlock(&c->names);
	if (err)
		goto fail;
	add(c->published, 1);
	*d = (struct tbg_draft){ 0 };
	*ret = o;
	return 0;
fail:
	tbg_draft_abandon(d);
	return err;
}

/* Looking at everything */

struct seen {
	struct node *n;
	uint64_t hits;
};

/* False: fn has had enough. */
static bool slice_visit(struct tbg_cache *c, struct shard *sh,
			bool (*fn)(struct tbg_object *o, uint64_t hits,
				   void *arg),
			void *arg)
{
	struct seen *seen;
	uint32_t nr = 0;
	bool more = true;

	pthread_mutex_lock(&sh->lock);
	seen = malloc((sh->nr + 1) * sizeof(*seen));
	for (uint64_t b = 0; seen && b <= sh->mask; b++)
		for (struct node *n = sh->buckets[b]; n; n = n->next) {
			node_hold(n);
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

void tbg_cache_slice(struct tbg_cache *c, unsigned int slice,
		     bool (*fn)(struct tbg_object *o, uint64_t hits, void *arg),
		     void *arg)
{
	slice_visit(c, &c->shards[slice % SHARD_NR], fn, arg);
}

void tbg_cache_each(struct tbg_cache *c,
		    bool (*fn)(struct tbg_object *o, uint64_t hits, void *arg),
		    void *arg)
{
	for (int i = 0; i < SHARD_NR; i++)
		if (!slice_visit(c, &c->shards[i], fn, arg))
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

		tbg_blob_slots_use(c->store, i, &use);
		s.quarantined += use.resting;
	}
	*ret = s;
}

/*
 * Tells the sketch of the kernel's hits since it was told last. They are many and
 * come at once, so they age it once per tick at most. Returns the nodes.
 */
static uint32_t shard_tick(struct tbg_cache *c, struct shard *sh)
{
	uint64_t fed = 0;
	uint32_t ret;

	pthread_mutex_lock(&sh->lock);
	ret = sh->nr;
	for (uint64_t b = 0; ret && b <= sh->mask; b++)
		for (struct node *n = sh->buckets[b]; n; n = n->next) {
			uint32_t heat = heat_of(c, n);
			uint32_t nr = heat - n->heat_seen;

			if (!nr)
				continue;
			n->heat_seen = heat;
			nr = nr < UINT8_MAX ? nr : UINT8_MAX;
			sketch_add(&sh->sketch, &n->o.key, nr);
			fed += nr;
		}
	fed += sh->sketch.asked;
	sh->sketch.asked = fed < UINT32_MAX ? fed : UINT32_MAX;
	if (sh->sketch.asked >= sh->sketch.age_at)
		sketch_halve(&sh->sketch);
	pthread_mutex_unlock(&sh->lock);
	return ret;
}

void tbg_cache_tick(struct tbg_cache *c, uint64_t now_ns)
{
	uint32_t nodes = 0;

	tbg_blob_slots_tick(c->store, now_ns);
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

/* Workers have stopped; whoever still holds an object must not put it. */
void tbg_cache_close(struct tbg_cache *c)
{
	if (!c)
		return;
	for (int i = 0; i < SHARD_NR; i++) {
		struct shard *sh = &c->shards[i];

		for (uint64_t b = 0; sh->buckets && b <= sh->mask; b++)
			while (sh->buckets[b])
				unlink_node(c, sh, sh->buckets[b], false);
		free(sh->buckets);
		free(sh->sketch.lines);
	}
	tbg_blob_slots_close(c->store);
	free(c->name_buckets);
	free(c->dir_buckets);
	free(c);
}
