/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The keeper: a process that runs one program and, when the program has ended
 * or must end, kills everything that it has started. As a subreaper it becomes
 * the parent of all these processes, whatever sessions and forks they use.
 * Called by cgi.c.
 */
#ifndef TBG_USERD_GATEWAY_REAPER_H
#define TBG_USERD_GATEWAY_REAPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct tbg_program {
	const char *path, *folder;	/* to execute, and its working folder */
	char *const *argv, *const *envp;
	int proc_fd;			/* of /proc, or -1 */
	uint64_t memory;		/* bytes; for these three, 0 is no limit */
	unsigned int cpu_s, processes;
	/* results */
	pid_t keeper;
	int control;			/* shut down or closed by the caller: ends the program */
	int in, out, err;		/* its standard streams, non-blocking */
};

/* 0 or negative errno. SIGCHLD must be ignored: keepers are not waited for. */
int tbg_reaper_start(struct tbg_program *p);

/*
 * Kills the caller's children that /proc shows, except those spared (NULL:
 * none). Returns their number; negative: /proc is not readable.
 */
int tbg_children_kill(int proc_fd, bool (*spared)(pid_t pid));

/*
 * The same, repeated until no child is left: children of killed processes
 * become children of the subreaper.
 */
void tbg_children_end(int proc_fd);

/* Received once from control, before its end. */
struct tbg_reaper_report {
	int status;			/* of the program, as from waitpid() */
	int killed;			/* it did not end by itself */
	unsigned int cpu_s;		/* CPU time that it has used */
};

#endif
