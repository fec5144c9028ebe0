// SPDX-License-Identifier: GPL-2.0
/*
 * TC egress: translates segments of the sockets to the client's numbers. A
 * SYN-ACK makes an embryo of the connection. Wire's own replies carry a mark and
 * pass, as do segments of other namespaces. Never answers; drops only segments
 * that have no representation in the client's numbers.
 */
#include "birth.bpf.h"
#include "../wire/send.bpf.h"
#include "translate.bpf.h"

#define TBG_TS_SLACK_MS 2000	/* tolerance for the timestamp clock */

/*
 * Whether a frame comes from another network namespace than its interface's, by a
 * macvlan, a bridge or a route: such frames must not affect our flows, even with
 * the addresses of our connections. The socket decides. Frames without a socket
 * (resets and TIME_WAIT ACKs of the stack with IPv6 before 6.13, Netfilter's
 * REJECT) are of this namespace if they have no ingress interface and were routed
 * here; on a bond, which removes the route, if they have no ingress interface.
 */
static __always_inline bool tbg_is_foreign(struct __sk_buff *skb)
{
	struct sk_buff___wire *b = (void *)skb;
	struct sock_common___wire *sk;
	struct dst_entry___wire *dst;
	void *here;

	/* without namespaces there are no others */
	if (!tbg_sockets || !bpf_core_field_exists(b->dev->nd_net.net))
		return false;
	here = BPF_CORE_READ(b, dev, nd_net.net);
	sk = BPF_CORE_READ(b, sk);
	if (sk)
		return BPF_CORE_READ(sk, skc_net.net) != here;
	dst = (void *)(BPF_CORE_READ(b, _skb_refdst) & ~TBG_DST_NOREF);
	if (!dst)
		return skb->ingress_ifindex;
	return skb->ingress_ifindex || BPF_CORE_READ(dst, dev, nd_net.net) != here;
}

/* The socket's window, and its end, by a segment of it. Under the flow's lock. */
static __always_inline void tbg_egress_end(struct tbg_flow *f, const struct tbg_pkt *p)
{
	__u32 window;

	if (p->tcp_flags & TBG_TCP_RST) {
		f->flags |= TBG_FLOW_RST;
	} else {
		window = p->ack - f->irs + (p->window << (f->wscale >> 4));
		f->win = bpf_htons(p->window);
		f->window = tbg_seq_max(f->window, window);
	}
	/* a FIN that was received early is now in sequence */
	if (f->flags & TBG_FLOW_LEFT && p->ack - f->irs == f->given + 1)
		f->flags |= TBG_FLOW_FIN_IN;
	if (!(p->tcp_flags & TBG_TCP_FIN))
		return;
	/* only the first counts: a retransmitted one may follow a simultaneous close */
	if ((f->flags & TBG_FLOW_CLOSED) == TBG_FLOW_FIN_IN && p->ack - f->irs == f->given + 1)
		f->flags |= TBG_FLOW_LAST;
	f->flags |= TBG_FLOW_FIN_OUT;
}

/* The timestamp of a segment of the socket. Under the flow's lock. */
static __always_inline void tbg_egress_stamp(struct tbg_flow *f, const struct tbg_pkt *p,
					     __u32 now_ms, struct tbg_shift *ret)
{
	__u32 off = p->tsval - f->tsoff - now_ms;

	if (off + TBG_TS_SLACK_MS > 2 * TBG_TS_SLACK_MS)
		f->flags |= TBG_FLOW_LEFT;
	/* made before wire's last reply but sent after it: keep PAWS from dropping it */
	ret->timed = (__s32)(p->tsval - f->tsval) < 0;
	ret->tsval = f->tsval;
	f->tsval = tbg_seq_max(f->tsval, p->tsval);
}

/*
 * Updates the flow by a segment of the socket; *ret is its translation. False:
 * it cannot be translated. Acknowledged bytes from before wire's last reply
 * that are retransmitted get numbers before that reply. A segment with such
 * bytes and newer ones has no consistent numbers; the socket will learn of the
 * acknowledgement and send the newer bytes alone.
 */
