/* SPDX-License-Identifier: GPL-2.0 */
/* What rounds.c and accept.c call of each other. For these two alone. */
#ifndef TBG_USERD_WORKER_INTERNAL_H
#define TBG_USERD_WORKER_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/worker.h"

#define TICK_MS		125

/* accept.c */
/*
 * When all places are taken, closes idle connections in favour of those that wait
 * here or at other workers. One pass over all connections serves for a while: it
 * takes 1 ms for 50,000.
 */
void tbg_worker_give_way(struct tbg_worker *w, unsigned int wanted);
/* How many connections wait here, or at other workers (counted one each). */
unsigned int tbg_worker_waiting_nr(const struct tbg_worker *w);
/*
 * Serves connections that have waited, then starts accepting where it is not
 * under way. Even when all places are taken, each listener accepts one, so
 * that the worker knows that connections wait.
 */
void tbg_worker_accept_resume(struct tbg_worker *w);
void tbg_worker_accept_event(struct tbg_worker *w, const struct io_uring_cqe *cqe);
/* Serves all that are connected by now: closing the listener would reset them. */
void tbg_worker_accept_rest(struct tbg_worker *w, struct tbg_listener_fd *l);

#endif
