/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Requests as they are answered, for who watches them (`toboggan log`): a line of JSON
 * each, of those that a filter lets through. A watcher that is too slow loses lines,
 * which are counted; nobody who writes one ever waits.
 */
#ifndef TBG_USERD_LOG_LIVE_H
#define TBG_USERD_LOG_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/event.h"

#define TBG_LIVE_MAX	 8		/* watchers at a time */
#define TBG_LIVE_HOST	 256		/* bytes of a name */
#define TBG_LIVE_STATUS	 600

struct tbg_log_record;
struct tbg_watcher;

/* Empty: all. */
struct tbg_live_filter {
	char host[TBG_LIVE_HOST];	/* as tbg_host_name() makes it: a site's, or a request's */
	bool tiers, tier[TBG_TIER_NR];
	bool statuses, status[TBG_LIVE_STATUS];
	uint64_t slow_ns;		/* took so long, or longer */
	char path[TBG_LIVE_HOST];	/* what the target begins with */
};

/*
 * Sets one of "host", "tier", "status", "slow" and "path" from a text, such as "4xx,502"
 * or "wire,user" or "100ms". NULL, or what would have been accepted.
 */
const char *tbg_live_filter_set(struct tbg_live_filter *f, const char *name, const char *text);

/* Whether anybody watches. Any thread. */
bool tbg_live_watched(void);

/* A request of a site, with client and id found. Any thread. */
void tbg_live_write(const char *site, const struct tbg_log_record *r);

/* Begins to watch; NULL: no memory, or as many as there may be. */
struct tbg_watcher *tbg_live_begin(const struct tbg_live_filter *f);
void tbg_live_end(struct tbg_watcher *w);

/* Whole lines since the last call, to be freed, and how many were lost; NULL: none. */
char *tbg_live_take(struct tbg_watcher *w, size_t *ret_len, uint64_t *ret_lost);

#endif
