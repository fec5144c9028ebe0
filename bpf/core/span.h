/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The basis of the core: fixed buffers, word loads, bounded loops. The core
 * is pure functions compiled three ways: into the BPF programs, the daemon
 * and the tests. Nothing here may call anything, allocate, or read past a
 * buffer's stated size.
 */
#ifndef TBG_CORE_SPAN_H
#define TBG_CORE_SPAN_H

#include "../abi/cache.h"
#include "../abi/types.h"
#include "../abi/why.h"

#define TBG_REQ_MAX	2048	/* bytes of a request the fast grammar reads */
#define TBG_REQ_SLACK	64	/* readable bytes behind it, any content */

/* A request head in memory. Always this size, whatever its length. */
struct tbg_head {
	__u8 b[TBG_REQ_MAX + TBG_REQ_SLACK];
};

/* A canonical path, its last word zero-padded: compared and hashed in words. */
struct tbg_path {
	__u64 w[TBG_PATH_MAX / 8];
};

#define __tbg_inline static inline __attribute__((always_inline, unused))

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "the first byte of a word must be its lowest");

#ifdef __bpf__
#include <bpf/bpf_helpers.h>
#define tbg_loop(nr, fn, arg) bpf_loop(nr, fn, arg, 0)

/*
 * Returns v, but the verifier no longer knows anything about it. It walks the
 * code that follows once for each path that leads there with other knowledge
 * about a number; after this call, it walks that code once. noise: any value
 * unknown to the verifier, such as a word of the request; the result depends
 * on it, so it must be computed before.
 */
__tbg_inline __u64 tbg_opaque(__u64 v, __u64 noise)
{
	asm volatile("%0 ^= %1\n\t%0 ^= %1" : "+r"(v) : "r"(noise));
	return v;
}

/*
 * Keeps v in one register and hides its origin from clang. So the bound that the
 * verifier has seen applies to the number that is used: clang makes no second,
 * unchecked copy of it, and removes no check by reasoning that the verifier does
 * not follow (clang <= 16).
 */
#define tbg_keep(v) asm volatile("" : "+r"(v))

