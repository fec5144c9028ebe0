/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Wire's own SYN-ACK. It has the same options in the same order and the same window as
 * the kernel's (tcp_options_write() of net/ipv4/tcp_output.c), and a cookie as sequence
 * number. Nothing is stored. A SYN that the kernel would answer differently is passed
 * up.
 */
#ifndef TBG_WIRE_SYNACK_BPF_H
#define TBG_WIRE_SYNACK_BPF_H

#include "answer.bpf.h"
#include "birth.bpf.h"
#include "send.bpf.h"
#include "way.bpf.h"

#define TBG_TCP_ECE 0x40
#define TBG_TCP_CWR 0x80

#define TBG_ADV_LEAST 256	/* MSS that is offered, at least: net.ipv4.route.min_adv_mss */
#define TBG_SYNACK_WORDS 10	/* of a TCP header with all options */

/* Returns the TBG_OFFER_* of the SYN in s->pkt, whose options are parsed. */
static __always_inline __u16 tbg_syn_kind(const struct tbg_scratch *s)
{
	const __u32 flags = s->opt.flags;

	return (flags & TBG_OPT_TS ? TBG_OFFER_TS : 0) |
	       (flags & TBG_OPT_WSCALE ? TBG_OFFER_WSCALE : 0) |
	       (flags & TBG_OPT_SACKOK ? TBG_OFFER_SACK : 0) |
	       (s->pkt.tcp_flags & TBG_TCP_ECE ? TBG_OFFER_ECN : 0);
}

/* Builds the options, in words, in the kernel's order. Returns how many words. */
static __always_inline __u32 tbg_synack_options(const struct tbg_synack *a, __u32 o[5])
{
	__u32 n = 1;

	o[0] = bpf_htonl(0x02040000 | a->mss);
	o[1] = o[2] = o[3] = o[4] = 0;
	if (a->kind & TBG_OFFER_TS) {
		o[1] = a->kind & TBG_OFFER_SACK ? bpf_htonl(0x0402080a) : TBG_OPT_PLAIN_TS;
		o[2] = bpf_htonl(a->tsval);
		o[3] = bpf_htonl(a->tsecr);
		if (a->kind & TBG_OFFER_WSCALE)
			o[4] = bpf_htonl(0x01030300 | a->wscale);
		return a->kind & TBG_OFFER_WSCALE ? 5 : 4;
	}
	if (a->kind & TBG_OFFER_SACK) {
		o[1] = bpf_htonl(0x01010402);
		n = 2;
		if (a->kind & TBG_OFFER_WSCALE)
			o[2] = bpf_htonl(0x01030300 | a->wscale);
	} else if (a->kind & TBG_OFFER_WSCALE) {
		o[1] = bpf_htonl(0x01030300 | a->wscale);
	}
	return a->kind & TBG_OFFER_WSCALE ? n + 1 : n;
}

/*
 * Builds the TCP header, with n words of options. completed: a device completes the checksum,
 * and the field gets the sum of the pseudo-header.
 */
static __always_inline void tbg_synack_tcp(__u32 w[TBG_SYNACK_WORDS], const struct tbg_pkt *p,
					   const struct tbg_synack *a, __u32 n,
					   const __u32 o[5], bool completed)
{
	__u64 sum = 0;
	__u16 pseudo;
	__u32 i;

	w[0] = (__u32)p->key.local_port | (__u32)p->key.remote_port << 16;
	w[1] = bpf_htonl(a->seq);
	w[2] = bpf_htonl(a->ack);
	w[3] = bpf_htonl((5 + n) << 28 |
			 (TBG_TCP_SYN | TBG_TCP_ACK | (a->ece ? TBG_TCP_ECE : 0)) << 16 |
			 a->window);
	w[4] = 0;
	pseudo = tbg_csum_fold((__u64)p->addr_sum + bpf_htons(IPPROTO_TCP) +
			       bpf_htons(20 + 4 * n));
#pragma unroll
	for (i = 0; i < 5; i++)
		w[5 + i] = o[i];
#pragma unroll
	for (i = 0; i < TBG_SYNACK_WORDS; i++)
		sum += w[i];
	w[4] = completed ? pseudo : (__u16)~tbg_csum_fold(sum + pseudo);
}

/* Writes the headers in h: IPv6, or IPv4 right before TCP, and n words of options. */
static __always_inline long tbg_synack_store(struct __sk_buff *skb, const struct tbg_pkt *p,
					     const __u32 *h, __u32 n)
{
	const __u32 *ip4 = h + TBG_IP6_WORDS - TBG_IP4_WORDS;
	__u64 size = 4 * (5 + n);

	if (n == 5)	/* to most clients: all options */
		return p->v6 ? tbg_store_words(skb, p->l3, h, TBG_IP6_WORDS + TBG_SYNACK_WORDS) :
			       tbg_store_words(skb, p->l3, ip4, TBG_IP4_WORDS + TBG_SYNACK_WORDS);
	if (p->v6 ? tbg_store_words(skb, p->l3, h, TBG_IP6_WORDS) :
		    tbg_store_words(skb, p->l3, ip4, TBG_IP4_WORDS))
		return -1;
	TBG_BOUND(size, 4 * TBG_SYNACK_WORDS, return -1);
	return tbg_store(skb, p->l4, h + TBG_IP6_WORDS, size);
}

