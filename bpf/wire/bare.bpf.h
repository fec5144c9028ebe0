/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Segments without payload that wire sends for its connections: acknowledgements,
 * challenge ACKs, FINs and resets. Each is made out of the frame that caused it.
 */
#ifndef TBG_WIRE_BARE_BPF_H
#define TBG_WIRE_BARE_BPF_H

#include "send.bpf.h"

/* Sequence and acknowledgement number in one argument: a BPF function has five at most. */
#define TBG_NUMBERS(seq, ack) ((__u32)(seq) | (__u64)(__u32)(ack) << 32)

/* Sets the length of skb to frame and writes the headers of s->reply. Returns 0 or negative. */
static __always_inline int tbg_bare_write(struct __sk_buff *skb, struct tbg_scratch *s,
					  __u32 frame)
{
	/* grow first: a mere cut keeps a checksum that a device computed for the whole frame */
	if (tbg_frame_summed(skb) == TBG_CHECKSUM_COMPLETE &&
	    bpf_skb_change_tail(skb, skb->len + 1, 0))
		return -1;
	if (skb->len != frame && bpf_skb_change_tail(skb, frame, 0))
		return -1;
	return tbg_reply_heads(skb, s);
}

/*
 * Turns skb into a segment without payload, with these flags beside ACK and these
 * numbers. Returns 0, or negative if skb must not be sent.
 */
static __attribute__((noinline)) int
tbg_bare_make(struct __sk_buff *skb, struct tbg_scratch *s, struct tbg_tcb *f,
	      __u64 numbers, __u32 flags)
{
	struct tbg_reply *r;
	struct tbg_pkt *p;
	__u32 frame;

	if (!s || !f)
		return -1;
	r = &s->reply;
	p = &s->pkt;
	__builtin_memset(r, 0, sizeof(*r));
	bpf_spin_lock(&f->lock);
	tbg_reply_flow(r, f, s->now_ms);
	r->tsecr = f->tsrecent;
	r->may_fragment = !(f->flags & TBG_TCB_DF);
	bpf_spin_unlock(&f->lock);
	r->seq = numbers;
	r->ack = numbers >> 32;
	r->more = flags;
	bpf_skb_load_bytes(skb, ETH_ALEN, r->mac, sizeof(r->mac));
	frame = p->l4 + (r->ts ? 32 : 20);
	return tbg_bare_write(skb, s, frame);
}

static __always_inline int tbg_bare_send(struct __sk_buff *skb, struct tbg_scratch *s,
					 struct tbg_tcb *f, __u32 seq, __u32 ack,
					 __u32 flags)
{
	if (tbg_bare_make(skb, s, f, TBG_NUMBERS(seq, ack), flags))
		return TC_ACT_SHOT;
	return tbg_reply_last(skb);
}

/*
 * Answers a segment that is not acceptable with an ACK that has the current numbers
 * (the challenge ACK of RFC 5961). Segments without payload get one twice a second at
 * most, or as net.ipv4.tcp_invalid_ratelimit is set: their sender may answer in the
 * same way, without end.
 */
static __always_inline int tbg_bare_challenge(struct __sk_buff *skb, struct tbg_scratch *s,
					      const struct tbg_tcb_key *key, struct tbg_tcb *f)
{
	bool bare = !s->pkt.payload_len && !(s->pkt.tcp_flags & TBG_TCP_FIN);
	__u32 now_ms = s->now_ms, seq, ack, least_ms;
	struct tbg_knob *knob = tbg_knob_get();
	bool limited = false, owed;

	least_ms = knob ? knob->challenge_ms : 0;
	bpf_spin_lock(&f->lock);
	if (bare) {
		limited = f->challenged_ms && now_ms - f->challenged_ms < least_ms;
		if (!limited)
			f->challenged_ms = now_ms | 1;
	}
	seq = tbg_tcb_next(f);
	ack = f->rcv_nxt;
	owed = tbg_tcb_owes(f);
	bpf_spin_unlock(&f->lock);
	tbg_count(TBG_WHY_CHALLENGE);
	if (owed && !limited)
		tbg_due(key);
	return limited ? TC_ACT_SHOT : tbg_bare_send(skb, s, f, seq, ack, 0);
}

#endif
