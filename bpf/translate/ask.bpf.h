/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Answers what wire would count for a hypothetical request (abi/ask.h): the steps of
 * tbg_try() on a new flow that is in no map. Claims, sends and counts nothing.
 * Included by the file that has these steps.
 */
#ifndef TBG_TRANSLATE_ASK_BPF_H
#define TBG_TRANSLATE_ASK_BPF_H

#include "../abi/ask.h"

/*
 * Whether it is a test run of the daemon: only such a packet has no ingress
 * interface. The cb of received packets may hold anything.
 */
static __always_inline bool tbg_is_lookup(struct __sk_buff *skb)
{
	return !skb->ingress_ifindex && skb->cb[0] == TBG_ASK_WHY;
}

/* Scratch memory of its own: before 6.2 a received packet may interrupt a test run. */
static __always_inline struct tbg_scratch *tbg_ask_scratch(void)
{
	__u32 at = TBG_SCRATCH_ASK;

	return bpf_map_lookup_elem(&tbg_scratches, &at);
}

/* A flow without limits of the client: window and segments are those of the interface. */
static __always_inline void tbg_ask_begin(struct __sk_buff *skb, const struct tbg_pkt *p,
					  struct tbg_flow *ret)
{
	__u32 heads = p->v6 ? 60 : 40, mtu = 1;

	bpf_check_mtu(skb, 0, &mtu, 0, 0);	/* sets it to the interface's */
	ret->irs = p->seq;
	ret->iss = p->ack;
	ret->acked = p->ack;
	ret->ifindex = skb->ifindex;
	ret->mss = mtu >= heads + TBG_MSS_LEAST ? mtu - heads - 12 : TBG_MSS_LEAST;
	ret->wscale = 14;
	ret->flags = TBG_FLOW_TS;
	ret->tsrecent = p->tsval;
	ret->up_ms = tbg_now_ms();
	ret->burst = TBG_INIT_CWND;
	ret->df = 1;
}

/*
 * Whether this flow lets wire answer; cut: also checks the reply's length. Returns
 * 0 or a why. Not inlined, to keep the flow off the stack of tbg_find().
 */
static __attribute__((noinline)) int tbg_ask_flow(struct __sk_buff *skb, struct tbg_scratch *s,
						  bool cut)
{
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_conn_word conn = {};
	struct tbg_answered answered = { .conn = &conn };
	struct tbg_flow f = {};
	__u32 frame;
	int why;

	if (!s || !knob)
		return TBG_WHY_OFF;
	tbg_ask_begin(skb, &s->pkt, &f);
	if (cut)
		return tbg_hit_cut(skb, s, knob, &f, &frame);
	why = tbg_may_answer(skb, &f, &s->pkt, false);
	why = why ?: tbg_may_hit(knob, &f, &s->pkt, &answered, s->now_ns / 1000000);
	return why ?: s->pkt.payload_len > TBG_REQ_MAX ? TBG_WHY_GRAMMAR : 0;
}

/* Parses the segment and loads its request into s->head, if it fits. Returns 0 or a why. */
static __attribute__((noinline)) int tbg_ask_load(struct __sk_buff *skb, struct tbg_scratch *s)
{
	__u64 len;

	if (!s || tbg_pkt_parse(skb, &s->pkt, true) != TBG_PKT_TCP)
		return TBG_WHY_NOT_OURS;
	s->pkt.odd = 0;			/* the header has no checksum */
	s->now_ns = bpf_ktime_get_ns();
	__builtin_memset(&s->reply, 0, sizeof(s->reply));
	len = s->pkt.payload_len;
	TBG_BOUND(len, TBG_REQ_MAX, return 0);
	return bpf_skb_load_bytes(skb, s->pkt.payload, s->head.b, len) ? TBG_WHY_ROOM : 0;
}

/*
 * Returns 0 or a why. The look-up of sock is the same. Calls tbg_find() at the same depth
 * as tbg_try().
 */
static __always_inline int tbg_ask(struct __sk_buff *skb, const struct tbg_knob *knob)
{
	struct tbg_scratch *s = tbg_ask_scratch();
	bool sock = skb->cb[1] == TBG_ASK_SOCK;
	int why = tbg_ask_load(skb, s);

	if (!s || why)
		return why;
	why = sock ? tbg_sock_may(knob, s->pkt.payload_len) : tbg_ask_flow(skb, s, false);
	why = why ?: tbg_find(s, knob, s->pkt.payload_len);
	return why || sock ? why : tbg_ask_flow(skb, s, true);
}

#endif
