/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the parts of the response store have in common: its structs, and what they
 * call of each other, with the store's lock held. Entries and their variants
 * (responses.c), pending fetches (pending.c), withdrawal (withdraw.c). For this
 * folder alone.
 */
#ifndef TBG_USERD_STORE_INTERNAL_H
#define TBG_USERD_STORE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "store/responses.h"

#define BUCKETS		(1u << 16)
#define CHANGES		4096		/* withdrawals that are remembered */

struct tbg_pending_fetch {
	LIST_ENTRY(tbg_pending_fetch) link;	/* of its URI */
	struct entry *entry;
	struct tbg_lines secondary;	/* as far as known: see pending_fits() */
	TAILQ_HEAD(, tbg_waiter) waiters;
	unsigned int waiting;
	uint64_t seen_ns;		/* last reported to be under way; atomic */
	bool doomed;			/* withdrawn: nobody joins any more */
};

TAILQ_HEAD(entries, entry);

struct entry {
	LIST_ENTRY(entry) bucket;	/* of its hash */
	TAILQ_ENTRY(entry) use;		/* by last use, or when it was spared */
	uint64_t hash[2];
	LIST_HEAD(, tbg_stored) variants;	/* newest first */
	LIST_HEAD(, tbg_pending_fetch) pending;
	uint64_t pass_ns;		/* waiting is of no use until then */
	uint64_t bytes;
	uint32_t asked;			/* how often, halved whenever it is spared */
	uint32_t nr;
	uint32_t len, path_off, upstream, proxy_host_len;
	bool https;
	char uri[];			/* len bytes, and behind them the proxy's host */
};

struct tbg_store {
	pthread_mutex_t lock;
	LIST_HEAD(bucket, entry) *buckets;
	struct entries entries;		/* the newest first */
	uint64_t key[2];
	uint64_t budget, used;
	_Atomic int64_t outside;	/* bytes of bodies that are in use and not stored */
	uint64_t changes;
	uint64_t all_changed;
	uint64_t change[CHANGES];
	uint64_t responses, uris, evicted, withdrawn;
};

/* responses.c */
/* SipHash-1-3 of any text, with the rounds of core/key.h. */
void tbg_store_uri_hash(const uint64_t key[2], const struct tbg_uri *u, uint64_t ret[2]);
/* The first from e on of that URI, with whatever scheme and host a proxy has claimed. */
struct entry *tbg_store_entry_like(struct entry *e, const struct tbg_uri *u, uint64_t hash);
struct entry *tbg_store_entry_find(struct tbg_store *s, const struct tbg_uri *u,
				   uint64_t hash[2]);
struct entry *tbg_store_entry_get(struct tbg_store *s, const struct tbg_uri *u);
void tbg_store_variant_drop(struct tbg_store *s, struct entry *e, struct tbg_stored *one);
unsigned int tbg_store_entry_empty(struct tbg_store *s, struct entry *e);
void tbg_store_entry_free(struct tbg_store *s, struct entry *e);
/* From the oldest on; of what is being fetched, and of keep, one variant stays. */
void tbg_store_room_make(struct tbg_store *s, const struct entry *keep);
bool tbg_store_changed_since(const struct tbg_store *s, uint64_t hash, uint64_t seq);

#endif
