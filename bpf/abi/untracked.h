/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What BPF asks the daemon to tell conntrack of a connection, before the kernel gets its
 * segment (tbg_untracked). The daemon then lets that segment arrive a second time.
 */
#ifndef TBG_ABI_UNTRACKED_H
#define TBG_ABI_UNTRACKED_H

#include "tcb.h"

#define TBG_UNTRACKED_MAX	3072	/* payload; with headers, a test run takes a page at most */

struct tbg_untracked {
	struct tbg_tcb_key key;
	__u32 inbound;		/* 1: the client is to be the originator in conntrack */
	__u32 ifindex;
	__u32 seq, ack;
	__u32 tsval, tsecr;	/* if flags has TBG_FLOW_TS */
	__u16 mac[6];		/* of the frame: destination, source */
	__u16 vlan;		/* tag of the frame, network order; 0: none */
	__u16 window;		/* raw field, host order */
	__u16 len;
	__u8 flags;		/* TBG_FLOW_TS, TBG_FLOW_V6 */
	__u8 tcp_flags;		/* 0: the segment is not to arrive again */
	__u8 ip[4];		/* the first word of its IP header */
	__u8 ttl;		/* or hop limit */
	__u8 pad[3];
	__u8 b[TBG_UNTRACKED_MAX];
};

_Static_assert(sizeof(struct tbg_untracked) == 92 + TBG_UNTRACKED_MAX, "abi");

#endif
