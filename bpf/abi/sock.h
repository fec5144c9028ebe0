/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A connection of the sock tier, as shared by the BPF programs and the daemon:
 * an element of the mmapped array tbg_sock_conns. Counts are of bytes of a
 * stream, or of hits, modulo 2^32. BPF writes its members under the socket's
 * lock, so only one of its programs does at a time.
 *
 *     sock may answer  <=>  passed == taken, and the socket has all answers to
 *                           that: sent == written + written by hits
 *
 * The daemon publishes word just before its last send, so the second condition
 * is checked on the socket, once (settled): later, hits under way would change
 * the counts.
 */
#ifndef TBG_ABI_SOCK_H
#define TBG_ABI_SOCK_H

#include "conn.h"

/* Flags */
#define TBG_SOCK_CLOSED	0x1	/* the socket's state is CLOSE */
#define TBG_SOCK_BROKEN	0x2	/* bytes are lost, or too many unread: reset when it closes */
#define TBG_SOCK_FIN	0x4	/* the client's side has ended */

/* Shortest request that sock answers: what replaces it must fit. */
#define TBG_SOCK_REQ_MIN 27

struct tbg_sock_conn {
	/* written by the daemon */
	__u64 word;		/* TBG_CONN_WORD of what the daemon has answered */
	__u32 received;		/* bytes read from the socket */
	__u32 shut;		/* 1: no more hits; it is about to close */
	__u32 released;		/* 1: it has closed; the slot may be used again */
	__u32 worker;		/* whose ring buffer reports it */
	__u32 quiet;		/* 1: report when data arrives for the daemon; BPF clears it then */
	/* written by BPF */
	__u32 wire;		/* 1 + slot of the connection's flow; 0: it has none */
	__u64 cookie;		/* of the socket; 0: slot is free */
	__u64 seen_ns;		/* CLOCK_MONOTONIC of the last hit */
	__u64 hits;		/* TBG_CONN_WORD of what sock has answered */
	__u32 passed;		/* bytes given to the daemon */
	__u32 queued;		/* hits redirected to the socket's egress */
	__u32 done;		/* of them, sent or given to the daemon */
	__u32 handed;		/* of them, given to the daemon */
	__u32 reserved;		/* room in the send buffer for those not done */
	__u32 next_seq;		/* of the client's next byte */
	__u32 first_seq;	/* of the socket's first byte */
	__u32 settled;		/* 1: the answers to all that was passed are sent */
	__u32 flags;		/* TBG_SOCK_* */
};

/* Where a socket of ours finds its slot; on a listener, all zero. */
struct tbg_sock_id {
	__u64 cookie;		/* 0: not enrolled */
	__u32 slot;
	__u32 pad;
};

/* How an element of tbg_pends begins: a hit on its way. */
struct tbg_pend_head {
	__u64 cookie;		/* of the socket it belongs to; 0: free */
	__u32 slot;
	__u32 gen;		/* raised with each use */
	__u32 handed;		/* the connection's, at the verdict */
	__u32 need;		/* room in the send buffer */
};

/* Hits of one connection, and of all, that are on their way. */
#define TBG_SOCK_HITS	16
#define TBG_SOCK_PENDS	4096

/* Bytes that a client may have sent and the daemon not read: nobody charges them. */
#define TBG_SOCK_UNREAD	(32u << 20)

_Static_assert(sizeof(struct tbg_pend_head) == 24, "abi");
_Static_assert(sizeof(struct tbg_sock_conn) == 96, "abi");

#endif
