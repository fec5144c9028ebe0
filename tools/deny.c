// SPDX-License-Identifier: GPL-2.0
/*
 * `toboggan deny`: refuses clients, for a time or without end; admits them again; lists
 * who is refused. Called by the command line alone.
 */
#include "commands.h"

#include <stdio.h>
#include <stdlib.h>

#include "ask.h"
#include "fault.h"
#include "show.h"

#define AT_ONCE	64		/* addresses in a request: its line has a limit */

static void list_show(const json_t *a)
{
	const json_t *one;
	size_t i;

	json_array_foreach(json_object_get(a, "clients"), i, one) {
		const json_t *left = json_object_get(one, "left_s");

		print_safe(text_of(one, "address"), 0);
		printf("  %s", true_of(one, "deny") ? "denied" : "allowed");
		if (json_is_integer(left))
			printf(" for %lld s", (long long)json_integer_value(left));
		puts(true_of(one, "configured") ? ", by the configuration" : "");
	}
	printf("%lld in all\n", number_of(a, "entries"));
}

/* As many addresses as a line of the control socket holds. Returns the exit status. */
static int some_change(const struct tbg_given *opt, int nr, char **addresses)
{
	json_t *req = json_pack("{s:s, s:b, s:[]}", "cmd", "deny", "remove", opt->remove,
				"addresses");
	json_t *list = json_object_get(req, "addresses"), *a;

	for (int i = 0; i < nr; i++)
		json_array_append_new(list, tbg_text_encode(addresses[i], ""));
	if (opt->time)
		json_object_set_new(req, "for", tbg_text_encode(opt->time, ""));
	a = tbg_control_ask(opt, req, NULL);
	if (!a)
		return EXIT_FAILURE;
	for (int i = 0; i < nr && !opt->json; i++) {
		print_safe(addresses[i], 0);
		puts(opt->remove ? ": admitted again" : ": denied");
	}
	json_decref(a);
	return EXIT_SUCCESS;
}

int tbg_deny_run(const struct tbg_given *opt, int argc, char **argv)
{
	int ret = EXIT_SUCCESS;

	if (opt->time && opt->remove) {
		tbg_fault_print("deny: give either --for or --remove");
		return TBG_EXIT_USAGE;
	}
	if (!argc && (opt->time || opt->remove)) {
		tbg_fault_print("deny: %s: needs an ADDRESS", opt->time ? "--for" : "--remove");
		return TBG_EXIT_USAGE;
	}
	if (!argc)
		return tbg_control_show(opt, json_pack("{s:s}", "cmd", "deny"), list_show);
	for (int at = 0; at < argc; at += AT_ONCE)
		if (some_change(opt, argc - at < AT_ONCE ? argc - at : AT_ONCE, argv + at))
			ret = EXIT_FAILURE;
	return ret;
}
