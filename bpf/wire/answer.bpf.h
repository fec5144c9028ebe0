/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What both hooks check of a segment before they answer it, above all its checksum, and
 * what they record for each reply.
 */
#ifndef TBG_WIRE_ANSWER_BPF_H
#define TBG_WIRE_ANSWER_BPF_H

#include "../log.bpf.h"
#include "../metric.bpf.h"
#include "reply.bpf.h"

#define TBG_SUM_STEP 32		/* bytes that tbg_payload_sum() adds in one step */

/*
 * Returns the sum of the len bytes of payload in s->head, 1..TBG_REQ_MAX. For the
 * requests of most clients, this loop takes fewer instructions than a call of
 * bpf_csum_diff().
 */
static __always_inline __u64 tbg_payload_sum(struct tbg_scratch *s, __u64 len)
{
	const __u32 *w = (const void *)s->head.b;
	__u64 sum = 0;
	__u32 at, i;

	/* the last step and an odd byte at the end are summed as if zeros followed */
	TBG_BOUND(len, TBG_REQ_MAX, return 0);
	__builtin_memset(s->head.b + len, 0, TBG_SUM_STEP);
	TBG_ROLLED
	for (at = 0; at < TBG_REQ_MAX / 4; at += TBG_SUM_STEP / 4) {
		tbg_keep(at);
		if (at * 4 >= len)
			break;
		TBG_UNROLLED
		for (i = 0; i < TBG_SUM_STEP / 4; i++)
			sum += w[at + i];
	}
	return sum;
}

/*
 * Returns whether the checksum is right. The payload is in s->head; the options are
 * read here.
 */
static __always_inline bool tbg_csum_holds(struct tbg_frame *frame,
					   struct tbg_scratch *s, __u16 pseudo)
{
	__u64 opt_len = s->pkt.opt_len, sum = pseudo;
	/* the header, with the timestamp option or none: nearly every segment */
	__u32 w[8] = {};
	int i;

	if (opt_len == 12 ? tbg_load_words(frame, s->pkt.l4, w, 8) :
			    tbg_load_words(frame, s->pkt.l4, w, 5))
		return false;
#pragma unroll
	for (i = 0; i < 8; i++)
		sum += w[i];
	if (opt_len && opt_len != 12) {
		__builtin_memset(s->opt.opt, 0, TBG_OPT_MAX);
		TBG_BOUND(opt_len, TBG_OPT_MAX, return false);
		if (tbg_load(frame, s->pkt.l4 + 20, s->opt.opt, opt_len))
			return false;
#pragma unroll
		for (i = 0; i < TBG_OPT_MAX / 4; i++)
			sum += *(__u32 *)(s->opt.opt + i * 4);
	}
	if (s->pkt.payload_len)
		sum += tbg_payload_sum(s, s->pkt.payload_len);
	return tbg_csum_fold(sum) == 0xffff;
}

/* Returns the folded sum of the segment's pseudo-header (RFC 9293 3.1). */
static __always_inline __u16 tbg_pseudo(const struct tbg_pkt *p)
{
	return tbg_csum_fold((__u64)p->addr_sum + bpf_htons(IPPROTO_TCP) +
			     bpf_htons(20 + p->opt_len + p->payload_len));
}

/*
 * Returns whether the device or the stack has verified the checksum, or leaves it to the
 * sending device (CHECKSUM_PARTIAL): the field holds the sum of the pseudo-header only.
 */
static __always_inline bool tbg_is_verified(struct tbg_frame *frame,
					    const struct tbg_pkt *p)
{
	__u32 summed = tbg_frame_summed(frame);

	return summed == TBG_CHECKSUM_UNNECESSARY ||
	       (summed == TBG_CHECKSUM_PARTIAL && p->check == tbg_pseudo(p));
}

/* Copies the payload into s->head. Returns 0, or negative if it is too long. */
__attribute__((noinline)) int tbg_request_load(struct tbg_frame *frame, struct tbg_scratch *s)
{
	__u64 len;

	if (!s)
		return -1;
	if (s->pkt.loaded)
		return 0;
	len = s->pkt.payload_len;
	TBG_BOUND(len, TBG_REQ_MAX, return -1);
	if (tbg_load(frame, s->pkt.payload, s->head.b, len))
		return -1;
	s->pkt.loaded = 1;
	return 0;
}

/*
 * Computes the checksum of a segment that nobody has verified. Returns 1 if it is right, -1
 * if it is wrong or the payload is too long. The payload is in s->head then.
 */
__attribute__((noinline)) int tbg_csum_check(struct tbg_frame *frame,
					     struct tbg_scratch *s)
{
	struct tbg_pkt *p;

	if (!s)
		return -1;
	p = &s->pkt;
	if (p->payload_len && tbg_request_load(frame, s))
		return -1;
	if (!tbg_csum_holds(frame, s, tbg_pseudo(p))) {
		p->checked = TBG_CHECKED_WRONG;
		return -1;
	}
	p->checked = TBG_CHECKED_SOFT;
	return 1;
}

/*
 * Returns 0 if the checksum is right or a device will compute it (CHECKSUM_PARTIAL: the
 * field holds the sum of the pseudo-header), 1 if it is right but had to be computed
 * here, -1 if it is wrong.
 */
static __always_inline int tbg_segment_check(struct tbg_frame *frame, struct tbg_scratch *s)
{
	if (!tbg_is_verified(frame, &s->pkt))
		return tbg_csum_check(frame, s);
	s->pkt.checked = TBG_CHECKED_SOUND;
	return 0;
}

/* Returns whether the checksum is right. */
__attribute__((noinline)) int tbg_segment_sound(struct tbg_frame *frame,
						struct tbg_scratch *s)
{
	if (!s)
		return 0;
	/* the lookup of its request has checked it; wire cannot answer that request */
	if (s->pkt.checked)
		return s->pkt.checked != TBG_CHECKED_WRONG;
	return tbg_segment_check(frame, s) >= 0;
}

/* Writes the request back into a frame that was prepared for the reply. */
static __always_inline void tbg_request_restore(struct tbg_frame *frame,
						const struct tbg_scratch *s)
{
	const struct tbg_pkt *p = &s->pkt;
	__u64 len = p->payload_len;

	/* the frame may have been cut, and holds zeros there now */
	tbg_frame_resize(frame, p->payload + p->payload_len);
	TBG_BOUND(len, TBG_REQ_MAX, return);
	tbg_store(frame, p->payload, s->head.b, len);
}

/* Records a reply for the cache, the log, the client's rate and the counters. */
static __always_inline void tbg_hit_note(struct tbg_scratch *s,
					 const struct tbg_knob *knob)
{
	const struct tbg_reply *r = &s->reply;

	tbg_reply_heat(r);
	tbg_metric_hit(s, TBG_TIER_wire, knob->log);
	if (knob->clients & TBG_CLIENTS_RATED)
		tbg_client_charge(s);
	if (knob->log)
		tbg_log_hit(s, TBG_TIER_wire);
	tbg_count_sent(TBG_WHY_HIT_WIRE, tbg_reply_total(r));
}

#endif
