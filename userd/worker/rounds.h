/* SPDX-License-Identifier: GPL-2.0 */
/* The life of a worker, for main.c, which starts a thread for each. */
#ifndef TBG_USERD_WORKER_ROUNDS_H
#define TBG_USERD_WORKER_ROUNDS_H

struct tbg_worker;

/*
 * Makes the ring of a worker whose listeners and wake_fd are set; only the
 * thread in tbg_worker_run() uses it. 0 or negative errno.
 */
int tbg_worker_open(struct tbg_worker *w);

/* Runs until draining is over. 0 or negative errno. */
int tbg_worker_run(struct tbg_worker *w);

#endif
