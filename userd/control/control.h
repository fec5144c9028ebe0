/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The control socket (Unix stream, mode 0600, JSON lines), which `toboggan` uses.
 * toboggan(1) lists the commands; control/commands.c and stream.h make the answers, in
 * order: {"ok":true,...} or {"ok":false,"error":"..."}. Runs in the control thread and
 * never blocks it.
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
 * Binds path for the user that the daemon will become; replaces the socket of a dead
 * daemon, but not that of a running one. Call it before there are threads.
 */
int tbg_control_open(struct tbg_control **ret, struct tbg_server *s,
		     const char *path, const struct tbg_identity *id,
		     char *ret_msg, size_t msg_len);

/* Unlinks the socket, if the daemon may; accepts NULL. */
void tbg_control_close(struct tbg_control *c);

/* Identifies the socket for the process that removes it later. */
void tbg_control_socket(const struct tbg_control *c, int *ret_folder, const char **ret_name,
			struct stat *ret_st);

#endif
