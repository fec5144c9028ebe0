/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Where the way to a client depends on more than its address (rules, routes for some
 * sources), the daemon asks the kernel for it, once for each pair of addresses. BPF adds
 * the pair to tbg_pair_asks when a client has proved its address, and reads the answer in
 * tbg_pairs. Until there is one, connections are the kernel's.
 */
#ifndef TBG_ABI_PAIR_H
#define TBG_ABI_PAIR_H

#include "tcb.h"

/* IP versions for which the kernel is asked: in knob->asks. */
#define TBG_ASKS_V4	1
#define TBG_ASKS_V6	2

struct tbg_pair_key {
	__u32 client[4], local[4];	/* IPv4 mapped into IPv6 */
	__u32 vrf;			/* index of its device; or 0 */
	__u16 port;			/* local one, network order */
	__u16 pad;
};

/*
 * The kernel may reuse an element for another pair while a program reads it: the program copies
 * what it needs, and then compares the key.
 */
struct tbg_pair {
	struct tbg_pair_key key;
	struct tbg_way way;	/* all zero: the kernel sends nothing there */
	__u32 asked_ms;		/* CLOCK_MONOTONIC, when BPF wanted to know */
	__u32 ways;		/* the knob's, at the answer or before */
};

/* How long an answer counts, and when BPF asks again for a pair that is in use. */
#define TBG_PAIR_MS		50000
#define TBG_PAIR_AGAIN_MS	30000

/*
 * The daemon answers so few questions that the table holds all that count: clients with many
 * addresses do not push out others.
 */
#define TBG_PAIRS_MAX		65536
#define TBG_PAIRS_A_SECOND	1000
#define TBG_PAIRS_SWEEP_MS	10000	/* time between two removals of old answers */
#define TBG_PAIR_ASKS_MAX	1024

_Static_assert((TBG_PAIR_MS + TBG_PAIRS_SWEEP_MS) / 1000 * TBG_PAIRS_A_SECOND +
	       TBG_PAIRS_A_SECOND < TBG_PAIRS_MAX, "they hold all answers that count");
_Static_assert(sizeof(struct tbg_pair_key) == 40, "abi");
_Static_assert(sizeof(struct tbg_pair) == 68, "abi");

#endif
