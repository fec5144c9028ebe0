/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A process that runs one program and, when the program has ended or is to end,
 * kills whatever it has started: all of it becomes the keeper's child in the
 * end, through whatever sessions and forks. Called by cgi.c.
 */
#ifndef TBG_USERD_GATEWAY_KEEPER_H
#define TBG_USERD_GATEWAY_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct tbg_program {
	const char *path, *folder;	/* to execute, and to stand in */
	char *const *argv, *const *envp;
	int proc_fd;			/* of /proc, or -1 */
	uint64_t memory;		/* bytes; these three: 0 is no limit */
	unsigned int cpu_s, processes;
	/* in return */
	pid_t keeper;
	int control;			/* shut it down, or close it: the program ends */
	int in, out, err;		/* its standard streams, non-blocking */
};

/* Negative errno. SIGCHLD must be ignored: nobody waits for keepers. */
int tbg_reaper_start(struct tbg_program *p);

/*
 * Kills the caller's children, as far as /proc tells them, but those spared
 * (NULL: none); how many. Negative: it does not tell.
 */
int tbg_children_kill(int proc_fd, bool (*spared)(pid_t pid));

/*
 * The same and waits, until no child is left: the children of those that are
 * killed become those of a subreaper.
 */
void tbg_children_end(int proc_fd);

/* What can be received from control, once, before its end. */
struct tbg_reaper_report {
	int status;			/* of the program, as of waitpid() */
	int killed;			/* it did not end by itself */
	unsigned int cpu_s;		/* that it has used */
};

#endif
