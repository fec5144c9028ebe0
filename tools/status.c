// SPDX-License-Identifier: GPL-2.0
/*
 * `toboggan status`: the tiers, or why they are off, and the daemon's sites, upstreams,
 * objects and memory. Called by the command line alone; shows the daemon's answer and adds
 * nothing.
 */
#include "commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "show.h"

static void uptime_print(double s)
{
	long long m = s / 60, h = m / 60, d = h / 24;

	if (d)
		printf("%lld d %lld h", d, h % 24);
	else if (h)
		printf("%lld h %lld min", h, m % 60);
	else if (m)
		printf("%lld min", m);
	else
		printf("%.0f s", s);
}

static void status_wire(const json_t *a)
{
	json_t *tier = json_object_get(json_object_get(a, "tiers"), "wire");
	json_t *ifaces = json_object_get(a, "interfaces"), *i;
	const char *comma = "";
	size_t nr;

	printf("wire         %s", true_of(tier, "on") ? "on: " : "off: ");
	print_safe(text_of(tier, "why"), 0);
	json_array_foreach(ifaces, nr, i) {
		if (!strcmp(text_of(i, "how"), "off"))
			continue;
		printf("%s%s (%s%s)", comma, text_of(i, "name"), text_of(i, "how"),
		       strcmp(text_of(i, "xdp"), "on") ? "" : ", xdp");
		comma = ", ";
	}
	puts(true_of(tier, "on") && !*comma ? "no interface" : "");
	if (*comma)
		printf("             responses of up to %lld bytes with their heads%s\n",
		       (long long)number_of(a, "wire_size"),
		       true_of(a, "wire_size_auto") ?
		       ": what wire sends at once, ten segments at most; above that the daemon answers (wire-size)" : "");
	if (*text_of(tier, "note")) {
		printf("             it ");
		print_safe(text_of(tier, "note"), 0);
		putchar('\n');
	}
	left_put(a, "             ");
	json_array_foreach(ifaces, nr, i) {
		bool xdp = strcmp(text_of(i, "how"), "off");

		if (xdp && strcmp(text_of(i, "xdp"), "off"))
			continue;
		printf("             %s on %s: ", xdp ? "no XDP" : "not", text_of(i, "name"));
		print_safe(text_of(i, xdp ? "xdp_why" : "why"), 0);
		putchar('\n');
	}
}

static void status_late(const json_t *a)
{
	json_t *late = json_object_get(a, "late_sockets");

	if (!json_is_object(late)) {
		const char *why = text_of(a, "late_sockets_off");

		if (*why) {
			printf("             every connection has a socket: ");
			print_safe(why, 0);
			putchar('\n');
		}
		return;
	}
	printf("             no sockets before the first miss: %lld connections, %lld handed over, %lld given back\n",
	       number_of(late, "births"), number_of(late, "handed"), number_of(late, "given"));
	printf("             SYNs are answered by %s: ", text_of(late, "syns"));
	print_safe(text_of(late, "syns_why"), 0);
	putchar('\n');
	if (json_is_true(json_object_get(late, "tracks")))
		puts("             conntrack learns of each connection before the kernel takes it over");
	if (*text_of(late, "asks_why")) {
		printf("             the kernel is asked for the route to each client (%lld times so far), and keeps its first connection: ",
		       number_of(late, "asked"));
		print_safe(text_of(late, "asks_why"), 0);
		putchar('\n');
	}
	if (*text_of(late, "vrfs_why")) {
		printf("             the kernel has all connections in VRFs: ");
		print_safe(text_of(late, "vrfs_why"), 0);
		putchar('\n');
	}
	if (number_of(late, "refused"))
		printf("             %lld segments handed over were dropped by the firewall\n",
		       number_of(late, "refused"));
}

static void status_sock(const json_t *a)
{
	json_t *tier = json_object_get(json_object_get(a, "tiers"), "sock");

	printf("sock         %s", true_of(tier, "on") ? "on" : "off: ");
	print_safe(text_of(tier, "why"), 0);
	putchar('\n');
}

/* Several sites, one a line; the root of a single one has been shown. */
static void sites_show(const json_t *sites)
{
	json_t *site;
	size_t nr;

	json_array_foreach(sites, nr, site) {
		if (!*text_of(site, "name"))
			continue;
		printf("\n%s%s, %lld location%s%s, ", nr ? "             " : "sites        ",
		       text_of(site, "name"), number_of(site, "locations"),
		       number_of(site, "locations") == 1 ? "" : "s",
		       true_of(site, "default") ? ", the default" : "");
		print_safe(text_of(site, "root"), 0);
	}
}

/* The servers of upstreams, one a line, and the response store. */
static void upstreams_show(const json_t *a)
{
	json_t *stock = json_object_get(a, "stock"), *one;
	size_t nr;

	json_array_foreach(json_object_get(a, "upstreams"), nr, one) {
		const char *name = text_of(one, "upstream"), *server = text_of(one, "server");

		printf("%s", nr ? "             " : "upstreams    ");
		if (strncmp(server, name, strlen(name))) {
			print_safe(name, 0);
			printf(": ");
		}
		print_safe(server, 0);
		printf(", %lld requests, %lld under way, %lld failed%s\n",
		       number_of(one, "requests"), number_of(one, "active"),
		       number_of(one, "failed"), true_of(one, "rests") ? ", rests" : "");
	}
	if (!stock)
		return;
	printf("stored       %lld responses, %s", number_of(stock, "responses"),
	       bytes_text(number_of(stock, "used")));
	printf(" of %s\n", bytes_text(number_of(stock, "budget")));
}

static void status_show(const json_t *a)
{
	json_t *memory = json_object_get(a, "memory"), *listener;
	const char *comma = "";
	size_t nr;

	printf("toboggand    %s, pid %lld, up ", text_of(a, "version"),
	       number_of(a, "pid"));
	uptime_print(json_number_value(json_object_get(a, "uptime_s")));
	printf("%s", true_of(a, "draining") ? ", draining" : "");
	if (!json_object_get(a, "upstreams")) {
		printf("\nroot         ");
		print_safe(text_of(a, "root"), 0);
	}
	sites_show(json_object_get(a, "sites"));
	printf("\nlistening    ");
	json_array_foreach(json_object_get(a, "listeners"), nr, listener) {
		printf("%s%s", comma, json_string_value(listener));
		comma = ", ";
	}
	putchar('\n');
	status_wire(a);
	status_late(a);
	status_sock(a);
	printf("user         on: %lld worker%s\n", number_of(a, "workers"),
	       number_of(a, "workers") == 1 ? "" : "s");
	upstreams_show(a);
	printf("objects      %lld, %lld of them in the kernel\n",
	       number_of(a, "objects"), number_of(a, "objects_in_kernel"));
	printf("memory       %s of %s\n", bytes_text(number_of(memory, "used")),
	       bytes_text(number_of(memory, "budget")));
	printf("connections  %lld, flows %lld\n", number_of(a, "connections"),
	       number_of(a, "flows"));
	printf("access log   ");
	print_safe(json_is_null(json_object_get(a, "access_log")) ? "off" :
		   text_of(a, "access_log"), 0);
	putchar('\n');
}

int tbg_status_run(const struct tbg_given *opt, int argc, char **argv)
{
	return tbg_control_show(opt, json_pack("{s:s}", "cmd", "status"), status_show);
}
