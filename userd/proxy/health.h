/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Health checks: the first worker asks each server for a path at intervals, and
 * one that does not answer well rests until it does.
 */
#ifndef TBG_USERD_PROXY_HEALTH_H
#define TBG_USERD_PROXY_HEALTH_H

#include "serve/worker.h"

/* On every tick of every worker. */
void tbg_health_tick(struct tbg_worker *w);

/* fetch.c's: the check that x is, has ended. status 0: without an answer. */
void tbg_health_found(struct tbg_transfer *x, unsigned int status);

/* For each step of a check: what takes longer is judged, and the next one begins. */
uint32_t tbg_health_limit_ms(const struct tbg_upstream *u);

#endif
