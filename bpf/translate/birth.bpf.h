/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A flow's beginning as packets show it: embryo at SYN and SYN-ACK, born when the
 * handshake is acknowledged. What comes then is in ingress.bpf.c and egress.bpf.c;
 * the sweeper (userd/tiers/flow.c) buries it.
 */
#ifndef TBG_WIRE_BIRTH_BPF_H
#define TBG_WIRE_BIRTH_BPF_H

#include <linux/errno.h>

#include "cover.bpf.h"
#include "flow.bpf.h"
#include "maps.bpf.h"
#include "path.bpf.h"
#include "../wire/socket.bpf.h"

/*
 * XDP has to know whether a pseudo-header's sum is a checksum that was left to
 * a device: not from a real network. Only of a SYN, which GRO never merges:
 * what it does merge looks the same.
 */
static __always_inline void tbg_port_note(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct tbg_port *port;

	if (!tbg_frame_partial(skb))
		return;
	port = bpf_map_lookup_elem(&tbg_ports, &ifindex);
	if (port && !port->partial)
		port->partial = 1;
}

struct sk_buff___tracked {
	unsigned long _nfct;
} __attribute__((preserve_access_index));

/* Whether conntrack has seen the segment already, which is for it to do behind us. */
static __always_inline bool tbg_is_tracked(struct __sk_buff *skb)
{
	struct sk_buff___tracked *b = (void *)skb;

	return tbg_sockets && bpf_core_field_exists(b->_nfct) &&
	       BPF_CORE_READ(b, _nfct) & ~7ul;		/* NFCT_PTRMASK */
}

static __always_inline __u32 tbg_domain(struct __sk_buff *skb)
{
	struct sk_buff___wire *b = (void *)skb;

	return tbg_sockets ? tbg_device_domain((__u64)(long)BPF_CORE_READ(b, dev)) : 0;
}

/* Whether the segment is another VRF's: its flow, of the same ends, has none. */
static __always_inline bool tbg_is_elsewhere(struct __sk_buff *skb,
					     const struct tbg_flow *f)
{
	return skb->ifindex != f->ifindex && tbg_domain(skb) != f->domain;
}

/*
 * The client's SYN: what it can do, kept for the SYN-ACK. Not inlined: its embryo would
 * lie on the stack of all that its caller calls.
 */
static __attribute__((noinline)) void tbg_embryo_syn(struct __sk_buff *skb,
						     struct tbg_scratch *s)
{
	struct tbg_embryo e = {};
	struct tbg_tcpopt *opt;

	/* stays on the stack, as TCP Fast Open does */
	if (s->pkt.payload_len || tbg_is_link_local(&s->pkt.key))
		return;
	/* it would see the client's numbers come, and the socket's leave */
	if (tbg_is_tracked(skb)) {
		tbg_count(TBG_WHY_TRACKED);
		bpf_map_delete_elem(&tbg_embryos, &s->pkt.key);
		return;
	}
	e.domain = tbg_domain(skb);
	tbg_port_note(skb);
	opt = tbg_pkt_options(skb, s);
	e.irs = s->pkt.seq + 1;
	e.mss = opt->flags & TBG_OPT_MSS ? opt->mss : (s->pkt.v6 ? 1220 : TBG_MSS_LEAST);
	e.wscale_ok = !!(opt->flags & TBG_OPT_WSCALE);
	e.snd_wscale = opt->wscale;
	e.ts_ok = !!(opt->flags & TBG_OPT_TS);
	e.tsrecent = opt->tsval;
	e.tagged = tbg_is_tagged(skb, &s->pkt);
	bpf_map_update_elem(&tbg_embryos, &s->pkt.key, &e, BPF_ANY);
}

/* IP header fields that replies repeat. */
static __always_inline void tbg_embryo_ip(struct __sk_buff *skb,
					  const struct tbg_pkt *p,
					  struct tbg_embryo *e)
{
	__u8 head[12] = {};

	bpf_skb_load_bytes(skb, p->l3, head, sizeof(head));
	if (p->v6) {
		head[1] &= ~0x30;	/* replies are not ECN-capable */
		__builtin_memcpy(&e->flowinfo, head, 4);
		e->flags |= TBG_FLOW_V6;
		e->ttl = head[7];
	} else {
		e->tos = head[1] & ~3;
		e->ttl = head[8];
	}
}

