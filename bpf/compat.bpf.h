/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shims, each with the versions of kernel and compiler that need it. Everything
 * is written for the oldest kernel, 6.1.
 */
#ifndef TBG_COMPAT_BPF_H
#define TBG_COMPAT_BPF_H

#include "core/span.h"

/*
 * A size the verifier can use: 1..max, or the caller's failure branch. 6.1
 * does not learn n != 0 from a comparison, so the range is shifted by one; and back
 * after the branch: clang 16 does it before, to a copy that has no bound.
 */
#define TBG_BOUND(n, max, fail)			\
	do {					\
		__u64 __m = (__u64)(n) - 1;	\
		tbg_keep(__m);			\
		if (__m > (max) - 1)		\
			fail;			\
		asm volatile("%0 += 1" : "+r"(__m));	\
		(n) = __m;			\
	} while (0)

#endif
