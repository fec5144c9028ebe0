/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tests on a connection of its own whether the kernel features that sock
 * relies on work: for the daemon, before it loads sock, and for `toboggan
 * probe`. Not to be called on a kernel known to lack required fixes.
 */
#ifndef TBG_USERD_TIERS_SOCK_SELFTEST_H
#define TBG_USERD_TIERS_SOCK_SELFTEST_H

#include <stddef.h>

/*
 * Takes some milliseconds, or ten seconds if an expected answer is missing. Returns
 * 0; or negative errno, with the failure in ret_msg. Leaves nothing behind.
 */
int tbg_sock_selftest(char *ret_msg, size_t msg_len);

#endif
