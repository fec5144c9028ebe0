// SPDX-License-Identifier: GPL-2.0
/*
 * The command-line tool: one line of JSON to the daemon's control socket, one
 * line back, shown as text or, with --json, as it is. This file is the command
 * line: the table of commands, the options, the help. A command has a file of
 * its name.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
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

/* --- what knows nothing of the command line ------------------------------ */

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
	return tbg_top(&how, fd, msg, sizeof(msg)) ? tbg_fault_say("top: %s", msg) :
						     EXIT_SUCCESS;
}

static int probe_run(const struct tbg_given *opt, int argc, char **argv)
{
	json_t *a = tbg_probe();

	if (!a)
		return tbg_fault_say("probe: out of memory");
	if (opt->json) {
		json_dumpf(a, stdout, JSON_COMPACT);
		putchar('\n');
	} else {
		tbg_probe_show(a);
	}
	json_decref(a);
	return EXIT_SUCCESS;
}

/* main() has run it, unless it came after options, of which it takes none. */
static int bench_run(const struct tbg_given *opt, int argc, char **argv)
{
	(void)opt;
	return tbg_bench(argc, argv);
}

/* --- the command line ---------------------------------------------------- */

static const struct command commands[] = {
	{ "status", "status", "what runs, what is attached where, objects, memory",
	  "Shows the tiers that are on, or why they are off; the interfaces and how wire\nis attached to them; objects and memory of the cache; connections and flows.",
	  tbg_status_run, .args_max = 0 },
	{ "stats", "stats", "requests and bytes per tier, passes per reason",
	  "Counters since the daemon started. Reasons that never came up are left out of\nthe text, but not of --json.",
	  tbg_stats_run, .args_max = 0 },
	{ "objects", "objects [--limit N]", "cached objects, most popular first",
	  "tier is the lowest that can answer a GET of the object; class the bytes of its\nslot; expires \"-\" means until the file changes.",
	  tbg_objects_run, 0, 0, .takes_limit = true },
	{ "connections", "connections [--limit N]", "the clients that are connected",
	  "tier is the lowest that may answer on the connection; one of wire's without a\nsocket is in no list of the kernel's. state: what it waits for; requests: answered\nso far, but for hits of a kernel tier on a connection that has a socket. What begins\nor ends meanwhile may be left out.",
	  tbg_connections_run, 0, 0, .takes_limit = true },
	{ "why", "why [--client ADDRESS] [--accept-encoding VALUE] URL... | --request FILE", "which tier would answer, and why not the kernel",
	  "Asks the kernel tiers themselves. URL is a whole URL or a path, of which a plain GET\nis meant. --accept-encoding: of the variant that a client with this field gets.\n--request: the bytes of a request as a client sends them (-: standard input).\n--client: of whom; without it, of one that no list and no limit knows.",
	  tbg_why_run, .args_min = 0, .args_max = INT_MAX, .takes_accept = true },
	{ "purge", "purge [--prefix] URL... | --host NAME | --tag TAG | --all", "take objects out of the cache",
	  "The next request reads the file, or asks the upstream, again. --prefix: all that\nbegins with a URL. A path without a host is meant of every site; --host: all of\none site; --tag: what upstreams have marked with it in Surrogate-Key.",
	  tbg_purge_run, 0, INT_MAX, .takes_purge = true },
	{ "deny", "deny [ADDRESS... [--for TIME | --remove]]", "refuse clients, for a time or for good; list them",
	  "ADDRESS is one, or a prefix such as 192.0.2.0/24. Holds from the next request on, on\nconnections that exist too, until TIME is over or the daemon ends. --remove: lets them\nin again. Without an address: who is denied.",
	  tbg_deny_run, 0, INT_MAX, .takes_deny = true },
	{ "warm", "warm DIR|FILE...", "put files into the cache ahead of their first request",
	  "Files as they lie on the disk, below a root that is served. Shows a bar on a\nterminal. Says how many answers were stored, were there before, or were not kept:\nthose that are too large, or that give way to more popular ones.",
	  tbg_warm_run, .args_min = 1, .args_max = INT_MAX },
	{ "log", "log [--host NAME] [--tier LIST] [--status LIST] [--slow TIME] [--path BEGIN] [--limit N]",
	  "requests as they are answered, of all tiers",
	  "Until it is ended, or N are shown. --status: such as 404 or 4xx,502; --slow: took as\nlong as TIME, or longer; --path: targets that begin so. Hits of the kernel tiers cost a\nlittle more meanwhile. Lines for which there is no room are left out, and counted.",
	  tbg_log_run, 0, 0, .takes_limit = true, .takes_log = true },
	{ "top", "top [--interval TIME] [--count N | --once]",
	  "the same as it happens: rates, hit ratio, top objects, top reasons",
	  "In place on a terminal (q or Ctrl-C ends it, blank asks at once); elsewhere, and\non a terminal that cannot, a snapshot after each interval (1s). --json gives one\nsnapshot unless --count says how many; 0 means until it is ended.",
	  top_run, 0, 0, .takes_rounds = true },
	{ "probe", "probe", "features of this kernel that Toboggan uses",
	  "Tries each feature and shows what is lost without it. Needs no daemon, but\nprivilege to try all: a feature that it may not try is unknown.",
	  probe_run, .args_max = 0 },
	{ "bench", "bench [COMMAND] ...", "measure it beside other servers",
	  "An own tool with options of its own: see toboggan bench --help.",
	  bench_run, .args_max = 1000 },
};

