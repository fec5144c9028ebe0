/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The daemon's side of toboggan-gateway, the process that runs programs and
 * modules: starts it, opens a listening socket for each upstream that is a pool
 * (upstream.h), and sends it commands. Control thread alone.
 */
#ifndef TBG_USERD_GATEWAY_SUPERVISE_H
#define TBG_USERD_GATEWAY_SUPERVISE_H

#include <sys/socket.h>
#include <sys/types.h>

struct tbg_gateway;
struct tbg_sites;

/*
 * listener: the address for fetches of modules; mark: identifies these fetches
 * (upstream/pool_command.h). The caller keeps both; they are read whenever a pool is
 * opened. uid, gid: the daemon's user after it has dropped privileges, and the default
 * for pools. Starts nothing yet. NULL: no memory.
 */
struct tbg_gateway *tbg_gateway_new(const struct sockaddr_storage *listener, const char *mark,
				    uid_t uid, gid_t gid);

/* Opens the pools of these sites that are not open yet. */
int tbg_gateway_take(struct tbg_gateway *g, const struct tbg_sites *sites);

/*
 * After the first tbg_gateway_take(), while the daemon is still root: see
 * TBG_POOL_COMMAND_STARTED.
 */
void tbg_gateway_started(struct tbg_gateway *g);

/* Every second: closes pools that no site uses; restarts the process if it has died. */
void tbg_gateway_tick(struct tbg_gateway *g);

/* Ends the process, and waits. NULL is allowed. */
void tbg_gateway_close(struct tbg_gateway *g);

#endif
