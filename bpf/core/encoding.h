/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Selects the variant of a resource by Accept-Encoding (RFC 9110 12.5.3): the one
 * with the highest quality; among equal ones the coding that is usually smallest.
 * The value is as received. An element that is not understood counts as an
 * unknown coding or, if it begins with one of ours, as a refused one.
 */
#ifndef TBG_CORE_ENCODING_H
#define TBG_CORE_ENCODING_H

#include "span.h"

#define TBG_CODING_ANY	TBG_ENCODING_NR		/* "*" */
#define TBG_CODING_NONE	(TBG_ENCODING_NR + 1)	/* an unknown coding */

/* Qualities take 12 bits each: thousandths plus one; 0: not given. */
#define TBG_QUALITY_BITS	12
#define TBG_QUALITY_ONE		1000
#define TBG_QUALITY(all, coding) \
	((all) >> (coding) * TBG_QUALITY_BITS & ((1 << TBG_QUALITY_BITS) - 1))

#define TBG_CODING_STEPS 4	/* in one call */

struct tbg_codings {
	const struct tbg_head *h;
	__u64 off, end;
	__u64 qualities;	/* by coding, TBG_QUALITY_BITS each */
	__u64 skip;		/* 1: ignore everything up to the next comma */
};

/* The end of the spaces and tabs at off, at most seven of them. */
__tbg_inline __u64 tbg_coding_space(const struct tbg_head *h, __u64 off)
{
	__u64 w, marks;

	tbg_keep(off);
	if (off > TBG_REQ_MAX)
		return TBG_REQ_MAX;
	w = tbg_word(h->b + off);
	marks = ((tbg_mark_not(w, ' ') & tbg_mark_not(w, '\t')) | w) & TBG_MARKS;
	return tbg_opaque(off + tbg_mark_first(marks), w) & 0xfff;
}

/* name: in lower case, zero-padded. */
__tbg_inline __u64 tbg_coding_of(__u64 name)
{
	switch (name) {
	case TBG_CHARS('g', 'z', 'i', 'p', 0, 0, 0, 0):
	case TBG_CHARS('x', '-', 'g', 'z', 'i', 'p', 0, 0):
		return TBG_ENCODING_GZIP;
	case TBG_CHARS('b', 'r', 0, 0, 0, 0, 0, 0):
		return TBG_ENCODING_BR;
	case TBG_CHARS('z', 's', 't', 'd', 0, 0, 0, 0):
		return TBG_ENCODING_ZSTD;
	case TBG_CHARS('i', 'd', 'e', 'n', 't', 'i', 't', 'y'):
		return TBG_ENCODING_IDENTITY;
	case TBG_CHARS('*', 0, 0, 0, 0, 0, 0, 0):
		return TBG_CODING_ANY;
	}
	return TBG_CODING_NONE;
}

/*
 * A quality of one to three decimals in the first bytes of w, in thousandths,
 * and its length; 0 as well where there is none.
 */
__tbg_inline __u64 tbg_coding_quality(__u64 w, __u64 *ret_len)
{
	__u64 digits = w >> 16, nr, value = 0, first = w & 0xff;

	*ret_len = 1;
	if (first != '0' && first != '1')
		return 0;
	if ((w >> 8 & 0xff) == '.') {
		nr = tbg_mark_first((~tbg_mark_range(digits, '0', '9') | digits) &
				    TBG_MARKS);
		if (nr > 3)
			return 0;
		value = (nr > 0 ? (digits & 15) * 100 : 0) +
			(nr > 1 ? (digits >> 8 & 15) * 10 : 0) +
			(nr > 2 ? digits >> 16 & 15 : 0);
		*ret_len = 2 + nr;
	}
	if (first == '0')
		return value;
	return value ? 0 : TBG_QUALITY_ONE;
}

/* Whether an element ends at off: at a comma or the end of the value. */
__tbg_inline int tbg_coding_ends(const struct tbg_codings *c, __u64 off)
{
	tbg_keep(off);
	return off >= c->end || (off < TBG_REQ_MAX && c->h->b[off] == ',');
}

/* Whether a name ends at off. */
__tbg_inline int tbg_coding_named(const struct tbg_codings *c, __u64 off)
{
	tbg_keep(off);
	return off >= c->end || off >= TBG_REQ_MAX || c->h->b[off] <= ' ' ||
	       c->h->b[off] == ',' || c->h->b[off] == ';';
}

/* The quality in the parameter at off: 1000 without one, 0 if it is invalid. */
__tbg_inline __u64 tbg_coding_weight(struct tbg_codings *c, __u64 off)
{
	__u64 w, len, ret;

	off = tbg_coding_space(c->h, off);
	if (tbg_coding_ends(c, off))
		return TBG_QUALITY_ONE;
	tbg_keep(off);
	if (off >= TBG_REQ_MAX || c->h->b[off] != ';')
		return 0;
	off = tbg_coding_space(c->h, off + 1);
	tbg_keep(off);
	if (off >= TBG_REQ_MAX)
		return 0;
	w = tbg_word(c->h->b + off);
	if (((w & 0xffff) | 0x20) != TBG_TEXT("q="))
		return 0;
	ret = tbg_coding_quality(tbg_word(c->h->b + off + 2), &len);
	off = tbg_coding_space(c->h, off + 2 + len);
	return tbg_coding_ends(c, off) ? ret : 0;
}

