/* SPDX-License-Identifier: GPL-2.0 */
/*
 * System calls that a process of ours never needs, refused by the kernel from then
 * on: to the daemon, to the gateway, and to the programs and modules it runs. What
 * is refused to one is refused to all that it starts.
 */
#ifndef TBG_USERD_OS_FILTER_H
#define TBG_USERD_OS_FILTER_H

enum tbg_filter {
	TBG_FILTER_DAEMON,
	TBG_FILTER_GATEWAY,
	TBG_FILTER_PROGRAM,
};

/* For all threads of this process and all that they start, for good. Negative errno. */
int tbg_filter_load(enum tbg_filter which);

#endif
