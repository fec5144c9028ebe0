/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * An entry of the table of connections that are known to have a socket
 * (bpf/wire/known.bpf.h). Only BPF reads and writes it; tests do both.
 */
#ifndef TBG_ABI_KNOWN_H
#define TBG_ABI_KNOWN_H

#include "types.h"

#define TBG_KNOWN_BITS	14

/* Special marks. A slot that is being written has one writer, who reads the second one. */
#define TBG_KNOWN_NONE	0
#define TBG_KNOWN_BUSY	1	/* is being written */
#define TBG_KNOWN_VOID	2	/* and is to be emptied, for a connection becomes wire's */

/* Where the segments of a connection come from. Addresses are as in a frame. */
struct tbg_known_from {
	__u16 own[3], mac[3];	/* destination and source address of their frames */
	__u32 ifindex;
	__u32 vlan;		/* 0: none */
};

struct tbg_known {
	__u64 mark;		/* hash of addresses and ports, or TBG_KNOWN_* */
	__u64 ends[4];		/* remote and local address; IPv4: both are in the first word */
	struct tbg_known_from from;
};

#endif