/* Reads one element, or one word of a skipped one. Returns 1 at the end of the value. */
__tbg_inline int tbg_coding_scan(struct tbg_codings *c)
{
	__u64 off = c->off, w, marks, nr, coding;

	tbg_keep(off);
	if (off >= c->end || off >= TBG_REQ_MAX)
		return 1;
	w = tbg_word(c->h->b + off);
	if (c->skip) {
		marks = (~tbg_mark_not(w, ',') | w) & TBG_MARKS;
		nr = marks ? tbg_mark_first(marks) : 7;
		c->skip = tbg_opaque((w >> nr * 8 & 0xff) != ',', w);
		c->off = tbg_opaque(off + nr + 1, w) & 0xfff;
		return 0;
	}
	marks = ((tbg_mark_not(w, ' ') & tbg_mark_not(w, ',') &
		  tbg_mark_not(w, '\t')) | w) & TBG_MARKS;
	nr = marks ? tbg_mark_first(marks) : 8;
	if (nr) {
		c->off = tbg_opaque(off + nr, w) & 0xfff;
		return 0;
	}
	c->skip = tbg_opaque(1, w);
	marks = (~(tbg_mark_not(w, ',') & tbg_mark_not(w, ';')) |
		 tbg_mark_below(w, 0x21)) & TBG_MARKS;
	nr = marks ? tbg_mark_first(marks) : 8;
	nr = tbg_opaque(nr, w) & 15;
	coding = tbg_coding_of((w | 0x20 * TBG_ONES) & tbg_word_low(nr));
	/* our longest name fills the word: a longer name may begin with it */
	if (!marks && !tbg_coding_named(c, off + 8))
		coding = TBG_CODING_NONE;
	coding = tbg_opaque(coding, w);
	if (coding < TBG_CODING_NONE && !TBG_QUALITY(c->qualities, coding))
		c->qualities |= (tbg_coding_weight(c, off + nr) + 1) << coding * TBG_QUALITY_BITS;
	c->qualities = tbg_opaque(c->qualities, w);
	c->off = tbg_opaque(off + nr, w) & 0xfff;
	return 0;
}

/* Several steps in one call of bpf_loop(): returns are expensive with return thunks. */
static __attribute__((unused)) long tbg_coding_step(__u32 i, void *arg)
{
	__u32 k;

	(void)i;
	TBG_ROLLED
	for (k = 0; k < TBG_CODING_STEPS; k++) {
		tbg_keep(k);
		if (tbg_coding_scan(arg))
			return 1;
	}
	return 0;
}

/*
 * The encoding in have (bits 1 << enum tbg_encoding; identity is always
 * included) that the Accept-Encoding value of len bytes at off selects. A
 * client that refuses all of them gets identity.
 */
__tbg_inline int tbg_encoding_choose(const struct tbg_head *h, __u64 off,
				     __u64 len, __u32 have)
{
	static const __u8 order[] = {
		TBG_ENCODING_GZIP, TBG_ENCODING_ZSTD, TBG_ENCODING_BR,
	};
	__u64 w = tbg_word(h->b), most, quality, any;
	/* 6.1 checks a step once: a member that it knows to be zero would stay zero for it */
	struct tbg_codings c = {
		.h = h, .off = off, .end = off + len,
		.qualities = tbg_opaque(0, w), .skip = tbg_opaque(0, w),
	};
	int ret = TBG_ENCODING_IDENTITY;
	__u32 i;

	tbg_loop(TBG_REQ_MAX / TBG_CODING_STEPS, tbg_coding_step, &c);
	any = TBG_QUALITY(c.qualities, TBG_CODING_ANY);
	/* identity, unless it is mentioned, is the last choice */
	most = TBG_QUALITY(c.qualities, TBG_ENCODING_IDENTITY);
	if (!most)
		most = any ? any : 1;
	TBG_UNROLLED
	for (i = 0; i < sizeof(order); i++) {
		quality = TBG_QUALITY(c.qualities, order[i]);
		if (!quality)
			quality = any;
		if (have >> order[i] & 1 && quality > 1 && quality >= most) {
			most = quality;
			ret = order[i];
		}
	}
	return ret;
}

/* The key of a variant, made from the key of the resource, which is that of identity. */
__tbg_inline void tbg_key_vary(struct tbg_key *key, __u64 encoding)
{
	key->h[0] ^= encoding * 0x9e3779b97f4a7c15ull;
	key->h[1] ^= encoding * 0xc2b2ae3d27d4eb4full;
}

#endif
