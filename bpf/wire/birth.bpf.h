/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How wire comes by a connection. The kernel answers the SYN and keeps a half-open
 * request: at the client's ACK, wire reads what was agreed out of it, and the ACK
 * goes up as a reset, which withdraws it. Or wire answers the SYN (synack.bpf.h),
 * with what the kernel was seen to offer, and the ACK brings the cookie back.
 * Nothing is kept before. Whatever is unusual stays the kernel's.
 */
#ifndef TBG_WIRE_BIRTH_BPF_H
#define TBG_WIRE_BIRTH_BPF_H

#include "cookie.bpf.h"
#include "crowd.bpf.h"
#include "flow.bpf.h"
#include "socket.bpf.h"

#define TBG_MSS_V6_LEAST 1220	/* bpf_sk_assign_tcp_reqsk() takes no less */

/* A half-open request of the kernel's, as far as wire reads it. */
struct sock_common___request {
	__u32 skc_rcv_wnd;	/* rsk_rcv_wnd */
} __attribute__((preserve_access_index));

struct request_sock___wire {
	struct sock_common___request __req_common;
	__u16 mss;
	__u8 syncookie:1;
} __attribute__((preserve_access_index));

struct inet_request_sock___wire {
	struct request_sock___wire req;
	__u16 snd_wscale:4, rcv_wscale:4, tstamp_ok:1, sack_ok:1, wscale_ok:1, ecn_ok:1;
	void *ireq_opt;
} __attribute__((preserve_access_index));

struct tcp_request_sock___wire {
	struct inet_request_sock___wire req;
	bool tfo_listener, is_mptcp, req_usec_ts;
	__u32 rcv_isn, snt_isn, ts_off;
	bool used_tcp_ao, accecn_ok;
} __attribute__((preserve_access_index));

struct net_device___mtu {
	unsigned int mtu;
} __attribute__((preserve_access_index));

struct sk_buff___mtu {
	struct net_device___mtu *dev;
} __attribute__((preserve_access_index));

/* What both sides have agreed on, from either kind of birth. */
struct tbg_agreed {
	__u32 irs, iss;		/* the first numbers behind the SYNs */
	__u32 tsoff, window, flowinfo;
	__u16 peer_mss;
	__u8 snd_wscale, rcv_wscale, flags;
};

/* Bytes of an IP packet that the segment's interface takes. */
static __always_inline __u32 tbg_mtu_of(struct __sk_buff *skb)
{
	struct sk_buff___mtu *b = (void *)skb;

	return BPF_CORE_READ(b, dev, mtu);
}

/* What stays of an MSS beside the timestamp, and where the interface or a route has less. */
static __always_inline __u16 tbg_mss_of(const struct tbg_knob *knob, __u32 mss, __u32 mtu,
					bool v6, bool ts)
{
	__u32 heads = v6 ? 60 : 40;

	if (knob->mss_max && mtu > knob->mss_max)
		mtu = knob->mss_max;
	if (mtu >= heads + TBG_MSS_LEAST && mss > mtu - heads)
		mss = mtu - heads;
	return ts ? mss - 12 : mss;
}

/* The window field for this many bytes, rounded up: a window must not shrink. */
static __always_inline __be16 tbg_window_field(__u32 bytes, __u32 shift)
{
	bytes += (1u << (shift & 15)) - 1;
	bytes >>= shift & 15;
	return bpf_htons(bytes < 65535 ? bytes : 65535);
}

/* The connection of what is agreed, at the segment in p, into *f, which is zero. */
static __always_inline void tbg_tcb_make(struct __sk_buff *skb, const struct tbg_knob *knob,
					 const struct tbg_pkt *p, const struct tbg_agreed *a,
					 struct tbg_tcb *f)
{
	f->rcv_nxt = a->irs;
	f->snd_nxt = a->iss;
	f->acked = a->iss;
	f->tsoff = a->tsoff;
	f->flags = a->flags;
	f->born_ms = tbg_now_ms();
	f->seen_ms = f->born_ms;
	f->tsval = f->born_ms + a->tsoff;
	f->tsrecent = p->tsval;
	f->ifindex = skb->ifindex;
	f->flowinfo = a->flowinfo;
	f->win = tbg_window_field(a->window, a->rcv_wscale);
	f->peer_mss = a->peer_mss;
	f->mss = tbg_mss_of(knob, a->peer_mss, tbg_mtu_of(skb), p->v6, a->flags & TBG_FLOW_TS);
	f->wscale = (a->snd_wscale & 15) | a->rcv_wscale << 4;
	f->ttl = p->v6 ? knob->hops : knob->ttl;
	if (p->v6)
		f->flags |= TBG_FLOW_V6;
	else if (!knob->no_df)
		f->flags |= TBG_TCB_DF;
	bpf_skb_load_bytes(skb, 0, f->own, sizeof(f->own));
	bpf_skb_load_bytes(skb, ETH_ALEN, f->mac, sizeof(f->mac));
	f->vlan = bpf_htons(tbg_vlans(skb, p));
}

/* That, begun. Not inlined: it would lie on the stack of all that its caller calls. */
__attribute__((noinline)) int
tbg_tcb_begin(struct __sk_buff *skb, const struct tbg_pkt *p, const struct tbg_tcb_key *key,
	      const struct tbg_agreed *a)
{
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_tcb f = {};
	int crowd;
	long err;

	if (!knob || !p || !key || !a)
		return TBG_WHY_OFF;
	tbg_tcb_make(skb, knob, p, a, &f);
	crowd = tbg_crowd_join(key);
	if (crowd) {
		f.tried = TBG_TCB_COUNTED;
		/* more than it may have, by now: the daemon is to refuse its first request */
		if (crowd > (int)knob->crowd_most)
			f.flags |= TBG_TCB_LOSSY;
	}
	err = bpf_map_update_elem(&tbg_tcbs, key, &f, BPF_NOEXIST);
	if (err && crowd)
		tbg_crowd_leave(key);
	if (err)
		return err == -17 ? TBG_WHY_RACE : TBG_WHY_NO_FLOW;	/* EEXIST */
	tbg_stat(births);
	return 0;
}

