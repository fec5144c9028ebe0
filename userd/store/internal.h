/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The structs of the response store and the functions that its files share; these are
 * called with the store's lock held. Entries and their variants: responses.c; pending
 * fetches: pending.c; withdrawal: withdraw.c. Not to be included elsewhere.
 */
#ifndef TBG_USERD_STORE_INTERNAL_H
#define TBG_USERD_STORE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "store/responses.h"

#define BUCKETS		(1u << 16)
#define CHANGES		4096		/* number of withdrawals in the log */

struct tbg_pending_fetch {
	LIST_ENTRY(tbg_pending_fetch) link;	/* in the list of its URI */
	struct entry *entry;
	struct tbg_lines secondary;	/* secondary key as far as known, see pending_fits() */
	TAILQ_HEAD(, tbg_waiter) waiters;
	unsigned int waiting;
	uint64_t seen_ns;		/* when its transfer last reported that it runs; atomic */
	bool doomed;			/* withdrawn: no further request may wait for it */
};

TAILQ_HEAD(entries, entry);

struct entry {
	LIST_ENTRY(entry) bucket;	/* in the bucket of its hash */
	/* in the list by last use, or by the time at which it was spared */
	TAILQ_ENTRY(entry) use;
	uint64_t hash[2];
	LIST_HEAD(, tbg_stored) variants;	/* newest first */
	LIST_HEAD(, tbg_pending_fetch) pending;
	/* until then, requests do not wait for each other's fetch */
	uint64_t pass_ns;
	uint64_t bytes;
	uint32_t asked;			/* number of uses, halved whenever the entry is spared */
	uint32_t nr;
	uint32_t len, path_off, upstream, proxy_host_len;
	bool https;
	char uri[];			/* len bytes, then the proxy's host */
};

struct tbg_store {
	pthread_mutex_t lock;
	LIST_HEAD(bucket, entry) *buckets;
	struct entries entries;		/* most recently used first */
	uint64_t key[2];
	uint64_t budget, used;
	_Atomic int64_t outside;	/* bytes of counted bodies that are not stored */
	uint64_t changes;
	uint64_t all_changed;
	uint64_t change[CHANGES];
	uint64_t responses, uris, evicted, withdrawn;
};

/* responses.c */
/* Hashes a URI with SipHash-1-3, using the rounds of core/key.h. */
void tbg_store_uri_hash(const uint64_t key[2], const struct tbg_uri *u, uint64_t ret[2]);
/* Returns the first entry of that URI from e on, with any scheme and host named by a proxy. */
struct entry *tbg_store_entry_like(struct entry *e, const struct tbg_uri *u, uint64_t hash);
struct entry *tbg_store_entry_find(struct tbg_store *s, const struct tbg_uri *u,
				   uint64_t hash[2]);
struct entry *tbg_store_entry_get(struct tbg_store *s, const struct tbg_uri *u);
void tbg_store_variant_drop(struct tbg_store *s, struct entry *e, struct tbg_stored *one);
unsigned int tbg_store_entry_empty(struct tbg_store *s, struct entry *e);
void tbg_store_entry_free(struct tbg_store *s, struct entry *e);
/*
 * Evicts from the oldest entry on until the budget is met. An entry with a pending
 * fetch and `keep` each retain one variant.
 */
void tbg_store_room_make(struct tbg_store *s, const struct entry *keep);
bool tbg_store_changed_since(const struct tbg_store *s, uint64_t hash, uint64_t seq);

#endif
