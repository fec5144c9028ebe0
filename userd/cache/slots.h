/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where blobs live: one array of equal slots per size class, out of one memory
 * budget. With BPF the arrays are the mmapped tbg_blob_* maps, without it
 * anonymous memory; nobody above cache/slots.c can tell which.
 */
#ifndef TBG_USERD_CACHE_SLOTS_H
#define TBG_USERD_CACHE_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/cache.h"

/* How a memory budget is divided. Pure arithmetic, used before BPF loads. */
struct tbg_plan {
	uint32_t slots[TBG_CLASS_NR];
	uint32_t blobs;			/* sum of slots */
	uint32_t entries;		/* size of the index map */
	uint32_t conns;			/* connection words and flows */
	bool sock;			/* as many for sock, too */
};

/*
 * budget in bytes, at least 1 MiB. The whole of the plan stays within it, and a
 * quarter of it is for connections at most. conns_wanted: how many connections
 * at a time wire shall be able to follow; 0: as the budget has it.
 */
void tbg_plan_make(struct tbg_plan *ret, uint64_t budget, uint32_t conns_wanted);

/* What the kernel tiers read of the cache, mmapped; tiers/maps.h has it. */
struct tbg_cache_maps {
	int index_fd;			/* tbg_key -> tbg_entry */
	void *blobs[TBG_CLASS_NR];	/* arrays of tbg_class_bytes() slots */
	uint64_t *heat;			/* hits by BPF, see tbg_heat_index() */
};

/* Index into maps->heat of a blob. */
static inline uint32_t tbg_heat_index(const struct tbg_plan *plan, uint32_t id)
{
	uint32_t index = TBG_BLOB_SLOT(id);

	for (uint32_t c = 0; c < TBG_BLOB_CLASS(id); c++)
		index += plan->slots[c];
	return index;
}

/* Bytes of one slot of a class. */
uint32_t tbg_class_bytes(unsigned int class);

/* Bytes of data that a slot of the class holds, and the sums behind them. */
uint32_t tbg_class_room(unsigned int class);
uint16_t *tbg_blob_sums(struct tbg_blob *blob, unsigned int class);

/*
 * The slots themselves. cache/objects.c alone calls what follows; any thread may, but
 * for tbg_blob_slots_tick(). A slot is free, taken (a draft), owned (published) or
 * resting. Each taking raises the slot's generation, which is never 0.
 */
struct tbg_blob_slots;

/* blobs: mmapped arrays by class; NULL: anonymous memory. */
int tbg_blob_slots_open(struct tbg_blob_slots **ret, const struct tbg_plan *plan,
		   void *const *blobs);
void tbg_blob_slots_close(struct tbg_blob_slots *s);

struct tbg_blob *tbg_blob_slots_blob(struct tbg_blob_slots *s, uint32_t id);

/*
 * Takes a free slot, leaving `leave` free ones behind. 0, or -ENOSPC. The
 * blob's gen is 0 until the caller stores *ret_gen into it.
 */
int tbg_slot_take(struct tbg_blob_slots *s, unsigned int class, uint32_t leave,
		  uint32_t *ret_id, uint32_t *ret_gen);

/* The slot's published owner, for tbg_slot_sample(); NULL: none any more. */
void tbg_slot_own(struct tbg_blob_slots *s, uint32_t id, void *owner);

/*
 * The slot is no longer used. rest: the kernel tiers knew it, so it rests
 * TBG_QUARANTINE_S from the next tick on.
 */
void tbg_slot_give(struct tbg_blob_slots *s, uint32_t id, bool rest);

/*
 * The owner of least weight among up to nr of a class, from a random place
 * on; hold(owner) is called before the owner can go away. NULL: none owned.
 */
void *tbg_slot_sample(struct tbg_blob_slots *s, unsigned int class, unsigned int nr,
		      uint32_t seed, uint32_t (*weight)(void *owner),
		      void (*hold)(void *owner));

struct tbg_blob_slots_use {
	uint32_t slots, free, resting;
};
void tbg_blob_slots_use(struct tbg_blob_slots *s, unsigned int class,
		   struct tbg_blob_slots_use *ret);

/* Ends the rest of slots whose time is over; time comes from here alone. */
void tbg_blob_slots_tick(struct tbg_blob_slots *s, uint64_t now_ns);

#endif
