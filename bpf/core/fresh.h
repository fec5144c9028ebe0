/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Freshness (RFC 9111 4.2) as every tier decides it: against the monotonic
 * clock, so that no step of the wall clock makes an entry young again.
 */
#ifndef TBG_CORE_FRESH_H
#define TBG_CORE_FRESH_H

#include "span.h"

/* expires_ns ~0: fresh until withdrawn. At its expiry an entry is stale. */
__tbg_inline int tbg_fresh(__u64 expires_ns, __u64 now_ns)
{
	return now_ns < expires_ns;
}

#endif
