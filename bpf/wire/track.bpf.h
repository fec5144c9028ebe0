/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What conntrack knows of wire's connections: nothing of what wire has sent. An entry with old
 * sequence numbers is removed before the kernel gets a segment, and conntrack picks the
 * connection up in its middle.
 *
 * On some hosts that does not work:
 * - nf_conntrack_tcp_loose is 0: conntrack picks nothing up;
 * - a rule drops a segment that is new for conntrack and no SYN;
 * - there is NAT. It compares the port of the segment with that of its socket, but a late socket
 *   has no port yet, so NAT drops the socket (nf_nat_ipv4_local_in). It does so only in the
 *   direction of the connection's first segment.
 * There (TBG_TRACKS_FIRST) the daemon adds an entry first, as if this host had begun the
 * connection, and lets the segment arrive again.
 */
#ifndef TBG_WIRE_TRACK_BPF_H
#define TBG_WIRE_TRACK_BPF_H

#include "../abi/untracked.h"
#include "socket.bpf.h"
#include "tcb.bpf.h"
#include "vrf.bpf.h"

/* include/net/netfilter/nf_conntrack.h: the fields that are read here. */
struct ip_ct_tcp_state___wire {
	__u8 flags;
} __attribute__((preserve_access_index));

struct ip_ct_tcp___wire {
	struct ip_ct_tcp_state___wire seen[2];
	__u8 state;
} __attribute__((preserve_access_index));

union nf_conntrack_proto___wire {
	struct ip_ct_tcp___wire tcp;
} __attribute__((preserve_access_index));

struct nf_conn___wire {
	unsigned long status;
	union nf_conntrack_proto___wire proto;
} __attribute__((preserve_access_index));

/* include/uapi/linux/netfilter/nf_conntrack_common.h: IPS_NAT_MASK */
#define TBG_TRACK_NAT		0x30

/* include/uapi/linux/netfilter/nf_conntrack_tcp.h */
#define TBG_TRACK_ESTABLISHED	3
#define TBG_TRACK_LIBERAL	0x08

struct bpf_ct_opts___wire {
	__s32 netns_id, error;
	__u8 l4proto, dir, reserved[2];
};

extern struct nf_conn___wire *bpf_skb_ct_lookup(struct __sk_buff *skb,
						struct bpf_sock_tuple *tuple, __u32 tuple__sz,
						struct bpf_ct_opts___wire *opts,
						__u32 opts__sz) __ksym __weak;
extern int bpf_ct_change_timeout(struct nf_conn___wire *ct, __u32 timeout) __ksym __weak;
extern void bpf_ct_release(struct nf_conn___wire *ct) __ksym __weak;

/* 1: the kernel has these three kfuncs. Set by the daemon before loading. */
const volatile __u32 tbg_conntrack = 0;

/*
 * How long an entry is kept once its connection is given back: as long as conntrack waits for an
 * acknowledgement. One that the daemon has added is kept as long as that of a closed connection:
 * when the daemon has ended, nobody removes it (tbg_track_syn), and with it conntrack calls a new
 * SYN of the client invalid.
 */
#define TBG_TRACK_REST_MS 300000
#define TBG_TRACK_REST_FIRST_MS 10000

#define TBG_TRACK_RING	(1 << 19)	/* bytes: 165 segments */
#define TBG_TRACK_LAG	(TBG_TRACK_RING / 4)

/* Segments for the daemon, see abi/untracked.h. Full: the client sends it again. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, TBG_TRACK_RING);
} tbg_untracked SEC(".maps");

/* Returns whether the daemon is behind with these: new connections are left to the kernel. */
static __always_inline bool tbg_track_lags(const struct tbg_knob *knob)
{
	return knob->tracks & TBG_TRACKS_FIRST &&
	       bpf_ringbuf_query(&tbg_untracked, BPF_RB_AVAIL_DATA) > TBG_TRACK_LAG;
}

/*
 * Returns conntrack's entry of the segment's connection, or NULL; back: by the addresses of what
 * answers the segment. *replies: 1 if the segment, or its answer, goes in the direction of replies
 * there.
 */
