/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The name that a typing error was meant to be, for messages: "memroy: did you
 * mean memory?". Pure; the caller has the names.
 */
#ifndef TBG_USERD_SETTINGS_NEAR_H
#define TBG_USERD_SETTINGS_NEAR_H

#include <stddef.h>

struct tbg_near {
	const char *word;	/* that is no name */
	size_t len;
	const char *name;	/* the nearest of those tried; NULL: none is near */
	unsigned int distance;	/* keys to press to make one of the other */
};

void tbg_near_try(struct tbg_near *n, const char *name);

#endif
