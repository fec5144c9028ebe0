/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How the daemon finds out what a kernel tier would count for a request (`toboggan
 * why`): it runs the program itself (BPF_PROG_TEST_RUN), which looks into its own maps
 * and changes nothing. Input for wire: the request in a segment of a new connection of
 * the client, and cb[0] and cb[1]. Input for sock: the request behind ETH_HLEN bytes,
 * its length in cb[0], and the client's address in cb[1] to cb[4].
 */
#ifndef TBG_ABI_ASK_H
#define TBG_ABI_ASK_H

/* In cb[0]: the kind of question, for programs that answer several. */
#define TBG_ASK_WHY	7

/* In cb[1]: the tier that the question is about. */
#define TBG_ASK_WIRE	0
#define TBG_ASK_SOCK	1

/* The program returns this plus a TBG_WHY_*, or plus 0 if the tier would answer. */
#define TBG_ASKED	0x10000

#endif
