/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which access logs are open, and which of them a request is written to: that of its
 * host, or else the daemon's. For the start and the reload, in the control thread.
 */
#ifndef TBG_MAIN_ACCESS_LOG_H
#define TBG_MAIN_ACCESS_LOG_H

#include <stdbool.h>

struct tbg_logs;
struct tbg_options;
struct tbg_server;
struct tbg_sites;

/*
 * The logs that o and the sites name, each once: those of before that are the same, the
 * others opened. Sites are given theirs. Negative errno, which it has told; of an error
 * nothing stays.
 */
int tbg_logs_open(struct tbg_logs **ret, const struct tbg_options *o, struct tbg_sites *sites,
		  const struct tbg_logs *before);
/* Starts their writers, after privileges are what they are to be. Negative errno, told. */
int tbg_logs_start(struct tbg_logs *l);

/* From now on these, for s. What hits came until now are those of before. */
void tbg_logs_use(struct tbg_server *s, struct tbg_logs *l);

void tbg_logs_flush(const struct tbg_logs *l);
void tbg_logs_reopen(const struct tbg_logs *l);

/*
 * Ends those that no other set has. False: one still writes, the rest is for the next
 * call. Nobody writes to them any more. NULL allowed.
 */
bool tbg_logs_end(struct tbg_logs *l);
/* The same, waited for. */
void tbg_logs_close(struct tbg_logs *l);

/* Hits of kernel tiers, as hits.h calls it; arg: the server. */
struct tbg_log_record;
void tbg_logs_hit(void *arg, struct tbg_log_record *r);

#endif
