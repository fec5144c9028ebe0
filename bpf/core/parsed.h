/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Requests that have been parsed, to be recognized by their bytes: what parsing a request
 * yields depends on nothing else.
 */
#ifndef TBG_CORE_PARSED_H
#define TBG_CORE_PARSED_H

#include "key.h"
#include "request.h"

#define TBG_PARSED_NR	32	/* requests that are kept */
#define TBG_PARSED_STEP	32	/* bytes that are compared at once */
#define TBG_PARSED_MIN	16	/* bytes of a request */
#define TBG_PARSED_MAX	512

struct tbg_parsed_head {
	__u64 digest;			/* of the request */
	__u64 last;			/* of the last other one that belongs here */
	__u32 vhost;			/* site for which key was made */
	struct tbg_key key;		/* of the path */
	struct tbg_req req;		/* len 0: empty */
	__u8 b[TBG_PARSED_MAX] __attribute__((aligned(8)));	/* with zeros up to a whole step */
};

/*
 * Returns a number that tells most requests apart, from the length, the first 48 bytes and
 * the last eight. len: of the request in h, TBG_PARSED_MIN..TBG_PARSED_MAX; TBG_PARSED_STEP
 * zeros follow it.
 */
__tbg_inline __u64 tbg_parsed_digest(const struct tbg_head *h, __u64 len)
{
	__u64 last = len - 8, digest = len;
	__u32 i;

	tbg_keep(last);
	if (last > TBG_PARSED_MAX - 8)
		return 0;
	TBG_UNROLLED
	for (i = 0; i < TBG_PARSED_MIN + TBG_PARSED_STEP; i += 8)
		digest = digest * 0x9e3779b97f4a7c15ull ^ tbg_word(h->b + i);
	digest = (digest ^ tbg_word(h->b + last)) * 0x9e3779b97f4a7c15ull;
	return digest ^ digest >> 32;
}

/* Returns whether m is the request of len bytes in h, which TBG_PARSED_STEP zeros follow. */
__tbg_inline int tbg_parsed_is(const struct tbg_parsed_head *m, const struct tbg_head *h, __u32 len)
{
	__u64 differs = m->req.len ^ len, at;
	__u32 k;

	TBG_ROLLED
	for (at = 0; at < TBG_PARSED_MAX; at += TBG_PARSED_STEP) {
		const __u8 *b = h->b + at, *kept = m->b + at;

		tbg_keep(at);
		if (at >= len || differs)
			break;
		TBG_UNROLLED
		for (k = 0; k < TBG_PARSED_STEP; k += 8)
			differs |= tbg_word(kept + k) ^ tbg_word(b + k);
	}
	return !differs;
}

/* Copies the request of len bytes in h, which TBG_PARSED_STEP zeros follow. */
__tbg_inline void tbg_parsed_copy(struct tbg_parsed_head *m, const struct tbg_head *h, __u32 len)
{
	__u64 at;
	__u32 k;

	TBG_ROLLED
	for (at = 0; at < TBG_PARSED_MAX; at += TBG_PARSED_STEP) {
		const __u8 *b = h->b + at;
		__u8 *kept = m->b + at;

		tbg_keep(at);
		if (at >= len)
			break;
		TBG_UNROLLED
		for (k = 0; k < TBG_PARSED_STEP; k += 8)
			tbg_word_put(kept + k, tbg_word(b + k));
	}
}

#endif
