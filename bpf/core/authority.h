/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The authority in a Host field (RFC 9110 7.2), as the fast grammar accepts it: only what
 * is certainly valid. Called by request.h. Doubtful values are passed up to the daemon.
 */
#ifndef TBG_CORE_AUTHORITY_H
#define TBG_CORE_AUTHORITY_H

#include "span.h"

#define TBG_HOST_MAX	255	/* bytes of the Host value */

/* Bytes that are not allowed in a host: in [ ] (v6: all ones) or in a name. */
__tbg_inline __u64 tbg_host_marks(__u64 w, __u64 v6)
{
	__u64 x = tbg_or(w, 0x20 * TBG_ONES);
	__u64 address = tbg_mark_within(x, 'a', 'f') ^
			tbg_mark_within(w, '0', ':') ^ tbg_mark_not(w, '.');
	__u64 name = tbg_mark_within(x, 'a', 'z') ^ tbg_mark_not(w, '_') ^
		     tbg_mark_within(w, '-', '.') ^ tbg_mark_within(w, '0', '9');

	return ((address & v6) | (name & ~v6) | w) & TBG_MARKS;
}

/* The groups of an IPv6 address, byte by byte. */
struct tbg_groups {
	const struct tbg_head *h;
	__u64 at, end;
	__u32 digits;			/* of the group so far */
	__u32 colons, doubles;		/* doubles: a colon behind a colon */
	__u32 pair;			/* the last byte that is no digit was such a pair */
	__u32 wrong;
};

#define TBG_IP6_MAX 39			/* bytes of an address without dots */

static __attribute__((unused)) long tbg_groups_step(__u32 i, void *arg)
{
	struct tbg_groups *g = arg;
	__u64 at = g->at + i;
	__u8 c;

	if (at >= g->end || at >= TBG_REQ_MAX)
		return 1;
	c = g->h->b[at];
	if (c == ':') {
		g->colons++;
		g->pair = i && !g->digits;
		g->doubles += g->pair;
		g->digits = 0;
	} else {		/* nor a single colon at the beginning */
		g->wrong |= c == '.' || ++g->digits > 4 || (i == 1 && g->colons);
	}
	return 0;
}

/*
 * Whether the hexadecimal digits and colons from at to end are an IPv6 address for
 * certain (RFC 4291 2.2): eight groups, or up to seven colons of which one pair
 * stands for the groups left out. One with dots is left to the daemon. noise: as
 * tbg_opaque() has it; 6.1's verifier walks the step once, and would take what it then
 * knows of the counts for all that they can be.
 */
__tbg_inline int tbg_ip6_certain(const struct tbg_head *h, __u64 at, __u64 end, __u64 noise)
{
	__u32 none = tbg_opaque(0, noise);
	struct tbg_groups g = { .h = h, .at = at, .end = end, .digits = none, .colons = none,
				.doubles = none, .pair = none, .wrong = none };

	if (end - at > TBG_IP6_MAX)
		return 0;
	tbg_loop(TBG_IP6_MAX, tbg_groups_step, &g);
	return !g.wrong && g.colons <= 7 && g.doubles <= 1 && (g.doubles || g.colons == 7) &&
	       (g.digits || g.pair);
}

/*
 * A registered name or IPv4 address of [A-Za-z0-9._-], or [ ] around an IPv6
 * address; then, if there is a colon, a port of one to five digits. 0 or FIELD.
 */
__tbg_inline int tbg_host_check(const struct tbg_head *h, __u64 at, __u64 len)
{
	__u64 p, end = at + len, w = 0, marks = 0, v6;
	__u32 i, n;

	if (!len || len > TBG_HOST_MAX || at >= TBG_REQ_MAX)
		return TBG_WHY_FIELD;
	w = tbg_word(h->b + at);
	v6 = tbg_opaque((w & 0xff) == '[', w);
	at += v6 & 1;		/* the bound is for the verifier */
	p = tbg_opaque(at, w);
	TBG_ROLLED
	for (i = 0; i <= TBG_HOST_MAX / 8; i++) {
		tbg_keep(p);
		if (p >= TBG_REQ_MAX)
			return TBG_WHY_FIELD;
		w = tbg_word(h->b + p);
		marks = tbg_host_marks(w, -v6);
		if (marks)
			break;
		p += 8;
	}
	p = tbg_opaque(p + tbg_mark_first(marks), w) & 0xfff;
	if (p >= TBG_REQ_MAX || p == at)
		return TBG_WHY_FIELD;
	if (v6 && (!tbg_ip6_certain(h, at, p, w) || h->b[p++] != ']'))
		return TBG_WHY_FIELD;
	tbg_keep(p);
	if (p >= end)			/* the CR stops it, if nothing does before */
		return p == end ? 0 : TBG_WHY_FIELD;
	n = end - p - 1;
	if (p >= TBG_REQ_MAX || h->b[p] != ':' || !n || n > 5)
		return TBG_WHY_FIELD;
	marks = ~tbg_mark_range(tbg_word(h->b + p + 1), '0', '9') & TBG_MARKS;
	return tbg_mark_first(marks) == n ? 0 : TBG_WHY_FIELD;
}

#endif
