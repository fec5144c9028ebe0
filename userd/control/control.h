/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The control socket (Unix stream, mode 0600, JSON lines): what `toboggan`
 * talks to. What it can be asked is in toboggan(1), the answers are control/commands.c's
 * and stream.h's: {"ok":true,...} or {"ok":false,"error":"..."}, in order. Runs in
 * the control thread; never blocks it.
 */
#ifndef TBG_USERD_CONTROL_H
#define TBG_USERD_CONTROL_H

#include <stddef.h>
#include <sys/types.h>

struct tbg_control;
struct tbg_server;

/*
 * Whether who calls could bind path, of less than 108 bytes: a socket there is fine,
 * it may be that of the daemon that runs. 0 or negative errno.
 */
int tbg_control_check(const char *path);

/* Binds path (a dead daemon's socket there is replaced, a live one's is not). */
int tbg_control_open(struct tbg_control **ret, struct tbg_server *s,
		     const char *path, char *ret_msg, size_t msg_len);
void tbg_control_close(struct tbg_control *c);	/* unlinks; NULL allowed */

/*
 * Gives the socket (and its folder, if we made it) to the user that the daemon
 * is about to become, so that he can use and remove it. NULL allowed.
 */
int tbg_control_chown(struct tbg_control *c, uid_t uid, gid_t gid);

#endif