/* Whether the ends of the socket that has sent the segment are the segment's own. */
static __always_inline bool tbg_has_ends(const struct bpf_sock *sk,
					 const struct tbg_flow_key *key, bool v6)
{
	__u32 local = sk->src_ip4 ^ key->local[3];
	__u32 remote = sk->dst_ip4 ^ key->remote[3];

	/* read first, or clang computes what to read: no arithmetic on a socket */
	tbg_keep(local);
	tbg_keep(remote);
	if (v6) {
		local = (sk->src_ip6[0] ^ key->local[0]) |
			(sk->src_ip6[1] ^ key->local[1]) |
			(sk->src_ip6[2] ^ key->local[2]) |
			(sk->src_ip6[3] ^ key->local[3]);
		remote = (sk->dst_ip6[0] ^ key->remote[0]) |
			 (sk->dst_ip6[1] ^ key->remote[1]) |
			 (sk->dst_ip6[2] ^ key->remote[2]) |
			 (sk->dst_ip6[3] ^ key->remote[3]);
	}
	return !(local | remote) && sk->dst_port == key->remote_port &&
	       sk->src_port == bpf_ntohs(key->local_port);
}

/*
 * Whether a listener of this daemon has sent the SYN-ACK. Others may have our
 * port, at another address. A SYN cookie has no socket. Where NAT translates the
 * ends, the daemon knows other ones than the packets have.
 */
static __always_inline bool tbg_is_our_synack(struct __sk_buff *skb,
					      const struct tbg_pkt *p)
{
	struct bpf_sock *sk = skb->sk;

	if (!tbg_sockets)
		return true;
	if (!sk || !tbg_has_ends(sk, &p->key, p->v6))
		return false;
	sk = bpf_get_listener_sock(sk);
	return sk && bpf_sk_storage_get(&tbg_listeners, sk, NULL, 0);
}

/*
 * Whether somebody's raw socket has sent it, who is not to end our flows. The
 * sockets of handshakes are no full ones yet, or (TCP Fast Open) have the ends.
 */
static __always_inline bool tbg_is_forged(struct __sk_buff *skb,
					  const struct tbg_pkt *p)
{
	struct bpf_sock *sk = skb->sk;

	if (!tbg_sockets || !sk)
		return false;
	sk = bpf_sk_fullsock(sk);
	return sk && !tbg_has_ends(sk, &p->key, p->v6);
}

/*
 * Whether what the socket will send passes our hooks first. By the device of its route,
 * which may lie above this one; a bond has let go of that.
 */
static __always_inline bool tbg_is_covered(struct __sk_buff *skb)
{
	struct sk_buff___wire *b = (void *)skb;
	struct dst_entry___wire *dst;

	if (!tbg_sockets)
		return true;
	dst = (void *)(BPF_CORE_READ(b, _skb_refdst) & ~TBG_DST_NOREF);
	return tbg_cover((__u64)(long)(dst ? BPF_CORE_READ(dst, dev) : BPF_CORE_READ(b, dev)));
}

/* Our SYN-ACK on its way out: the other half of what a flow needs. */
static __always_inline void tbg_embryo_synack(struct __sk_buff *skb,
					      struct tbg_scratch *s)
{
	struct tbg_pkt *p = &s->pkt;
	struct tbg_flow *old;
	struct tbg_tcpopt *opt;
	struct tbg_embryo *e;
	bool buried;

	if (tbg_is_forged(skb, p))
		return;
	old = bpf_map_lookup_elem(&tbg_flows, &p->key);
	if (old && tbg_is_elsewhere(skb, old)) {
		bpf_map_delete_elem(&tbg_embryos, &p->key);
		return;
	}
	if (old) {
		__u32 slot = old->slot;

		/* sent again: the stack has dropped the handshake's last ACK */
		if (old->iss == p->seq + 1 && old->irs == p->ack)
			return;
		bpf_spin_lock(&old->lock);
		buried = old->way & TBG_WAY_BURIED;
		old->way |= TBG_WAY_BURIED;
		bpf_spin_unlock(&old->lock);
		if (buried)
			return;		/* the sweeper deletes it: no flow this time */
		/* the socket of an older connection between these ends is gone */
		if (!bpf_map_delete_elem(&tbg_flows, &p->key))
			bpf_map_push_elem(&tbg_retired, &slot, 0);
	}
	e = bpf_map_lookup_elem(&tbg_embryos, &p->key);
	if (!e)
		return;
	opt = tbg_pkt_options(skb, s);
	if (e->irs != p->ack || opt->flags & TBG_OPT_ODD ||
	    e->domain != tbg_domain(skb) || !tbg_is_our_synack(skb, p) || !tbg_is_covered(skb)) {
		bpf_map_delete_elem(&tbg_embryos, &p->key);
		return;
	}
	e->flags = 0;
	tbg_embryo_ip(skb, p, e);
	e->iss = p->seq + 1;
	if (opt->flags & TBG_OPT_MSS && opt->mss < e->mss)
		e->mss = opt->mss;
	tbg_embryo_path(skb, e, p->v6);
	e->win = p->window;
	e->window = p->window;
	if (opt->flags & TBG_OPT_WSCALE && e->wscale_ok) {
		e->rcv_wscale = opt->wscale;
		e->win >>= opt->wscale;
	} else {
		e->rcv_wscale = 0;
		e->snd_wscale = 0;
	}
	if (opt->flags & TBG_OPT_TS && e->ts_ok) {
		e->flags |= TBG_FLOW_TS;
		e->tsval = opt->tsval;
		e->tsoff = opt->tsval - tbg_now_ms();
	}
	e->ifindex = skb->ifindex;
	bpf_skb_load_bytes(skb, 0, e->mac, sizeof(e->mac));
	e->tagged |= tbg_is_tagged(skb, p);
	e->vlans = tbg_vlans(skb, p);
	e->synack = 1;
}

