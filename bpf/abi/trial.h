/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The requests and answers of sock's trial of the kernel: a request that begins with
 * TBG_TRIAL_READER reaches the socket's reader unchanged; any other is answered by
 * the trial's program.
 */
#ifndef TBG_ABI_TRIAL_H
#define TBG_ABI_TRIAL_H

#define TBG_TRIAL_READER	'r'
#define TBG_TRIAL_WORDS		1024
#define TBG_TRIAL_LEN		(8 * TBG_TRIAL_WORDS)
#define TBG_TRIAL_WORD(i)	((i) * 0x9e3779b97f4a7c15ull)

#endif
