/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The requests and answers of sock's self-test on the kernel: a request that begins with
 * TBG_SELFTEST_READER reaches the socket's reader unchanged; any other is answered by
 * the self-test's program.
 */
#ifndef TBG_ABI_SELFTEST_H
#define TBG_ABI_SELFTEST_H

#define TBG_SELFTEST_READER	'r'
#define TBG_SELFTEST_WORDS		1024
#define TBG_SELFTEST_LEN		(8 * TBG_SELFTEST_WORDS)
#define TBG_SELFTEST_WORD(i)	((i) * 0x9e3779b97f4a7c15ull)

#endif
