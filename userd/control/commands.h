/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The commands of the control socket, independent of the transport.
 */
#ifndef TBG_USERD_CONTROL_COMMANDS_H
#define TBG_USERD_CONTROL_COMMANDS_H

#include <stdbool.h>

#include <jansson.h>

struct tbg_server;

/* Returns the answer as a new object; NULL without memory. Control thread only. */
json_t *tbg_command(struct tbg_server *s, const char *cmd, const json_t *req);

/*
 * Returns whether a why means a request that was passed up, rather than a packet
 * without one.
 */
bool tbg_command_is_pass(int why);

/* The listeners that wire leaves to the daemon: [{listener, why}]. */
json_t *tbg_command_left(const struct tbg_server *s);

__attribute__((format(printf, 1, 2)))
json_t *tbg_command_error(const char *fmt, ...);

#endif
