// SPDX-License-Identifier: GPL-2.0
/*
 * One table with one lock, which is held for a lookup or a few pointer updates; bodies
 * are read without it. The least recently used entry is evicted first. One that was
 * used often is spared: it becomes the most recent again, with half of its count.
 *
 * No withdrawal is lost during a fetch: the fetch remembers the number of withdrawals
 * at the time of its request, and tbg_store_put() refuses a URI that was withdrawn
 * since. No withdrawal is lost by the kernel tiers: stored responses and their objects
 * change in one critical section. The locks of cache/objects.c are taken while this
 * lock is held, never the other way round.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cache/objects.h"
#include "core/fresh.h"
#include "core/key.h"
#include "http/header.h"
#include "http/vary.h"
#include "os/refcount.h"
#include "store/responses.h"
#include "store/internal.h"

#define VARIANTS_MAX	64		/* per URI; the oldest is dropped */
#define SPARED_MAX	1024		/* per eviction, to limit its duration */
#define OVERHEAD	512		/* estimate of memory per stored response */
#define REPLACE_NS	1000000000ull	/* minimum time between two replacements of objects */

static bool varies_by_encoding(const char *head, size_t len)
{
	struct tbg_elements all = { .b = head, .len = len };
	struct tbg_slice one, more;

	return tbg_elements_next(&all, TBG_SLICE("Vary"), &one) &&
	       tbg_slice_is(one, "Accept-Encoding") &&
	       !tbg_elements_next(&all, TBG_SLICE("Vary"), &more);
}

struct tbg_stored *tbg_stored_new(const struct tbg_response_directives *t, const char *reason,
				  const char *head, size_t head_len,
				  const char *req, size_t req_len,
				  struct tbg_byte_chain *body)
{
	struct tbg_lines secondary = { 0 }, vary = { 0 };
	struct tbg_stored *s = calloc(1, sizeof(*s));
	char *copy = malloc(head_len ? head_len : 1);

	if (!s || !copy || !tbg_vary_make(&secondary, head, head_len, req, req_len) ||
	    !tbg_vary_make(&vary, head, head_len, "", 0)) {
		free(s);
		free(copy);
		tbg_lines_free(&secondary);
		tbg_lines_free(&vary);
		tbg_byte_chain_put(body);
		return NULL;
	}
	memcpy(copy, head, head_len);
	atomic_store(&s->refs, 1);
	s->directives = *t;
	strncpy(s->reason, reason, sizeof(s->reason) - 1);
	s->head = copy;
	s->head_len = head_len;
	s->secondary = secondary.text;
	s->secondary_len = secondary.len;
	s->vary = vary.text;
	s->vary_len = vary.len;
	s->body = body;
	s->by_encoding = varies_by_encoding(head, head_len);
	return s;
}

void tbg_stored_get(struct tbg_stored *s)
{
	tbg_refcount_get(&s->refs);
}

void tbg_stored_put(struct tbg_stored *s)
{
	if (!s || !tbg_refcount_put(&s->refs))
		return;
	tbg_byte_chain_put(s->body);
	free(s->head);
	free(s->secondary);
	free(s->vary);
	free(s);
}

static bool secondary_same(const struct tbg_stored *one, const char *secondary,
			   uint32_t len)
{
	return one->secondary_len == len && (!len || !memcmp(one->secondary, secondary, len));
}

bool tbg_stored_selects(const struct tbg_stored *s, const char *req, size_t req_len)
{
	struct tbg_lines secondary = { 0 };
	bool same;

	if (!s->directives.has_vary)
		return true;
	same = tbg_vary_make(&secondary, s->head, s->head_len, req, req_len) &&
	       secondary_same(s, secondary.text, secondary.len);
	tbg_lines_free(&secondary);
	return same;
}