/* For good: what the socket holds of it is not known. */
static __always_inline void tbg_flow_leave(const struct tbg_flow_key *key)
{
	struct tbg_flow *f = bpf_map_lookup_elem(&tbg_flows, key);

	if (!f)
		return;
	bpf_spin_lock(&f->lock);
	f->flags |= TBG_FLOW_LEFT;
	bpf_spin_unlock(&f->lock);
}

/*
 * The handshake's last ACK: an embryo becomes a flow. RACE: it may have become
 * one on another CPU, so look again. An embryo whose socket may hold bytes that no
 * flow has counted never becomes one. Not inlined: its flow would lie on the stack
 * of all that its caller calls (512 bytes together).
 */
static __attribute__((noinline)) enum tbg_why
tbg_flow_born(const struct tbg_pkt *p)
{
	struct tbg_embryo *e = bpf_map_lookup_elem(&tbg_embryos, &p->key);
	struct tbg_flow f = {};
	struct tbg_conn_word *conn;
	struct tbg_flow_key *owner;
	__u32 slot;
	long err;

	if (!e)
		return TBG_WHY_RACE;
	if (!e->synack)
		return TBG_WHY_NO_FLOW;
	if (p->ack != e->iss || p->seq != e->irs) {
		if (!p->payload_len && !(p->tcp_flags & TBG_TCP_FIN))
			return TBG_WHY_NO_FLOW;
		/* overtook the handshake's end: the stack takes and keeps it */
		bpf_map_delete_elem(&tbg_embryos, &p->key);
		return TBG_WHY_RACE;
	}
	if (bpf_map_pop_elem(&tbg_slots, &slot))
		return TBG_WHY_NO_FLOW;
	conn = bpf_map_lookup_elem(&tbg_conns, &slot);
	owner = bpf_map_lookup_elem(&tbg_owners, &slot);
	if (!conn || !owner)
		return TBG_WHY_NO_FLOW;
	conn->word = 0;
	conn->sent_ms = 0;
	conn->sock = 0;
	*owner = p->key;
	f.slot = slot;
	f.irs = e->irs;
	f.iss = e->iss;
	f.acked = e->iss;
	f.tsoff = e->tsoff;
	f.tsval = e->tsval;
	f.ifindex = e->ifindex;
	f.flowinfo = e->flowinfo;
	f.win = bpf_htons(e->win);
	f.mss = e->mss;
	if (e->flags & TBG_FLOW_TS)
		f.mss = e->mss > 12 ? e->mss - 12 : 0;
	f.wscale = (e->snd_wscale & 15) | e->rcv_wscale << 4;
	__builtin_memcpy(f.mac, e->mac, sizeof(f.mac));
	f.window = e->window;
	f.tsrecent = e->tsrecent;
	f.flags = e->flags;
	f.ttl = e->ttl;
	f.tos = e->tos;
	f.way = e->tagged ? 0 : TBG_WAY_BARE;
	f.heard = p->window;
	f.given = p->payload_len;
	if (p->tcp_flags & TBG_TCP_FIN)
		f.flags |= TBG_FLOW_FIN_IN;
	f.seen_ns = bpf_ktime_get_ns();
	f.up_ms = f.seen_ns / 1000000;
	f.domain = e->domain;
	f.vlans = e->vlans;
	f.burst = e->burst;
	f.df = e->df;
	err = bpf_map_update_elem(&tbg_flows, &p->key, &f, BPF_NOEXIST);
	if (err) {
		bpf_map_push_elem(&tbg_slots, &slot, 0);
		return err == -EEXIST ? TBG_WHY_RACE : TBG_WHY_NO_FLOW;
	}
	/* not before: another CPU must find the one or the other */
	if (bpf_map_delete_elem(&tbg_embryos, &p->key))
		tbg_flow_leave(&p->key);	/* something has just overtaken us */
	return TBG_WHY_BORN;
}

#endif