/* w op c: two instructions; clang copies w first, and makes it three. */
#define TBG_FOLD(name, op)						\
__tbg_inline __u64 name(__u64 w, __u64 c)				\
{									\
	asm("%0 " #op "= %1" : "+r"(c) : "r"(w));			\
	return c;							\
}

/* Unaligned; JITs of machines that need alignment refuse it at load. */
__tbg_inline __u64 tbg_word(const __u8 *p)
{
	return *(const __u64 *)p;
}

__tbg_inline __u32 tbg_half(const __u8 *p)
{
	return *(const __u16 *)p;
}

__tbg_inline void tbg_word_put(__u8 *p, __u64 w)
{
	*(__u64 *)p = w;
}
#else
/* As bpf_loop(): fn(index, arg) returns 1 to stop. */
__tbg_inline long tbg_loop(__u32 nr, long (*fn)(__u32 i, void *arg), void *arg)
{
	__u32 i;

	for (i = 0; i < nr; i++)
		if (fn(i, arg)) {
			i++;
			break;
		}
	return i;
}

#define tbg_keep(v) ((void)0)

__tbg_inline __u64 tbg_opaque(__u64 v, __u64 noise)
{
	(void)noise;
	return v;
}

#define TBG_FOLD(name, op)						\
__tbg_inline __u64 name(__u64 w, __u64 c)				\
{									\
	return w op c;							\
}

__tbg_inline __u64 tbg_word(const __u8 *p)
{
	__u64 w;

	__builtin_memcpy(&w, p, sizeof(w));
	return w;
}

__tbg_inline __u32 tbg_half(const __u8 *p)
{
	__u16 w;

	__builtin_memcpy(&w, p, sizeof(w));
	return w;
}

__tbg_inline void tbg_word_put(__u8 *p, __u64 w)
{
	__builtin_memcpy(p, &w, sizeof(w));
}
#endif

/* For a word and a constant, without a register for the constant. */
TBG_FOLD(tbg_sum, +)
TBG_FOLD(tbg_or, |)
TBG_FOLD(tbg_xor, ^)

/* To be put before a loop: whether clang may unroll it; only in BPF does this matter. */
#ifdef __clang__
#define TBG_ROLLED	_Pragma("clang loop unroll(disable)")
#define TBG_UNROLLED	_Pragma("clang loop unroll(full)")
#else
#define TBG_ROLLED
#define TBG_UNROLLED
#endif

/*
 * Eight bytes at a time. A test returns bit 7 of each byte that passes it.
 * Tests that add are exact up to and including the first byte >= 0x80 (a carry
 * only spoils the bytes behind it), so callers look at the first mark only,
 * and mark such bytes themselves.
 */
#define TBG_ONES	0x0101010101010101ull
#define TBG_MARKS	0x8080808080808080ull

/* The first n bytes of a word, 0..8. */
__tbg_inline __u64 tbg_word_low(__u32 n)
{
	return n >= 8 ? ~0ull : (1ull << (n * 8)) - 1;
}

/* All bits of the bytes up to the first mark; marks must not be zero. */
__tbg_inline __u64 tbg_mark_upto(__u64 marks)
{
	return marks ^ (marks - 1);
}

/*
 * Index k of the first marked byte. The product is (c << (8k + 8)) - c. Its top
 * byte is the byte of c at bit 48 - 8k minus a borrow, for which c has a one more
 * there; for k = 7 it is the top byte of -c.
 */
__tbg_inline __u32 tbg_mark_first(__u64 marks)
{
	return tbg_mark_upto(marks) * 0x0121416181a1c1ull >> 61;
}

/* Marks bytes of at least lo, which is in 1..0x7f; bits below bit 7 are undefined. */
__tbg_inline __u64 tbg_mark_from(__u64 w, __u32 lo)
{
	return tbg_sum(w, (0x80 - lo) * TBG_ONES);
}

/* Marks bytes from lo to hi, both in 1..0x7e. */
__tbg_inline __u64 tbg_mark_range(__u64 w, __u32 lo, __u32 hi)
{
	return (w + (0x80 - lo) * TBG_ONES) & ~(w + (0x7f - hi) * TBG_ONES);
}

/* The same, for bytes below 0x80: ranges that do not meet are joined with ^. */
__tbg_inline __u64 tbg_mark_within(__u64 w, __u32 lo, __u32 hi)
{
	return tbg_mark_from(w, lo) ^ tbg_mark_from(w, hi + 1);
}

/* Marks bytes other than c. */
__tbg_inline __u64 tbg_mark_not(__u64 w, __u32 c)
{
	return tbg_xor(w, c * TBG_ONES) + 0x7f * TBG_ONES;
}

/*
 * Marks bytes outside lo..0x7e, lo at most 0x21: line ends, control characters,
 * 8-bit bytes. Exact up to the first of them; bits below bit 7 are undefined.
 */
__tbg_inline __u64 tbg_mark_below(__u64 w, __u32 lo)
{
	return (w - lo * TBG_ONES) | (w + TBG_ONES);
}

/* A text of at most eight bytes as a word, for comparing with one. */
#define TBG_CHARS(a, b, c, d, e, f, g, h) \
	((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | \
	 (__u64)(e) << 32 | (__u64)(f) << 40 | (__u64)(g) << 48 | (__u64)(h) << 56)
#define TBG_AT(s, i) \
	((i) < sizeof(s) - 1 ? (__u64)(__u8)(s)[(i) < sizeof(s) ? (i) : 0] << (i) % 8 * 8 : 0)
#define TBG_TEXT_AT(s, at) \
	(TBG_AT(s, (at)) | TBG_AT(s, (at) + 1) | TBG_AT(s, (at) + 2) | TBG_AT(s, (at) + 3) | \
	 TBG_AT(s, (at) + 4) | TBG_AT(s, (at) + 5) | TBG_AT(s, (at) + 6) | TBG_AT(s, (at) + 7))
#define TBG_TEXT(s) TBG_TEXT_AT(s, 0)

#endif
