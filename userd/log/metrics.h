/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters of answered requests for monitoring: those of a worker, and the sums over
 * workers and kernel tiers. A request is counted where its access-log line is made,
 * with or without a log.
 */
#ifndef TBG_USERD_LOG_METRICS_H
#define TBG_USERD_LOG_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/event.h"
#include "abi/metric.h"

struct tbg_maps;

/* Method labels. OTHER: any other token. X(name) */
#define TBG_METRIC_METHOD_LIST(X) \
	X(GET) X(HEAD) X(POST) X(PUT) X(PATCH) X(DELETE) X(OPTIONS) X(CONNECT) X(TRACE)

enum tbg_metric_method {
#define X(name) TBG_METRIC_##name,
	TBG_METRIC_METHOD_LIST(X)
#undef X
	TBG_METRIC_METHOD_OTHER,
	TBG_METRIC_METHOD_NR
};

/* The counters of one worker, which alone writes them; readers may see additions late. */
struct tbg_metrics {
	_Atomic uint64_t bucket[TBG_METRIC_BUCKETS];
	_Atomic uint64_t took_ns;
	_Atomic uint64_t method[TBG_METRIC_METHOD_NR];
	_Atomic uint64_t code[TBG_METRIC_CODES];
	struct {
		_Atomic uint64_t requests, body, status[6];
	} site[TBG_METRIC_SITES];
};

/* Returns the method at the start of a request's head. */
enum tbg_metric_method tbg_metric_method(const char *req, size_t len);
const char *tbg_metric_method_name(enum tbg_metric_method method);

/* Counts a request. vhost: the site's id. Called in the worker's thread. */
void tbg_metrics_count(struct tbg_metrics *m, uint32_t vhost,
		       enum tbg_metric_method method, unsigned int status,
		       uint64_t body, uint64_t took_ns);

/* Sums over a tier, and over each site in it. */
struct tbg_metric_sum {
	uint64_t bucket[TBG_METRIC_BUCKETS];
	uint64_t took_ns;
	uint64_t method[TBG_METRIC_METHOD_NR];
	uint64_t code[TBG_METRIC_CODES];
	struct tbg_metric_site site[TBG_METRIC_SITES];
};

/* Adds a worker's counters. */
void tbg_metrics_add(struct tbg_metric_sum *to, const struct tbg_metrics *m);

/*
 * Adds the counters of a kernel tier. sites_nr: reads sites below this index, and
 * TBG_METRIC_OTHER. Returns 0 or a negative errno.
 */
int tbg_metrics_add_kernel(struct tbg_metric_sum *to, const struct tbg_maps *maps,
			   enum tbg_tier tier, unsigned int sites_nr);

#endif
