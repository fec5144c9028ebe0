/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counters of answered requests, for monitoring: by site, status and latency.
 * The kernel tiers count in per-CPU maps, workers in their own memory. Each
 * request is counted once, where its line for the access log is made.
 *
 * Cardinality is bounded: the last byte of a site's id is its number here, and
 * all sites beyond TBG_METRIC_OTHER share that number.
 */
#ifndef TBG_ABI_METRIC_H
#define TBG_ABI_METRIC_H

#include "types.h"

#define TBG_METRIC_SITES	256
#define TBG_METRIC_OTHER	255
#define TBG_METRIC_SITE(vhost)	((vhost) & 255)

/* Statuses from 100 on. */
#define TBG_METRIC_CODES	512
#define TBG_METRIC_CODE(status)	(((status) - 100) & (TBG_METRIC_CODES - 1))

/* Bucket i holds latencies up to 2^(i + TBG_METRIC_SHIFT) ns; the last any. */
#define TBG_METRIC_BUCKETS	32	/* a power of two, so that BPF can mask */
#define TBG_METRIC_SHIFT	8

/*
 * How long wire takes the latency of a hit for that of the next ones on the same CPU: to read
 * the clock twice for each would cost several per cent of its time. A hit that the access log
 * shows is always measured.
 */
#define TBG_METRIC_TIMED_NS	1000000

/* Of one tier of the kernel. codes: of GET, of HEAD. */
struct tbg_metric_tier {
	__u64 bucket[TBG_METRIC_BUCKETS];
	__u64 took_ns;
	__u64 timed_ns;		/* arrival of the last hit that was measured, */
	__u64 timed_took;	/* its latency, */
	__u64 timed_bucket;	/* and the bucket of that */
	__u64 code[2][TBG_METRIC_CODES];
};

/* Of one site in one tier. status: [n] is nxx. */
struct tbg_metric_site {
	__u64 requests;
	__u64 body;
	__u64 status[6];
};

/* Index into tbg_site_hits. tier: wire or sock. */
#define TBG_METRIC_INDEX(tier, vhost) \
	((tier) * TBG_METRIC_SITES + TBG_METRIC_SITE(vhost))

static inline __attribute__((always_inline, unused))
__u32 tbg_metric_bucket(__u64 ns)
{
	__u64 left = ns ? (ns - 1) >> TBG_METRIC_SHIFT : 0;
	__u32 n = 0;

	if (left >> 32)
		return TBG_METRIC_BUCKETS - 1;
	if (left >> 16)
		left >>= 16, n += 16;
	if (left >> 8)
		left >>= 8, n += 8;
	if (left >> 4)
		left >>= 4, n += 4;
	if (left >> 2)
		left >>= 2, n += 2;
	if (left >> 1)
		left >>= 1, n += 1;
	n += left;
	return n < TBG_METRIC_BUCKETS ? n : TBG_METRIC_BUCKETS - 1;
}

#endif
