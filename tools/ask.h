/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The connection to the daemon: one line of JSON to its control socket, one
 * line back. What goes wrong has been said (fault.h).
 */
#ifndef TBG_TOOLS_ASK_H
#define TBG_TOOLS_ASK_H

#include <jansson.h>

#include "commands.h"

/* A descriptor of the control socket at path; -1. */
int tbg_control_connect(const char *path);

/* Adds our version to req: a daemon of another one refuses. 0 or negative errno. */
int tbg_line_send(int fd, json_t *req);

/*
 * Sends req (and drops it), and returns the answer if it is a good one. With
 * --json it has been printed. Else says why not and returns NULL. progress: what
 * is shown of lines that come before the answer; NULL: nothing.
 */
json_t *tbg_control_ask(const struct tbg_given *opt, json_t *req,
			void (*progress)(const json_t *line));

/* Asks, and shows the answer if it has not been printed. The exit status. */
int tbg_control_show(const struct tbg_given *opt, json_t *req,
		     void (*show)(const json_t *answer));

/* The same of a command that lists as many rows as --limit says. */
int tbg_control_list(const struct tbg_given *opt, const char *cmd,
		     void (*show)(const json_t *answer));

/* As JSON, which has UTF-8 alone: other bytes, and what is in `also`, as "%XX". */
json_t *tbg_text_encode(const char *text, const char *also);

/* The same of a URL, which is as it stands if it is UTF-8. NULL: no memory. */
json_t *tbg_url_pack(const char *url);

#endif
