/* SPDX-License-Identifier: GPL-2.0 */
/* Error output of the programs that answer transfers, and its logging. */
#ifndef TBG_USERD_PROXY_PROGRAM_ERRORS_H
#define TBG_USERD_PROXY_PROGRAM_ERRORS_H

#include <stdbool.h>
#include <stddef.h>

struct tbg_transfer;

/* Logs one line from, or about, a server, a program or a module. */
void tbg_program_log(const struct tbg_transfer *x, const char *b, size_t len);

/* Logs the program's error output line by line. all: also an incomplete last line. */
void tbg_program_errors(struct tbg_transfer *x, bool all);

#endif
