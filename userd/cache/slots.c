// SPDX-License-Identifier: GPL-2.0
/*
 * Blob slots: division of the memory budget, ownership of slots, and the quarantine of
 * slots that the kernel tiers knew. Does not know keys, paths or files. Must never
 * reuse a slot whose bytes a retransmission may still need.
 *
 * One pool per class with a mutex, held for a few stores. The pool locks are the
 * innermost of the cache's locks.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "abi/conn.h"
#include "cache/slots.h"

#define NONE UINT32_MAX

/*
 * The overhead of a slot: the index element (a preallocated BPF hash has 48 bytes of
 * header and up to 32 of bucket per element), its heat counter, and the daemon's object
 * with its two names.
 */
#define KERNEL_ELEMENT	80
#define HEAT_BYTES	8
#define OBJECT_BYTES	512
#define SLOT_EXTRA	(sizeof(struct tbg_key) + sizeof(struct tbg_entry) + \
			 KERNEL_ELEMENT + HEAT_BYTES + OBJECT_BYTES)

/* Per flow: key, value, hash element; its connection word; the key by slot. */
#define CONN_BYTES	(sizeof(struct tbg_flow_key) + sizeof(struct tbg_flow) + 64 + \
			 sizeof(struct tbg_conn_word) + 40)
#define CONNS_MIN	4096
#define CONNS_MAX	131072
#define CONNS_PER	(16 * 256)	/* bytes of budget per connection */
/* One in four may be closed and waiting for its removal. */
#define CONNS_FOR(nr)	((uint64_t)(nr) + (nr) / 4)

#define SLOTS_MAX	0x0fffffffu

static const struct {
	uint32_t bytes;
	uint32_t room;
	uint32_t percent;
} classes[TBG_CLASS_NR] = {
#define X(name, bytes_, percent_) { bytes_, TBG_BLOB_ROOM(bytes_), percent_ },
	TBG_CLASS_LIST(X)
#undef X
};

struct slot {
	uint32_t gen;
	uint32_t next;		/* in the free or resting list */
	uint64_t since_ns;	/* start of its rest */
	void *owner;
};

/* A queue of slots, linked by next. */
struct queue {
	uint32_t head, tail, nr;
};

struct pool {
	pthread_mutex_t lock;
	uint8_t *base;
	struct slot *slots;
	uint32_t nr;
	uint32_t fresh;		/* slots from here on were never used */
	struct queue free;
	struct queue given;	/* resting, before the next tick */
	struct queue resting;	/* in order of since_ns */
	bool mapped;		/* base was mapped here */
} __attribute__((aligned(64)));

struct tbg_blob_slots {
	struct pool pools[TBG_CLASS_NR];
};

uint32_t tbg_class_bytes(unsigned int class)
{
	return classes[class].bytes;
}

uint32_t tbg_class_room(unsigned int class)
{
	return classes[class].room;
}

uint16_t *tbg_blob_sums(struct tbg_blob *blob, unsigned int class)
{
	return (uint16_t *)(blob->data + classes[class].room);
}

void tbg_plan_make(struct tbg_plan *ret, uint64_t budget, uint32_t conns_wanted)
{
	struct tbg_plan p = { 0 };
	uint64_t least = 0, conns, rest;

	if (budget < 1 << 20)
		budget = 1 << 20;

	conns = budget / CONNS_PER;
	if (conns < CONNS_MIN)
		conns = CONNS_MIN;
	if (conns > CONNS_MAX)
		conns = CONNS_MAX;
	if (conns < CONNS_FOR(conns_wanted))
		conns = CONNS_FOR(conns_wanted);
	/* small budgets are mainly for the cache */
	if (conns > budget / 4 / CONN_BYTES)
		conns = budget / 4 / CONN_BYTES;
	p.conns = conns;

	/* one slot of each class is guaranteed; the percentages divide the rest */
	for (int c = 0; c < TBG_CLASS_NR; c++)
		least += classes[c].bytes + SLOT_EXTRA;
	rest = budget - conns * CONN_BYTES - least;
	for (int c = 0; c < TBG_CLASS_NR; c++) {
		uint64_t nr = rest / 100 * classes[c].percent /
			      (classes[c].bytes + SLOT_EXTRA) + 1;

		p.slots[c] = nr < SLOTS_MAX ? nr : SLOTS_MAX;
		p.blobs += p.slots[c];
	}
	p.entries = p.blobs;
	*ret = p;
}

static void queue_push(struct pool *p, struct queue *q, uint32_t i)
{
	p->slots[i].next = NONE;
	if (q->nr++)
		p->slots[q->tail].next = i;
	else
		q->head = i;
	q->tail = i;
}

static uint32_t queue_pop(struct pool *p, struct queue *q)
{
	uint32_t i = q->head;

	q->head = p->slots[i].next;
	q->nr--;
	return i;
}

static int pool_open(struct pool *p, unsigned int class, uint32_t nr,
		     void *base)
{
	pthread_mutex_init(&p->lock, NULL);
	p->nr = nr;
	p->slots = calloc(nr ? nr : 1, sizeof(*p->slots));
	if (!p->slots)
		return -ENOMEM;
	p->base = base;
	if (base || !nr)
		return 0;
	p->base = mmap(NULL, (size_t)nr * classes[class].bytes,
		       PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p->base == MAP_FAILED) {
		p->base = NULL;
		return -ENOMEM;
	}
	p->mapped = true;
	return 0;
}

