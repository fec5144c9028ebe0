// SPDX-License-Identifier: GPL-2.0
/*
 * The command-line tool: sends one line of JSON to the daemon's control socket, and shows
 * the line that it receives as text or, with --json, unchanged. This file is the command
 * line: the table of commands, the options, the help. Each command has a file of its name.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "abi/version.h"
#include "ask.h"
#include "bench.h"
#include "commands.h"
#include "fault.h"
#include "probe.h"
#include "os/stdio_hold.h"
#include "top.h"

#define CONTROL_PATH	"/run/toboggan/control.sock"

struct command {
	const char *name;
	const char *usage;
	const char *about;
	const char *more;
	int (*run)(const struct tbg_given *opt, int argc, char **argv);
	int args_min, args_max;
	bool takes_limit, takes_rounds;
	bool takes_accept;		/* --accept-encoding, --client, --request */
	bool takes_deny;		/* --for, --remove */
	bool takes_purge;		/* --all, --host, --prefix, --tag */
	bool takes_log;			/* --host, --tier, --status, --slow, --path */
};

/* --- commands that do not ask the daemon, or need a conversion ------------- */

static int top_run(const struct tbg_given *opt, int argc, char **argv)
{
	struct tbg_top how = {
		.control = opt->control, .json = opt->json,
		.interval_ms = opt->interval_ms ?: 1000,
		.count = opt->count >= 0 ? opt->count : opt->json,
	};
	int fd = tbg_control_connect(opt->control);
	char msg[512];

	if (fd < 0)
		return EXIT_FAILURE;
	return tbg_top(&how, fd, msg, sizeof(msg)) ? tbg_fault_print("top: %s", msg) :
						     EXIT_SUCCESS;
}

static int probe_run(const struct tbg_given *opt, int argc, char **argv)
{
	json_t *a = tbg_probe();

	if (!a)
		return tbg_fault_print("probe: out of memory");
	if (opt->json) {
		json_dumpf(a, stdout, JSON_COMPACT);
		putchar('\n');
	} else {
		tbg_probe_show(a);
	}
	json_decref(a);
	return EXIT_SUCCESS;
}

/* main() has run it, unless it follows options; it accepts none. */
static int bench_run(const struct tbg_given *opt, int argc, char **argv)
{
	(void)opt;
	return tbg_bench(argc, argv);
}

/* --- the command line ---------------------------------------------------- */

static const struct command commands[] = {
	{ "status", "status", "tiers, attachment to interfaces, objects, memory",
	  "Shows the tiers that are on, or why they are off; the interfaces and how wire\nis attached to them; objects and memory of the cache; connections and flows.",
	  tbg_status_run, .args_max = 0 },
	{ "stats", "stats", "requests and bytes per tier, passes per reason",
	  "Counters since the daemon started. Reasons that never occurred are left out of\nthe text, but not of --json.",
	  tbg_stats_run, .args_max = 0 },
	{ "objects", "objects [--limit N]", "cached objects, most popular first",
	  "tier is the lowest that can answer a GET of the object, class the size of its slot\nin bytes. If expires is \"-\", the object is valid until its file changes.",
	  tbg_objects_run, 0, 0, .takes_limit = true },
	{ "connections", "connections [--limit N]", "the clients that are connected",
	  "tier is the lowest that may answer on the connection. state is what the connection\nwaits for. requests counts the answers so far, except hits of a kernel tier on a\nconnection that has a socket. Connections of wire without a socket are listed here\nalone. A connection that begins or ends meanwhile may be missing.",
	  tbg_connections_run, 0, 0, .takes_limit = true },
	{ "why", "why [--client ADDRESS] [--accept-encoding VALUE] URL... | --request FILE", "which tier would answer, and why not a lower one",
	  "Asks the kernel tiers themselves about a plain GET of URL, a whole URL or a path.\n--accept-encoding: the variant that a client with this field receives.\n--request: a file with the bytes of a request (-: standard input).\n--client: the client's address; by default a client that no list or limit concerns.",
	  tbg_why_run, .args_min = 0, .args_max = INT_MAX, .takes_accept = true },
	{ "purge", "purge [--prefix] URL... | --host NAME | --tag TAG | --all", "remove objects from the cache",
	  "The next request reads the file, or asks the upstream, again. A path without a host\napplies to every site. --prefix: all objects that begin with a URL. --host: all of\none site. --tag: responses that upstreams have marked with it in Surrogate-Key.",
	  tbg_purge_run, 0, INT_MAX, .takes_purge = true },
	{ "deny", "deny [ADDRESS... [--for TIME | --remove]]", "refuse clients, for a time or without end; list them",
	  "ADDRESS may be a prefix such as 192.0.2.0/24. Applies from the next request on, also\non existing connections, until TIME is over or the daemon ends. --remove: admits the\nclients again. Without an ADDRESS: lists the denied clients.",
	  tbg_deny_run, 0, INT_MAX, .takes_deny = true },
	{ "warm", "warm DIR|FILE...", "put files into the cache ahead of their first request",
	  "DIR and FILE are paths on the disk, below a root that is served. Prints how many\nanswers were stored, how many were stored before, and how many were not kept because\nthey are too large or less popular than others. Shows the progress on a terminal.",
	  tbg_warm_run, .args_min = 1, .args_max = INT_MAX },
	{ "log", "log [--host NAME] [--tier LIST] [--status LIST] [--slow TIME] [--path BEGIN] [--limit N]",
	  "requests as they are answered, of all tiers",
	  "Ends when interrupted, or after N requests. --status: such as 404 or 4xx,502. --slow:\nrequests that took TIME or longer. --path: targets that begin with BEGIN. Meanwhile\nhits of the kernel tiers cost a little more. Lines without room are dropped and counted.",
	  tbg_log_run, 0, 0, .takes_limit = true, .takes_log = true },
	{ "top", "top [--interval TIME] [--count N | --once]",
	  "the current rates, hit ratio, top objects and top reasons",
	  "Updates in place on a terminal; q or Ctrl-C ends it, the space bar updates at once.\nElsewhere, and on a simple terminal, prints a snapshot after each interval (1s).\n--count: the number of snapshots, 0 for no end; with --json the default is 1.",
	  top_run, 0, 0, .takes_rounds = true },
	{ "probe", "probe", "features of this kernel that Toboggan uses",
	  "Tries each feature, and shows what is lost without it. Needs no daemon. Without\nprivilege, features that it is not permitted to try are unknown.",
	  probe_run, .args_max = 0 },
	{ "bench", "bench [COMMAND] ...", "compare its speed with that of other servers",
	  "It has commands and options of its own: see toboggan bench --help.",
	  bench_run, .args_max = 1000 },
};

