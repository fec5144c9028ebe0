/* SPDX-License-Identifier: GPL-2.0 */
/*
 * From the Host value of a request to the name that selects its site: lower
 * case, without port and without one final dot. tbg_host_name()
 * (userd/site/site.c) gives the same result.
 */
#ifndef TBG_CORE_HOST_H
#define TBG_CORE_HOST_H

#include "key.h"

/* Maps letters A to Z to a to z. */
__tbg_inline __u64 tbg_word_lower(__u64 w)
{
	return w | (tbg_mark_range(w, 'A', 'Z') & TBG_MARKS) >> 2;
}

/*
 * Length without the port of the value of len bytes at off, which tbg_host_check() has
 * accepted.
 */
__tbg_inline __u64 tbg_host_len(const struct tbg_head *h, __u64 off, __u64 len)
{
	__u64 end = off + len, w, digits;

	if (end < 8 || end > TBG_REQ_MAX)
		return len;
	/* the last eight, backwards: at most five digits and a colon */
	w = __builtin_bswap64(tbg_word(h->b + end - 8));
	digits = tbg_mark_first(~tbg_mark_range(w, '0', '9') & TBG_MARKS);
	if (digits < 7 && digits < len && (w >> digits * 8 & 0xff) == ':')
		len -= digits + 1;
	return len;
}

/*
 * The name of the host at off and len, its last word zero-padded. Its length, or
 * -TBG_WHY_HOST: longer than TBG_PATH_MAX, or none at all. In BPF *ret belongs
 * in a map, not on the stack.
 */
__tbg_inline int tbg_host_load(const struct tbg_head *h, __u32 off, __u32 len,
			       struct tbg_path *ret)
{
	__u64 n = tbg_host_len(h, off, len), last = off + n - 1;
	__u32 i, words;

	tbg_keep(last);
	if (last < TBG_REQ_MAX && h->b[last] == '.')
		n--;
	n = tbg_opaque(n, tbg_word(h->b));
	if (tbg_path_load(h, off, n, ret))
		return -TBG_WHY_HOST;
	words = tbg_words(n);
	TBG_ROLLED
	for (i = 0; i < TBG_PATH_MAX / 8; i++) {
		tbg_keep(i);
		if (i >= words)
			break;
		ret->w[i] = tbg_word_lower(ret->w[i]);
	}
	return n;
}

#endif
