/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Bare acknowledgements made by wire for the socket of a flow, with information that
 * no translated segment of the client carries. Called by ingress.bpf.c. Must never
 * cause an answer.
 */
#ifndef TBG_TRANSLATE_ACK_BPF_H
#define TBG_TRANSLATE_ACK_BPF_H

#include "translate.bpf.h"

#define TBG_TRIED 1000			/* done: pass it to the stack unchanged */

/*
 * Overwrites the headers of the received segment with those of a bare acknowledgement
 * for the socket: numbers from ack, window of the segment in s->pkt. Returns 0 or
 * negative.
 */
static __always_inline int tbg_ack_heads(struct __sk_buff *skb, struct tbg_scratch *s,
					 const struct tbg_bare_ack *ack)
{
	struct tbg_reply *r = &s->reply;
	struct tbg_pkt *p = &s->pkt;

	r->to_stack = 1;
	r->bytes = 0;
	r->push = 0;
	r->seq = ack->seq;
	r->ack = ack->ack;
	r->win = bpf_htons(p->window);
	r->tsval = p->tsval;
	r->tsecr = p->tsecr;
	return tbg_reply_heads(skb, s);
}

/* Turns the received segment into this acknowledgement. Returns a TC action, or TBG_TRIED. */
static __always_inline int tbg_ack_stack(struct __sk_buff *skb,
					 struct tbg_scratch *s,
					 const struct tbg_bare_ack *ack)
{
	if (bpf_skb_change_tail(skb, s->pkt.l4 + (s->reply.ts ? 32 : 20), 0))
		return TC_ACT_SHOT;
	if (tbg_ack_heads(skb, s, ack))
		return TC_ACT_SHOT;
	return TBG_TRIED;
}

/*
 * Lets a clone of skb be received, marked for tbg_ingress_note(). A clone that is
 * received directly loses its route and is a martian between addresses of this machine:
 * on lo it is sent instead, which keeps the route, and tbg_egress marks it.
 */
static __always_inline void tbg_window_clone(struct __sk_buff *skb)
{
	__u32 mark = skb->mark;

	if (skb->ifindex != TBG_LO) {
		tbg_send_clone(skb, BPF_F_INGRESS);
		return;
	}
	skb->mark = TBG_MARK_WINDOW;
	bpf_clone_redirect(skb, skb->ifindex, 0);
	skb->mark = mark;
}

/*
 * Passes a window that the socket would ignore on to it, by an acknowledgement that
 * could follow the segment in s->pkt: its number is new to snd_wl1, and it causes
 * no answer. It is received as a clone while the segment continues, possibly after
 * more segments of the client, which carry their own windows; the socket would
 * answer an outdated number, so the clone is marked. The segment's payload behind
 * its headers is padding to IP. False: the segment is lost.
 */
static __attribute__((noinline)) bool tbg_window_pass(struct __sk_buff *skb,
						      struct tbg_scratch *s,
						      struct tbg_flow *f)
{
	__u32 now_ms = tbg_now_ms();
	struct tbg_reply *r = &s->reply;
	struct tbg_pkt *p = &s->pkt;
	__u64 len = p->payload - p->l3;
	struct tbg_bare_ack ack = { .ack = p->ack };
	int soft;

	ack.seq = p->seq + p->payload_len + !!(p->tcp_flags & TBG_TCP_FIN);
	if (p->odd || p->ae || f->flags & TBG_FLOW_CLOSED ||
	    (p->tcp_flags & ~(TBG_TCP_PSH | TBG_TCP_FIN)) != TBG_TCP_ACK ||
	    (f->flags & TBG_FLOW_TS && !p->timed))
		return true;
	soft = tbg_segment_check(skb, s);
	TBG_BOUND(len, TBG_HEADS_MAX, return true);
	if (soft < 0 || bpf_skb_load_bytes(skb, p->l3, s->heads, len))
		return true;
	/* growing clears CHECKSUM_COMPLETE, which is about to become wrong */
	if (soft && bpf_skb_change_tail(skb, skb->len + 1, 0))
		return true;
	__builtin_memset(r, 0, sizeof(*r));
	bpf_spin_lock(&f->lock);
	tbg_reply_flow(r, f, now_ms);
	f->heard = tbg_window_left(f, p);
	bpf_spin_unlock(&f->lock);
	if (!tbg_ack_heads(skb, s, &ack))
		tbg_window_clone(skb);
	if (soft && bpf_skb_change_tail(skb, skb->len - 1, 0))
		return false;
	return !bpf_skb_store_bytes(skb, p->l3, s->heads, len, 0);
}

#endif
