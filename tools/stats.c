// SPDX-License-Identifier: GPL-2.0
/*
 * `toboggan stats`: the counters since the daemon started. Called by the command line
 * alone. The daemon's answer determines which counters are shown, so that a new one needs no
 * change here. The text also shows the cost of wire, measured for a moment, if permitted.
 */
#include "commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ask.h"
#include "run_time.h"
#include "show.h"

#define LOOK_MS	300	/* for the time that packets take */

/* Reasons that never occurred are left out. */
static void reasons_show(const json_t *list, const char *title)
{
	unsigned int columns = width();
	json_t *why;
	size_t nr;
	bool any = false;

	printf("\n%-14s %12s\n", title, "count");
	json_array_foreach(list, nr, why) {
		if (!number_of(why, "count"))
			continue;
		printf("%-14s %12lld  ", text_of(why, "name"),
		       number_of(why, "count"));
		print_safe(text_of(why, "text"),
			   columns > 40 ? columns - 30 : 0);
		putchar('\n');
		any = true;
	}
	if (!any)
		puts("none");
}

static void numbers_show(const json_t *o, const char *title)
{
	const char *key;
	json_t *value;

	printf("\n%s\n", title);
	json_object_foreach((json_t *)o, key, value)
		if (json_is_integer(value))
			printf("  %-18s %12lld\n", key,
			       (long long)json_integer_value(value));
}

static void stats_show(const json_t *a)
{
	json_t *tiers = json_object_get(a, "tiers"), *tier;
	json_t *log = json_object_get(a, "log");
	const char *name;

	printf("%-6s %14s %18s\n", "tier", "requests", "bytes");
	json_object_foreach(tiers, name, tier)
		printf("%-6s %14lld %18lld\n", name, number_of(tier, "requests"),
		       number_of(tier, "bytes"));
	tier = json_object_get(tiers, "wire");
	if (number_of(tier, "xdp"))
		printf("\nof wire's requests %lld answered by XDP\n", number_of(tier, "xdp"));
	reasons_show(json_object_get(a, "passes"), "passed up");
	if (json_array_size(json_object_get(a, "left_by_xdp")))
		reasons_show(json_object_get(a, "left_by_xdp"), "left by XDP to TC");
	reasons_show(json_object_get(a, "packets"), "packets");
	tier = json_object_get(tiers, "user");
	numbers_show(tier, "user tier");
	numbers_show(json_object_get(tier, "status"), "responses by status");
	numbers_show(json_object_get(a, "cache"), "cache");
	if (true_of(log, "on"))
		printf("\naccess log: %lld lines lost, %lld hits lost in the kernel's ring\n",
		       number_of(log, "lost"), number_of(log, "lost_in_kernel"));
}

/* The time of a hit since the start; the other times during the next moment. */
static void cost_show(const struct tbg_given *opt, const json_t *first)
{
	json_t *tiers = json_object_get(first, "tiers"), *now = NULL;
	struct tbg_run_time then, since;
	struct tbg_wire_cost cost, look;
	int fd = number_of(json_object_get(tiers, "wire"), "program") ? tbg_run_time_begin() : -1;
	char text[160];

	if (fd >= 0 && tbg_run_time_read(first, &then)) {
		usleep(LOOK_MS * 1000);
		now = tbg_control_ask(opt, json_pack("{s:s}", "cmd", "stats"), NULL);
	}
	if (now && tbg_run_time_read(now, &since)) {
		tbg_wire_cost(first, now, &then, &since, &look);
		then = since;
		tbg_wire_cost(NULL, now, &then, &since, &cost);
		cost.pass_ns = look.pass_ns;
		cost.user_ns = look.user_ns;	/* since the start, it contains the start itself */
		tbg_wire_pays(&cost);
		if (tbg_wire_cost_text(&cost, text, sizeof(text)))
			printf("\n%s\n", text);
	}
	json_decref(now);
	if (fd >= 0)
		close(fd);
}

int tbg_stats_run(const struct tbg_given *opt, int argc, char **argv)
{
	json_t *a = tbg_control_ask(opt, json_pack("{s:s}", "cmd", "stats"), NULL);

	if (!a)
		return EXIT_FAILURE;
	if (!opt->json) {
		stats_show(a);
		fflush(stdout);
		cost_show(opt, a);
	}
	json_decref(a);
	return EXIT_SUCCESS;
}
