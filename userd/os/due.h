/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Entries by the time at which they are due: a binary heap of pointers, for clients that
 * are denied for a time (tiers/bans.c). An entry contains a struct tbg_due and belongs to
 * the caller. Takes no lock.
 */
#ifndef TBG_USERD_OS_DUE_H
#define TBG_USERD_OS_DUE_H

#include <stdint.h>

struct tbg_due {
	uint64_t at_ns;			/* CLOCK_MONOTONIC; 0: never */
	unsigned int place;		/* in the heap, from 1; 0: not in it */
};

struct tbg_due_heap {
	struct tbg_due **entry;		/* [place - 1] */
	unsigned int nr, room;
};

/*
 * Sets when an entry is due; at_ns 0 takes it out of the heap, which always succeeds.
 * 0, or -ENOMEM without a change.
 */
int tbg_due_set(struct tbg_due_heap *h, struct tbg_due *d, uint64_t at_ns);

/* The entry that is due first; NULL: none. */
struct tbg_due *tbg_due_first(const struct tbg_due_heap *h);

/* Frees the heap, not the entries. */
void tbg_due_free(struct tbg_due_heap *h);

#endif
