/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The limit of requests per second and client prefix, and a token bucket for each client
 * seen lately. The daemon and BPF write the same buckets, so a client has one limit,
 * whichever tier answers. Arithmetic: core/bucket.h.
 */
#ifndef TBG_ABI_RATE_H
#define TBG_ABI_RATE_H

#include "types.h"

/*
 * A hash selects a set of buckets; if all are in use, a new client takes the fullest of
 * its set.
 */
#define TBG_BUCKET_WAYS	8
#define TBG_BUCKET_SETS	4096u

struct tbg_bucket {
	__u64 tag;		/* of a client; 0: free */
	__u64 until_ns;		/* CLOCK_MONOTONIC when all requests so far are paid for */
};

struct tbg_bucket_set {
	struct tbg_bucket way[TBG_BUCKET_WAYS];
};

/* Of all clients. */
struct tbg_rate {
	__u64 gap_ns;		/* between two requests at the rate; 0: no limit */
	__u64 slack_ns;		/* how far a client may be ahead of that (the burst) */
	__u64 mask[2][2];	/* bits of an address that name a client: of IPv6, of IPv4 */
};

_Static_assert(sizeof(struct tbg_bucket_set) == 128, "abi");

#endif
