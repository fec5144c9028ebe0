/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a worker's rounds (rounds.c) and its accepting (accept.c) call of each other.
 * For these two alone.
 */
#ifndef TBG_USERD_WORKER_INTERNAL_H
#define TBG_USERD_WORKER_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/worker.h"

#define TICK_MS		125

/* accept.c */
/*
 * With all room taken, connections that rest give way to those that wait, ours or
 * another worker's. One look at all of them is enough for a while: it takes 1 ms for
 * 50,000.
 */
void tbg_worker_give_way(struct tbg_worker *w, unsigned int wanted);
/* How many wait, here or (one by one) elsewhere. */
unsigned int tbg_worker_waiting_nr(const struct tbg_worker *w);
/*
 * Serves who has waited, then starts what does not accept. With all room taken
 * each listener still accepts one, so that a worker knows when somebody waits.
 */
void tbg_worker_accept_resume(struct tbg_worker *w);
void tbg_worker_accept_event(struct tbg_worker *w, const struct io_uring_cqe *cqe);
/* Whoever is connected by now is served: closing the listener would reset them. */
void tbg_worker_accept_rest(struct tbg_worker *w, struct tbg_listener_fd *l);

#endif