static __always_inline bool tbg_egress_note(struct __sk_buff *skb,
					    struct tbg_flow *f,
					    const struct tbg_pkt *p,
					    struct tbg_shift *ret)
{
	__u64 now_ns = bpf_ktime_get_ns();
	__u32 end, len, vlans = tbg_vlans(skb, p);
	const __u16 *mac = (void *)(long)skb->data;
	bool placed = true, there;
	__s32 at;

	there = skb->ifindex == f->ifindex &&
		(void *)(mac + 3) <= (void *)(long)skb->data_end;
	bpf_spin_lock(&f->lock);
	len = p->payload_len + !!(p->tcp_flags & TBG_TCP_FIN);
	end = p->seq - f->iss + len;
	if ((__s32)(end - f->sent) > 0)
		f->sent = end;
	tbg_egress_end(f, p);
	/* the gateway may change; with hits alone only a retransmission notices that */
	if (there) {
		__builtin_memcpy(f->mac, mac, sizeof(f->mac));
		f->vlans = vlans;
	}
	if (f->flags & TBG_FLOW_TS && p->timed)
		tbg_egress_stamp(f, p, now_ns / 1000000, ret);
	f->seen_ns = now_ns;
	ret->seq = f->out_delta;
	ret->ack = ret->sack = f->in_delta;
	ret->floored = false;
	at = p->seq + f->out_delta - tbg_flow_edge(f);
	if (f->last.len && p->payload_len && at < 0) {
		ret->seq -= f->last.len;
		placed = at + (__s32)len <= 0;
	}
	/*
	 * Until the client has all of wire's last reply, only wire
	 * acknowledges the request and a FIN right after it: if a bare ACK of
	 * the stack did, the client would never retransmit the request for a
	 * lost reply. SACK blocks for later bytes are translated normally.
	 */
	if (tbg_within_reply(f, f->acked) && !len && !at &&
	    p->ack + f->in_delta - f->last.req_seq - 1 <= f->last.req_len)
		ret->ack = f->last.req_seq - p->ack;
	bpf_spin_unlock(&f->lock);
	return placed;
}

SEC("tc")
int tbg_egress(struct __sk_buff *skb)
{
	struct tbg_shift shift = {};
	struct tbg_flow *f;
	struct tbg_scratch *s;
	struct tbg_knob *knob;
	struct tbg_pkt *p;

	if (skb->mark == tbg_mark || skb->mark == TBG_MARK_WINDOW) {
		skb->mark = skb->mark == tbg_mark ? 0 : tbg_mark;
		tbg_count(TBG_WHY_OWN);
		return TBG_PASS;
	}
	s = tbg_scratch_get();
	knob = tbg_knob_get();
	if (!s || !knob)
		return TBG_PASS;
	p = &s->pkt;
	if (tbg_pkt_parse(skb, p, false) != TBG_PKT_TCP ||
	    !tbg_port_served(knob, p->key.local_port)) {
		tbg_count(TBG_WHY_NOT_OURS);
		return TBG_PASS;
	}
	if (tbg_is_foreign(skb)) {
		tbg_count(TBG_WHY_NOT_OURS);
		return TBG_PASS;
	}
	if (p->tcp_flags & TBG_TCP_SYN) {
		if (p->tcp_flags & TBG_TCP_ACK)
			tbg_embryo_synack(skb, s);
		tbg_count(TBG_WHY_CONTROL);
		return TBG_PASS;
	}
	f = bpf_map_lookup_elem(&tbg_flows, &p->key);
	if (!f || tbg_is_elsewhere(skb, f)) {
		tbg_count(TBG_WHY_NO_FLOW);
		return TBG_PASS;
	}
	/* cut off by the guard: the reset already has the client's numbers */
	if (f->way & TBG_WAY_LOST) {
		tbg_count(TBG_WHY_CLOSING);
		return tbg_is_forged(skb, p) ? TBG_PASS : TC_ACT_SHOT;
	}
	if (!tbg_egress_note(skb, f, p, &shift)) {
		tbg_count(TBG_WHY_RACE);
		return TC_ACT_SHOT;
	}
	if (shift.seq | shift.ack | shift.sack | shift.timed)
		tbg_translate(skb, s, &shift);
	tbg_count(TBG_WHY_EGRESS);
	return TBG_PASS;
}
