/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A connection as both sides see it.
 *
 * tbg_conns is an mmapped array of struct tbg_conn_word, by slot: what the
 * daemon has taken and written, in the socket's own byte counts, from the
 * first byte after the handshake, modulo 2^32. BPF zeroes it when the flow is
 * born; afterwards the daemon is the only writer of word (one release store
 * just before the last bytes of a response are handed to send()) and BPF that
 * of the rest. The daemon clears sent_ms where the flow is closed or gone.
 *
 *     idle  <=>  given == taken  and  written == acked
 *
 * where taken and written include what sock has answered on the same socket
 * (abi/sock.h), which the daemon never sees.
 *
 * tbg_flows maps the four-tuple to struct tbg_flow. BPF writes it; the daemon
 * reads it (slot of a connection, last activity) and its sweeper deletes.
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
#define TBG_FLOW_LEFT	  0x10	/* wire translates, but answers no more */
#define TBG_FLOW_V6	  0x20
#define TBG_FLOW_TOLD	  0x40	/* tbg_tell_window() stands where the next bytes do */
#define TBG_FLOW_LAST	  0x80	/* the socket closed after the client: no TIME_WAIT */
#define TBG_FLOW_CLOSED	  (TBG_FLOW_FIN_IN | TBG_FLOW_FIN_OUT | TBG_FLOW_RST)

/* How its frames come, and its replies go (struct tbg_flow's way) */
#define TBG_WAY_BARE	  0x01	/* without VLAN tags, in both directions */
#define TBG_WAY_XDP	  0x02	/* the last reply left by XDP */
#define TBG_WAY_LOST	  0x04	/* the socket sends by a way without us: to be reset */
#define TBG_WAY_BURIED	  0x08	/* the sweeper is about to delete it */

/* Repeats (struct tbg_flow's repeat_ms, resent) */
#define TBG_AGAIN_MS	  10	/* least time between two of what is asked for again */
#define TBG_FRESH	  0x8000 /* nothing has been repeated, only the reply itself sent */

/* Wire's last exchange, for a byte-identical repeat. Client's numbers. */
struct tbg_exchange {
	__u32 req_seq;		/* first byte of the request */
	__u16 req_len;
	__u16 owed;		/* bytes behind len that were given to the socket */
	__u32 seq;		/* first byte of the reply */
	__u32 len;		/* 0: no exchange yet */
	__u32 blob;
	__u32 gen;
	__u32 date_s;		/* second whose Date, or the Age, it carried */
	__u16 part;		/* and above it enum tbg_persist << 8 */
	__u16 seg;		/* payload bytes of its segments but the last */
};

struct tbg_flow {
	struct bpf_spin_lock lock;	/* wherever both directions, or two CPUs, could meet */
	__u32 slot;		/* index into tbg_conns */
	__u32 irs;		/* first sequence number after the client's SYN */
	__u32 iss;		/* first sequence number after our SYN */
	__u32 in_delta;		/* request bytes that wire consumed */
	__u32 out_delta;	/* response bytes that wire sent */
	__u32 given;		/* bytes the stack has been handed (kernel count) */
	__u32 acked;		/* highest ack seen, client's numbers, absolute */
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
	__u32 repeat_ms;	/* since when resent counts; of the reply itself: when it left */
	__u32 told;		/* kernel count: acknowledged, and the stack knows */
	__u16 resent;		/* segments of the last reply sent again lately; TBG_FRESH */
	__u8 dups;		/* duplicate ACKs in a row, without SACK */
	__u8 way;		/* TBG_WAY_* */
	__u32 window;		/* kernel count: where that of the socket ends */
	__u32 tsrecent;		/* newest TSval of the client */
	__u16 heard;		/* the socket knows of no larger window: raw field */
	__u16 mac[3];		/* where the socket's frames go, on the interface of its birth */
	__u64 seen_ns;		/* CLOCK_MONOTONIC of the last packet */
	struct tbg_exchange last;
	__u32 domain;		/* ifindex of the VRF that its interface is in; or 0 */
	__u32 up_ms;		/* CLOCK_MONOTONIC of the last segment that the stack got */
	__u32 vlans;		/* of the frames of its socket; 0: none */
	__u8 burst;		/* segments that its socket may send at first; 0: not known yet */
	__u8 df;		/* 1: the packets of its socket may not be fragmented */
	__u16 pad;
};

/*
 * An interface where XDP may answer, in tbg_ports by its index. XDP_TX says
 * nothing of a device that takes frames and drops them (a veth whose peer has
 * neither NAPI nor XDP), so the replies have to prove it: until one has been
 * acknowledged there is one at a time, and this many in a row that were asked for
 * again, or given to the socket after 200 ms, end it.
 */
#define TBG_IFACES_MAX	  64	/* that wire is on */
#define TBG_PORT_LOST	  4

struct tbg_port {
	__u32 lost;		/* replies lost in a row */
	__u32 proven;		/* 1: one has been acknowledged */
	__u32 tried_ms;		/* until then: when the one under way left; or 0 */
	__u32 counted;		/* the reply that was counted last; 0: none */
	__u16 mac[3];		/* the device's: other frames are not for this host */
	__u16 partial;		/* 1: it brings CHECKSUM_PARTIAL (veth, virtio) */
};

/*
 * What the daemon asks tbg_take_back, and the answer. First what there is: the last len
 * bytes of the exchange are to be written to the socket. Once the daemon holds these
 * bytes, it asks again with commit set, and only that takes them from the flow.
 */
struct tbg_take_back {
	struct tbg_flow_key key;
	__u32 slot;		/* the connection's: key may be another flow's by now */
	__u32 written;		/* bytes that the daemon has written so far */
	__u32 commit;
	__u32 len;
	__u32 seq, ack;		/* TBG_TAKE_BACK_LOST: of a reset that the client believes */
	struct tbg_exchange last;
};

/* What tbg_take_back returns. */
#define TBG_TAKE_BACK_NOTHING 0
#define TBG_TAKE_BACK_BYTES	  1
#define TBG_TAKE_BACK_LOST	  2	/* the guard has cut the flow off: reset it */

/* What the sweeper asks tbg_bury: whether the flow, still as it was read, is gone. */
struct tbg_burial {
	struct tbg_flow_key key;
	__u32 slot;
	__u64 seen_ns;
	__u32 revive;		/* 1: its socket is there; a reset did not reach it */
	__u32 pad;
};

_Static_assert(sizeof(struct tbg_flow_key) == 36, "abi");
_Static_assert(sizeof(struct tbg_flow) == 96 + 32 + 16, "abi");
_Static_assert(sizeof(struct tbg_conn_word) == 16, "abi");

#endif
