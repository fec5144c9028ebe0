/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The Internet checksum (RFC 1071) as ones' complement sums of native 16-bit
 * loads, which is byte-order independent: sums are kept wide, folded late, and
 * never inverted here.
 */
#ifndef TBG_CORE_CSUM_H
#define TBG_CORE_CSUM_H

#include "span.h"

/* Folds a wide sum to 16 bits; 0 stays 0. */
__tbg_inline __u16 tbg_csum_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)sum;
}

/* Adds a 64-bit load to a wide sum without losing a carry. */
__tbg_inline __u64 tbg_csum_add64(__u64 sum, __u64 word)
{
	return sum + (word & 0xffffffff) + (word >> 32);
}

/* The sum of bytes that begin at an odd offset of what is summed. */
__tbg_inline __u16 tbg_csum_odd(__u16 sum)
{
	return (__u16)(sum << 8 | sum >> 8);
}

/* A folded sum, adjusted for data that begins at offset off. */
__tbg_inline __u16 tbg_csum_at(__u64 sum, __u32 off)
{
	__u16 folded = tbg_csum_fold(sum);

	return off & 1 ? tbg_csum_odd(folded) : folded;
}

#ifndef __bpf__
/* Folded sum of len bytes, the first of them at an even offset. */
__tbg_inline __u16 tbg_csum_bytes(const void *bytes, __u32 len)
{
	const __u8 *p = bytes;
	__u64 sum = 0;

	for (; len >= 8; len -= 8, p += 8) {
		__u64 word;

		__builtin_memcpy(&word, p, 8);
		sum = tbg_csum_add64(sum, word);
	}
	if (len) {
		__u64 word = 0;

		__builtin_memcpy(&word, p, len);
		sum = tbg_csum_add64(sum, word);
	}
	return tbg_csum_fold(sum);
}
#endif

#endif
