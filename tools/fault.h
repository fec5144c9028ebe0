/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What went wrong, to a person; and to a program, that gets its line of JSON in
 * any case.
 */
#ifndef TBG_TOOLS_FAULT_H
#define TBG_TOOLS_FAULT_H

#include <stdbool.h>

/* Whether a program listens: to be said before the first fault. */
void tbg_fault_json(bool wanted);

/* One line, on stderr, of what may hold anything. Returns EXIT_FAILURE. */
int tbg_fault_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
