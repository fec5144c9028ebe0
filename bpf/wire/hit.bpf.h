/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Answers a request on wire's connection: checks that the connection allows it, looks
 * up the reply, claims the sequence numbers, sends.
 */
#ifndef TBG_WIRE_HIT_BPF_H
#define TBG_WIRE_HIT_BPF_H

#include "answer.bpf.h"
#include "crowd.bpf.h"
#include "send.bpf.h"

/*
 * Returns 0 if the connection allows wire to answer a request at its next byte, else a
 * reason.
 */
static __always_inline int tbg_may_hit(const struct tbg_knob *knob,
				       const struct tbg_tcb *f,
				       const struct tbg_pkt *p)
{
	if (p->odd)
		return TBG_WHY_IP_ODD;
	if (p->ce || p->ae || (p->tcp_flags & ~TBG_TCP_PSH) != TBG_TCP_ACK)
		return TBG_WHY_FLAGS;
	if (f->flags & TBG_TCB_LOSSY)
		return TBG_WHY_LEFT;
	if (!knob->answer)
		return TBG_WHY_OFF;
	if (!tbg_is_plain(f, p))
		return TBG_WHY_TCP_ODD;
	if (p->ack != f->snd_nxt)
		return TBG_WHY_UNACKED;
	if (p->payload_len > TBG_REQ_MAX)
		return TBG_WHY_GRAMMAR;
	return 0;
}

/*
 * Claims the exchange: checks under the lock once more that nothing is outstanding, and
 * advances the sequence numbers. Returns 0 or a reason.
 */
static __always_inline int tbg_claim(const struct tbg_tcb_key *key, struct tbg_tcb *f,
				     const struct tbg_pkt *p, struct tbg_reply *r, __u64 now_ns)
{
	__u32 now_ms = now_ns / 1000000;
	bool left = false;
	int why = 0;

	bpf_spin_lock(&f->lock);
	if (f->state != TBG_TCB_OPEN || p->seq != f->rcv_nxt || p->ack != f->snd_nxt)
		why = TBG_WHY_RACE;
	if (!why) {
		tbg_reply_flow(r, f, now_ms);
		r->may_fragment = !(f->flags & TBG_TCB_DF);
		r->first_seq = p->ack;
		r->acks[0] = p->seq;
		r->acks[1] = p->seq + p->payload_len;
		r->tsecr = p->tsval;
		f->tsrecent = p->tsval;
		f->rcv_nxt += p->payload_len;
		f->snd_nxt += tbg_reply_total(r);
		f->acked = p->ack;
		f->seen_ms = now_ms;
		f->last.req_seq = p->seq;
		f->last.req_len = p->payload_len;
		f->last.seq = p->ack;
		f->last.len = tbg_reply_total(r);
		f->last.blob = r->blob;
		f->last.gen = r->gen;
		f->last.date_s = r->date_s;
		f->last.part = r->part_id | r->persist << 8;
		f->last.seg = r->seg + r->line_len;
		f->resent = TBG_FRESH;
		f->repeat_ms = now_ms;
		f->tries = 0;
		f->dups = 0;
		f->answers++;
		if (r->persist == TBG_PERSIST_NOT) {
			f->state = TBG_TCB_FIN_WAIT;
			left = tbg_crowd_left(f);
			r->more = TBG_TCP_FIN;
		}
	}
	bpf_spin_unlock(&f->lock);
	if (left)
		tbg_crowd_leave(key);
	return why;
}

/*
 * As tbg_find(), and chooses the Connection line of the reply. The slot may hold
 * another response by now; this is detected when the reply is written.
 */
static __always_inline int tbg_hit_find(struct tbg_scratch *s, __u32 len)
{
	int why = tbg_find(s, len);
	struct tbg_blob *blob;

	if (why)
		return why;
	blob = tbg_blob_get(s->reply.blob);
	if (!blob)
		return TBG_WHY_BLOB;
	tbg_reply_persist(&s->reply, blob, tbg_request_persist(s->req.flags));
	return 0;
}

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

/* Answers the request in s->pkt. Returns a TC action, or -reason to leave it to the kernel. */
static __always_inline int tbg_hit(struct __sk_buff *skb, struct tbg_scratch *s,
				   const struct tbg_knob *knob,
				   const struct tbg_tcb_key *key, struct tbg_tcb *f,
				   bool soft)
{
	struct tbg_reply *r = &s->reply;
	struct tbg_pkt *p = &s->pkt;
	__u16 from[4] __attribute__((aligned(4)));	/* source address and EtherType */
	__u32 frame;
	int why;

	why = tbg_hit_find(s, p->payload_len);
	why = why ?: tbg_hit_cut(skb, s, knob, f, &frame);
	if (why)
		return -why;
	if (tbg_reply_room(skb, frame, soft))
		return -TBG_WHY_ROOM;
	why = tbg_claim(key, f, p, r, s->now_ns);
	if (why) {
		tbg_request_restore(skb, s);
		return -why;
	}
	/* the reply goes to the neighbour that sent the request */
	if (!tbg_load_words(skb, ETH_ALEN, from, 2))
		__builtin_memcpy(r->mac, from, sizeof(r->mac));
	if (r->nr > 1)
		tbg_due(key);
	if (tbg_reply_send(skb, s, (1u << r->nr) - 1))
		return TC_ACT_SHOT;
	tbg_hit_note(s, knob);
	return tbg_reply_last(skb);
}

#endif
