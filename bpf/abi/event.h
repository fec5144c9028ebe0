/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One record of tbg_events, the ring buffer from the kernel tiers to the
 * daemon's access log: a hit with the request's own bytes behind it, so that
 * the log line has every field that a user-space hit would have.
 */
#ifndef TBG_ABI_EVENT_H
#define TBG_ABI_EVENT_H

#include "types.h"

#define TBG_TIER_LIST(X) X(wire) X(sock) X(user)

enum tbg_tier {
#define X(name) TBG_TIER_##name,
	TBG_TIER_LIST(X)
#undef X
	TBG_TIER_NR
};

struct tbg_event {
	__u64 mono_ns;		/* CLOCK_MONOTONIC */
	__u32 remote[4];	/* IPv4 addresses are IPv4-mapped */
	__u16 remote_port;	/* network order */
	__u16 status;
	__u32 sent;		/* response bytes, head included */
	__u32 body;		/* body bytes */
	__u32 req_len;
	__u32 took_ns;		/* from the request's arrival to its answer */
	__u32 tier;		/* enum tbg_tier */
	__u8 req[];
};

_Static_assert(sizeof(struct tbg_event) == 48, "abi");

#endif
