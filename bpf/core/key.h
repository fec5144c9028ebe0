/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes the key of the cache's index from a request's path: SipHash-1-3
 * (Aumasson and Bernstein) of the path in words, with 128 bits of output. The
 * hash's own key is secret, so no client can choose paths that collide; the
 * path of an entry is compared nevertheless.
 *
 * Cost is proportional to the path's length, not to TBG_PATH_MAX.
 */
#ifndef TBG_CORE_KEY_H
#define TBG_CORE_KEY_H

#include "span.h"

/*
 * The number of words that hold len bytes. From a loop with this bound, the verifier
 * learns nothing about len, so that it need not walk what follows for each length.
 */
__tbg_inline __u32 tbg_words(__u64 len)
{
	tbg_keep(len);
	return (len + 7) / 8;
}

/*
 * Copies the len bytes at off, the last word zero-padded. 0, or TBG_WHY_PATH. In
 * BPF *ret belongs in a map, not on the stack.
 */
__tbg_inline int tbg_path_load(const struct tbg_head *h, __u32 off, __u32 len,
			       struct tbg_path *ret)
{
	__u64 at = off, last = len - 1ull;
	__u32 i, words = tbg_words(len);

	tbg_keep(last);
	if (last >= TBG_PATH_MAX || at > TBG_REQ_MAX - TBG_PATH_MAX)
		return TBG_WHY_PATH;
	TBG_ROLLED
	for (i = 0; i < TBG_PATH_MAX / 8; i++) {
		tbg_keep(i);
		if (i >= words)
			break;
		ret->w[i] = tbg_word(h->b + at + i * 8);
	}
	ret->w[last / 8] &= tbg_word_low(last % 8 + 1);
	return 0;
}

/* Bytes of the longest text that is not a path alone. */
#define TBG_URI_MAX (TBG_PATH_MAX - 8)

/*
 * Appends the len bytes at from to the first `to` bytes of *ret, and zeros up
 * to the end of the last word. Returns the total length, or -TBG_WHY_PATH if it
 * exceeds TBG_URI_MAX.
 */
__tbg_inline int tbg_text_add(const struct tbg_head *h, __u64 from, __u32 len,
			      __u64 to, struct tbg_path *ret)
{
	__u64 n = to + len;
	__u32 i, words = tbg_words(len);

	if (n > TBG_URI_MAX || from > TBG_REQ_MAX - TBG_PATH_MAX)
		return -TBG_WHY_PATH;
	TBG_ROLLED
	for (i = 0; i < TBG_PATH_MAX / 8; i++) {
		tbg_keep(i);
		tbg_keep(to);
		if (i >= words || to > TBG_URI_MAX)
			break;
		tbg_word_put((__u8 *)ret->w + to, tbg_word(h->b + from + i * 8));
		to += 8;
	}
	/* bytes of the last word beyond the text */
	i = n / 8;
	tbg_keep(i);	/* the bound is for the verifier */
	if (i < TBG_PATH_MAX / 8)
		ret->w[i] &= tbg_word_low(n & 7);
	return n;
}

/*
 * Makes the text of a URI: its authority, then the target, len bytes at off.
 * Returns its length, or -TBG_WHY_PATH. In BPF *ret belongs in a map.
 */
__tbg_inline int tbg_uri_load(const struct tbg_head *h, __u32 host_off,
			      __u32 host_len, __u32 off, __u32 len,
			      struct tbg_path *ret)
{
	if (tbg_path_load(h, host_off, host_len, ret))
		return -TBG_WHY_PATH;
	return tbg_text_add(h, off, len, host_len, ret);
}

/*
 * Extends the text of a URI, uri_len bytes in *ret, for a response that varies by
 * Accept-Encoding: a space and the value of the field, len bytes at off, as
 * received. Returns as above.
 */
__tbg_inline int tbg_uri_vary(const struct tbg_head *h, __u32 off, __u32 len,
			      __u32 uri_len, struct tbg_path *ret)
{
	__u64 to = uri_len;

	tbg_keep(to);
	if (to > TBG_URI_MAX)
		return -TBG_WHY_PATH;
	tbg_word_put((__u8 *)ret->w + to, ' ');
	return tbg_text_add(h, off, len, to + 1, ret);
}

/* Both are zero-padded, so the words that hold len bytes decide. */
__tbg_inline int tbg_path_equal(const struct tbg_path *path,
				const __u8 entry_path[TBG_PATH_MAX], __u32 len)
{
	__u32 i, words = tbg_words(len);

	TBG_ROLLED
	for (i = 0; i < TBG_PATH_MAX / 8; i++) {
		tbg_keep(i);
		if (i >= words)
			break;
		if (path->w[i] != tbg_word(entry_path + i * 8))
			return 0;
	}
	return 1;
}

#define TBG_ROTL(x, n) ((x) << (n) | (x) >> (64 - (n)))

#define TBG_SIP_ROUND(v0, v1, v2, v3) do {				\
	v0 += v1; v1 = TBG_ROTL(v1, 13); v1 ^= v0; v0 = TBG_ROTL(v0, 32); \
	v2 += v3; v3 = TBG_ROTL(v3, 16); v3 ^= v2;			\
	v0 += v3; v3 = TBG_ROTL(v3, 21); v3 ^= v0;			\
	v2 += v1; v1 = TBG_ROTL(v1, 17); v1 ^= v2; v2 = TBG_ROTL(v2, 32); \
} while (0)

/*
 * Hashes the little-endian message: vhost (4 bytes), path_len (4), the words
 * of path that hold path_len bytes. path_len: 1..TBG_PATH_MAX.
 */
__tbg_inline void tbg_key_make(const __u64 key[2], __u32 vhost,
			       const struct tbg_path *path, __u32 path_len,
			       struct tbg_key *ret)
{
	__u64 k0 = key[0], k1 = key[1];
	__u64 v0 = k0 ^ 0x736f6d6570736575ull;
	__u64 v1 = k1 ^ 0x646f72616e646f6dull ^ 0xee;
	__u64 v2 = k0 ^ 0x6c7967656e657261ull;
	__u64 v3 = k1 ^ 0x7465646279746573ull;
	__u64 m = vhost | (__u64)path_len << 32;
	__u32 i, words = tbg_words(path_len);

	v3 ^= m;
	TBG_SIP_ROUND(v0, v1, v2, v3);
	v0 ^= m;
	TBG_ROLLED
	for (i = 0; i < TBG_PATH_MAX / 8; i++) {
		tbg_keep(i);
		if (i >= words)
			break;
		m = path->w[i];
		v3 ^= m;
		TBG_SIP_ROUND(v0, v1, v2, v3);
		v0 ^= m;
	}
	m = (8 + words * 8ull) << 56;	/* bytes of the message */
	v3 ^= m;
	TBG_SIP_ROUND(v0, v1, v2, v3);
	v0 ^= m;

	v2 ^= 0xee;
	TBG_SIP_ROUND(v0, v1, v2, v3);
	TBG_SIP_ROUND(v0, v1, v2, v3);
	TBG_SIP_ROUND(v0, v1, v2, v3);
	ret->h[0] = v0 ^ v1 ^ v2 ^ v3;
	v1 ^= 0xdd;
	TBG_SIP_ROUND(v0, v1, v2, v3);
	TBG_SIP_ROUND(v0, v1, v2, v3);
	TBG_SIP_ROUND(v0, v1, v2, v3);
	ret->h[1] = v0 ^ v1 ^ v2 ^ v3;
}

#endif
