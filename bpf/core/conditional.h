/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Conditional requests for GET and HEAD (RFC 9110 13.2.2), as far as a kernel
 * tier evaluates them: one entity tag, or a date that is byte for byte the
 * Last-Modified that we sent. All else is the daemon's.
 */
#ifndef TBG_CORE_CONDITIONAL_H
#define TBG_CORE_CONDITIONAL_H

#include "request.h"

#define TBG_TAG_MAX 64	/* bytes of a tag with its quotes, without W/ */

/*
 * Weak comparison of the one tag of n bytes at off with the entry's.
 * 304, 200 or -TBG_WHY_CONDITION.
 */
__tbg_inline int tbg_tag_match(const struct tbg_head *h, __u64 off, __u64 n,
			       const __u8 etag[40], __u32 etag_len)
{
	__u64 diff = 0, last, w = 0, marks = 0;
	__u32 i;

	tbg_keep(off);
	if (off < TBG_REQ_MAX && n > 2 &&
	    (tbg_word(h->b + off) & 0xffff) == TBG_TEXT("W/")) {
		off += 2;
		n -= 2;
	}
	tbg_keep(off);
	if (off >= TBG_REQ_MAX || n < 2 || n > TBG_TAG_MAX || h->b[off] != '"')
		return -TBG_WHY_CONDITION;

	/* the next quote, and no space before it, must be the last byte */
	last = off + 1;
	TBG_ROLLED
	for (i = 0; i < TBG_TAG_MAX / 8; i++) {
		tbg_keep(last);
		if (last >= TBG_REQ_MAX)
			return -TBG_WHY_CONDITION;
		w = tbg_word(h->b + last);
		marks = (~(tbg_mark_not(w, '"') & tbg_mark_not(w, ' ')) |
			 tbg_mark_below(w, 0x21)) & TBG_MARKS;
		if (marks)
			break;
		last += 8;
	}
	last = tbg_opaque(last + tbg_mark_first(marks), w) & 0xfff;
	if (last != off + n - 1 || last >= TBG_REQ_MAX || h->b[last] != '"')
		return -TBG_WHY_CONDITION;

	if (n != etag_len || n > 40)
		return 200;
	TBG_UNROLLED
	for (i = 0; i < 5; i++) {
		if (i * 8 < n)
			diff |= (tbg_word(h->b + off + i * 8) ^
				 tbg_word(etag + i * 8)) &
				tbg_word_low(n - i * 8);
	}
	return diff ? 200 : 304;
}

/*
 * Which status the request wants of an entry with this strong, quoted,
 * zero-padded etag and this Last-Modified (IMF-fixdate, zero-padded): 200,
 * 304, or -TBG_WHY_CONDITION where only the daemon can tell.
 */
__tbg_inline int tbg_condition(const struct tbg_head *h,
			       const struct tbg_req *req, const __u8 etag[40],
			       __u32 etag_len, const __u8 modified[32])
{
	__u64 off = req->ims_off, diff = 0;
	__u32 i;

	if (req->inm_len)
		return tbg_tag_match(h, req->inm_off, req->inm_len, etag, etag_len);
	if (!req->ims_len)
		return 200;
	tbg_keep(off);
	if (req->ims_len != TBG_DATE_LEN || off >= TBG_REQ_MAX)
		return -TBG_WHY_CONDITION;
	TBG_UNROLLED
	for (i = 0; i < 4; i++)
		diff |= (tbg_word(h->b + off + i * 8) ^
			 tbg_word(modified + i * 8)) &
			tbg_word_low(TBG_DATE_LEN - i * 8);
	return diff ? -TBG_WHY_CONDITION : 304;
}

#endif