static __always_inline struct nf_conn___wire *tbg_track_find(struct __sk_buff *skb,
							     const struct tbg_pkt *p, bool back,
							     __u8 *replies)
{
	const struct tbg_flow_key *k = &p->key;
	const __u32 *from = back ? k->local : k->remote, *to = back ? k->remote : k->local;
	__be16 sport = back ? k->local_port : k->remote_port;
	__be16 dport = back ? k->remote_port : k->local_port;
	struct bpf_ct_opts___wire opts = { .netns_id = BPF_F_CURRENT_NETNS,
					   .l4proto = IPPROTO_TCP };
	struct bpf_sock_tuple tuple = {};
	struct nf_conn___wire *ct;

	if (!tbg_conntrack)
		return NULL;
	if (p->v6) {
		__builtin_memcpy(tuple.ipv6.saddr, from, 16);
		__builtin_memcpy(tuple.ipv6.daddr, to, 16);
		tuple.ipv6.sport = sport;
		tuple.ipv6.dport = dport;
		ct = bpf_skb_ct_lookup(skb, &tuple, sizeof(tuple.ipv6), &opts, sizeof(opts));
	} else {
		tuple.ipv4.saddr = from[3];
		tuple.ipv4.daddr = to[3];
		tuple.ipv4.sport = sport;
		tuple.ipv4.dport = dport;
		ct = bpf_skb_ct_lookup(skb, &tuple, sizeof(tuple.ipv4), &opts, sizeof(opts));
	}
	*replies = opts.dir;
	return ct;
}

/*
 * Returns whether conntrack accepts any sequence number of the connection, because it
 * picked it up midstream.
 */
static __always_inline bool tbg_track_fits(const struct nf_conn___wire *ct)
{
	return BPF_CORE_READ(ct, proto.tcp.state) == TBG_TRACK_ESTABLISHED &&
	       BPF_CORE_READ(ct, proto.tcp.seen[0].flags) &
	       BPF_CORE_READ(ct, proto.tcp.seen[1].flags) & TBG_TRACK_LIBERAL;
}

/*
 * Prepares conntrack for the segment. Returns 1 if it has an entry with which the kernel gets
 * the late socket, else 0 and it has none. reverse: see above.
 */
static __attribute__((noinline)) int tbg_track_ready(struct __sk_buff *skb,
						     const struct tbg_pkt *p, bool reverse)
{
	struct nf_conn___wire *ct;
	__u8 replies;
	int fits;

	ct = tbg_track_find(skb, p, false, &replies);
	if (!ct)
		return 0;
	fits = tbg_track_fits(ct) && (replies || !reverse);
	/* expires now: the next lookup removes it */
	if (!fits)
		bpf_ct_change_timeout(ct, 0);
	bpf_ct_release(ct);
	return fits;
}

/*
 * Returns 1 if NAT has changed addresses or ports of the connection, as it can on lo, where the
 * segment has passed output and postrouting. An entry of the daemon's would not change them back.
 * The answers' addresses are those of the entry, whatever NAT has changed.
 */
static __attribute__((noinline)) int tbg_track_nats(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	struct nf_conn___wire *ct;
	__u8 replies;
	int nats;

	ct = tbg_track_find(skb, p, true, &replies);
	if (!ct)
		return 0;
	nats = !!(BPF_CORE_READ(ct, status) & TBG_TRACK_NAT);
	bpf_ct_release(ct);
	return nats;
}

/*
 * The segment's connection is given back: conntrack may not see its end, so its entry is not
 * kept for days.
 */
static __attribute__((noinline)) int tbg_track_rest(struct __sk_buff *skb, const struct tbg_pkt *p,
						    bool first)
{
	struct nf_conn___wire *ct;
	__u8 replies;

	ct = tbg_track_find(skb, p, false, &replies);
	if (!ct)
		return 0;
	bpf_ct_change_timeout(ct, first ? TBG_TRACK_REST_FIRST_MS : TBG_TRACK_REST_MS);
	bpf_ct_release(ct);
	return 0;
}

/*
 * Returns whether the daemon makes the same segment, but for checksums: with a VLAN tag of 802.1Q,
 * without an urgent pointer. Not without payload: wire would take it for an ACK of its own. Others
 * are rare, and their clients send them again.
 */
