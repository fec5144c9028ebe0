/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The control socket (Unix stream, mode 0600, JSON lines): what `toboggan`
 * talks to. What it can be asked is in toboggan(1), the answers are control/commands.c's
 * and stream.h's: {"ok":true,...} or {"ok":false,"error":"..."}, in order. Runs in
 * the control thread; never blocks it.
 */
#ifndef TBG_USERD_CONTROL_CONTROL_H
#define TBG_USERD_CONTROL_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

struct tbg_control;
struct tbg_identity;
struct tbg_server;

/*
 * Binds path (a dead daemon's socket there is replaced, a live one's is not), for the
 * user that the daemon is about to become. Before there are threads.
 */
int tbg_control_open(struct tbg_control **ret, struct tbg_server *s,
		     const char *path, const struct tbg_identity *id,
		     char *ret_msg, size_t msg_len);

/* Unlinks the socket, if that is ours to do; NULL allowed. */
void tbg_control_close(struct tbg_control *c);

/* What it is, for whoever removes it then. */
void tbg_control_socket(const struct tbg_control *c, int *ret_folder, const char **ret_name,
			struct stat *ret_st);

#endif
