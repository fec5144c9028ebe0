/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A module or programs without toboggand, for any web server that speaks
 * FastCGI: what the command line gives, as the command that the daemon would have
 * sent. Called by main.c.
 */
#ifndef TBG_USERD_GATEWAY_STANDALONE_H
#define TBG_USERD_GATEWAY_STANDALONE_H

struct tbg_pool_command;

/* An exit status, or -1: *ret and the listening socket are set. */
int tbg_standalone_read(int argc, char **argv, struct tbg_pool_command *ret, int *ret_listen_fd);

/* Removes the socket, if there is one. */
void tbg_standalone_end(void);

#endif
