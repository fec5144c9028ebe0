// SPDX-License-Identifier: GPL-2.0
/*
 * `toboggan connections`: lists the connections of clients, those without a socket
 * included, one a line. Called by the command line alone.
 */
#include "commands.h"

#include <stdio.h>

#include "ask.h"
#include "show.h"

/* 12.3 → "12.3 s", 7200 → "2.0 h"; in number_room(). */
static const char *time_text(double s)
{
	char *ret = number_room();

	if (s < 600)
		snprintf(ret, NUMBER_ROOM, "%.1f s", s);
	else if (s < 36000)
		snprintf(ret, NUMBER_ROOM, "%.1f min", s / 60);
	else
		snprintf(ret, NUMBER_ROOM, "%.1f h", s / 3600);
	return ret;
}

static double seconds_of(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

/* "phase; request: upload, sending; answer". */
static void phases_put(const json_t *o)
{
	printf("  %s; request: %s", text_of(o, "phase"), text_of(o, "upload"));
	if (json_object_get(o, "sending"))
		printf(", %s", text_of(o, "sending"));
	printf("; %s", text_of(o, "answer"));
}

static void connections_show(const json_t *a)
{
	json_t *list = json_object_get(a, "connections"), *o;
	size_t nr;

	printf("%-5s %-6s %-12s %10s %10s %10s  %-22s %s\n", "tier", "socket", "state",
	       "requests", "age", "idle", "address", "listener");
	json_array_foreach(list, nr, o) {
		printf("%-5s %-6s %-12s %10lld %10s %10s  ", text_of(o, "tier"),
		       true_of(o, "socket") ? "yes" : "no", text_of(o, "state"),
		       number_of(o, "requests"), time_text(seconds_of(o, "age_s")),
		       time_text(seconds_of(o, "idle_s")));
		printf("%-22s %s", text_of(o, "address"), text_of(o, "listener"));
		if (json_object_get(o, "phase"))
			phases_put(o);
		putchar('\n');
	}
	rest_put(a, list);
}

int tbg_connections_run(const struct tbg_given *opt, int argc, char **argv)
{
	return tbg_control_list(opt, "connections", connections_show);
}