void tbg_store_uri_hash(const uint64_t key[2], const struct tbg_uri *u, uint64_t ret[2])
{
	const char *b = u->text;
	size_t len = u->len;
	uint64_t v0 = key[0] ^ 0x736f6d6570736575ull ^ u->upstream;
	uint64_t v1 = key[1] ^ 0x646f72616e646f6dull ^ 0xee;
	uint64_t v2 = key[0] ^ 0x6c7967656e657261ull;
	uint64_t v3 = key[1] ^ 0x7465646279746573ull;

	for (size_t i = 0; i <= len; i += 8) {
		uint64_t m = 0;

		memcpy(&m, b + i, len - i < 8 ? len - i : 8);
		if (len - i < 8)
			m |= (uint64_t)len << 56;
		v3 ^= m;
		TBG_SIP_ROUND(v0, v1, v2, v3);
		v0 ^= m;
	}
	v2 ^= 0xee;
	for (int i = 0; i < 3; i++)
		TBG_SIP_ROUND(v0, v1, v2, v3);
	ret[0] = v0 ^ v1 ^ v2 ^ v3;
	v1 ^= 0xdd;
	for (int i = 0; i < 3; i++)
		TBG_SIP_ROUND(v0, v1, v2, v3);
	ret[1] = v0 ^ v1 ^ v2 ^ v3;
}

static void use_leave(struct tbg_store *s, struct entry *e)
{
	TAILQ_REMOVE(&s->entries, e, use);
}

static void use_enter(struct tbg_store *s, struct entry *e)
{
	TAILQ_INSERT_HEAD(&s->entries, e, use);
}

struct entry *tbg_store_entry_like(struct entry *e, const struct tbg_uri *u, uint64_t hash)
{
	while (e && (e->hash[0] != hash || e->len != u->len ||
		     e->upstream != u->upstream || memcmp(e->uri, u->text, u->len)))
		e = LIST_NEXT(e, bucket);
	return e;
}

struct entry *tbg_store_entry_find(struct tbg_store *s, const struct tbg_uri *u,
				   uint64_t hash[2])
{
	const struct tbg_slice *host = &u->proxy_host;
	struct entry *e;

	tbg_store_uri_hash(s->key, u, hash);
	e = tbg_store_entry_like(LIST_FIRST(&s->buckets[hash[0] % BUCKETS]), u, hash[0]);
	while (e && (e->https != u->https || e->proxy_host_len != host->len ||
		     (host->len && memcmp(e->uri + e->len, host->text, host->len))))
		e = tbg_store_entry_like(LIST_NEXT(e, bucket), u, hash[0]);
	return e;
}

struct entry *tbg_store_entry_get(struct tbg_store *s, const struct tbg_uri *u)
{
	uint64_t hash[2];
	struct entry *e = tbg_store_entry_find(s, u, hash);

	if (e)
		return e;
	e = calloc(1, sizeof(*e) + u->len + u->proxy_host.len);
	if (!e)
		return NULL;
	e->hash[0] = hash[0];
	e->hash[1] = hash[1];
	e->len = u->len;
	e->path_off = u->path_off;
	e->upstream = u->upstream;
	memcpy(e->uri, u->text, u->len);
	e->https = u->https;
	e->proxy_host_len = u->proxy_host.len;
	if (u->proxy_host.len)
		memcpy(e->uri + u->len, u->proxy_host.text, u->proxy_host.len);
	LIST_INSERT_HEAD(&s->buckets[hash[0] % BUCKETS], e, bucket);
	use_enter(s, e);
	s->used += e->bytes = sizeof(*e) + u->len + u->proxy_host.len;
	s->uris++;
	return e;
}

static uint64_t bytes_of(const struct tbg_stored *one)
{
	return OVERHEAD + one->head_len + one->secondary_len + one->vary_len + one->body->room;
}

/* Withdraws one of its objects from the kernel tiers, unless that has already happened. */
static void object_drop(struct tbg_stored *one, struct tbg_object **at)
{
	struct tbg_object *o = *at;

	*at = NULL;
	if (!o)
		return;
	one->hits += tbg_object_heat(o);
	tbg_cache_withdraw(o->cache, o);
	tbg_object_unwatch(o);
}

static void objects_drop(struct tbg_stored *one)
{
	for (int i = 0; i < TBG_STORED_OBJECTS; i++)
		object_drop(one, &one->objects[i]);
}

static uint64_t objects_heat(const struct tbg_stored *one)
{
	uint64_t sum = 0;

	for (int i = 0; i < TBG_STORED_OBJECTS && one->objects[i]; i++)
		sum += tbg_object_heat(one->objects[i]);
	return sum;
}

void tbg_store_variant_drop(struct tbg_store *s, struct entry *e, struct tbg_stored *one)
{
	objects_drop(one);
	one->entry = NULL;
	atomic_fetch_add(&s->outside, one->body->room);
	LIST_REMOVE(one, link);
	e->nr--;
	e->bytes -= bytes_of(one);
	s->used -= bytes_of(one);
	s->responses--;
	tbg_stored_put(one);
}

