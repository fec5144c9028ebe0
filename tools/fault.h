/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reports faults to a person as a line, and to a program as a line of JSON.
 */
#ifndef TBG_TOOLS_FAULT_H
#define TBG_TOOLS_FAULT_H

#include <stdbool.h>

/* Whether a program reads the output. Call this before the first fault. */
void tbg_fault_json(bool wanted);

/* Writes one line to stderr; control bytes are escaped. Returns EXIT_FAILURE. */
int tbg_fault_print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
