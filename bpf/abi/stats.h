/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counters of the kernel tiers: one struct per CPU in tbg_stats (a per-CPU
 * array of one element). BPF adds; the daemon sums over the CPUs.
 */
#ifndef TBG_ABI_STATS_H
#define TBG_ABI_STATS_H

#include "types.h"
#include "why.h"

struct tbg_stats {
	__u64 why[TBG_WHY_NR];
	__u64 wire_bytes;	/* response bytes sent by wire, repeats too */
	__u64 sock_bytes;	/* response bytes sent by sock */
	__u64 xdp_hits;		/* of HIT_WIRE, those of XDP */
	__u64 xdp_left[TBG_WHY_NR]; /* requests that XDP left to TC, which counts them */
	__u64 births;		/* connections that wire has taken or begun */
	__u64 handed;		/* of them, handed over to the kernel */
	__u64 given;		/* connections that the daemon has given back */
	__u64 log_lost;		/* log events that found the ring full */
};

#endif
