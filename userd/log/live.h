/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shows requests to watchers (`toboggan log`) as they are answered: a line of JSON for
 * each that passes the watcher's filter. A slow watcher loses lines, which are counted;
 * threads that write lines never wait.
 */
#ifndef TBG_USERD_LOG_LIVE_H
#define TBG_USERD_LOG_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/event.h"

#define TBG_LIVE_MAX	 8		/* limit of watchers */
#define TBG_LIVE_HOST	 256		/* bytes of a name */
#define TBG_LIVE_STATUS	 600

struct tbg_log_record;
struct tbg_watcher;

/* A filter; empty: all requests pass. */
struct tbg_live_filter {
	char host[TBG_LIVE_HOST];	/* as made by tbg_host_name(): of a site or a request */
	bool tiers, tier[TBG_TIER_NR];
	bool statuses, status[TBG_LIVE_STATUS];
	uint64_t slow_ns;		/* minimum duration */
	char path[TBG_LIVE_HOST];	/* prefix of the target */
};

/*
 * Sets one of "host", "tier", "status", "slow" and "path" from a text such as
 * "4xx,502", "wire,user" or "100ms". Returns NULL, or a description of valid values.
 */
const char *tbg_live_filter_set(struct tbg_live_filter *f, const char *name, const char *text);

/* Returns whether there are watchers. Any thread. */
bool tbg_live_watched(void);

/* Shows a request of a site; its client and id must be set. Any thread. */
void tbg_live_write(const char *site, const struct tbg_log_record *r);

/* Begins to watch. NULL: no memory, or too many watchers. */
struct tbg_watcher *tbg_live_begin(const struct tbg_live_filter *f);
void tbg_live_end(struct tbg_watcher *w);

/*
 * Returns the lines since the last call, which the caller frees, and the number of lost
 * ones. NULL: none.
 */
char *tbg_live_take(struct tbg_watcher *w, size_t *ret_len, uint64_t *ret_lost);

#endif
