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

/* Whether the n-th SACK block in s->opt, of 0..3, tells of something new; its edges. */
static __always_inline bool tbg_sack_block(const struct tbg_scratch *s, __u32 n,
					   __u32 *ret_left, __u32 *ret_right)
{
	const struct tbg_tcpopt *opt = &s->opt;

	if (n >= opt->sack_nr)
		return false;
	*ret_left = tbg_opt_be32(opt, opt->sack_off + n * 8);
	*ret_right = tbg_opt_be32(opt, opt->sack_off + n * 8 + 4);
	/* a duplicate is reported below the ACK (RFC 2883) */
	return (__s32)(*ret_left - s->pkt.ack) >= 0;
}

/* The end of what the client has: its ACK, or that of its last SACK block. */
static __always_inline __u32 tbg_sack_high(const struct tbg_scratch *s)
{
	__u32 high = s->pkt.ack, left, right, i;

	for (i = 0; i < 4; i++)
		if (tbg_sack_block(s, i, &left, &right) && (__s32)(right - high) > 0)
			high = right;
	return high;
}

/*
 * 1: the i-th segment of s->reply, which begins below high, is neither acknowledged nor
 * SACKed. A function of its own: the verifier checks it once, and not for each i.
 */
__attribute__((noinline)) int tbg_is_missing(struct tbg_scratch *s, __u32 i, __u32 high)
{
	__u32 from, end, left, right, n;
	struct tbg_reply *r;

	if (!s)
		return 0;
	r = &s->reply;
	from = i * r->seg;
	end = from + r->seg + r->line_len;
	if (i)
		from += r->line_len;
	if (end > tbg_reply_total(r))
		end = tbg_reply_total(r);
	from += r->first_seq;
	end += r->first_seq;
	if ((__s32)(end - s->pkt.ack) <= 0 || (__s32)(from - high) >= 0)
		return 0;
	for (n = 0; n < 4; n++)
		if (tbg_sack_block(s, n, &left, &right) &&
		    (__s32)(from - left) >= 0 && (__s32)(end - right) <= 0)
			return 0;
	return 1;
}

/*
 * The segments of s->reply, as a mask, that the segment in s->pkt asks for
 * again. A request that comes again asks for all that is neither acknowledged
 * nor SACKed; SACK blocks alone, for what is missing below them; a duplicate
 * ACK without, for the first segment missing. Options are parsed.
 */
__attribute__((noinline)) int tbg_lost_segments(struct tbg_scratch *s)
{
	__u32 high, all, i, mask = 0;
	struct tbg_reply *r;
	bool first;

	if (!s)
		return 0;
	r = &s->reply;
	all = r->first_seq + tbg_reply_total(r);
	high = s->pkt.payload_len ? all : tbg_sack_high(s);
	first = high == s->pkt.ack;
	if (first && s->opt.sack_nr)	/* of duplicates only */
		return 0;
	if (first)
		high = all;
	for (i = 0; i < TBG_AGAIN_MAX && i < r->nr; i++)
		mask |= (__u32)tbg_is_missing(s, i, high) << i;
	return first ? mask & -mask : mask;
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
