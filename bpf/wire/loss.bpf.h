/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which segments of the last reply the client misses, by its acknowledgements, and how
 * to set up the same reply again, byte for byte. The folders of the two tiers, wire/
 * and translate/, decide when to send it.
 */
#ifndef TBG_WIRE_LOSS_BPF_H
#define TBG_WIRE_LOSS_BPF_H

#include "send.bpf.h"

/* Least time between repeats of a segment that is reported lost; see TBG_AGAIN_MS. */
#define TBG_REPEAT_MS 200
#define TBG_DUPS 3		/* duplicate ACKs that mean loss (RFC 5681 3.2) */

/*
 * Reads the n-th SACK block in s->opt, of 0..3. Returns false if there is none, or if
 * it only reports a duplicate.
 */
static __always_inline bool tbg_sack_block(const struct tbg_scratch *s, __u32 n,
					   __u32 *ret_left, __u32 *ret_right)
{
	const struct tbg_tcpopt *opt = &s->opt;

	if (n >= opt->sack_nr)
		return false;
	*ret_left = tbg_opt_be32(opt, opt->sack_off + n * 8);
	*ret_right = tbg_opt_be32(opt, opt->sack_off + n * 8 + 4);
	/* a block below the ACK reports a duplicate (RFC 2883) */
	return (__s32)(*ret_left - s->pkt.ack) >= 0;
}

/*
 * Returns the end of what the client has received: its ACK, or the end of its highest
 * SACK block.
 */
static __always_inline __u32 tbg_sack_high(const struct tbg_scratch *s)
{
	__u32 high = s->pkt.ack, left, right, i;

	for (i = 0; i < 4; i++)
		if (tbg_sack_block(s, i, &left, &right) && (__s32)(right - high) > 0)
			high = right;
	return high;
}

/*
 * Returns 1 if the i-th segment of s->reply begins below high and is neither
 * acknowledged nor SACKed. Not inlined: the verifier checks it once, and not for each
 * i.
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
 * Returns a mask of the segments of s->reply that the segment in s->pkt asks for. A
 * repeated request: all that is neither acknowledged nor SACKed. SACK blocks: those
 * missing below the highest one. A duplicate ACK without SACK: the first one missing.
 * The options are parsed.
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
	if (first && s->opt.sack_nr)	/* all blocks report duplicates */
		return 0;
	if (first)
		high = all;
	for (i = 0; i < TBG_AGAIN_MAX && i < r->nr; i++)
		mask |= (__u32)tbg_is_missing(s, i, high) << i;
	return first ? mask & -mask : mask;
}

/* Sets up *r as the connection's last reply. Under the lock. */
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
