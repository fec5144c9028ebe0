// SPDX-License-Identifier: GPL-2.0
/*
 * `toboggan why`: which tier would answer a URL, and why not a lower one. Called
 * by the command line alone; the judgement is the daemon's (userd/control/why.c), this
 * only shows it.
 */
#include "commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "show.h"

static void why_line(const char *label, const char *text)
{
	if (!*text)
		return;
	printf("  %-10s ", label);
	print_safe(text, 0);
	putchar('\n');
}

static void why_show(const json_t *a)
{
	json_t *ifaces = json_object_get(a, "interfaces"), *i;
	bool user = !strcmp(text_of(a, "tier"), "user");
	size_t nr;

	print_safe(text_of(a, "path"), 0);
	printf(": %s\n", text_of(a, "tier"));
	why_line("site", text_of(a, "site"));
	why_line("location", text_of(a, "location"));
	if (user) {
		printf("  %-10s %s: ", "why", text_of(a, "why"));
		print_safe(text_of(a, "text"), 0);
		putchar('\n');
	}
	why_line("", text_of(a, "detail"));
	if (*text_of(a, "note")) {
		printf("  %-10s ", "wire");
		print_safe(text_of(a, "note"), 0);
		putchar('\n');
	}
	if (!true_of(a, "cached"))
		return;
	if (strcmp(text_of(a, "encoding"), "identity"))
		why_line("encoding", text_of(a, "encoding"));
	why_line("file", text_of(a, "file"));
	why_line("fresh", text_of(a, "fresh"));
	printf("  %-10s %lld bytes with its head, in a slot of %lld; %lld hits\n",
	       "response", number_of(a, "response_bytes"),
	       number_of(a, "class"), number_of(a, "hits"));
	json_array_foreach(ifaces, nr, i) {
		const char *xdp = strcmp(text_of(i, "xdp"), "on") ? "" :
				  true_of(i, "xdp_may") ? ", xdp if its frame has room" :
							  ", not xdp";

		if (!strcmp(text_of(i, "how"), "off")) {
			printf("  %-10s off: %s\n", text_of(i, "name"), text_of(i, "why"));
			continue;
		}
		printf("  %-10s %s%s, MTU %lld: %s over IPv4, %s over IPv6\n",
		       text_of(i, "name"), text_of(i, "how"), xdp,
		       number_of(i, "mtu"),
		       true_of(i, "fits_ipv4") ? "fits" : "no",
		       true_of(i, "fits_ipv6") ? "fits" : "no");
	}
}

int tbg_why_run(const struct tbg_given *opt, int argc, char **argv)
{
	int ret = EXIT_SUCCESS;

	for (int i = 0; i < argc; i++)
		if (tbg_control_show(opt, json_pack("{s:s, s:o, s:s*}", "cmd", "why",
						    "url", tbg_url_pack(argv[i]),
						    "accept_encoding", opt->accept), why_show))
			ret = EXIT_FAILURE;
	return ret;
}
