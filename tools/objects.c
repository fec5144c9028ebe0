// SPDX-License-Identifier: GPL-2.0
/*
 * `toboggan objects`: lists the cached objects, one a line, in the order of the daemon's
 * answer. Called by the command line alone. Paths contain bytes of clients and file names,
 * so they must never be written to a terminal unescaped.
 */
#include "commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "show.h"

static void object_show(const json_t *o, unsigned int columns)
{
	json_t *expires = json_object_get(o, "expires_s");
	json_t *tiers = json_object_get(o, "tiers");
	unsigned int used = 75 + strlen(text_of(o, "site"));
	char until[32] = "-";

	if (!json_is_null(expires))
		snprintf(until, sizeof(until), "%.1f s",
			 json_number_value(expires));
	printf("%12lld %10s %-5s %6lld %10s %-24.24s ", number_of(o, "hits"),
	       bytes_text(number_of(o, "size")),
	       json_string_value(json_array_get(tiers, 0)),
	       number_of(o, "class"), until, text_of(o, "etag"));
	print_safe(text_of(o, "site"), 0);
	print_safe(text_of(o, "path"), columns > used + 10 ? columns - used : 0);
	encoding_put(stdout, o);
	putchar('\n');
}

static void objects_show(const json_t *a)
{
	json_t *list = json_object_get(a, "objects"), *o;
	unsigned int columns = width();
	size_t nr;

	printf("%12s %10s %-5s %6s %10s %-24s %s\n", "hits", "size", "tier",
	       "class", "expires", "etag", "path");
	json_array_foreach(list, nr, o)
		object_show(o, columns);
	rest_put(a, list);
}

int tbg_objects_run(const struct tbg_given *opt, int argc, char **argv)
{
	return tbg_control_list(opt, "objects", objects_show);
}
