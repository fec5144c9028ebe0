/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The connection to the daemon: one line of JSON to its control socket, one
 * line back. Faults are reported by fault.h.
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
 * --json it has been printed. Otherwise reports why not, and returns NULL. progress shows
 * lines that precede the answer; NULL: they are ignored.
 */
json_t *tbg_control_ask(const struct tbg_given *opt, json_t *req,
			void (*progress)(const json_t *line));

/* Asks, and shows the answer if it has not been printed. The exit status. */
int tbg_control_show(const struct tbg_given *opt, json_t *req,
		     void (*show)(const json_t *answer));

/* The same for a command that lists at most --limit rows. */
int tbg_control_list(const struct tbg_given *opt, const char *cmd,
		     void (*show)(const json_t *answer));

/* As JSON, which allows only UTF-8: other bytes, and those in `also`, as "%XX". */
json_t *tbg_text_encode(const char *text, const char *also);

/* The same for a URL, which is unchanged if it is UTF-8. NULL: no memory. */
json_t *tbg_url_pack(const char *url);

#endif
