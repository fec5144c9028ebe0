/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What BPF asks the daemon to tell conntrack of a connection, before the kernel gets its
 * segment (tbg_untracked). The daemon then lets that segment arrive a second time.
 */
#ifndef TBG_ABI_UNTRACKED_H
#define TBG_ABI_UNTRACKED_H

#include "tcb.h"

#define TBG_UNTRACKED_MAX	3072	/* payload; with headers, a test run takes a page at most */

#define TBG_UNTRACKED_INBOUND	1	/* the client is to be the originator in conntrack */
#define TBG_UNTRACKED_AGAIN	2	/* the segment is to arrive again */
#define TBG_UNTRACKED_MORE	4	/* conntrack is asked already: it follows such a segment */

/* A segment, or a part of a long one. */
struct tbg_untracked {
	struct tbg_tcb_key key;
	__u32 how;		/* TBG_UNTRACKED_* */
	__u32 ifindex;
	__u32 seq, ack;
	__u32 tsval, tsecr;	/* if flags has TBG_FLOW_TS */
	__u16 mac[6];		/* of the frame: destination, source */
	__u16 vlan;		/* tag of the frame, network order; 0: none */
	__u16 window;		/* raw field, host order */
	__u16 len;
	__u8 flags;		/* TBG_FLOW_TS, TBG_FLOW_V6 */
	__u8 tcp_flags;
	__u8 ip[4];		/* the first word of its IP header */
	__u8 ttl;		/* or hop limit */
	__u8 pad[3];
	__u8 b[TBG_UNTRACKED_MAX];
};

_Static_assert(sizeof(struct tbg_untracked) == 92 + TBG_UNTRACKED_MAX, "abi");

#endif
