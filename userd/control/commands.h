/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the control socket can be asked, but for how it is transmitted.
 */
#ifndef TBG_USERD_CONTROL_COMMANDS_H
#define TBG_USERD_CONTROL_COMMANDS_H

#include <stdbool.h>

#include <jansson.h>

struct tbg_server;

/* The answer, a new object; NULL without memory. Control thread alone. */
json_t *tbg_command(struct tbg_server *s, const char *cmd, const json_t *req);

/* Whether a why is a request passed up; else a packet that held none for us. */
bool tbg_command_is_pass(int why);

__attribute__((format(printf, 1, 2)))
json_t *tbg_command_error(const char *fmt, ...);

#endif