static __always_inline bool tbg_track_repeats(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	/* volatile: one read with a computed offset is refused by the verifier */
	__u32 tag = *(volatile __u32 *)&skb->protocol;

	if (skb->vlan_present)
		tag = *(volatile __u32 *)&skb->vlan_proto;
	if ((p->tcp_flags & ~(TBG_TCP_PSH | TBG_TCP_FIN)) != TBG_TCP_ACK || !p->payload_len)
		return false;
	return (!skb->vlan_present && p->l3 == ETH_HLEN) || tag == bpf_htons(ETH_P_8021Q);
}

/*
 * Gives the daemon the segment, of which the kernel gets nothing now; inbound: see
 * abi/untracked.h. sound: its checksum is right, so that it may arrive again, with one of the
 * daemon's. Not inlined: the verifier checks it once.
 */
static __attribute__((noinline)) int tbg_track_ask(struct __sk_buff *skb,
						    const struct tbg_pkt *p,
						    const struct tbg_tcb_key *key, bool inbound,
						    bool sound)
{
	struct tbg_untracked *to;
	__u64 len;

	if (!p || !key)
		return 0;
	to = bpf_ringbuf_reserve(&tbg_untracked, sizeof(*to), 0);
	if (!to)
		return 0;
	to->key = *key;
	to->inbound = inbound;
	to->ifindex = skb->ifindex;
	to->seq = p->seq;
	to->ack = p->ack;
	to->tsval = p->tsval;
	to->tsecr = p->tsecr;
	to->vlan = bpf_htons(tbg_vlans(skb, p));
	to->window = p->window;
	to->flags = (p->timed ? TBG_FLOW_TS : 0) | (p->v6 ? TBG_FLOW_V6 : 0);
	to->tcp_flags = p->tcp_flags;
	len = p->payload_len;
	if (len > TBG_UNTRACKED_MAX) {
		len = TBG_UNTRACKED_MAX;
		to->tcp_flags &= ~TBG_TCP_FIN;	/* the client sends the rest again */
	}
	if (!sound || !tbg_track_repeats(skb, p))
		to->tcp_flags = 0;
	to->len = len;
	if (bpf_skb_load_bytes(skb, 0, to->mac, sizeof(to->mac)) ||
	    bpf_skb_load_bytes(skb, p->l3, to->ip, sizeof(to->ip)) ||
	    bpf_skb_load_bytes(skb, p->l3 + (p->v6 ? 7 : 8), &to->ttl, 1))
		goto no;
	if (len) {
		TBG_BOUND(len, TBG_UNTRACKED_MAX, goto no);
		if (bpf_skb_load_bytes(skb, p->payload, to->b, len))
			goto no;
	}
	bpf_ringbuf_submit(to, 0);
	return 0;
no:
	bpf_ringbuf_discard(to, 0);
	return 0;
}

/*
 * A SYN that passes up. If conntrack has an entry of the daemon's with these addresses and ports,
 * the SYN is invalid: it comes from the side that did not begin. The entry is removed if its
 * connection has ended. Otherwise the daemon turns it round before the SYN comes again.
 */
static __attribute__((noinline)) int tbg_track_syn(struct __sk_buff *skb,
						   const struct tbg_pkt *p,
						   const struct tbg_tcb_key *key)
{
	struct nf_conn___wire *ct;
	struct bpf_sock *sk;
	__u32 state = 0;
	bool lives;
	__u8 replies;

	ct = tbg_track_find(skb, p, false, &replies);
	if (!ct)
		return 0;
	if (!replies) {
		bpf_ct_release(ct);
		return 0;
	}
	sk = tbg_socket_get(skb, p, &state);
	if (sk)
		bpf_sk_release(sk);
	lives = sk && state != BPF_TCP_LISTEN && state != BPF_TCP_TIME_WAIT;
	if (!lives)
		bpf_ct_change_timeout(ct, 0);
	bpf_ct_release(ct);
	if (lives)
		tbg_track_ask(skb, p, key, true, false);
	return 0;
}

#endif
