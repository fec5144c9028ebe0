/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Health checks: the first worker requests a path from each server at intervals. A
 * server that fails is not used until it answers again.
 */
#ifndef TBG_USERD_PROXY_HEALTH_H
#define TBG_USERD_PROXY_HEALTH_H

#include "serve/worker.h"

/* Called at every tick of every worker. */
void tbg_health_tick(struct tbg_worker *w);

/* Called by fetch.c: the check x has ended. status 0: without an answer. */
void tbg_health_found(struct tbg_transfer *x, unsigned int status);

/* Returns the time limit of each step of a check. A step that takes longer fails the check. */
uint32_t tbg_health_limit_ms(const struct tbg_upstream *u);

#endif