/* Whether a listener of this daemon is behind sk, which is one or half-open. */
static __always_inline bool tbg_is_ours(struct bpf_sock *sk)
{
	sk = bpf_get_listener_sock(sk);
	return sk && bpf_sk_storage_get(&tbg_listeners, sk, NULL, 0);
}

/* What the half-open request behind sk has agreed on; false: it is not for wire. */
static __always_inline bool tbg_request_read(struct bpf_sock *sk, const struct tbg_pkt *p,
					     struct tbg_agreed *a)
{
	struct tcp_request_sock___wire *t;
	__u32 kind = 0;

	t = (void *)bpf_skc_to_tcp_request_sock(sk);
	if (!t)
		return false;
	a->irs = BPF_CORE_READ(t, rcv_isn) + 1;
	a->iss = BPF_CORE_READ(t, snt_isn) + 1;
	if (p->seq != a->irs || p->ack != a->iss)
		return false;
	if (BPF_CORE_READ(t, tfo_listener) || BPF_CORE_READ(t, req.ireq_opt))
		return false;
	if (bpf_core_field_exists(t->is_mptcp) && BPF_CORE_READ(t, is_mptcp))
		return false;
	if (bpf_core_field_exists(t->req_usec_ts) && BPF_CORE_READ(t, req_usec_ts))
		return false;
	if (bpf_core_field_exists(t->used_tcp_ao) && BPF_CORE_READ(t, used_tcp_ao))
		return false;
	if (bpf_core_field_exists(t->accecn_ok) && BPF_CORE_READ(t, accecn_ok))
		return false;
	if (BPF_CORE_READ_BITFIELD_PROBED(t, req.req.syncookie))
		return false;
	a->peer_mss = BPF_CORE_READ(t, req.req.mss);
	a->window = BPF_CORE_READ(t, req.req.__req_common.skc_rcv_wnd);
	a->tsoff = BPF_CORE_READ(t, ts_off);
	if (BPF_CORE_READ_BITFIELD_PROBED(t, req.tstamp_ok))
		kind |= TBG_FLOW_TS;
	if (BPF_CORE_READ_BITFIELD_PROBED(t, req.sack_ok))
		kind |= TBG_TCB_SACK;
	if (BPF_CORE_READ_BITFIELD_PROBED(t, req.ecn_ok))
		kind |= TBG_TCB_ECN;
	if (BPF_CORE_READ_BITFIELD_PROBED(t, req.wscale_ok)) {
		kind |= TBG_TCB_WSCALE;
		a->snd_wscale = BPF_CORE_READ_BITFIELD_PROBED(t, req.snd_wscale);
		a->rcv_wscale = BPF_CORE_READ_BITFIELD_PROBED(t, req.rcv_wscale);
	}
	a->flags = kind;
	a->flowinfo = bpf_htonl(0x60000000 | (bpf_get_prandom_u32() & 0xfffff));
	return true;
}

/* The offer's kind of a connection's flags. */
static __always_inline __u16 tbg_offer_kind(__u32 flags)
{
	return (flags & TBG_FLOW_TS ? TBG_OFFER_TS : 0) |
	       (flags & TBG_TCB_WSCALE ? TBG_OFFER_WSCALE : 0) |
	       (flags & TBG_TCB_SACK ? TBG_OFFER_SACK : 0) |
	       (flags & TBG_TCB_ECN ? TBG_OFFER_ECN : 0);
}

static __always_inline void tbg_offer_key_of(struct __sk_buff *skb, const struct tbg_pkt *p,
					     __u16 kind, struct tbg_offer_key *ret)
{
	__builtin_memcpy(ret->local, p->key.local, sizeof(ret->local));
	ret->ifindex = skb->ifindex;
	ret->port = p->key.local_port;
	ret->kind = kind;
}

/* What the kernel has agreed to, for wire to offer the same to the next. */
__attribute__((noinline)) int tbg_offer_learn(struct __sk_buff *skb, const struct tbg_pkt *p,
					      const struct tbg_agreed *a)
{
	struct tbg_offer offer = { .learned_ms = tbg_now_ms() };
	struct tbg_offer_key key;

	if (!p || !a)
		return 0;
	offer.window = a->window;
	offer.kind = tbg_offer_kind(a->flags);
	offer.wscale = a->rcv_wscale;
	tbg_offer_key_of(skb, p, offer.kind, &key);
	return bpf_map_update_elem(&tbg_offers, &key, &offer, BPF_ANY);
}

/* Whether wire can be the one that keeps this connection. */
static __always_inline bool tbg_agreed_fits(const struct tbg_agreed *a, const struct tbg_pkt *p)
{
	if (a->peer_mss < (p->v6 ? TBG_MSS_V6_LEAST : TBG_MSS_LEAST))
		return false;
	return a->flags & TBG_FLOW_TS ? p->plain_ts : p->no_opt;
}

/* The ACK becomes a reset at its own number; its checksum is mended. */
static __always_inline void tbg_ack_to_rst(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	__be16 old, new;

	if (bpf_skb_load_bytes(skb, p->l4 + 12, &old, 2))
		return;
	new = bpf_htons((bpf_ntohs(old) & 0xff00) | TBG_TCP_RST);
	bpf_l4_csum_replace(skb, p->l4 + 16, old, new, 2);
	bpf_skb_store_bytes(skb, p->l4 + 12, &new, 2, 0);
}

#endif
