/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which segments of a flow's last reply a client misses, as its acknowledgements
 * show, and the reply once more, byte for byte. What is done about it is in the
 * folder of each way.
 */
#ifndef TBG_WIRE_LOSS_BPF_H
#define TBG_WIRE_LOSS_BPF_H

#include "send.bpf.h"

/* Least time between repeats of a segment that is reported lost; see TBG_AGAIN_MS. */
#define TBG_REPEAT_MS 200
#define TBG_DUPS 3		/* duplicate ACKs that mean loss (RFC 5681 3.2) */

/* Whether the client's SACK blocks in s->opt cover from..end; *ret_high grows. */
static __always_inline bool tbg_is_sacked(const struct tbg_scratch *s,
					  __u32 from, __u32 end, __u32 *ret_high)
{
	const struct tbg_tcpopt *opt = &s->opt;
	bool covered = false;
	__u32 i;

	for (i = 0; i < 4; i++) {
		__u32 left = tbg_opt_be32(opt, opt->sack_off + i * 8);
		__u32 right = tbg_opt_be32(opt, opt->sack_off + i * 8 + 4);

		if (i >= opt->sack_nr)
			break;
		/* a duplicate is reported below the ACK (RFC 2883): nothing new */
		if ((__s32)(left - s->pkt.ack) < 0)
			continue;
		if ((__s32)(from - left) >= 0 && (__s32)(end - right) <= 0)
			covered = true;
		if ((__s32)(right - *ret_high) > 0)
			*ret_high = right;
	}
	return covered;
}

/*
 * The segments of s->reply, as a mask, that the segment in s->pkt asks for
 * again. A request that comes again asks for all that is neither acknowledged
 * nor SACKed; SACK blocks alone, for what is missing below them; a duplicate
 * ACK without, for the first segment missing. Options are parsed.
 */
__attribute__((noinline)) int tbg_lost_segments(struct tbg_scratch *s)
{
	__u32 high, i, mask = 0;
	struct tbg_reply *r;

	if (!s)
		return 0;
	r = &s->reply;
	high = s->pkt.ack;
	tbg_is_sacked(s, 0, 0, &high);
	if (s->pkt.payload_len)
		high = r->first_seq + tbg_reply_total(r);
	for (i = 0; i < TBG_AGAIN_MAX; i++) {
		__u32 from = i * r->seg, end = from + r->seg + r->line_len;

		if (i >= r->nr)
			break;
		if (i)
			from += r->line_len;
		if (end > tbg_reply_total(r))
			end = tbg_reply_total(r);
		from += r->first_seq;
		end += r->first_seq;
		if ((__s32)(end - s->pkt.ack) <= 0 ||
		    tbg_is_sacked(s, from, end, &high))
			continue;
		if (high == s->pkt.ack)		/* no SACK, or of duplicates only */
			return s->opt.sack_nr ? 0 : 1u << i;
		if ((__s32)(from - high) < 0)
			mask |= 1u << i;
	}
	return mask;
}

/* The flow's last reply as one to be built again; under the flow's lock. */
static __always_inline void tbg_repeat_flow(struct tbg_reply *r,
					    struct tbg_line *f,
					    __u32 now_ms, __u32 *ret_mss)
{
	tbg_reply_flow(r, f, now_ms);
	r->blob = f->last.blob;
	r->gen = f->last.gen;
	r->part_id = f->last.part;
	r->len = f->last.len;
	r->first_seq = f->last.seq;
	r->acks[0] = f->last.req_seq;
	r->acks[1] = f->last.req_seq + f->last.req_len;
	r->date_s = f->last.date_s;
	*ret_mss = f->last.seg < f->mss ? f->last.seg : f->mss;
}

#endif
