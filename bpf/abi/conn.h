/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A connection of translation, as shared by the BPF programs and the
 * daemon.
 *
 * tbg_conns is an mmapped array of struct tbg_conn_word, by slot: what the
 * daemon has taken and written, in byte counts of the socket from the first
 * byte after the handshake, modulo 2^32. BPF zeroes it when the flow is born.
 * Afterwards only the daemon writes word (one release store just before it
 * hands the last bytes of a response to send()), and only BPF writes the
 * other members, but for sent_ms, which the daemon clears if the flow is
 * closed or gone.
 *
 *     idle  <=>  given == taken  and  written == acked
 *
 * where taken and written include what sock has answered on the same socket
 * (abi/sock.h), which the daemon never sees.
 *
 * tbg_flows maps the four-tuple to struct tbg_flow. BPF writes it. The daemon
 * reads it (slot of a connection, last activity), and its sweeper deletes
 * entries.
 */
#ifndef TBG_ABI_CONN_H
#define TBG_ABI_CONN_H

#include <linux/bpf.h>

#include "types.h"

#define TBG_CONN_WORD(taken, written) \
	((__u64)(__u32)(taken) | (__u64)(__u32)(written) << 32)
#define TBG_CONN_TAKEN(word)	((__u32)(word))
#define TBG_CONN_WRITTEN(word)	((__u32)((word) >> 32))

struct tbg_conn_word {
	__u64 word;
	__u32 sent_ms;	/* CLOCK_MONOTONIC of a reply not yet acknowledged; or 0 */
	__u32 sock;	/* BPF's: 1 + its slot in sock; 0: not enrolled */
};

/* IPv4 addresses are IPv4-mapped (RFC 4291 2.5.5.2). Ports: network order. */
struct tbg_flow_key {
	__u32 local[4];
	__u32 remote[4];
	__u16 local_port;
	__u16 remote_port;
};

/* Flow flags */
#define TBG_FLOW_TS	  0x01	/* both sides use TCP timestamps */
#define TBG_FLOW_FIN_IN	  0x02	/* the client closed its direction */
#define TBG_FLOW_FIN_OUT  0x04	/* the socket closed its direction */
#define TBG_FLOW_RST	  0x08	/* reset by either side */
#define TBG_FLOW_LEFT	  0x10	/* wire translates, but no longer answers */
#define TBG_FLOW_V6	  0x20
#define TBG_FLOW_WINDOW	  0x40	/* tbg_window_pass() has used the number of the next bytes */
#define TBG_FLOW_LAST	  0x80	/* the socket closed after the client: no TIME_WAIT */
#define TBG_FLOW_CLOSED	  (TBG_FLOW_FIN_IN | TBG_FLOW_FIN_OUT | TBG_FLOW_RST)

/* How frames of a flow arrive and replies leave: bits of struct tbg_flow's way */
#define TBG_WAY_BARE	  0x01	/* without VLAN tags, in both directions */
#define TBG_WAY_XDP	  0x02	/* the last reply left by XDP */
#define TBG_WAY_LOST	  0x04	/* the socket sends where our program is not: reset it */
#define TBG_WAY_BURIED	  0x08	/* the sweeper is about to delete it */

/* Retransmission by wire (struct tbg_flow's repeat_ms, resent) */
#define TBG_AGAIN_MS	  10	/* minimum time between two retransmissions of the same bytes */
#define TBG_FRESH	  0x8000 /* the reply has been sent once, and nothing retransmitted */

/*
 * Wire's last exchange, kept so that a retransmission is byte-identical. Sequence numbers
 * are those that the client sees.
 */
struct tbg_exchange {
	__u32 req_seq;		/* first byte of the request */
	__u16 req_len;
	__u16 owed;		/* bytes behind len that were taken back to the socket */
	__u32 seq;		/* first byte of the reply */
	__u32 len;		/* 0: no exchange yet */
	__u32 blob;
	__u32 gen;
	__u32 date_s;		/* the second for which its Date or Age was made */
	__u16 part;		/* enum tbg_part_id, and enum tbg_persist << 8 */
	__u16 seg;		/* payload bytes of each segment but the last */
};

