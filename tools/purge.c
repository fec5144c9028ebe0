// SPDX-License-Identifier: GPL-2.0
/*
 * `toboggan purge`: removes objects from the daemon's cache, by URL, prefix of URLs, host or
 * tag, or all. Called by the command line alone. Never guesses: exactly one of these must
 * be given.
 */
#include "commands.h"

#include <stdio.h>
#include <stdlib.h>

#include "ask.h"
#include "fault.h"
#include "show.h"

static int purge_one(const struct tbg_given *opt, json_t *req, const char *what)
{
	json_t *a = tbg_control_ask(opt, req, NULL);
	long long nr;

	if (!a)
		return EXIT_FAILURE;
	nr = number_of(a, "purged");
	if (!opt->json) {
		print_safe(what, 0);
		printf(nr ? ": %lld object%s purged\n" :
		       ": not in the cache, %lld object%s purged\n", nr,
		       nr == 1 ? "" : "s");
	}
	json_decref(a);
	return EXIT_SUCCESS;
}

/* Exactly one of: all, a host, a tag, or URLs (or prefixes of them). */
int tbg_purge_run(const struct tbg_given *opt, int argc, char **argv)
{
	const char *key = opt->prefix ? "prefix" : "url";
	int ret = EXIT_SUCCESS;

	/* an empty name is a mistake in a script, and could match everything */
	if (opt->all + !!opt->host + !!opt->tag + !!argc != 1 || (opt->prefix && !argc) ||
	    (opt->host && !*opt->host) || (opt->tag && !*opt->tag)) {
		tbg_fault_print("purge: give either URLs, or --prefix and URLs, or --host NAME, or --tag TAG, or --all");
		return TBG_EXIT_USAGE;
	}
	if (opt->tag)
		return purge_one(opt, json_pack("{s:s, s:s}", "cmd", "purge",
						"tag", opt->tag), opt->tag);
	if (opt->all)
		return purge_one(opt, json_pack("{s:s, s:b}", "cmd", "purge",
						"all", 1), "everything");
	if (opt->host)
		return purge_one(opt, json_pack("{s:s, s:s}", "cmd", "purge",
						"host", opt->host), opt->host);
	for (int i = 0; i < argc; i++)
		if (purge_one(opt, json_pack("{s:s, s:o}", "cmd", "purge", key,
					     tbg_url_pack(argv[i])), argv[i]))
			ret = EXIT_FAILURE;
	return ret;
}
