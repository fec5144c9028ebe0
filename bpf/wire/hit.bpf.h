/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Answers a request on wire's connection at TC: looks up the reply, claims the sequence
 * numbers, sends.
 */
#ifndef TBG_WIRE_HIT_BPF_H
#define TBG_WIRE_HIT_BPF_H

#include "claim.bpf.h"
#include "send.bpf.h"

/* Divides the reply in s->reply into segments. Returns 0 if it can be sent, else a reason. */
static __always_inline int tbg_hit_cut(struct __sk_buff *skb, struct tbg_scratch *s,
				       const struct tbg_knob *knob,
				       const struct tbg_tcb *f, __u32 *ret_frame)
{
	__u32 segs = knob->segs_max;
	struct tbg_reply *r = &s->reply;
	struct tbg_pkt *p = &s->pkt;

	if (tbg_reply_total(r) > TBG_WIRE_MAX || tbg_reply_total(r) > tbg_pkt_window(f, p) ||
	    tbg_is_tight(skb, f, p) ||
	    tbg_reply_cut(skb, r, tbg_flow_mss(f, p)) ||
	    !tbg_reply_fits(knob, r) || (segs && r->nr > segs))
		return TBG_WHY_SIZE;
	*ret_frame = p->l4 + (f->flags & TBG_FLOW_TS ? 32 : 20) + r->seg + r->line_len;
	return tbg_mtu_holds(skb, *ret_frame - p->l3) ? 0 : TBG_WHY_SIZE;
}

/*
 * The client's frames come by another way: our timer's segments take it, too. The entry may
 * be another connection's by now, and has to end its request at next.
 */
static __attribute__((noinline)) int tbg_hit_moved(struct __sk_buff *skb, struct tbg_tcb *f,
						   __u32 next)
{
	__u16 mac[6] __attribute__((aligned(4)));	/* destination, source */

	if (!f || tbg_load_words(skb, 0, mac, 3))
		return 0;
	bpf_spin_lock(&f->lock);
	if (f->rcv_nxt == next)
		tbg_tcb_move(f, skb->ifindex, mac);
	bpf_spin_unlock(&f->lock);
	return 0;
}

/*
 * Follows the client to where the frame of its request came from. Reads the source address
 * into from, which has room for the EtherType, too. Returns 0, or negative.
 */
static __always_inline int tbg_hit_follow(struct __sk_buff *skb, const struct tbg_pkt *p,
					  struct tbg_tcb *f, __u16 from[4])
{
	if (tbg_load_words(skb, ETH_ALEN, from, 2))
		return -1;
	if (f->ifindex != skb->ifindex || !tbg_tcb_is_from(f, from))
		tbg_hit_moved(skb, f, p->seq + p->payload_len);
	return 0;
}

/* Answers the request in s->pkt. Returns a TC action, or -reason to leave it to the kernel. */
static __always_inline int tbg_hit(struct __sk_buff *skb, struct tbg_scratch *s,
				   const struct tbg_knob *knob,
				   const struct tbg_tcb_key *key, struct tbg_tcb *f,
				   bool soft)
{
	struct tbg_reply *r = &s->reply;
	struct tbg_pkt *p = &s->pkt;
	__u16 from[4] __attribute__((aligned(4)));
	__u32 frame;
	int why;

	why = tbg_hit_find(skb, s, knob, true);
	why = why ?: tbg_hit_cut(skb, s, knob, f, &frame);
	if (why)
		return -why;
	if (tbg_reply_room(skb, frame, soft))
		return -TBG_WHY_ROOM;
	why = tbg_claim(key, f, p, r, s->now_ms, false);
	if (why) {
		tbg_request_fetch(s);
		tbg_request_restore(skb, s);
		return -why;
	}
	/* the reply goes to the neighbour that sent the request */
	if (!tbg_hit_follow(skb, p, f, from))
		__builtin_memcpy(r->mac, from, sizeof(r->mac));
	if (r->nr > 1)
		tbg_due(key);
	if (tbg_reply_send(skb, s, (1u << r->nr) - 1))
		return TC_ACT_SHOT;
	if (knob->log)
		tbg_request_fetch(s);
	tbg_hit_note(s, knob);
	return tbg_reply_last(skb);
}

#endif
