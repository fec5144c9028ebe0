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

/* What the daemon was given of a connection. */
struct tbg_track_wait {
	__u64 end;		/* the producer's position in tbg_untracked after that */
	__u32 first;		/* sequence number of the first one */
	__u32 next;		/* sequence number of the client's byte behind it */
	__u32 nr;		/* samples */
	__u32 pad;
};

/*
 * Connection -> its segments that wait for conntrack. Writer: BPF. LRU: if an entry is evicted,
 * the client sends again what followed.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct tbg_tcb_key);
	__type(value, struct tbg_track_wait);
} tbg_track_waits SEC(".maps");

#define TBG_TRACK_PARTS	24	/* samples of a connection at a time: 64 KiB if they are merged */

/* Returns whether the daemon has more than a few samples to read. */
static __always_inline bool tbg_track_behind(void)
{
	return bpf_ringbuf_query(&tbg_untracked, BPF_RB_AVAIL_DATA) > TBG_TRACK_LAG;
}

/* Returns whether the daemon is behind with these: new connections are left to the kernel. */
static __always_inline bool tbg_track_lags(const struct tbg_knob *knob)
{
	return knob->tracks & TBG_TRACKS_FIRST && tbg_track_behind();
}

/* Returns whether the ring has room for one more sample, which has a header of 8 bytes. */
static __always_inline bool tbg_track_room(void)
{
	return bpf_ringbuf_query(&tbg_untracked, BPF_RB_AVAIL_DATA) <=
	       TBG_TRACK_RING - sizeof(struct tbg_untracked) - 16;
}

/* Returns what the daemon has been given of the connection and not dealt with yet, or NULL. */
static __always_inline struct tbg_track_wait *tbg_track_waiting(const struct tbg_tcb_key *key)
{
	struct tbg_track_wait *w = bpf_map_lookup_elem(&tbg_track_waits, key);
	__s64 left;

	if (!w)
		return NULL;
	left = w->end - bpf_ringbuf_query(&tbg_untracked, BPF_RB_CONS_POS);
	return left > 0 ? w : NULL;
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
__attribute__((noinline)) int tbg_track_ready(struct __sk_buff *skb, const struct tbg_pkt *p,
					      bool reverse)
{
	struct nf_conn___wire *ct;
	__u8 replies;
	int fits;

	ct = p ? tbg_track_find(skb, p, false, &replies) : NULL;
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
__attribute__((noinline)) int tbg_track_nats(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	struct nf_conn___wire *ct;
	__u8 replies;
	int nats;

	ct = p ? tbg_track_find(skb, p, true, &replies) : NULL;
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
__attribute__((noinline)) int tbg_track_rest(struct __sk_buff *skb, const struct tbg_pkt *p,
					     bool first)
{
	struct nf_conn___wire *ct;
	__u8 replies;

	ct = p ? tbg_track_find(skb, p, false, &replies) : NULL;
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
 * Gives the daemon a part of the segment: from this byte of its payload on, TBG_UNTRACKED_MAX at
 * most. how: TBG_UNTRACKED_*. Returns the number of bytes, or negative. This and the next function
 * are global: the verifier checks each once, not for all ways through the loop.
 */
__attribute__((noinline)) int tbg_track_part(struct __sk_buff *skb, const struct tbg_pkt *p,
					     const struct tbg_tcb_key *key, __u32 how, __u32 from)
{
	struct tbg_untracked *to;
	__u64 len;

	if (!p || !key || from > p->payload_len)
		return -1;
	to = bpf_ringbuf_reserve(&tbg_untracked, sizeof(*to), 0);
	if (!to)
		return -1;
	to->key = *key;
	to->how = how;
	to->ifindex = skb->ifindex;
	to->seq = p->seq + from;
	to->ack = p->ack;
	to->tsval = p->tsval;
	to->tsecr = p->tsecr;
	to->vlan = bpf_htons(tbg_vlans(skb, p));
	to->window = p->window;
	to->flags = (p->timed ? TBG_FLOW_TS : 0) | (p->v6 ? TBG_FLOW_V6 : 0);
	to->tcp_flags = p->tcp_flags;
	len = p->payload_len - from;
	if (len > TBG_UNTRACKED_MAX) {
		len = TBG_UNTRACKED_MAX;
		to->tcp_flags &= ~(TBG_TCP_FIN | TBG_TCP_PSH);
	}
	to->len = len;
	if (bpf_skb_load_bytes(skb, 0, to->mac, sizeof(to->mac)) ||
	    bpf_skb_load_bytes(skb, p->l3, to->ip, sizeof(to->ip)) ||
	    bpf_skb_load_bytes(skb, p->l3 + (p->v6 ? 7 : 8), &to->ttl, 1))
		goto no;
	if (len) {
		TBG_BOUND(len, TBG_UNTRACKED_MAX, goto no);
		if (bpf_skb_load_bytes(skb, p->payload + from, to->b, len))
			goto no;
	}
	bpf_ringbuf_submit(to, 0);
	return len;
no:
	bpf_ringbuf_discard(to, 0);
	return -1;
}

/*
 * Gives the daemon the segment, of which the kernel gets nothing now; how: TBG_UNTRACKED_*. A long
 * one in parts, and what does not fit, the client sends again. Returns whether it was given.
 */
__attribute__((noinline)) int tbg_track_ask(struct __sk_buff *skb, const struct tbg_pkt *p,
					    const struct tbg_tcb_key *key, __u32 how)
{
	struct tbg_track_wait w = {}, *was;
	int i, len, given = 0;

	if (!p || !key)
		return 0;
	w.first = p->seq;
	w.next = p->seq;
	if (how & TBG_UNTRACKED_MORE) {
		was = tbg_track_waiting(key);
		if (!was || was->next != p->seq)
			return 0;
		w.first = was->first;
		w.nr = was->nr;
	}
	for (i = 0; i < TBG_TRACK_PARTS; i++) {
		if (how & TBG_UNTRACKED_MORE && (w.nr >= TBG_TRACK_PARTS || tbg_track_behind()))
			break;
		len = tbg_track_part(skb, p, key, how, w.next - p->seq);
		if (len < 0)
			break;
		w.nr++;
		given = 1;
		if (!(how & TBG_UNTRACKED_AGAIN))
			break;
		w.next += len;
		if (w.next - p->seq >= p->payload_len)
			break;
		how |= TBG_UNTRACKED_MORE;
	}
	if (!given || how & TBG_UNTRACKED_INBOUND)
		return given;
	w.end = bpf_ringbuf_query(&tbg_untracked, BPF_RB_PROD_POS);
	bpf_map_update_elem(&tbg_track_waits, key, &w, BPF_ANY);
	return 1;
}

/*
 * A SYN that passes up. If conntrack has an entry of the daemon's with these addresses and ports,
 * the SYN is invalid: it comes from the side that did not begin. The entry is removed if its
 * connection has ended. Otherwise the daemon turns it round before the SYN comes again.
 */
__attribute__((noinline)) int tbg_track_syn(struct __sk_buff *skb, const struct tbg_pkt *p,
					    const struct tbg_tcb_key *key)
{
	struct nf_conn___wire *ct;
	struct bpf_sock *sk;
	__u32 state = 0;
	bool lives;
	__u8 replies;

	ct = p ? tbg_track_find(skb, p, false, &replies) : NULL;
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
		tbg_track_ask(skb, p, key, TBG_UNTRACKED_INBOUND);
	return 0;
}

#endif
