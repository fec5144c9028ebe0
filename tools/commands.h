/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The commands that ask the daemon, one file each, and the options that the command line
 * (toboggan.c) passes to them. Each shows its answers and reports its own faults.
 */
#ifndef TBG_TOOLS_COMMANDS_H
#define TBG_TOOLS_COMMANDS_H

#include <stdbool.h>

#define TBG_EXIT_USAGE	2

/* The options of the command line. */
struct tbg_given {
	const char *control;
	bool json, all, help;
	const char *host;		/* of --host */
	bool prefix;
	long long limit;		/* -1: not given */
	const char *tag;		/* NULL: not given */
	const char *time;		/* of --for; NULL: not given */
	bool remove;
	const char *accept;		/* an Accept-Encoding, or NULL */
	const char *client, *request;	/* an address, a file; NULL: not given */
	const char *tier, *status, *slow, *path;	/* of a log; NULL: not given */
	unsigned int interval_ms;	/* 0: not given */
	long long count;		/* -1: not given */
};

/* argv: the arguments after the command, as many as it takes. The exit status. */
int tbg_status_run(const struct tbg_given *opt, int argc, char **argv);
int tbg_stats_run(const struct tbg_given *opt, int argc, char **argv);
int tbg_objects_run(const struct tbg_given *opt, int argc, char **argv);
int tbg_connections_run(const struct tbg_given *opt, int argc, char **argv);
int tbg_why_run(const struct tbg_given *opt, int argc, char **argv);
int tbg_purge_run(const struct tbg_given *opt, int argc, char **argv);
int tbg_deny_run(const struct tbg_given *opt, int argc, char **argv);
int tbg_log_run(const struct tbg_given *opt, int argc, char **argv);
int tbg_warm_run(const struct tbg_given *opt, int argc, char **argv);

#endif