#define COMMANDS_NR (sizeof(commands) / sizeof(*commands))

static void help(FILE *f)
{
	fprintf(f, "usage: toboggan [--control PATH] [--json] COMMAND\n\n");
	for (size_t i = 0; i < COMMANDS_NR; i++)
		fprintf(f, "  %-22s %s\n", commands[i].usage, commands[i].about);
	fprintf(f, "  %-22s %s\n", "help COMMAND", "more about one of them");
	fprintf(f, "\n  --control PATH         the daemon's control socket (%s)\n"
		"  --json                 answers as JSON, one line each\n"
		"  --help, --version\n", CONTROL_PATH);
}

static const struct command *command_of(const char *name)
{
	for (size_t i = 0; i < COMMANDS_NR; i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	tbg_fault_say("%s: unknown command; there are status, stats, objects, connections, why, purge, deny, warm, log, top, probe and bench",
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

/* Wherever it stands: also what is wrong before it is told so. */
static bool json_wanted(int argc, char **argv)
{
	bool ret = false;
	int o;

	while ((o = getopt_long(argc, argv, shorts, longs, NULL)) != -1)
		ret |= o == 'j';
	optind = 0;			/* from the beginning again */
	return ret;
}

/* A second one would take the place of the first without a word. */
static bool once(const char **ret, const char *option)
{
	if (*ret)
		tbg_fault_say("%s %s: there is %s %s already; run the command once for each",
			      option, optarg, option, *ret);
	else
		*ret = optarg;
	return *ret == optarg;
}

/* 0, or the exit status plus one. */
static int options_parse(struct tbg_given *opt, int argc, char **argv)
{
	int o;

	opterr = 0;
	opt->json = json_wanted(argc, argv);
	tbg_fault_json(opt->json);
	while ((o = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		switch (o) {
		case 'c':
			opt->control = optarg;
			break;
		case 'j':
			break;
		case 'a':
			opt->all = true;
			break;
		case 'H':
			if (!once(&opt->host, "--host"))
				return TBG_EXIT_USAGE + 1;
			break;
		case 'f':
			if (!once(&opt->time, "--for"))
				return TBG_EXIT_USAGE + 1;
			break;
		case 'r':
			opt->remove = true;
			break;
		case 'p':
			opt->prefix = true;
			break;
		case 'h':
			opt->help = true;
			break;
		case 't':
			if (!once(&opt->tag, "--tag"))
				return TBG_EXIT_USAGE + 1;
			break;
		case 'e':
			opt->accept = optarg;
			break;
		case 'C':
			opt->client = optarg;
			break;
		case 'R':
			opt->request = optarg;
			break;
		case 'T':
			opt->tier = optarg;
			break;
		case 'S':
			opt->status = optarg;
			break;
		case 's':
			opt->slow = optarg;
			break;
		case 'P':
			opt->path = optarg;
			break;
		case 'o':
			opt->count = 1;
			break;
		case 'n':
			if (number_parse(optarg, 1000000000, &opt->count))
				break;
			tbg_fault_say("--count %s: give a number of snapshots, or 0 for no end",
				      optarg);
			return TBG_EXIT_USAGE + 1;
		case 'i':
			if (interval_parse(optarg, &opt->interval_ms))
				break;
			tbg_fault_say("--interval %s: give a time from 100ms to 3600s, such as 0.5 or 2s",
				      optarg);
			return TBG_EXIT_USAGE + 1;
		case 'l':
			if (number_parse(optarg, LLONG_MAX, &opt->limit))
				break;
			tbg_fault_say("--limit %s: give a number, or 0 for all",
				      optarg);
			return TBG_EXIT_USAGE + 1;
		case 'V':
			puts("toboggan " TBG_VERSION);
			return EXIT_SUCCESS + 1;
		case ':':
			tbg_fault_say("%s: needs a value; see toboggan --help",
				      argv[optind - 1]);
			return TBG_EXIT_USAGE + 1;
		default:
			tbg_fault_say("%s: unknown option; see toboggan --help",
				      argv[optind - 1]);
			return TBG_EXIT_USAGE + 1;
		}
	}
	return 0;
}

/* What an option says as it is: not to be said in JSON if it is not UTF-8. */
static bool options_sayable(const struct tbg_given *opt)
{
	const char *const options[][2] = {
		{ "--accept-encoding", opt->accept }, { "--host", opt->host },
		{ "--client", opt->client },
		{ "--tag", opt->tag }, { "--tier", opt->tier }, { "--status", opt->status },
		{ "--slow", opt->slow }, { "--path", opt->path },
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
		json_t *text = json_string(options[i][1] ?: "");

		json_decref(text);
		if (text)
			continue;
		tbg_fault_say("%s: not UTF-8", options[i][0]);
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
		tbg_fault_say("%s: %s; usage: toboggan %s", c->name,
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
		tbg_fault_say("%s: does not take %s; usage: toboggan %s", c->name,
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
		tbg_fault_say("no command; see toboggan --help"), ret = TBG_EXIT_USAGE;
	else
		help(stderr), ret = TBG_EXIT_USAGE;
	if (fflush(stdout) || ferror(stdout))
		return tbg_fault_say("stdout: %s", strerror(errno));
	return ret;
}
