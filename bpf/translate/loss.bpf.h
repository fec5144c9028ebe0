/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Retransmission of lost replies. The client indicates a loss by retransmitting
 * the request or by acknowledging later bytes; the missing segments are sent
 * again, byte for byte, or the connection is reset. After a loss the flow
 * belongs to the socket alone, with its timers and congestion control.
 */
#ifndef TBG_TRANSLATE_LOSS_BPF_H
#define TBG_TRANSLATE_LOSS_BPF_H

#include "translate.bpf.h"
#include "../wire/loss.bpf.h"

/*
 * Selects, under the flow's lock, which segments of mask are sent again
 * now; the others were sent a moment ago.
 */
static __always_inline __u32 tbg_repeat_note(struct tbg_flow *f,
					     const struct tbg_pkt *p, __u32 mask,
					     __u32 now_ms)
{
	__u32 least_ms = p->payload_len ? TBG_AGAIN_MS : TBG_REPEAT_MS;

	bpf_spin_lock(&f->lock);
	if (tbg_is_doubled(f, p, now_ms)) {
		mask = 0;
	} else {
		/* only duplicates (RFC 2883): nothing was lost */
		if (mask)
			f->flags |= TBG_FLOW_LEFT;
		if (mask &&
		    (f->resent & TBG_FRESH || now_ms - f->repeat_ms >= least_ms)) {
			f->resent = 0;
			f->repeat_ms = now_ms;
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

/* Finds the bytes of the reply in r, cut as at first. False: they are no longer held. */
static __always_inline bool tbg_repeat_find(struct __sk_buff *skb, struct tbg_reply *r,
					    const struct tbg_knob *knob, __u32 mss)
{
	struct tbg_blob *blob = tbg_blob_get(r->blob);

	if (!blob || blob->gen != r->gen || r->part_id >= TBG_PART_NR)
		return false;
	r->age_len = blob->age_len;
	if (!r->age_len &&
	    knob->date[r->date_s & (TBG_DATE_RING - 1)].second != r->date_s)
		return false;
	r->part = blob->part[r->part_id];
	return r->part.len == r->len && !tbg_reply_cut(skb, r, mss);
}

/*
 * Sends the missing segments of the flow's last reply, in place of the
 * segment that indicated the loss. Returns a TC action, or -why.
 */
static __always_inline int tbg_repeat(struct __sk_buff *skb,
				      struct tbg_scratch *s,
				      const struct tbg_knob *knob,
				      struct tbg_flow *f, bool soft)
{
	__u32 now_ms = s->now_ns / 1000000, mss, mask, frame;
	struct tbg_reply *r = &s->reply;
	struct tbg_pkt *p = &s->pkt;
	struct tbg_tcpopt *opt;
	bool holds, there, past;

	/* received once more, without a socket that would hold the clone */
	if (tbg_is_local(skb) && tbg_truesize(skb) < TBG_HOLLOW) {
		bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS);
		tbg_count(TBG_WHY_CONTROL);
		return TC_ACT_SHOT;
	}
	opt = tbg_pkt_options(skb, s);
	bpf_spin_lock(&f->lock);
	/* taken back meanwhile (tbg_take_back): the socket sends it */
	there = tbg_within_reply(f, p->ack);
	past = f->iss + f->sent + f->out_delta != tbg_flow_edge(f);
	if (there)
		tbg_repeat_flow(r, f, now_ms, &mss);
	bpf_spin_unlock(&f->lock);
	if (!there)
		return -TBG_WHY_RACE;
	/* nothing of it has arrived: the route may have been wrong */
	if (p->payload_len && p->ack == r->first_seq)
		bpf_skb_load_bytes(skb, ETH_ALEN, r->mac, sizeof(r->mac));
	r->tsecr = opt->tsval;
	r->may_fragment = 1;
	if (!tbg_repeat_find(skb, r, knob, mss))
		return -TBG_WHY_STALE_REPEAT;
	frame = p->l4 + (r->ts ? 32 : 20) + r->seg;
	/* where less is taken than it was, the socket will soon send it, if it can */
	holds = r->nr <= TBG_SEG_MAX && tbg_mtu_holds(skb, frame - p->l3);
	if (!holds && past)
		return -TBG_WHY_STALE_REPEAT;
	mask = holds ? tbg_lost_segments(s) : 0;
	mask = tbg_repeat_note(f, p, mask, now_ms);
	if (!mask) {
		if (!p->payload_len)
			return -TBG_WHY_CONTROL;
		tbg_count(TBG_WHY_DOUBLED);
		return TC_ACT_SHOT;
	}
	if (tbg_reply_room(skb, frame, soft))
		return -TBG_WHY_ROOM;
	if (tbg_reply_send(skb, s, mask))
		return TC_ACT_SHOT;
	/* r->bytes is that of the last segment, which alone may be shorter */
	tbg_count_sent(TBG_WHY_REPEAT,
		       (__builtin_popcount(mask) - 1) * r->seg + r->bytes);
	return tbg_reply_last(skb);
}

/*
 * The client must not get other bytes than before. The segment becomes an
 * RST to the socket, which closes; the stack then answers the client's next
 * segment with an RST.
 */
static __always_inline void tbg_reset(struct __sk_buff *skb,
				      struct tbg_scratch *s,
				      struct tbg_flow *f)
{
	__u32 old[2], new[2];

	bpf_spin_lock(&f->lock);
	old[0] = bpf_htonl(s->pkt.seq);
	old[1] = bpf_htonl(s->pkt.ack);
	new[0] = bpf_htonl(f->irs + f->given + !!(f->flags & TBG_FLOW_FIN_IN));
	new[1] = bpf_htonl(s->pkt.ack - f->out_delta);
	f->flags |= TBG_FLOW_RST;
	bpf_spin_unlock(&f->lock);
	tbg_rewrite(skb, s->pkt.l4 + 4, s->pkt.l4, old, new, 8);
	if (bpf_skb_load_bytes(skb, s->pkt.l4 + 12, old, 4))
		return;
	new[0] = old[0] | bpf_htonl(TBG_TCP_RST << 16);
	tbg_rewrite(skb, s->pkt.l4 + 12, s->pkt.l4, old, new, 4);
	tbg_count(TBG_WHY_STALE_REPEAT);
}

#endif
