/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The beginning of a flow, as seen in packets: an embryo at SYN and SYN-ACK, a
 * flow when the handshake is acknowledged. Later segments are for ingress.bpf.c
 * and egress.bpf.c; the sweeper (userd/tiers/flow.c) deletes the flow.
 */
#ifndef TBG_TRANSLATE_BIRTH_BPF_H
#define TBG_TRANSLATE_BIRTH_BPF_H

#include <linux/errno.h>

#include "cover.bpf.h"
#include "flow.bpf.h"
#include "maps.bpf.h"
#include "path.bpf.h"
#include "../wire/port.bpf.h"
#include "../wire/socket.bpf.h"

struct sk_buff___tracked {
	unsigned long _nfct;
} __attribute__((preserve_access_index));

/* Whether conntrack has seen the segment already; normally it does only after this hook. */
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

/*
 * Whether the segment belongs to another VRF than the flow with the same addresses and
 * ports.
 */
static __always_inline bool tbg_is_elsewhere(struct __sk_buff *skb,
					     const struct tbg_flow *f)
{
	return skb->ifindex != f->ifindex && tbg_domain(skb) != f->domain;
}

/*
 * The client's SYN: keeps its options for the SYN-ACK. Not inlined, to keep the embryo
 * off the stack of the caller's other callees.
 */
static __attribute__((noinline)) void tbg_embryo_syn(struct __sk_buff *skb,
						     struct tbg_scratch *s)
{
	struct tbg_embryo e = {};
	struct tbg_tcpopt *opt;

	/* left to the stack, as TCP Fast Open is */
	if (s->pkt.payload_len || tbg_is_link_local(&s->pkt.key))
		return;
	/*
	 * it would see numbers of the client in one direction and of the socket in the
	 * other
	 */
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

/* Takes the fields of the IP header that replies copy. */
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

/* Whether the socket that has sent the segment has the segment's addresses and ports. */
static __always_inline bool tbg_has_ends(const struct bpf_sock *sk,
					 const struct tbg_flow_key *key, bool v6)
{
	__u32 local = sk->src_ip4 ^ key->local[3];
	__u32 remote = sk->dst_ip4 ^ key->remote[3];

	/*
	 * read it first, or clang does arithmetic on the socket pointer, which the
	 * verifier refuses
	 */
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
 * Whether a listener of this daemon has sent the SYN-ACK. Another process may
 * use our port at another address. A SYN cookie has no socket. With NAT, the
 * daemon's socket has other addresses than the packets.
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
 * Whether a raw socket has sent it, which must not affect our flows. Sockets of
 * handshakes are not full sockets yet, or (TCP Fast Open) have the segment's
 * addresses.
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
 * Whether segments of the socket will pass our hooks before all others. Decided by the
 * device of the route, which may lie above this one; a bond has removed the route from
 * the packet.
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

/*
 * A SYN-ACK for addresses that have a flow: its socket is gone, so the flow is deleted.
 * False: the SYN-ACK begins no flow.
 */
static __always_inline bool tbg_flow_replace(const struct tbg_pkt *p, struct tbg_flow *old)
{
	__u32 slot = old->slot;
	bool buried;

	/* retransmitted: the stack has dropped the last ACK of the handshake */
	if (old->iss == p->seq + 1 && old->irs == p->ack)
		return false;
	bpf_spin_lock(&old->lock);
	buried = old->way & TBG_WAY_BURIED;
	old->way |= TBG_WAY_BURIED;
	bpf_spin_unlock(&old->lock);
	if (buried)
		return false;		/* the sweeper is deleting it: no flow this time */
	if (!bpf_map_delete_elem(&tbg_flows, &p->key))
		bpf_map_push_elem(&tbg_retired, &slot, 0);
	return true;
}

/* The outgoing SYN-ACK of our listener: the second half of what a flow needs. */
static __always_inline void tbg_embryo_synack(struct __sk_buff *skb,
					      struct tbg_scratch *s)
{
	struct tbg_pkt *p = &s->pkt;
	struct tbg_flow *old;
	struct tbg_tcpopt *opt;
	struct tbg_embryo *e;

	if (tbg_is_forged(skb, p))
		return;
	old = bpf_map_lookup_elem(&tbg_flows, &p->key);
	if (old && tbg_is_elsewhere(skb, old)) {
		bpf_map_delete_elem(&tbg_embryos, &p->key);
		return;
	}
	if (old && !tbg_flow_replace(p, old))
		return;
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

/* Excludes the connection for good: the bytes in its socket are not known. */
static __always_inline void tbg_flow_leave(const struct tbg_flow_key *key)
{
	struct tbg_flow *f = bpf_map_lookup_elem(&tbg_flows, key);

	if (!f)
		return;
	bpf_spin_lock(&f->lock);
	f->flags |= TBG_FLOW_LEFT;
	bpf_spin_unlock(&f->lock);
}

/* What a flow has of its handshake, and of the segment that ends it. */
static __always_inline void tbg_flow_begun(struct tbg_flow *f, const struct tbg_embryo *e,
					   const struct tbg_pkt *p)
{
	f->irs = e->irs;
	f->iss = e->iss;
	f->acked = e->iss;
	f->tsoff = e->tsoff;
	f->tsval = e->tsval;
	f->ifindex = e->ifindex;
	f->flowinfo = e->flowinfo;
	f->win = bpf_htons(e->win);
	f->mss = e->mss;
	if (e->flags & TBG_FLOW_TS)
		f->mss = e->mss > 12 ? e->mss - 12 : 0;
	f->wscale = (e->snd_wscale & 15) | e->rcv_wscale << 4;
	__builtin_memcpy(f->mac, e->mac, sizeof(f->mac));
	f->window = e->window;
	f->tsrecent = e->tsrecent;
	f->flags = e->flags;
	f->ttl = e->ttl;
	f->tos = e->tos;
	f->way = e->tagged ? 0 : TBG_WAY_BARE;
	f->heard = p->window;
	f->given = p->payload_len;
	if (p->tcp_flags & TBG_TCP_FIN)
		f->flags |= TBG_FLOW_FIN_IN;
	f->seen_ns = bpf_ktime_get_ns();
	f->up_ms = f->seen_ns / 1000000;
	f->domain = e->domain;
	f->vlans = e->vlans;
	f->burst = e->burst;
	f->df = e->df;
}

/*
 * The last ACK of the handshake: an embryo becomes a flow. Race: another CPU may
 * have made the flow, so look up again. An embryo whose socket may hold uncounted
 * bytes never becomes one. Not inlined, to keep the flow off the stack of the
 * caller's other callees (512 bytes in total).
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
		/* it has overtaken the end of the handshake: the stack accepts and keeps it */
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
	tbg_flow_begun(&f, e, p);
	err = bpf_map_update_elem(&tbg_flows, &p->key, &f, BPF_NOEXIST);
	if (err) {
		bpf_map_push_elem(&tbg_slots, &slot, 0);
		return err == -EEXIST ? TBG_WHY_RACE : TBG_WHY_NO_FLOW;
	}
	/* not earlier: another CPU must find one of the two */
	if (bpf_map_delete_elem(&tbg_embryos, &p->key))
		tbg_flow_leave(&p->key);	/* a segment has just overtaken this one */
	return TBG_WHY_BORN;
}

#endif
