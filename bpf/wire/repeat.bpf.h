/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Repeats a reply that was lost, byte for byte, or resets the connection if that is not
 * possible. After a loss, the next request goes to the kernel, whose TCP has congestion
 * control.
 */
#ifndef TBG_WIRE_REPEAT_BPF_H
#define TBG_WIRE_REPEAT_BPF_H

#include "bare.bpf.h"
#include "hand.bpf.h"
#include "loss.bpf.h"

/*
 * Why a reply is sent: the client's segment showed a loss, our timer expired, or the
 * first time.
 */
enum tbg_again_why { TBG_AGAIN_CLIENT, TBG_AGAIN_TIMER, TBG_AGAIN_FIRST };

/*
 * Returns the segments in mask that are to be repeated now, and marks them; the others
 * were repeated a moment ago. timer: only a timeout suggests the loss.
 */
static __always_inline __u32 tbg_again_note(struct tbg_tcb *f, const struct tbg_pkt *p,
					    __u32 mask, __u32 now_ms, bool timer)
{
	__u32 least_ms = p->payload_len ? TBG_AGAIN_MS : TBG_REPEAT_MS;

	bpf_spin_lock(&f->lock);
	if (!timer && tbg_is_doubled(f, p, now_ms)) {
		mask = 0;
	} else {
		if (mask)
			f->flags |= TBG_TCB_LOSSY;
		if (mask && (timer || f->resent & TBG_FRESH ||
			     now_ms - f->repeat_ms >= least_ms)) {
			f->resent = 0;
			f->repeat_ms = now_ms;
			if (timer && f->tries < 255)
				f->tries++;
		}
		mask &= ~(__u32)f->resent;
		f->resent |= mask;
		f->dups = 0;
		if (tbg_within_reply(f, p->ack))
			f->acked = p->ack;
	}
	bpf_spin_unlock(&f->lock);
	return mask;
}

/*
 * Resets the connection, with a segment to the client. Called where the reply can't be
 * repeated with exactly the bytes that the client may have received before.
 */
static __always_inline int tbg_tcb_reset(struct __sk_buff *skb, struct tbg_scratch *s,
					 const struct tbg_tcb_key *key,
					 struct tbg_tcb *f)
{
	__u32 seq, ack;

	bpf_spin_lock(&f->lock);
	seq = tbg_tcb_next(f);
	ack = f->rcv_nxt;
	bpf_spin_unlock(&f->lock);
	/* a client that misses data accepts a reset only at the next byte it expects */
	if ((__s32)(s->pkt.ack - seq) < 0)
		seq = s->pkt.ack;
	if (tbg_bare_make(skb, s, f, TBG_NUMBERS(seq, ack), TBG_TCP_RST)) {
		tbg_tcb_forget(key, f);
		return TC_ACT_SHOT;
	}
	tbg_tcb_forget(key, f);
	return tbg_reply_last(skb);
}

/*
 * Sets up s->reply as the last reply of f. Returns 0 or -reason. The segments are cut
 * as at first.
 */
static __always_inline int tbg_again_find(struct __sk_buff *skb, struct tbg_scratch *s,
					  const struct tbg_knob *knob,
					  struct tbg_tcb *f, bool timer)
{
	__u32 now_ms = s->now_ms, mss;
	struct tbg_reply *r = &s->reply;
	struct tbg_pkt *p = &s->pkt;
	struct tbg_blob *blob;
	bool there;

	bpf_spin_lock(&f->lock);
	there = tbg_within_reply(f, p->ack);
	tbg_repeat_flow(r, f, now_ms, &mss);
	r->acks[1] = f->rcv_nxt;
	r->more = tbg_tcb_fin(f) ? TBG_TCP_FIN : 0;
	r->tsecr = f->tsrecent;
	r->persist = r->part_id >> 8;
	r->part_id &= 0xff;
	bpf_spin_unlock(&f->lock);
	if (!there)
		return -TBG_WHY_RACE;
	if (!timer && p->timed)
		r->tsecr = p->tsval;
	bpf_skb_load_bytes(skb, ETH_ALEN, r->mac, sizeof(r->mac));
	r->may_fragment = 1;
	blob = tbg_blob_get(r->blob);
	if (!blob || blob->gen != r->gen || r->part_id >= TBG_PART_NR)
		return -TBG_WHY_STALE_REPEAT;
	r->age_len = blob->age_len;
	if (!r->age_len &&
	    knob->date[r->date_s & (TBG_DATE_RING - 1)].second != r->date_s)
		return -TBG_WHY_STALE_REPEAT;
	r->part = blob->part[r->part_id];
	tbg_reply_persist(r, blob, r->persist);
	r->len -= r->line_len;
	if (r->part.len != r->len || tbg_reply_cut(skb, r, mss))
		return -TBG_WHY_STALE_REPEAT;
	return 0;
}

/*
 * Repeats what the client misses of the last reply, out of the segment that showed the
 * loss or that the daemon made (timer). Returns a TC action or -reason.
 */
static __always_inline int tbg_again(struct __sk_buff *skb, struct tbg_scratch *s,
				     const struct tbg_knob *knob, struct tbg_tcb *f,
				     bool soft, enum tbg_again_why which)
{
	bool timer = which != TBG_AGAIN_CLIENT;
	__u32 mask, frame, now_ms = s->now_ms;
	struct tbg_reply *r = &s->reply;
	struct tbg_pkt *p = &s->pkt;
	int err;

	/*
	 * receive it again as a clone without the socket, for which truesize grows with
	 * the data
	 */
	if (!timer && tbg_is_local(skb) && tbg_truesize(skb) < TBG_HOLLOW) {
		bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS);
		tbg_count(TBG_WHY_CONTROL);
		return TC_ACT_SHOT;
	}
	tbg_pkt_options(skb, s);
	err = tbg_again_find(skb, s, knob, f, timer);
	if (err)
		return err;
	frame = p->l4 + (r->ts ? 32 : 20) + r->seg + r->line_len;
	if (r->nr > TBG_AGAIN_MAX || !tbg_mtu_holds(skb, frame - p->l3))
		return -TBG_WHY_STALE_REPEAT;
	if (which == TBG_AGAIN_FIRST) {
		r->may_fragment = !(f->flags & TBG_TCB_DF);
		mask = (1u << r->nr) - 1;
	} else {
		mask = tbg_lost_segments(s);
		if (timer)	/* as TCP's own timer: only the first one that is missing */
			mask &= -mask;
		mask = tbg_again_note(f, p, mask, now_ms, timer);
	}
	if (!mask) {
		tbg_count(p->payload_len ? TBG_WHY_DOUBLED : TBG_WHY_ACK);
		return TC_ACT_SHOT;
	}
	if (tbg_reply_room(skb, frame, soft))
		return -TBG_WHY_ROOM;
	if (tbg_reply_send(skb, s, mask))
		return TC_ACT_SHOT;
	if (which != TBG_AGAIN_FIRST)
		tbg_count_sent(TBG_WHY_REPEAT,
		       (__builtin_popcount(mask) - 1) * r->seg + r->bytes);
	return tbg_reply_last(skb);
}

#endif