#define HELP_COLUMNS	22	/* of a usage; a longer one has a line of its own */
#define COMMANDS_NR (sizeof(commands) / sizeof(*commands))

static void help(FILE *f)
{
	fprintf(f, "usage: toboggan [--control PATH] [--json] COMMAND\n\n");
	for (size_t i = 0; i < COMMANDS_NR; i++) {
		bool fits = strlen(commands[i].usage) <= HELP_COLUMNS;

		fprintf(f, "  %-*s%s%*s%s\n", HELP_COLUMNS, commands[i].usage, fits ? "" : "\n  ",
			fits ? 1 : HELP_COLUMNS + 1, "", commands[i].about);
	}
	fprintf(f, "  %-*s %s\n", HELP_COLUMNS, "help COMMAND", "describe a command");
	fprintf(f, "\n  --control PATH         the daemon's control socket (%s)\n"
		"  --json                 answers as JSON, one line each\n"
		"  --help, --version\n", CONTROL_PATH);
}

static const struct command *command_of(const char *name)
{
	for (size_t i = 0; i < COMMANDS_NR; i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	tbg_fault_print("%s: unknown command; expected status, stats, objects, connections, why, purge, deny, warm, log, top, probe or bench",
			name);
	return NULL;
}

static int help_one(const char *name)
{
	const struct command *c = command_of(name);

	if (!c)
		return TBG_EXIT_USAGE;
	printf("usage: toboggan [--control PATH] [--json] %s\n\n%s.\n", c->usage,
	       c->about);
	printf("%s\n", c->more);
	return EXIT_SUCCESS;
}

static bool number_parse(const char *v, long long max, long long *ret)
{
	char *end;
	long long n;

	errno = 0;
	n = strtoll(v, &end, 10);
	if (errno || *end || end == v || n < 0 || n > max)
		return false;
	*ret = n;
	return true;
}

/* "2", "0.5", "2s", "500ms" */
static bool interval_parse(const char *v, unsigned int *ret_ms)
{
	char *end;
	double ms;

	if (!isdigit((unsigned char)*v))
		return false;
	ms = strtod(v, &end);
	if (end != v + strspn(v, "0123456789."))	/* "1e3", "0x1" */
		return false;
	if (strcmp(end, "ms")) {
		ms *= 1000;
		if (*end && strcmp(end, "s"))
			return false;
	}
	if (!(ms >= 100 && ms <= 3600000))
		return false;
	*ret_ms = ms;
	return true;
}

static const char shorts[] = ":c:jhV";
static const struct option longs[] = {
	{ "control", required_argument, NULL, 'c' },
	{ "json", no_argument, NULL, 'j' },
	{ "limit", required_argument, NULL, 'l' },
	{ "accept-encoding", required_argument, NULL, 'e' },
	{ "client", required_argument, NULL, 'C' },
	{ "request", required_argument, NULL, 'R' },
	{ "tag", required_argument, NULL, 't' },
	{ "all", no_argument, NULL, 'a' },
	{ "host", required_argument, NULL, 'H' },
	{ "for", required_argument, NULL, 'f' },
	{ "remove", no_argument, NULL, 'r' },
	{ "tier", required_argument, NULL, 'T' },
	{ "status", required_argument, NULL, 'S' },
	{ "slow", required_argument, NULL, 's' },
	{ "path", required_argument, NULL, 'P' },
	{ "prefix", no_argument, NULL, 'p' },
	{ "interval", required_argument, NULL, 'i' },
	{ "count", required_argument, NULL, 'n' },
	{ "once", no_argument, NULL, 'o' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ 0 }
};

/* At any place, so that faults in earlier options are reported in JSON, too. */
static bool json_wanted(int argc, char **argv)
{
	bool ret = false;
	int o;

	while ((o = getopt_long(argc, argv, shorts, longs, NULL)) != -1)
		ret |= o == 'j';
	optind = 0;			/* start again */
	return ret;
}

/* A second one would silently replace the first. */
static bool once(const char **ret, const char *option)
{
	if (*ret)
		tbg_fault_print("%s %s: %s %s already given; run the command once for each",
				option, optarg, option, *ret);
	else
		*ret = optarg;
	return *ret == optarg;
}

/* Sets an option without a value. Returns false for all others. */
static bool flag_set(struct tbg_given *opt, int o)
{
	switch (o) {
	case 'j':			/* see json_wanted() */
		return true;
	case 'a':
		opt->all = true;
		return true;
	case 'h':
		opt->help = true;
		return true;
	case 'o':
		opt->count = 1;
		return true;
	case 'p':
		opt->prefix = true;
		return true;
	case 'r':
		opt->remove = true;
		return true;
	}
	return false;
}

/* Options with a text. */
static const struct text_option {
	char letter;
	const char *name;
	size_t at;		/* of the text in struct tbg_given */
	bool once;		/* refused when given twice */
	bool sent;		/* unchanged in JSON: must be UTF-8 */
} texts[] = {
#define AT(field) .at = offsetof(struct tbg_given, field)
	{ .letter = 'c', .name = "--control", AT(control) },
	{ .letter = 'R', .name = "--request", AT(request) },
	{ .letter = 'f', .name = "--for", AT(time), .once = true },
	{ .letter = 'e', .name = "--accept-encoding", AT(accept), .sent = true },
	{ .letter = 'H', .name = "--host", AT(host), .once = true, .sent = true },
	{ .letter = 'C', .name = "--client", AT(client), .sent = true },
	{ .letter = 't', .name = "--tag", AT(tag), .once = true, .sent = true },
	{ .letter = 'T', .name = "--tier", AT(tier), .sent = true },
	{ .letter = 'S', .name = "--status", AT(status), .sent = true },
	{ .letter = 's', .name = "--slow", AT(slow), .sent = true },
	{ .letter = 'P', .name = "--path", AT(path), .sent = true },
#undef AT
};

#define TEXTS_NR (sizeof(texts) / sizeof(*texts))

static const struct text_option *text_option(int letter)
{
	for (size_t i = 0; i < TEXTS_NR; i++)
		if (texts[i].letter == letter)
			return &texts[i];
	return NULL;
}

static bool text_set(struct tbg_given *opt, const struct text_option *o)
{
	const char **at = (const char **)((char *)opt + o->at);

	if (o->once)
		return once(at, o->name);
	*at = optarg;
	return true;
}

/* Sets an option that takes a number or a time. Returns false after reporting an error. */
static bool number_set(struct tbg_given *opt, int o)
{
	if (o == 'n') {
		if (number_parse(optarg, 1000000000, &opt->count))
			return true;
		tbg_fault_print("--count %s: give a number of snapshots, or 0 for no end", optarg);
	} else if (o == 'i') {
		if (interval_parse(optarg, &opt->interval_ms))
			return true;
		tbg_fault_print("--interval %s: give a time from 100ms to 3600s, such as 0.5 or 2s",
				optarg);
	} else {
		if (number_parse(optarg, LLONG_MAX, &opt->limit))
			return true;
		tbg_fault_print("--limit %s: give a number, or 0 for all", optarg);
	}
	return false;
}

/* Returns 0, or the exit status plus one. */
static int options_parse(struct tbg_given *opt, int argc, char **argv)
{
	const struct text_option *text;
	int o;

	opterr = 0;
	opt->json = json_wanted(argc, argv);
	tbg_fault_json(opt->json);
	while ((o = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		if (o == 'V') {
			puts("toboggan " TBG_VERSION);
			return EXIT_SUCCESS + 1;
		}
		if (flag_set(opt, o))
			continue;
		text = text_option(o);
		if (text) {
			if (text_set(opt, text))
				continue;
		} else if (strchr("nil", o)) {
			if (number_set(opt, o))
				continue;
		} else {
			tbg_fault_print(o == ':' ? "%s: needs a value; see toboggan --help" :
						   "%s: unknown option; see toboggan --help",
					argv[optind - 1]);
		}
		return TBG_EXIT_USAGE + 1;
	}
	return 0;
}

/* Values that are sent unchanged in JSON must be UTF-8. */
static bool options_sayable(const struct tbg_given *opt)
{
	for (size_t i = 0; i < TEXTS_NR; i++) {
		const char *value = *(const char *const *)((const char *)opt + texts[i].at);
		json_t *text;

		if (!texts[i].sent || !value)
			continue;
		text = json_string(value);
		json_decref(text);
		if (text)
			continue;
		tbg_fault_print("%s: not UTF-8", texts[i].name);
		return false;
	}
	return true;
}

static int command_run(const struct tbg_given *opt, int argc, char **argv)
{
	const struct command *c = command_of(argv[0]);
	const char *extra = NULL;

	if (!c)
		return TBG_EXIT_USAGE;
	argc--;
	argv++;
	if (argc < c->args_min || argc > c->args_max) {
		tbg_fault_print("%s: %s; usage: toboggan %s", c->name,
				argc < c->args_min ? "argument missing" :
				"too many arguments", c->usage);
		return TBG_EXIT_USAGE;
	}
	if (opt->limit >= 0 && !c->takes_limit)
		extra = "--limit";
	else if ((opt->accept || opt->client || opt->request) && !c->takes_accept)
		extra = opt->accept ? "--accept-encoding" : opt->client ? "--client" : "--request";
	else if ((opt->all || opt->tag || opt->prefix) && !c->takes_purge)
		extra = opt->all ? "--all" : opt->tag ? "--tag" : "--prefix";
	else if (opt->host && !c->takes_purge && !c->takes_log)
		extra = "--host";
	else if ((opt->tier || opt->status || opt->slow || opt->path) && !c->takes_log)
		extra = opt->tier ? "--tier" : opt->status ? "--status" :
			opt->slow ? "--slow" : "--path";
	else if ((opt->time || opt->remove) && !c->takes_deny)
		extra = opt->time ? "--for" : "--remove";
	else if ((opt->interval_ms || opt->count >= 0) && !c->takes_rounds)
		extra = opt->interval_ms ? "--interval" : "--count";
	if (extra) {
		tbg_fault_print("%s: does not take %s; usage: toboggan %s", c->name,
				extra, c->usage);
		return TBG_EXIT_USAGE;
	}
	return options_sayable(opt) ? c->run(opt, argc, argv) : TBG_EXIT_USAGE;
}

int main(int argc, char **argv)
{
	struct tbg_given opt = { .control = CONTROL_PATH, .limit = -1,
			       .count = -1 };
	int ret;

	tbg_stdio_hold(O_RDONLY);
	if (argc > 1 && !strcmp(argv[1], "bench"))
		return tbg_bench(argc - 2, argv + 2);
	ret = options_parse(&opt, argc, argv);
	if (ret)
		return ret - 1;
	argc -= optind;
	argv += optind;
	if (argc && !strcmp(argv[0], "help")) {
		opt.help = true;
		argc--;
		argv++;
	}
	if (opt.help && argc)
		ret = help_one(argv[0]);
	else if (opt.help)
		help(stdout);
	else if (argc)
		ret = command_run(&opt, argc, argv);
	else if (opt.json)
		tbg_fault_print("no command; see toboggan --help"), ret = TBG_EXIT_USAGE;
	else
		help(stderr), ret = TBG_EXIT_USAGE;
	if (fflush(stdout) || ferror(stdout))
		return tbg_fault_print("stdout: %s", strerror(errno));
	return ret;
}
