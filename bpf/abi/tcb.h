/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A connection that wire owns: its transmission control block (RFC 9293 3.3.1)
 * in place of a socket. BPF creates it when the client has proved its address
 * and deletes it when the connection ends or is the kernel's. The daemon reads
 * it, gives idle connections back to it, and sweeps those that time out. All
 * sequence numbers are those that the client sees.
 *
 *     idle  <=>  the next byte of the client's stream is the segment's first,
 *                and all that was sent is acknowledged
 */
#ifndef TBG_ABI_TCB_H
#define TBG_ABI_TCB_H

#include "ask.h"
#include "conn.h"

/*
 * Addresses and ports of a connection, and the VRF that they belong to: index of its
 * device, or 0.
 */
struct tbg_tcb_key {
	struct tbg_flow_key flow;
	__u32 vrf;
};

#define TBG_VRFS_MAX 1024	/* interfaces in VRFs */

/* A listener that is bound to the device of a VRF. */
struct tbg_vrf_end {
	__u32 local[4];		/* 0: all addresses */
	__u32 vrf;
	__u16 port;		/* network order */
	__u16 v6;
};

/* A prefix of addresses: that many leading bits, IPv4 mapped into IPv6. */
struct tbg_way_key {
	__u32 bits;
	__u32 address[4];
};

/*
 * The interfaces by which the kernel's routes reach these addresses, that of lo for
 * this host's own; unused elements are 0.
 */
#define TBG_WAY_IFACES 4

struct tbg_way {
	__u32 ifindex[TBG_WAY_IFACES];
	__u32 id;		/* another one: these are other routes, or have changed */
};

#define TBG_WAYS_MAX	65536

/* An interface that lies on another: a bridge on its ports, a VLAN on its device. */
struct tbg_above_key {
	__u32 above, below;
};

/* What the kernel takes from the upper one for packets that leave by it. */
struct tbg_above {
	__u32 vlan;		/* of its frames on the lower one; 0: none */
	__u32 mtu, mtu6;	/* mtu6: for IPv6 */
	__u32 hops;		/* hop limit, of IPv6 */
};

#define TBG_ABOVES_MAX	8192

/* X(name, what `toboggan connections` calls it) */
#define TBG_TCB_LIST(X) \
	X(OPEN,		"open")		/* wire owns it and answers hits */ \
	X(GIVING,	"giving back")	/* the daemon is closing its socket */ \
	X(HANDED,	"handed over")	/* the kernel creates or has its socket */ \
	X(LAST_ACK,	"last-ack")	/* the client has closed, then we */ \
	X(FIN_WAIT,	"fin-wait")	/* we have closed, the client has not */ \
	X(TIME_WAIT,	"time-wait")	/* both have closed, we first */

enum tbg_tcb_state {
#define X(name, text) TBG_TCB_##name,
	TBG_TCB_LIST(X)
#undef X
	TBG_TCB_STATES
};

/* Flags beside TBG_FLOW_TS and TBG_FLOW_V6 */
#define TBG_TCB_SACK	0x02	/* both sides use selective acknowledgements */
#define TBG_TCB_WSCALE	0x04	/* both sides scale their windows */
#define TBG_TCB_ECN	0x08	/* negotiated; wire itself never sends ECT */
#define TBG_TCB_LOSSY	0x10	/* a reply was lost: the next request is handed over */
#define TBG_TCB_HELD	0x40	/* an existing socket may be the one that is being closed */
#define TBG_TCB_DF	0x80	/* packets are sent with DF */

struct tbg_tcb {
	struct bpf_spin_lock lock;
	__u32 rcv_nxt;		/* the client's next byte */
	__u32 snd_nxt;		/* our next byte; our FIN, once sent, is at it */
	__u32 acked;		/* highest acknowledgement seen */
	__u32 tsoff;		/* our TSval less CLOCK_MONOTONIC in ms */
	__u32 tsval;		/* newest TSval sent */
	__u32 tsrecent;		/* newest TSval of the client */
	__u32 flowinfo;		/* IPv6: first word of the header, as sent */
	__u32 ifindex;		/* interface of its last request at TC, or handshake */
	__u32 repeat_ms;	/* start of the count in resent; TBG_FRESH: the reply's */
	__u32 seen_ms;		/* CLOCK_MONOTONIC of the last acceptable segment */
	__u32 born_ms;
	__u32 challenged_ms;	/* of the last challenge ACK (RFC 5961 7) */
	__u32 answers;		/* requests that wire has answered */
	__u16 win;		/* raw window field that we advertise, network order */
	__u16 mss;		/* payload bytes per segment, options deducted */
	__u16 peer_mss;		/* of the client's SYN */
	__u16 resent;		/* segments retransmitted since repeat_ms; or TBG_FRESH */
	__u8 wscale;		/* shift of the client's window field, << 4: of ours */
	__u8 flags;
	__u8 ttl;
	__u8 tos;
	__u8 dups;		/* duplicate ACKs in a row, without SACK */
	__u8 state;		/* enum tbg_tcb_state */
	__u8 tries;		/* retransmissions by our timer without progress */
	__u8 undone;		/* GIVING: a segment has gone to the socket meanwhile */
	__u16 mac[3];		/* source address of that frame */
	__u16 own[3];		/* its destination address: the interface's own */
	__u16 vlan;		/* VLAN tag of these frames, network order; 0: none */
	__u8 fails;		/* segments that the kernel dropped, or that waited for conntrack */
	__u8 tried;		/* TBG_TCB_*; HANDED: TBG_HAND_* of the last one, too */
	/* Written by the daemon alone, for the next give-back; see tbg_tcb_take(). */
	__u16 given_at;		/* answers at the last give-back, low bits; 0: none */
	__u16 unpaid;		/* give-backs in a row that did not pay */
	__u32 ways;		/* the knob's, when tbg_way_fits() last held */
	struct tbg_exchange last;
};

