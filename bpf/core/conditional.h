/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Conditional requests for GET and HEAD (RFC 9110 13.2.2), as far as a kernel tier
 * evaluates them: a list of entity tags or "*", or an IMF-fixdate.
 * tbg_conditions_eval() (userd/http/reply.c) gives the same result for them;
 * everything else is passed up.
 */
#ifndef TBG_CORE_CONDITIONAL_H
#define TBG_CORE_CONDITIONAL_H

#include "date.h"
#include "request.h"

#define TBG_TAG_MAX 64		/* bytes of a tag with its quotes, without W/ */
#define TBG_TAG_STEPS 128	/* tags and separators between them */

struct tbg_tags {
	const struct tbg_head *h;
	const __u8 *etag;	/* 40 bytes, zero-padded */
	__u64 etag_len;
	__u64 off, end;
	__u64 status;		/* 0: not yet known; or 200, 304, why */
};

/*
 * The entity tag at off begins with its opening quote. Returns the offset behind its
 * closing quote; 0: a tag for the daemon alone.
 */
__tbg_inline __u64 tbg_tag_end(const struct tbg_head *h, __u64 off)
{
	__u64 last = off + 1, w = 0, marks = 0;
	__u32 i;

	TBG_ROLLED
	for (i = 0; i < TBG_TAG_MAX / 8; i++) {
		tbg_keep(last);
		if (last >= TBG_REQ_MAX)
			return 0;
		w = tbg_word(h->b + last);
		marks = (~(tbg_mark_not(w, '"') & tbg_mark_not(w, ' ')) |
			 tbg_mark_below(w, 0x21)) & TBG_MARKS;
		if (marks)
			break;
		last += 8;
	}
	last = tbg_opaque(last + tbg_mark_first(marks), w) & 0xfff;
	if (last >= TBG_REQ_MAX || h->b[last] != '"' || last - off >= TBG_TAG_MAX)
		return 0;
	return last + 1;
}

/* Whether the n bytes at off are the entry's tag. */
__tbg_inline int tbg_tag_equal(const struct tbg_tags *t, __u64 off, __u64 n)
{
	__u64 diff = 0;
	__u32 i;

	tbg_keep(off);
	if (n != t->etag_len || n > 40 || off >= TBG_REQ_MAX)
		return 0;
	TBG_UNROLLED
	for (i = 0; i < 5; i++) {
		if (i * 8 < n)
			diff |= (tbg_word(t->h->b + off + i * 8) ^
				 tbg_word(t->etag + i * 8)) &
				tbg_word_low(n - i * 8);
	}
	return !diff;
}

/* Reads one tag or one separator. Returns 1 if t->status is known. */
static __attribute__((unused)) long tbg_tag_step(__u32 i, void *arg)
{
	struct tbg_tags *t = arg;
	const struct tbg_head *h = t->h;
	__u64 off = t->off, end, next, w, gap;

	(void)i;
	t->status = 200;
	tbg_keep(off);
	if (off >= t->end || off >= TBG_REQ_MAX)
		return 1;
	w = tbg_word(h->b + off);
	gap = (tbg_mark_not(w, ' ') & tbg_mark_not(w, ',')) | w;
	if ((w & 0xff) == ' ' || (w & 0xff) == ',') {
		gap &= TBG_MARKS;
		t->off = tbg_opaque(off + (gap ? tbg_mark_first(gap) : 8), w) & 0xfff;
		t->status = 0;
		return 0;
	}
	if ((w & 0xffff) == TBG_TEXT("W/"))
		off += 2;
	t->status = TBG_WHY_CONDITION;
	tbg_keep(off);
	if (off >= t->end || off >= TBG_REQ_MAX || h->b[off] != '"')
		return 1;
	end = tbg_tag_end(h, off);
	tbg_keep(end);
	if (!end || end > t->end || end > TBG_REQ_MAX)
		return 1;
	/* then the end of the list, or a comma; up to seven spaces before it */
	w = tbg_word(h->b + end);
	next = end + tbg_mark_first((tbg_mark_not(w, ' ') | w) & TBG_MARKS);
	next = tbg_opaque(next, w) & 0xfff;
	if (next < t->end && (next >= TBG_REQ_MAX || h->b[next] != ','))
		return 1;
	t->status = 304;
	if (tbg_tag_equal(t, off, end - off))
		return 1;
	t->off = next;
	t->status = 0;
	return 0;
}

/*
 * Weak comparison of the list of len bytes at off with the entry's tag. 304,
 * 200 or -TBG_WHY_CONDITION.
 */
__tbg_inline int tbg_tags_match(const struct tbg_head *h, __u64 off, __u64 len,
				const __u8 etag[40], __u32 etag_len)
{
	struct tbg_tags t = {
		.h = h, .etag = etag, .etag_len = etag_len,
		.off = off, .end = off + len,
	};

	tbg_keep(off);
	if (off >= TBG_REQ_MAX || t.end > TBG_REQ_MAX)
		return -TBG_WHY_CONDITION;
	if (len == 1 && h->b[off] == '*')
		return 304;
	tbg_loop(TBG_TAG_STEPS, tbg_tag_step, &t);
	return t.status == 200 || t.status == 304 ? (int)t.status :
						    -TBG_WHY_CONDITION;
}

/*
 * The status of the answer from an entry with this strong, quoted,
 * zero-padded etag and this Last-Modified (seconds since 1970): 200, 304, or
 * -TBG_WHY_CONDITION if only the daemon can decide.
 */
__tbg_inline int tbg_condition(const struct tbg_head *h,
			       const struct tbg_req *req, const __u8 etag[40],
			       __u32 etag_len, __s64 modified_s)
{
	__s64 since;

	if (req->inm_len)
		return tbg_tags_match(h, req->inm_off, req->inm_len, etag, etag_len);
	if (!req->ims_len)
		return 200;
	if (!tbg_date_load(h, req->ims_off, req->ims_len, &since))
		return -TBG_WHY_CONDITION;
	return modified_s <= since ? 304 : 200;
}

#endif
