/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The daemon's side of toboggan-gateway, the process that runs programs and
 * modules: starts it, opens a listening socket for each upstream that is a pool
 * of ours (upstream.h), and tells it what to run there. Control thread alone.
 */
#ifndef TBG_USERD_GATEWAY_H
#define TBG_USERD_GATEWAY_H

#include <sys/socket.h>
#include <sys/types.h>

struct tbg_gateway;
struct tbg_sites;

/*
 * listener: where modules' fetches go; mark: what they carry (upstream/pool_command.h). Both stay
 * the caller's and are read whenever a pool is opened. uid, gid: whom the daemon is about
 * to become, and its pools too unless they are told otherwise. Nothing is started yet.
 * NULL: no memory.
 */
struct tbg_gateway *tbg_gateway_new(const struct sockaddr_storage *listener, const char *mark,
				    uid_t uid, gid_t gid);

/* Opens the pools that these sites name and those before did not. */
int tbg_gateway_take(struct tbg_gateway *g, const struct tbg_sites *sites);

/* After the first of these, while we are still root: see TBG_POOL_COMMAND_STARTED. */
void tbg_gateway_started(struct tbg_gateway *g);

/* Every second: closes pools that no sites name; starts a dead process again. */
void tbg_gateway_tick(struct tbg_gateway *g);

/* Ends it all, and waits. NULL allowed. */
void tbg_gateway_close(struct tbg_gateway *g);

#endif