unsigned int tbg_store_entry_empty(struct tbg_store *s, struct entry *e)
{
	unsigned int nr = e->nr;

	while (!LIST_EMPTY(&e->variants))
		tbg_store_variant_drop(s, e, LIST_FIRST(&e->variants));
	return nr;
}

void tbg_store_entry_free(struct tbg_store *s, struct entry *e)
{
	tbg_store_entry_empty(s, e);
	LIST_REMOVE(e, bucket);
	use_leave(s, e);
	s->used -= e->bytes;
	s->uris--;
	free(e);
}

/* Returns whether the kernel tiers have used any variant since the last call. */
static bool asked_in_kernel(struct entry *e)
{
	struct tbg_stored *one;
	bool ret = false;

	LIST_FOREACH(one, &e->variants, link) {
		uint64_t heat = objects_heat(one);

		ret |= heat && heat != one->heat_seen;
		one->heat_seen = heat;
	}
	return ret;
}

/*
 * Returns whether the entry stays for now. Halving the count limits how long an unused
 * entry stays.
 */
static bool spared(struct entry *e)
{
	bool often = e->asked > 1;

	e->asked /= 2;
	return asked_in_kernel(e) || often;
}

/* Drops its variants from the oldest on, except for the newest. */
static void variants_trim(struct tbg_store *s, struct entry *e)
{
	while (s->used > s->budget && e->nr > 1) {
		struct tbg_stored *oldest = LIST_FIRST(&e->variants);

		while (LIST_NEXT(oldest, link))
			oldest = LIST_NEXT(oldest, link);
		tbg_store_variant_drop(s, e, oldest);
		s->evicted++;
	}
}

void tbg_store_room_make(struct tbg_store *s, const struct entry *keep)
{
	struct entry *e = TAILQ_LAST(&s->entries, entries), *newer;
	unsigned int spared_nr = 0;

	for (; e && s->used > s->budget; e = newer) {
		newer = TAILQ_PREV(e, entries, use);
		if (e == keep || !LIST_EMPTY(&e->pending))
			continue;
		if (spared_nr < SPARED_MAX && spared(e)) {
			use_leave(s, e);
			use_enter(s, e);
			newer = newer ?: TAILQ_LAST(&s->entries, entries);
			spared_nr++;
			continue;
		}
		s->evicted += e->nr;
		tbg_store_entry_free(s, e);
	}
	TAILQ_FOREACH_REVERSE(e, &s->entries, entries, use) {
		if (s->used <= s->budget)
			break;
		variants_trim(s, e);
	}
}

/*
 * Order of preference: complete responses, then those selected by Vary, then the most
 * recent Date (4.1).
 */
static bool better(const struct tbg_response_directives *one,
		   const struct tbg_response_directives *other)
{
	if ((one->status == 206) != (other->status == 206))
		return other->status == 206;
	return one->has_vary != other->has_vary ? one->has_vary :
						  one->date_s > other->date_s;
}

/* A request's secondary key, and the stored response whose Vary it was made from. */
struct selection {
	const char *req;
	size_t req_len;
	struct tbg_lines secondary;
	const struct tbg_stored *by;
};

/*
 * Returns whether a request selects `one`. Variants of a URI usually have the same
 * Vary, so the key is made once and reused: a client can have caused many variants.
 */
static bool selects(struct selection *q, const struct tbg_stored *one)
{
	if (!one->directives.has_vary)
		return true;
	if (!q->by || q->by->vary_len != one->vary_len ||
	    memcmp(q->by->vary, one->vary, one->vary_len)) {
		q->secondary.len = 0;
		if (!tbg_vary_make(&q->secondary, one->head, one->head_len, q->req, q->req_len))
			return false;
		q->by = one;
	}
	return secondary_same(one, q->secondary.text, q->secondary.len);
}

static struct tbg_stored *variant_find(const struct entry *e, const char *req,
				       size_t req_len)
{
	struct selection q = { .req = req, .req_len = req_len };
	struct tbg_stored *best = NULL, *one;

	LIST_FOREACH(one, &e->variants, link)
		if ((!best || better(&one->directives, &best->directives)) && selects(&q, one))
			best = one;
	tbg_lines_free(&q.secondary);
	return best;
}

