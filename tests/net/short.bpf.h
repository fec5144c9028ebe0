/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Included by the compiler before the sock tier: the kernel has no memory for one of the
 * pieces of a response. short.c loads the tbg_expand of this build onto the maps of a daemon.
 */
#ifndef TBG_TESTS_NET_SHORT_BPF_H
#define TBG_TESTS_NET_SHORT_BPF_H

#include <stdbool.h>

#include "core/span.h"

__u32 tbg_short_at = ~0u;	/* the piece, counted from the first that is pushed */
__u32 tbg_short_nr;		/* how often it was pushed */

static __always_inline bool tbg_short(__u32 i)
{
	if (i != tbg_short_at)
		return false;
	__sync_fetch_and_add(&tbg_short_nr, 1);
	return true;
}

/* i is that of tbg_expand_push() */
#define bpf_msg_push_data(msg, start, len, flags)			\
	(tbg_short(i) ? -12 /* ENOMEM */ : bpf_msg_push_data(msg, start, len, flags))

#endif