/*
 * Turns the SYN in skb into the SYN-ACK in s->synack, with DF, as the kernel sends them
 * (ip_build_and_send_pkt), and sends it. Returns a TC action.
 */
__attribute__((noinline)) int tbg_synack_send(struct __sk_buff *skb, struct tbg_scratch *s)
{
	__u32 h[TBG_IP6_WORDS + TBG_SYNACK_WORDS] = {}, o[5], n, frame;
	__u16 was[6] __attribute__((aligned(4)));	/* destination, source */
	__u16 mac[6] __attribute__((aligned(4)));
	const struct tbg_synack *a;
	struct tbg_reply *r;
	struct tbg_pkt *p;

	if (!s)
		return TC_ACT_SHOT;
	a = &s->synack;
	r = &s->reply;
	p = &s->pkt;
	n = tbg_synack_options(a, o);
	frame = p->l4 + 20 + 4 * n;
	if ((skb->len != frame && bpf_skb_change_tail(skb, frame, 0)) ||
	    tbg_load_words(skb, 0, was, 3))
		return TC_ACT_SHOT;
	__builtin_memcpy(mac, was + 3, 6);
	__builtin_memcpy(mac + 3, was, 6);
	if (p->v6)
		tbg_reply_ipv6(h, p, r, 20 + 4 * n);
	else
		tbg_reply_ipv4(h, p, r, 20 + 4 * n);
	tbg_synack_tcp(h + TBG_IP6_WORDS, p, a, n, o, tbg_frame_completed(skb));
	if (tbg_store_words(skb, 0, mac, 3) || tbg_synack_store(skb, p, h, n))
		return TC_ACT_SHOT;
	return tbg_reply_last(skb);
}

/*
 * Returns whether the listener is ours and there is no other socket for these ports and
 * addresses: one in TIME_WAIT, for instance, has to decide about the SYN.
 */
static __always_inline bool tbg_syn_is_free(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	struct bpf_sock *sk;
	__u32 state;
	bool ret;

	if (!tbg_sockets)
		return true;
	sk = tbg_socket_get(skb, p, &state);
	if (!sk)
		return false;
	ret = state == BPF_TCP_LISTEN && tbg_is_ours(sk, p->vrf) && !(p->vrf && tbg_vrf_hides(p));
	bpf_sk_release(sk);
	return ret;
}

/*
 * Looks up the offer for a SYN of this kind. Returns false if there is none or if it is
 * too old: the kernel then answers this SYN, and the offer is learned again.
 */
static __always_inline bool tbg_offer_get(struct __sk_buff *skb, const struct tbg_scratch *s,
					  __u16 kind, struct tbg_offer *ret)
{
	__u32 now_ms = s->now_ms, was;
	struct tbg_offer_key key;
	struct tbg_offer *o;

	tbg_offer_key_of(skb, &s->pkt, kind, &key);
	o = bpf_map_lookup_elem(&tbg_offers, &key);
	if (!o)
		return false;
	was = o->learned_ms;
	if ((__s32)(now_ms - was) >= TBG_OFFER_MS &&
	    __sync_val_compare_and_swap(&o->learned_ms, was, now_ms) == was)
		return false;
	*ret = *o;
	return true;
}

/*
 * Returns the last time, in ms, with these low bits (TBG_COOKIE_REST at most). It is
 * never later than the TSval of the connection's next segment.
 */
static __always_inline __u32 tbg_cookie_time(__u32 now_ms, __u32 rest)
{
	if (rest > TBG_COOKIE_REST)
		rest = TBG_COOKIE_REST;
	return now_ms - ((now_ms - rest) & TBG_COOKIE_REST);
}

/*
 * Fills s->synack and s->reply for the SYN-ACK to the SYN in s->pkt. The SYN's checksum need not
 * be verified yet. Returns false if the kernel has to answer this SYN. A global function, so
 * that the verifier checks it once.
 */