int tbg_store_open(struct tbg_store **ret, uint64_t budget,
		   const uint64_t key[2])
{
	struct tbg_store *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	TAILQ_INIT(&s->entries);
	s->buckets = calloc(BUCKETS, sizeof(*s->buckets));
	if (!s->buckets) {
		free(s);
		return -ENOMEM;
	}
	pthread_mutex_init(&s->lock, NULL);
	s->budget = budget;
	s->key[0] = key[0];
	s->key[1] = key[1];
	*ret = s;
	return 0;
}

void tbg_store_close(struct tbg_store *s)
{
	if (!s)
		return;
	while (!TAILQ_EMPTY(&s->entries))
		tbg_store_entry_free(s, TAILQ_FIRST(&s->entries));
	free(s->buckets);
	free(s);
}

uint64_t tbg_store_body_max(const struct tbg_store *s)
{
	return s->budget / 16;
}

void tbg_store_count(struct tbg_store *s, struct tbg_byte_chain *p)
{
	if (p->outside)
		return;
	p->outside = &s->outside;
	atomic_fetch_add(p->outside, p->room);
}

bool tbg_store_has_room(const struct tbg_store *s)
{
	return s->outside <= (int64_t)(s->budget / 2);
}

struct tbg_stored *tbg_store_find(struct tbg_store *s, const struct tbg_uri *u,
				  const char *req, size_t req_len,
				  bool *ret_others)
{
	struct tbg_stored *one = NULL;
	uint64_t hash[2];
	struct entry *e;

	*ret_others = false;
	pthread_mutex_lock(&s->lock);
	e = tbg_store_entry_find(s, u, hash);
	if (e) {
		use_leave(s, e);
		use_enter(s, e);
		*ret_others = !LIST_EMPTY(&e->variants);
		one = variant_find(e, req, req_len);
		if (one) {
			one->hits++;
			e->asked += e->asked < UINT32_MAX;
			tbg_stored_get(one);
		}
	}
	pthread_mutex_unlock(&s->lock);
	return one;
}

bool tbg_store_changed_since(const struct tbg_store *s, uint64_t hash, uint64_t seq)
{
	if (s->all_changed > seq || s->changes - seq > CHANGES)
		return true;
	for (; seq != s->changes; seq++)
		if (s->change[seq % CHANGES] == hash)
			return true;
	return false;
}

uint64_t tbg_store_seq(struct tbg_store *s)
{
	uint64_t seq;

	pthread_mutex_lock(&s->lock);
	seq = s->changes;
	pthread_mutex_unlock(&s->lock);
	return seq;
}

/* Returns whether URI and Accept-Encoding identify one variant. */
static bool is_distinguished(const struct entry *e)
{
	const struct tbg_stored *one = LIST_FIRST(&e->variants);

	if (!one->directives.has_vary)
		return !LIST_NEXT(one, link);
	LIST_FOREACH(one, &e->variants, link)
		if (!one->by_encoding)
			return false;
	return true;
}

static void variant_enter(struct tbg_store *s, struct entry *e,
			  struct tbg_stored *one, const struct tbg_stored *old)
{
	struct tbg_stored *other, *next;

	for (other = LIST_FIRST(&e->variants); other; other = next) {
		next = LIST_NEXT(other, link);
		if (secondary_same(other, one->secondary, one->secondary_len) || other == old ||
		    (e->nr >= VARIANTS_MAX && !next))
			tbg_store_variant_drop(s, e, other);
	}
	tbg_store_count(s, one->body);
	atomic_fetch_sub(&s->outside, one->body->room);
	one->entry = e;
	LIST_INSERT_HEAD(&e->variants, one, link);
	/*
	 * other fields of the request now select the variant, which the kernel tiers
	 * cannot do
	 */
	if (!is_distinguished(e))
		for (other = LIST_NEXT(one, link); other; other = LIST_NEXT(other, link))
			objects_drop(other);
	e->nr++;
	e->bytes += bytes_of(one);
	s->used += bytes_of(one);
	s->responses++;
}

/* Returns whether a complete response is already stored in place of a partial one. */
static bool whole_there(const struct entry *e, const struct tbg_stored *partial)
{
	const struct tbg_stored *one;

	LIST_FOREACH(one, &e->variants, link)
		if (secondary_same(one, partial->secondary, partial->secondary_len))
			return one->directives.status != 206;
	return false;
}

