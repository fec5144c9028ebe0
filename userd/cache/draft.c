// SPDX-License-Identifier: GPL-2.0
/*
 * Turns a draft into an object: gets a slot, computes checksums, and inserts it into
 * the table. Objects that are less popular than all possible victims are not admitted.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cache/objects.h"
#include "core/csum.h"
#include "os/root.h"
#include "cache/internal.h"

#define SAMPLE_NR	16	/* candidates for an eviction */

/* Returns the number of slots that a class under pressure reserves for better objects. */
static uint32_t reserve_of(const struct tbg_cache *c, unsigned int class)
{
	return c->plan.slots[class] / 16 + 1;
}

static void evict(struct tbg_cache *c, struct node *victim)
{
	unsigned int nr;

	pthread_mutex_lock(&c->names);
	nr = tbg_cache_withdraw_node(c, victim);
	pthread_mutex_unlock(&c->names);
	add(c->evicted, nr);
}

/*
 * Returns whether the key has just requested a slot for the first time: then one object
 * is evicted for it, and the key gets a slot when one has rested.
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

	tbg_blob_slots_use(c->slots, class, &use);
	return use.resting + use.free >= reserve_of(c, class);
}

/* The class is full: evicts an object that is less popular than the key, if there is one. */
static int room_make(struct tbg_cache *c, unsigned int class,
		     const struct tbg_key *key, uint32_t *ret_id,
		     uint32_t *ret_gen)
{
	uint32_t seed = add(c->seed, 1) * 2654435761u ^ (uint32_t)key->h[0];
	struct node *victim;
	int err;

	victim = tbg_slot_sample(c->slots, class, SAMPLE_NR, seed, tbg_cache_node_weight,
				 tbg_cache_node_hold);
	if (!victim)
		return tbg_slot_take(c->slots, class, 0, ret_id, ret_gen);
	if (tbg_cache_sketch_ask(&shard_of(c, key)->sketch, key) <= tbg_cache_node_weight(victim)) {
		tbg_object_put(&victim->o);
		return -ENOSPC;
	}
	atomic_store_explicit(&c->pressed[class], true, memory_order_relaxed);
	err = tbg_slot_take(c->slots, class, 0, ret_id, ret_gen);
	if (err && (!victim->o.in_kernel ||
		    (!rests_enough(c, class) && wanted_first(c, class, key)))) {
		evict(c, victim);
		tbg_object_put(&victim->o);
		return tbg_slot_take(c->slots, class, 0, ret_id, ret_gen);
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
	if (!tbg_slot_take(c->slots, class, leave, ret_id, ret_gen))
		return 0;
	/* use the next class while more than a quarter of it is free */
	if (class + 1 < TBG_CLASS_NR &&
	    !tbg_slot_take(c->slots, class + 1,
			   c->plan.slots[class + 1] / 4 + 1, ret_id, ret_gen))
		return 0;
	return room_make(c, class, key, ret_id, ret_gen);
}

/* Allocates on a cache-line boundary: a lookup reads only the first two lines of a node. */
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
		tbg_slot_give(c->slots, id, false);
		return -ENOMEM;
	}

	blob = tbg_blob_slots_blob(c->slots, id);
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
	/* it was never published, so the slot need not rest */
	o->in_kernel = false;
	tbg_object_put(o);
	*d = (struct tbg_draft){ 0 };
}

/* Computes the ones' complement sum of a part, with Date or Age set to zero (abi/cache.h). */
static int part_sum(struct tbg_blob *blob, uint32_t data_len, struct tbg_blob_part *p)
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

/* Computes the partial sums of a blob whose Dates are zero. */
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

/*
 * Inserts n in place of an older object of its key. Called with `names` and the shard
 * lock held.
 */
static int enter_node(struct tbg_cache *c, struct shard *sh, struct node *n)
{
	struct tbg_blob *blob = (struct tbg_blob *)n->o.blob;
	struct node_bucket *bucket = bucket_of(sh, &n->o.key);
	struct node *old;

	if (n->o.name && tbg_cache_name_enter(c, n))
		return -ENOMEM;
	SLIST_FOREACH(old, bucket, bucket)
		if (!memcmp(&old->o.key, &n->o.key, sizeof(old->o.key)))
			break;

	__atomic_store_n(&blob->gen, n->gen, __ATOMIC_RELEASE);
	if (fits_index(c, &n->o)) {
		n->o.in_kernel = !tbg_cache_index_update(c, n);
		if (!n->o.in_kernel)
			add(c->index_failed, 1);
	}
	/* an index update has replaced the old entry; otherwise delete it */
	if (old)
		tbg_cache_unlink_node(c, sh, old, !n->o.in_kernel);

	SLIST_INSERT_HEAD(bucket, n, bucket);
	n->linked = true;
	sh->nr++;
	tbg_cache_node_hold(n);
	tbg_slot_own(c->slots, n->o.blob_id, n);
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
	if (d->lease && o->name && tbg_cache_name_changed(c, o->name, d->lease->seq)) {
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
