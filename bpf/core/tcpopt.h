/* SPDX-License-Identifier: GPL-2.0 */
/*
 * TCP options (RFC 9293 3.1, RFC 7323, RFC 2018) as far as wire needs them.
 * Pure; the caller has copied the options into a fixed buffer.
 */
#ifndef TBG_CORE_TCPOPT_H
#define TBG_CORE_TCPOPT_H

#include "span.h"

#define TBG_OPT_MAX	40	/* bytes of options in a segment */
#define TBG_OPT_BUF	64	/* size of the buffer they are read from */

#define TBG_OPT_MSS	0x01
#define TBG_OPT_WSCALE	0x02
#define TBG_OPT_SACKOK	0x04
#define TBG_OPT_TS	0x08
#define TBG_OPT_SACK	0x10
#define TBG_OPT_ODD	0x20	/* unknown to us, or malformed */

/*
 * The bytes of the options, and what is parsed from them. One struct, so
 * that BPF can keep all of it in a map value, where the verifier does not
 * track the position.
 */
struct tbg_tcpopt {
	__u8 opt[TBG_OPT_BUF] __attribute__((aligned(4)));	/* in: the options, len bytes */
	__u32 len;		/* in: 0..TBG_OPT_MAX */
	__u32 pos;
	__u32 flags;
	__u32 tsval, tsecr;	/* host order */
	__u16 mss;
	__u8 wscale;
	__u8 sack_off;		/* of the first block, from the first option */
	__u8 sack_nr;		/* blocks, 0..4 */
};

#define TBG_OPT_BYTE(o, at) ((o)->opt[(at) & (TBG_OPT_BUF - 1)])

__tbg_inline __u32 tbg_opt_be32(const struct tbg_tcpopt *o, __u32 at)
{
	return (__u32)TBG_OPT_BYTE(o, at) << 24 |
	       (__u32)TBG_OPT_BYTE(o, at + 1) << 16 |
	       (__u32)TBG_OPT_BYTE(o, at + 2) << 8 | TBG_OPT_BYTE(o, at + 3);
}

/* One option; 1 stops the walk. */
static __attribute__((noinline)) int tbg_opt_one(struct tbg_tcpopt *o)
{
	__u32 pos = o->pos, kind, size;

	if (pos >= o->len)
		return 1;
	kind = TBG_OPT_BYTE(o, pos);
	if (kind == 0)
		return 1;
	if (kind == 1) {
		o->pos = pos + 1;
		return 0;
	}
	size = TBG_OPT_BYTE(o, pos + 1);
	if (size < 2 || pos + size > o->len) {
		o->flags |= TBG_OPT_ODD;
		return 1;
	}
	if (kind == 2 && size == 4) {
		o->flags |= TBG_OPT_MSS;
		o->mss = TBG_OPT_BYTE(o, pos + 2) << 8 |
			 TBG_OPT_BYTE(o, pos + 3);
	} else if (kind == 3 && size == 3) {
		__u8 shift = TBG_OPT_BYTE(o, pos + 2);

		o->flags |= TBG_OPT_WSCALE;
		o->wscale = shift > 14 ? 14 : shift;	/* RFC 7323 2.3 */
	} else if (kind == 4 && size == 2) {
		o->flags |= TBG_OPT_SACKOK;
	} else if (kind == 8 && size == 10) {
		o->flags |= TBG_OPT_TS;
		o->tsval = tbg_opt_be32(o, pos + 2);
		o->tsecr = tbg_opt_be32(o, pos + 6);
	} else if (kind == 5 && size >= 10 && size <= 34 && size % 8 == 2) {
		o->flags |= TBG_OPT_SACK;
		o->sack_off = pos + 2;
		o->sack_nr = (size - 2) / 8;
	} else {
		o->flags |= TBG_OPT_ODD;
	}
	o->pos = pos + size;
	return 0;
}

struct tbg_opt_walk {
	struct tbg_tcpopt *o;
};

static long tbg_opt_step(__u32 i, void *arg)
{
	return tbg_opt_one(((struct tbg_opt_walk *)arg)->o);
}

/*
 * Parses the options of a SYN in Linux's order, without the loop: MSS, SACK permitted,
 * timestamp, window scale. Returns false, and sets nothing, if these are not the options.
 */
__tbg_inline int tbg_opt_usual(struct tbg_tcpopt *o)
{
	const __u32 *w = (const __u32 *)o->opt;

	if (o->len != 20 || (w[0] & 0xffff) != 0x0402 || w[1] != 0x0a080204 ||
	    (w[4] & 0xffffff) != 0x030301)
		return 0;
	o->flags = TBG_OPT_MSS | TBG_OPT_SACKOK | TBG_OPT_TS | TBG_OPT_WSCALE;
	o->mss = o->opt[2] << 8 | o->opt[3];
	o->tsval = __builtin_bswap32(w[2]);
	o->tsecr = __builtin_bswap32(w[3]);
	o->wscale = o->opt[19] > 14 ? 14 : o->opt[19];
	return 1;
}

/* Parses o->opt; sets everything but opt and len. */
__tbg_inline void tbg_tcpopt_parse(struct tbg_tcpopt *o)
{
	struct tbg_opt_walk walk = { .o = o };

	o->pos = 0;
	o->flags = 0;
	o->tsval = 0;
	o->tsecr = 0;
	o->mss = 0;
	o->wscale = 0;
	o->sack_off = 0;
	o->sack_nr = 0;
	if (!tbg_opt_usual(o))
		tbg_loop(TBG_OPT_MAX, tbg_opt_step, &walk);
}

#endif