bool tbg_store_put(struct tbg_store *s, const struct tbg_uri *u,
		   struct tbg_stored *one, uint64_t seq, const struct tbg_stored *old)
{
	uint64_t hash[2];
	struct entry *e;
	bool stored = false;

	pthread_mutex_lock(&s->lock);
	tbg_store_uri_hash(s->key, u, hash);
	if (!tbg_store_changed_since(s, hash[0], seq) && (e = tbg_store_entry_get(s, u)) &&
	    (one->directives.status != 206 || !whole_there(e, one))) {
		variant_enter(s, e, one, old);
		use_leave(s, e);
		use_enter(s, e);
		e->pass_ns = 0;
		tbg_store_room_make(s, e);
		stored = true;
	}
	pthread_mutex_unlock(&s->lock);
	if (!stored)
		tbg_stored_put(one);
	return stored;
}

/*
 * Returns the slot for its object of that key; NULL: none. A client that varies
 * Accept-Encoding endlessly must not evict the objects of others: only the least used
 * live object is replaced, at most once per REPLACE_NS.
 */
static struct tbg_object **object_place(struct tbg_stored *one,
					const struct tbg_key *key, uint64_t now_ns)
{
	struct tbg_object **least = NULL;
	uint64_t heat, least_heat = UINT64_MAX;

	if (!one->entry || !is_distinguished(one->entry))
		return NULL;
	for (int i = 0; i < TBG_STORED_OBJECTS && one->objects[i]; i++)
		if (!memcmp(&one->objects[i]->key, key, sizeof(*key)))
			return &one->objects[i];
	for (int i = 0; i < TBG_STORED_OBJECTS; i++) {
		struct tbg_object *o = one->objects[i];

		if (!o || !tbg_object_known(o) || !tbg_fresh(atomic_load(&o->expires_ns), now_ns))
			return &one->objects[i];
		heat = tbg_object_heat(o);
		if (heat < least_heat) {
			least_heat = heat;
			least = &one->objects[i];
		}
	}
	return now_ns < one->replaced_ns + REPLACE_NS ? NULL : least;
}

bool tbg_store_wants(struct tbg_store *s, struct tbg_stored *one,
		     const struct tbg_key *key, uint64_t now_ns)
{
	bool ret;

	pthread_mutex_lock(&s->lock);
	ret = object_place(one, key, now_ns);
	pthread_mutex_unlock(&s->lock);
	return ret;
}

bool tbg_store_publish(struct tbg_store *s, struct tbg_stored *one,
		       struct tbg_draft *d, uint64_t now_ns)
{
	struct tbg_object *o = NULL, **at;

	pthread_mutex_lock(&s->lock);
	at = object_place(one, &d->object->key, now_ns);
	if (at && !tbg_draft_publish(d, &o)) {
		if (*at && tbg_object_known(*at))
			one->replaced_ns = now_ns;
		object_drop(one, at);
		tbg_object_watch(o);
		*at = o;
		one->heat_seen = 0;
	}
	pthread_mutex_unlock(&s->lock);
	tbg_draft_abandon(d);
	return o;
}

void tbg_store_each(struct tbg_store *s,
		    bool (*fn)(const struct tbg_store_row *row, void *arg),
		    void *arg)
{
	bool more = true;

	pthread_mutex_lock(&s->lock);
	for (struct entry *e = TAILQ_FIRST(&s->entries); e && more; e = TAILQ_NEXT(e, use))
		for (struct tbg_stored *one = LIST_FIRST(&e->variants); one && more;
		     one = LIST_NEXT(one, link))
			more = fn(&(struct tbg_store_row){
				.uri = {
					e->uri, e->len, e->path_off, e->upstream, e->https,
					{ e->uri + e->len, e->proxy_host_len },
				},
				.stored = one,
				.hits = one->hits + objects_heat(one),
			}, arg);
	pthread_mutex_unlock(&s->lock);
}

void tbg_store_stats(struct tbg_store *s, struct tbg_store_stats *ret)
{
	pthread_mutex_lock(&s->lock);
	*ret = (struct tbg_store_stats){
		.responses = s->responses, .uris = s->uris,
		.bytes_used = s->used, .bytes_budget = s->budget,
		.evicted = s->evicted, .withdrawn = s->withdrawn,
	};
	pthread_mutex_unlock(&s->lock);
}
