/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the trial of the kernel for sock asks, and how it is answered: a request
 * that begins with TBG_TRIAL_READER comes to the socket's reader, as it is; any
 * other one is answered with so many words.
 */
#ifndef TBG_ABI_TRIAL_H
#define TBG_ABI_TRIAL_H

#define TBG_TRIAL_READER	'r'
#define TBG_TRIAL_WORDS		1024
#define TBG_TRIAL_LEN		(8 * TBG_TRIAL_WORDS)
#define TBG_TRIAL_WORD(i)	((i) * 0x9e3779b97f4a7c15ull)

#endif
