/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The answerer that runs programs (CGI/1.1, RFC 3875), each in a process of its
 * own with limits, below a keeper.
 */
#ifndef TBG_USERD_GATEWAY_CGI_H
#define TBG_USERD_GATEWAY_CGI_H

#include <stdbool.h>
#include <stddef.h>

struct tbg_pool_command;

/* Serves until SIGTERM; runs in a process of its own, as its user, in its root. */
int tbg_cgi_run(const struct tbg_pool_command *o, int listen_fd, int state_fd, int proc_fd);

/*
 * The length of the head in a program's output, the empty line included. 0:
 * incomplete. Negative: invalid.
 */
long tbg_cgi_head(const char *head, size_t len);

#endif