#define TBG_HAND_PLAIN	0x01	/* the kernel has no reason to drop it */
#define TBG_HAND_KNOWN	0x02	/* conntrack matched it to an established connection */
#define TBG_HAND_MADE	0x04	/* its socket was seen */
#define TBG_TCB_PASSED	0x20	/* the host's firewall has let its beginning pass */
#define TBG_TCB_XDP	0x40	/* the last reply left by XDP */
#define TBG_TCB_COUNTED	0x80	/* counted among the connections of its client in tbg_crowds */

/* A client in the counts of connections: the bits of its address that name it. */
struct tbg_crowd_key {
	__u64 address[2];
};

#define TBG_CROWDS_MAX	65536	/* clients that have connections of wire and are counted */

/*
 * How full the table of connections is. Once `most` places are taken, the kernel answers SYNs:
 * its connections take no place. A connection that wire closed first stays for a minute, as in
 * TIME_WAIT. Once there are `closed_most` of these, a further one is removed as soon as it has
 * ended, as the kernel does with net.ipv4.tcp_max_tw_buckets. The daemon's sweep corrects both
 * numbers.
 */
struct tbg_tcb_room {
	__s32 taken, most;	/* most, closed_most: 0: no limit */
	__s32 closed, closed_most;
};

/* After this many retransmissions of the request without a socket, the connection is reset. */
#define TBG_HAND_TRIES	5

/*
 * What a listener offers in a SYN-ACK. It is learned from the kernel's own half-open
 * requests, and wire offers the same. The kind of a SYN is the set of these options
 * that it has.
 */
#define TBG_OFFER_TS	 0x01
#define TBG_OFFER_WSCALE 0x02
#define TBG_OFFER_SACK	 0x04
#define TBG_OFFER_ECN	 0x08

struct tbg_offer_key {
	__u32 local[4];
	__u32 ifindex;
	__u16 port;		/* network order */
	__u16 kind;		/* TBG_OFFER_* that the client's SYN has */
};

struct tbg_offer {
	__u32 window;		/* of the SYN-ACK, unscaled */
	__u32 learned_ms;	/* CLOCK_MONOTONIC */
	__u8 kind;		/* TBG_OFFER_* that the kernel accepts */
	__u8 wscale;
	__u8 pad[2];
};

/* Age at which an offer is learned again: one SYN goes to the kernel. */
#define TBG_OFFER_MS	1000

/* What tbg_push has to do, in cb[0]; its input is a segment as if sent by the client. */
#define TBG_PUSH_AGAIN	1	/* retransmit; returns ms to the next look, plus 1 */
#define TBG_PUSH_FIN	2	/* close an idle connection, or retransmit our FIN */
#define TBG_PUSH_RST	3	/* reset */
#define TBG_PUSH_ASK	4	/* could wire answer the request that the segment carries? */
#define TBG_PUSH_GIVE	5	/* the same, and own the connection again: its socket is idle */
#define TBG_PUSH_ANSWER	6	/* that socket is closed: send the reply */
#define TBG_PUSH_WHY	TBG_ASK_WHY	/* what would be counted for the request in the segment? */
/*
 * See each of its segments from now on, although it has a socket, and go on where the last one
 * came from, if that is known. Returns 0 if the connection is not there.
 */
#define TBG_PUSH_SEEK	8
#define TBG_PUSH_IN	9	/* let the segment arrive at its interface */

/* Retransmissions by the timer before the connection is reset: 50 s. */
#define TBG_PUSH_TRIES	8

/* First timeout of the retransmission timer; it doubles each time. */
#define TBG_DUE_MS	200

/* Returns the timeout of the tries-th repeat in ms, from the last transmission. */
static inline __attribute__((always_inline, unused)) __u32 tbg_due_ms(__u32 tries)
{
	return TBG_DUE_MS << (tries < 7 ? tries : 7);
}

/* A reply unacknowledged for this long may have left by an outdated route. */
#define TBG_ASTRAY_MS	3000

_Static_assert(sizeof(struct tbg_tcb_key) == 40, "abi");
_Static_assert(sizeof(struct tbg_tcb) == 96 + 32, "abi");
_Static_assert(sizeof(struct tbg_offer_key) == 24, "abi");
_Static_assert(sizeof(struct tbg_above) == 16, "abi");
_Static_assert(sizeof(struct tbg_offer) == 12, "abi");

#endif
