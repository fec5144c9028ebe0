/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The open access logs. A request is written to the log of its host, else to the
 * daemon's. For the start and the reload, in the control thread.
 */
#ifndef TBG_USERD_MAIN_ACCESS_LOG_H
#define TBG_USERD_MAIN_ACCESS_LOG_H

#include <stdbool.h>

struct tbg_logs;
struct tbg_options;
struct tbg_server;
struct tbg_sites;

/*
 * Opens the logs that o and the sites name, each once; unchanged ones are taken from
 * the previous set. Sets the log of each site. On error returns negative errno after a
 * message, and leaves nothing open.
 */
int tbg_logs_open(struct tbg_logs **ret, const struct tbg_options *o, struct tbg_sites *sites,
		  const struct tbg_logs *before);
/* Starts their writers, once privileges are dropped. 0, or negative errno after a message. */
int tbg_logs_start(struct tbg_logs *l);

/* Makes them the logs of s. Hits received until now go to the previous ones. */
void tbg_logs_use(struct tbg_server *s, struct tbg_logs *l);

void tbg_logs_flush(const struct tbg_logs *l);
void tbg_logs_reopen(const struct tbg_logs *l);

/*
 * Closes logs that no other set has; nothing is written to them any more. False: one
 * is still flushing, call again. NULL is allowed.
 */
bool tbg_logs_end(struct tbg_logs *l);
/* The same, but waits. */
void tbg_logs_close(struct tbg_logs *l);

/* Callback of hits.h for hits of kernel tiers; arg: the server. */
struct tbg_log_record;
void tbg_logs_hit(void *arg, struct tbg_log_record *r);

#endif
