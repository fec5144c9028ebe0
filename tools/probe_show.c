// SPDX-License-Identifier: GPL-2.0
/*
 * `toboggan probe` as text: the results of probe.c, one feature a line, then the tiers.
 * Called by the command line alone; decides nothing itself.
 */
#include "probe.h"

#include <stdio.h>
#include <string.h>

#include "show.h"

static void probe_tiers_show(const json_t *tiers)
{
	const char *name;
	json_t *tier, *lack;
	size_t nr;

	putchar('\n');
	json_object_foreach((json_t *)tiers, name, tier) {
		json_t *lacks = json_object_get(tier, "lacks");

		printf("%-5s %s", name, text_of(tier, "state"));
		json_array_foreach(lacks, nr, lack)
			printf("%s %s", nr ? "," : ":", json_string_value(lack));
		putchar('\n');
	}
}

static void feature_show(const json_t *f)
{
	const char *state = text_of(f, "state"), *lost = text_of(f, "lost");
	bool later = !strcmp(text_of(f, "need"), "later");

	if (!strcmp(state, "present")) {
		printf("%-26s present\n", text_of(f, "name"));
		return;
	}
	printf("%-26s %-8s", text_of(f, "name"), state);
	if (*text_of(f, "detail"))
		printf(" %s;", text_of(f, "detail"));
	printf(" without it: %s%s\n", strcmp(lost, "-") ? lost : "nothing lost",
	       later ? " (not used yet)" : "");
}

void tbg_probe_show(const json_t *a)
{
	json_t *f;
	size_t nr;

	printf("kernel %s %s\n\n", text_of(a, "kernel"), text_of(a, "version"));
	json_array_foreach(json_object_get(a, "features"), nr, f)
		feature_show(f);
	probe_tiers_show(json_object_get(a, "tiers"));
}
