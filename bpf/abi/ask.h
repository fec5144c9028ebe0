/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What would a kernel tier count for a request now? The daemon asks the programs
 * themselves (BPF_PROG_TEST_RUN), which answer out of their own maps and change nothing.
 * Wire is asked with the request in a segment as of its client, on a new connection, and
 * cb[0] and cb[1]; sock with the request alone behind ETH_HLEN bytes, its length in
 * cb[0] and the client's address behind that.
 */
#ifndef TBG_ABI_ASK_H
#define TBG_ABI_ASK_H

/* In cb[0]: the question, where a program has others. */
#define TBG_ASK_WHY	7

/* In cb[1]: of which tier. */
#define TBG_ASK_WIRE	0
#define TBG_ASK_SOCK	1

/* What the program returns: that, and a TBG_WHY_*, or 0 where the tier would answer. */
#define TBG_ASKED	0x10000

#endif
