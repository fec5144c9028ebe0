/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Finds the name that was probably meant by a mistyped one, for messages:
 * "memroy: did you mean memory?". No I/O; the caller offers the known names
 * one by one.
 */
#ifndef TBG_USERD_CONFIG_NEAR_H
#define TBG_USERD_CONFIG_NEAR_H

#include <stddef.h>

struct tbg_near {
	const char *word;	/* the mistyped name */
	size_t len;
	const char *name;	/* nearest name so far; NULL: none is near */
	unsigned int distance;	/* number of typing errors between the two */
};

void tbg_near_try(struct tbg_near *n, const char *name);

#endif
