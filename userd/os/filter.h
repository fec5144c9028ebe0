/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A seccomp filter that refuses system calls which a process of the daemon never needs:
 * one filter each for the daemon, for the gateway, and for programs and modules.
 * Filters are inherited by all processes that it starts.
 */
#ifndef TBG_USERD_OS_FILTER_H
#define TBG_USERD_OS_FILTER_H

enum tbg_filter {
	TBG_FILTER_DAEMON,
	TBG_FILTER_GATEWAY,
	TBG_FILTER_PROGRAM,
};

/*
 * Applies to all threads of this process and their children, irrevocably. Returns a
 * negative errno on failure.
 */
int tbg_filter_load(enum tbg_filter which);

#endif
