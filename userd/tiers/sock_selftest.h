/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether what sock rests on does in this kernel what it must, tried on a
 * connection of our own: for the daemon, before sock is loaded, and for
 * `toboggan probe`. Never on a kernel that is known to lack sock's fixes.
 */
#ifndef TBG_USERD_SOCK_SELFTEST_H
#define TBG_USERD_SOCK_SELFTEST_H

#include <stddef.h>

/*
 * Takes some milliseconds; ten seconds where what must come does not. 0; or negative
 * errno, with what is not as it must be in ret_msg. Leaves nothing.
 */
int tbg_sock_selftest(char *ret_msg, size_t msg_len);

#endif
