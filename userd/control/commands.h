/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the control socket can be asked, but for how it is transmitted.
 */
#ifndef TBG_USERD_COMMAND_H
#define TBG_USERD_COMMAND_H

#include <jansson.h>

struct tbg_server;

/* The answer, a new object; NULL without memory. Control thread alone. */
json_t *tbg_command(struct tbg_server *s, const char *cmd, const json_t *req);

__attribute__((format(printf, 1, 2)))
json_t *tbg_command_error(const char *fmt, ...);

#endif
