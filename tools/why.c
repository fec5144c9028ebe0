// SPDX-License-Identifier: GPL-2.0
/*
 * `toboggan why`: shows which tier would answer a URL, and why not a lower one. Called by
 * the command line alone. The daemon decides (userd/control/why.c); this file only shows it.
 */
#include "commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "fault.h"
#include "show.h"

static void why_line(const char *label, const char *text)
{
	if (!*text)
		return;
	printf("  %-10s ", label);
	print_safe(text, 0);
	putchar('\n');
}

#define REQUEST_MAX 3000	/* maximum bytes of a request: a kernel tier accepts 2048 */

/* The answer of wire on an interface, for an address family. */
static const char *why_of(const json_t *iface, const char *key)
{
	const char *why = text_of(iface, key);

	return *why ? why : "none";
}

static void why_show(const json_t *a)
{
	json_t *ifaces = json_object_get(a, "interfaces"), *i;
	bool user = !strcmp(text_of(a, "tier"), "user");
	size_t nr;

	print_safe(*text_of(a, "path") ? text_of(a, "path") : "request", 0);
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
	left_put(a, "  wire       ");
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
		       number_of(i, "mtu"), why_of(i, "why_ipv4"), why_of(i, "why_ipv6"));
	}
}

/* The bytes of a file as pairs of hexadecimal digits; NULL after a report. */
static json_t *request_pack(const char *path)
{
	FILE *f = strcmp(path, "-") ? fopen(path, "re") : stdin;
	char hex[2 * REQUEST_MAX + 1] = "";
	unsigned char b[REQUEST_MAX];
	size_t len;

	len = f ? fread(b, 1, sizeof(b), f) : 0;
	if (!f || ferror(f))
		tbg_fault_print("why: --request %s: %s", path, strerror(errno));
	else if (!len)
		tbg_fault_print("why: --request %s: empty; give a request as it is sent", path);
	if (f && f != stdin)
		fclose(f);
	for (size_t i = 0; i < len; i++)
		sprintf(hex + 2 * i, "%02x", b[i]);
	return len ? json_string(hex) : NULL;
}

static int request_run(const struct tbg_given *opt)
{
	json_t *request = request_pack(opt->request);

	return request ? tbg_control_show(opt, json_pack("{s:s, s:o, s:s*}", "cmd", "why",
							 "request", request, "client",
							 opt->client), why_show) :
			 EXIT_FAILURE;
}

int tbg_why_run(const struct tbg_given *opt, int argc, char **argv)
{
	int ret = EXIT_SUCCESS;

	if (!argc != !!opt->request || (opt->request && opt->accept)) {
		tbg_fault_print("why: give URLs, or --request FILE");
		return TBG_EXIT_USAGE;
	}
	if (opt->request)
		return request_run(opt);
	for (int i = 0; i < argc; i++)
		if (tbg_control_show(opt, json_pack("{s:s, s:o, s:s*, s:s*}", "cmd", "why",
						    "url", tbg_url_pack(argv[i]),
						    "accept_encoding", opt->accept,
						    "client", opt->client), why_show))
			ret = EXIT_FAILURE;
	return ret;
}