__attribute__((noinline)) int tbg_synack_fill(struct __sk_buff *skb, struct tbg_scratch *s,
					      const struct tbg_tcb_key *key)
{
	const struct tbg_knob *knob = tbg_knob_get();
	struct tbg_cookie c = { .wscale = 15 };
	const struct tbg_above *on;
	struct tbg_offer offer;
	struct tbg_synack *a;
	struct tbg_reply *r;
	struct tbg_pkt *p;
	__u32 mtu, heads;
	__u16 kind, mss;
	int out;

	if (!s || !key || !knob)
		return false;
	a = &s->synack;
	r = &s->reply;
	p = &s->pkt;
	heads = p->v6 ? 60 : 40;
	/* with ECT on the SYN, the kernel does not agree to ECN (RFC 3168 6.1.1) */
	if (knob->births != TBG_BIRTHS_WIRE || !tbg_wire_answers(knob) || p->odd || p->ae ||
	    p->ecn || p->payload_len || (key->vrf && !tbg_vrf_works(knob)) ||
	    tbg_is_tagged(skb, p) || tbg_is_link_local(&p->key) ||
	    (p->tcp_flags & ~(TBG_TCP_ECE | TBG_TCP_CWR)) != TBG_TCP_SYN)
		return false;
	/* an ECN-setup SYN has both flags (RFC 3168 6.1.1) */
	if (!(p->tcp_flags & TBG_TCP_ECE) != !(p->tcp_flags & TBG_TCP_CWR))
		return false;
	tbg_pkt_options(skb, s);
	mss = s->opt.mss;
	if (s->opt.flags & TBG_OPT_ODD || !(s->opt.flags & TBG_OPT_MSS) ||
	    mss < (p->v6 ? TBG_MSS_V6_LEAST : TBG_MSS_LEAST))
		return false;
	kind = tbg_syn_kind(s);
	if (!tbg_tcb_fits() || tbg_crowd_full(key) || !tbg_offer_get(skb, s, kind, &offer))
		return false;
	out = tbg_way_fits(skb, p);
	if (out <= 0 || !tbg_syn_is_free(skb, p))
		return false;
	on = tbg_above_of(skb, out);
	mtu = tbg_mtu_of(skb, on, p, s->now_ms);
	if (mtu < heads + TBG_ADV_LEAST || mtu > 65535)
		mtu = mtu > 65535 ? 65535 : heads + TBG_ADV_LEAST;
	c.mss_at = tbg_cookie_mss_at(mss, kind & TBG_OFFER_TS, p->v6);
	if (kind & TBG_OFFER_WSCALE)
		c.wscale = s->opt.wscale;
	c.sack = !!(kind & TBG_OFFER_SACK);
	c.ecn = !!(kind & TBG_OFFER_ECN);
	a->seq = tbg_cookie_make(key, knob, s->now_ns, p->seq, &c);
	a->ack = p->seq + 1;
	a->kind = kind;
	a->wscale = offer.wscale;
	a->ece = c.ecn;
	a->window = offer.window > 65535 ? 65535 : offer.window;
	a->mss = mtu - heads;
	a->tsval = tbg_cookie_time(s->now_ms, mss - tbg_cookie_mss(c.mss_at, true, p->v6)) +
		  c.tsoff;
	a->tsecr = s->opt.tsval;
	__builtin_memset(r, 0, sizeof(*r));
	r->ttl = tbg_hops_of(skb, knob, on, p->v6);
	r->flowinfo = bpf_htonl(0x60000000 | (c.label & knob->labels));
	return true;
}

/*
 * Reads what was negotiated out of the cookie that the segment in s->pkt acknowledges.
 * Returns 0 or a reason. Without the offer, which may have been evicted, the scale of
 * our window is not known.
 */
__attribute__((noinline)) int
tbg_cookie_read(struct __sk_buff *skb, struct tbg_scratch *s, const struct tbg_tcb_key *key,
		struct tbg_agreed *a)
{
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_offer_key offer_key;
	struct tbg_cookie c = {};
	struct tbg_offer *offer;
	enum tbg_proven proven;
	__u32 kind, since_ms;
	struct tbg_pkt *p;

	if (!s || !key || !a || !knob)
		return TBG_WHY_OFF;
	p = &s->pkt;
	proven = tbg_cookie_check(key, knob, s->now_ns, p->seq - 1, p->ack - 1, &c);
	since_ms = p->tsecr - c.tsoff;
	if (proven == TBG_PROVEN_NOTHING ||
	    (p->plain_ts && s->now_ms + 1 - since_ms > TBG_COOKIE_AGE_MS))
		return TBG_WHY_NO_FLOW;
	/*
	 * the kernel would reset it; dropped, the client sends it again after its first
	 * segment. So few bits can be guessed: where the kernel answers SYNs, it decides, and
	 * in a VRF, where it may have a socket that no map shows.
	 */
	if (proven == TBG_PROVEN_ENDS)
		return knob->births == TBG_BIRTHS_WIRE && !key->vrf ? TBG_WHY_DROPPED :
								      TBG_WHY_NO_FLOW;
	a->irs = p->seq;
	a->iss = p->ack;
	a->peer_mss = tbg_cookie_mss(c.mss_at, p->plain_ts, p->v6) +
		      (p->plain_ts ? since_ms & TBG_COOKIE_REST : 0);
	a->tsoff = c.tsoff;
	a->flowinfo = bpf_htonl(0x60000000 | c.label);
	a->flags = (p->plain_ts ? TBG_FLOW_TS : 0) | (c.sack ? TBG_TCB_SACK : 0) |
		   (c.ecn ? TBG_TCB_ECN : 0) | (c.wscale != 15 ? TBG_TCB_WSCALE : 0);
	kind = tbg_offer_kind(a->flags);
	tbg_offer_key_of(skb, p, kind, &offer_key);
	offer = bpf_map_lookup_elem(&tbg_offers, &offer_key);
	if (!offer)
		return TBG_WHY_NO_FLOW;
	a->window = offer->window;
	if (c.wscale != 15) {
		a->snd_wscale = c.wscale;
		a->rcv_wscale = offer->wscale;
	}
	return 0;
}

#endif