struct tbg_flow {
	struct bpf_spin_lock lock;	/* for what both directions, or two CPUs, may change */
	__u32 slot;		/* index into tbg_conns */
	__u32 irs;		/* first sequence number after the client's SYN */
	__u32 iss;		/* first sequence number after our SYN */
	__u32 in_delta;		/* request bytes that wire consumed */
	__u32 out_delta;	/* response bytes that wire sent */
	__u32 given;		/* client's bytes handed to the stack (kernel count) */
	__u32 acked;		/* highest acknowledgement seen, in the client's numbers */
	__u32 sent;		/* kernel count of bytes that the socket has sent */
	__u32 tsoff;		/* socket's TSval less CLOCK_MONOTONIC in ms */
	__u32 tsval;		/* newest TSval sent */
	__u32 ifindex;		/* interface that it was born on */
	__u32 flowinfo;		/* IPv6: first word of the header, as sent */
	__u16 win;		/* raw window field of the socket's last segment */
	__u16 mss;		/* payload bytes per segment, options deducted */
	__u8 wscale;		/* shift of the client's window field, << 4: of the socket's */
	__u8 flags;
	__u8 ttl;
	__u8 tos;
	__u32 repeat_ms;	/* start of the count in resent; TBG_FRESH: the reply's */
	__u32 known;		/* acknowledged bytes that the stack knows of (kernel count) */
	__u16 resent;		/* segments retransmitted since repeat_ms; or TBG_FRESH */
	__u8 dups;		/* duplicate ACKs in a row, without SACK */
	__u8 way;		/* TBG_WAY_* */
	__u32 window;		/* end of the socket's receive window (kernel count) */
	__u32 tsrecent;		/* newest TSval of the client */
	__u16 heard;		/* largest window that the socket knows of: raw field */
	__u16 mac[3];		/* destination address of the socket's frames on ifindex */
	__u64 seen_ns;		/* CLOCK_MONOTONIC of the last packet */
	struct tbg_exchange last;
	__u32 domain;		/* ifindex of the VRF that its interface is in; or 0 */
	__u32 up_ms;		/* CLOCK_MONOTONIC of the last segment that went to the stack */
	__u32 vlans;		/* VLAN tags of its socket's frames; 0: none */
	__u8 burst;		/* segments of the socket's initial window; 0: not known yet */
	__u8 df;		/* 1: its socket sends packets with DF */
	__u16 pad;
};

/*
 * An interface where XDP may answer, in tbg_ports by its index. XDP_TX does not
 * report that a device drops the frames (a veth whose peer has neither NAPI nor
 * XDP). So replies have to prove that it works: until the first is acknowledged,
 * only one is sent at a time, and after TBG_PORT_LOST lost ones in a row
 * (retransmitted, or taken back after 200 ms) XDP no longer answers there.
 */
#define TBG_IFACES_MAX	  64	/* that wire is attached to */
#define TBG_PORT_LOST	  4

struct tbg_port {
	__u32 lost;		/* replies lost in a row */
	__u32 proven;		/* 1: one has been acknowledged */
	__u32 tried_ms;		/* before that: when the pending reply was sent; or 0 */
	__u32 counted;		/* sequence number of the lost reply counted last; 0: none */
	__u16 mac[3];		/* the device's; frames to others are not for this host */
	__u16 partial;		/* 1: frames may arrive with CHECKSUM_PARTIAL (veth, virtio) */
};

/*
 * Input and output of the program tbg_take_back. The first call reports how many of the
 * last bytes of the exchange (len) are to be written to the socket. Once the daemon has
 * these bytes in memory, it calls again with commit set, and only this call removes
 * them from the flow.
 */
struct tbg_take_back {
	struct tbg_flow_key key;
	__u32 slot;		/* of the connection: by now, key may name another flow */
	__u32 written;		/* bytes that the daemon has written to the socket */
	__u32 commit;
	__u32 len;
	__u32 seq, ack;		/* TBG_TAKE_BACK_LOST: numbers of a reset that the client accepts */
	struct tbg_exchange last;
};

/* What tbg_take_back returns. */
#define TBG_TAKE_BACK_NOTHING 0
#define TBG_TAKE_BACK_BYTES	  1
#define TBG_TAKE_BACK_LOST	  2	/* the guard has dropped a segment of the flow: reset it */

/*
 * Input of the program tbg_bury: deletes the flow if it is unchanged since the sweeper
 * has read it.
 */
struct tbg_burial {
	struct tbg_flow_key key;
	__u32 slot;
	__u64 seen_ns;
	__u32 revive;		/* 1: its socket still exists: a reset has not reached it */
	__u32 pad;
};

_Static_assert(sizeof(struct tbg_flow_key) == 36, "abi");
_Static_assert(sizeof(struct tbg_flow) == 96 + 32 + 16, "abi");
_Static_assert(sizeof(struct tbg_conn_word) == 16, "abi");

#endif