int tbg_blob_slots_open(struct tbg_blob_slots **ret, const struct tbg_plan *plan,
		   void *const *blobs)
{
	struct tbg_blob_slots *s;
	int err;

	s = aligned_alloc(64, sizeof(*s));
	if (!s)
		return -ENOMEM;
	memset(s, 0, sizeof(*s));
	for (int c = 0; c < TBG_CLASS_NR; c++) {
		err = pool_open(&s->pools[c], c, plan->slots[c],
				blobs ? blobs[c] : NULL);
		if (err) {
			tbg_blob_slots_close(s);
			return err;
		}
	}
	*ret = s;
	return 0;
}

void tbg_blob_slots_close(struct tbg_blob_slots *s)
{
	if (!s)
		return;
	for (int c = 0; c < TBG_CLASS_NR; c++) {
		struct pool *p = &s->pools[c];

		if (p->mapped)
			munmap(p->base, (size_t)p->nr * classes[c].bytes);
		free(p->slots);
	}
	free(s);
}

struct tbg_blob *tbg_blob_slots_blob(struct tbg_blob_slots *s, uint32_t id)
{
	unsigned int class = TBG_BLOB_CLASS(id);

	return (void *)(s->pools[class].base +
			(size_t)TBG_BLOB_SLOT(id) * classes[class].bytes);
}

int tbg_slot_take(struct tbg_blob_slots *s, unsigned int class, uint32_t leave,
		  uint32_t *ret_id, uint32_t *ret_gen)
{
	struct pool *p = &s->pools[class];
	struct tbg_blob *blob;
	uint32_t i = NONE, gen;

	pthread_mutex_lock(&p->lock);
	if (p->free.nr + (p->nr - p->fresh) > leave)
		i = p->free.nr ? queue_pop(p, &p->free) : p->fresh++;
	if (i == NONE) {
		pthread_mutex_unlock(&p->lock);
		return -ENOSPC;
	}
	gen = ++p->slots[i].gen;
	if (!gen)
		gen = p->slots[i].gen = 1;
	pthread_mutex_unlock(&p->lock);

	/* concurrent readers see a generation that matches no entry */
	blob = tbg_blob_slots_blob(s, TBG_BLOB_ID(class, i));
	__atomic_store_n(&blob->gen, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*ret_id = TBG_BLOB_ID(class, i);
	*ret_gen = gen;
	return 0;
}

void tbg_slot_own(struct tbg_blob_slots *s, uint32_t id, void *owner)
{
	struct pool *p = &s->pools[TBG_BLOB_CLASS(id)];

	pthread_mutex_lock(&p->lock);
	p->slots[TBG_BLOB_SLOT(id)].owner = owner;
	pthread_mutex_unlock(&p->lock);
}

void tbg_slot_give(struct tbg_blob_slots *s, uint32_t id, bool rest)
{
	struct pool *p = &s->pools[TBG_BLOB_CLASS(id)];
	uint32_t i = TBG_BLOB_SLOT(id);

	pthread_mutex_lock(&p->lock);
	queue_push(p, rest ? &p->given : &p->free, i);
	pthread_mutex_unlock(&p->lock);
}

void *tbg_slot_sample(struct tbg_blob_slots *s, unsigned int class, unsigned int nr,
		      uint32_t seed, uint32_t (*weight)(void *owner),
		      void (*hold)(void *owner))
{
	struct pool *p = &s->pools[class];
	uint32_t least = UINT32_MAX, used, i;
	void *found = NULL;

	pthread_mutex_lock(&p->lock);
	used = p->fresh;
	i = used ? seed % used : 0;
	/* in sparse pools, check a few more slots, but not all of them */
	for (uint32_t looked = 0; looked < used && looked < nr * 8 && nr;
	     looked++, i = i + 1 < used ? i + 1 : 0) {
		void *owner = p->slots[i].owner;
		uint32_t w;

		if (!owner)
			continue;
		nr--;
		w = weight(owner);
		if (!found || w < least) {
			found = owner;
			least = w;
		}
	}
	if (found)
		hold(found);
	pthread_mutex_unlock(&p->lock);
	return found;
}

void tbg_blob_slots_use(struct tbg_blob_slots *s, unsigned int class,
		   struct tbg_blob_slots_use *ret)
{
	struct pool *p = &s->pools[class];

	pthread_mutex_lock(&p->lock);
	ret->slots = p->nr;
	ret->free = p->free.nr + (p->nr - p->fresh);
	ret->resting = p->given.nr + p->resting.nr;
	pthread_mutex_unlock(&p->lock);
}

static void pool_tick(struct pool *p, uint64_t now_ns)
{
	const uint64_t rest_ns = TBG_QUARANTINE_S * 1000000000ull;

	pthread_mutex_lock(&p->lock);
	while (p->resting.nr &&
	       now_ns >= p->slots[p->resting.head].since_ns + rest_ns)
		queue_push(p, &p->free, queue_pop(p, &p->resting));
	while (p->given.nr) {
		uint32_t i = queue_pop(p, &p->given);

		p->slots[i].since_ns = now_ns;
		queue_push(p, &p->resting, i);
	}
	pthread_mutex_unlock(&p->lock);
}

void tbg_blob_slots_tick(struct tbg_blob_slots *s, uint64_t now_ns)
{
	for (int c = 0; c < TBG_CLASS_NR; c++)
		pool_tick(&s->pools[c], now_ns);
}
