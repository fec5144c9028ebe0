// SPDX-License-Identifier: GPL-2.0
/*
 * Reports a fault to the user. Called by the command line and all commands, once for each
 * fault; never ends the program.
 */
#include "fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "ask.h"
#include "show.h"

static bool want_json;

void tbg_fault_json(bool wanted)
{
	want_json = wanted;
}

int tbg_fault_print(const char *fmt, ...)
{
	char text[1024];
	va_list args;
	json_t *o;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	fputs("toboggan: ", stderr);
	text_put(stderr, text, 0);
	putc('\n', stderr);
	if (!want_json)
		return EXIT_FAILURE;
	o = json_pack("{s:b, s:o}", "ok", 0, "error", tbg_url_pack(text));
	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(o);
	return EXIT_FAILURE;
}
