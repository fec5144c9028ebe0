/* SPDX-License-Identifier: GPL-2.0 */
/* Of the programs that answer a transfer: what they report, and what is logged of them. */
#ifndef TBG_USERD_PROXY_PROGRAM_ERRORS_H
#define TBG_USERD_PROXY_PROGRAM_ERRORS_H

#include <stdbool.h>
#include <stddef.h>

struct tbg_transfer;

/* One line of a server, a program or a module to the log, or about it. */
void tbg_program_log(const struct tbg_transfer *x, const char *b, size_t len);

/* Logs the program's error output line by line; all: also a line that has not ended. */
void tbg_program_errors(struct tbg_transfer *x, bool all);

#endif
