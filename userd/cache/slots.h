/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory of blobs: one array of equal slots per size class, within one memory budget.
 * With BPF, the arrays are the mmapped tbg_blob_* maps, otherwise anonymous memory;
 * callers need not know which.
 */
#ifndef TBG_USERD_CACHE_SLOTS_H
#define TBG_USERD_CACHE_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/cache.h"

/* The division of a memory budget. Pure arithmetic, computed before BPF is loaded. */
struct tbg_plan {
	uint32_t slots[TBG_CLASS_NR];
	uint32_t blobs;			/* sum of slots */
	uint32_t entries;		/* size of the index map */
	uint32_t conns;			/* connection words and flows */
	bool sock;			/* the same number again for sock */
};

/*
 * budget: bytes, at least 1 MiB. The complete plan stays within it; connections take at
 * most a quarter. conns_wanted: connections that wire should be able to follow; 0: by
 * the budget.
 */
void tbg_plan_make(struct tbg_plan *ret, uint64_t budget, uint32_t conns_wanted);

/* The parts of the cache that the kernel tiers read, mmapped by tiers/maps.h. */
struct tbg_cache_maps {
	int index_fd;			/* tbg_key -> tbg_entry */
	void *blobs[TBG_CLASS_NR];	/* arrays of tbg_class_bytes() slots */
	uint64_t *heat;			/* hits counted by BPF, see tbg_heat_index() */
	uint64_t *published;		/* see abi/knob.h; NULL: without BPF */
};

/* Returns the index of a blob in maps->heat. */
static inline uint32_t tbg_heat_index(const struct tbg_plan *plan, uint32_t id)
{
	uint32_t index = TBG_BLOB_SLOT(id);

	for (uint32_t c = 0; c < TBG_BLOB_CLASS(id); c++)
		index += plan->slots[c];
	return index;
}

/* Returns the bytes of one slot of a class. */
uint32_t tbg_class_bytes(unsigned int class);

/* Returns the bytes of data that a slot of the class holds, and the partial sums after them. */
uint32_t tbg_class_room(unsigned int class);
uint16_t *tbg_blob_sums(struct tbg_blob *blob, unsigned int class);

/*
 * The slots. Only cache/objects.c and its folder use the following; any thread may,
 * except for tbg_blob_slots_tick(). A slot is free, taken (a draft), owned (published)
 * or resting. Taking a slot raises its generation, which is never 0.
 */
struct tbg_blob_slots;

/* blobs: mmapped arrays by class; NULL: anonymous memory. */
int tbg_blob_slots_open(struct tbg_blob_slots **ret, const struct tbg_plan *plan,
		   void *const *blobs);
void tbg_blob_slots_close(struct tbg_blob_slots *s);

struct tbg_blob *tbg_blob_slots_blob(struct tbg_blob_slots *s, uint32_t id);

/*
 * Takes a free slot, if more than `leave` are free. Returns 0 or -ENOSPC. The blob's
 * gen is 0 until the caller stores *ret_gen into it.
 */
int tbg_slot_take(struct tbg_blob_slots *s, unsigned int class, uint32_t leave,
		  uint32_t *ret_id, uint32_t *ret_gen);

/* Sets the slot's published owner, for tbg_slot_sample(); NULL: none. */
void tbg_slot_own(struct tbg_blob_slots *s, uint32_t id, void *owner);

/*
 * Releases a slot. rest: the kernel tiers knew it, so it rests for TBG_QUARANTINE_S
 * from the next tick on.
 */
void tbg_slot_give(struct tbg_blob_slots *s, uint32_t id, bool rest);

/*
 * Returns the owner with the smallest weight among up to nr of a class, starting at a
 * random position. hold(owner) is called before the owner can be freed. NULL: none is
 * owned.
 */
void *tbg_slot_sample(struct tbg_blob_slots *s, unsigned int class, unsigned int nr,
		      uint32_t seed, uint32_t (*weight)(void *owner),
		      void (*hold)(void *owner));

struct tbg_blob_slots_use {
	uint32_t slots, free, resting;
};
void tbg_blob_slots_use(struct tbg_blob_slots *s, unsigned int class,
		   struct tbg_blob_slots_use *ret);

/* Frees slots that have rested long enough. now_ns is the only source of time. */
void tbg_blob_slots_tick(struct tbg_blob_slots *s, uint64_t now_ns);

#endif
