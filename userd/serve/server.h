/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The running daemon: the state that its parts share, made by main.c. Read-only while
 * workers run, except for what a reload changes in the control thread: sites and log,
 * which are atomic, logs, and those numbers of opt that workers read at each use
 * (numbers_take() of reload.c).
 */
#ifndef TBG_USERD_SERVE_SERVER_H
#define TBG_USERD_SERVE_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/slots.h"
#include "config/options.h"
#include "files/files.h"
#include "site/site.h"
#include "tiers/refusal.h"
#include "upstream/pool_command.h"

struct tbg_user_stats {			/* one per worker, added up by readers */
	_Atomic uint64_t accepted, closed, connections;
	_Atomic uint64_t requests, hits, bytes_sent;
	_Atomic uint64_t status[6];	/* [n]: number of nxx responses */
	_Atomic uint64_t timeouts, refused, bad;
	_Atomic uint64_t refusals[TBG_REFUSAL_NR];	/* by reason */
};

struct tbg_admin;
struct tbg_log_record;
struct tbg_logs;
struct tbg_bans;
struct tbg_metrics;
struct tbg_clients;
struct tbg_rates;

struct tbg_server {
	struct tbg_options opt;
	struct tbg_plan plan;
	struct tbg_files files;
	const struct tbg_sites *_Atomic sites;	/* of the current configuration */
	struct tbg_wire *wire;		/* NULL: off */
	char wire_off[256];		/* reason if wire is off */
	struct tbg_sock *sock;		/* NULL: off */
	char sock_off[256];		/* reason if sock is off */
	const char *listener_left[TBG_LISTENER_MAX];	/* why not wire's; NULL: it is */
	const struct tbg_maps *maps;	/* NULL without kernel tiers */
	struct tbg_bans *bans;		/* denied clients */
	struct tbg_clients *clients;	/* connections and unfinished heads per client */
	struct tbg_rates *rates;	/* request rate per client */
	struct tbg_store *store;	/* responses of upstreams */
	char via[32];			/* our name in Via of requests */
	char mark[TBG_POOL_COMMAND_MARK];	/* identifies fetches of modules */
	struct tbg_gateway *gateway;	/* for programs and modules */
	struct tbg_aside *aside;	/* threads for long tasks */
	struct tbg_clock *clock;
	struct tbg_log *_Atomic log;	/* of hosts without a log of their own; NULL: off */
	struct tbg_logs *logs;		/* all open logs, see main/access_log.h */
	atomic_bool logging;		/* there are any */
	struct tbg_control *control;
	struct tbg_admin *admin;	/* NULL: off */
	_Atomic uint64_t beat_ns;	/* set by the control thread every 100 ms */
	struct tbg_loop *loop;
	struct tbg_worker *workers;
	unsigned int workers_nr;
	uint64_t started_ns;
	atomic_bool draining;
	pthread_mutex_t sites_lock;	/* for threads other than workers that read `sites` */
};

/* Makes workers begin a round now rather than at their next tick. */
void tbg_server_wake(const struct tbg_server *s);

/* Returns the index of the default root. */
int tbg_server_root(const struct tbg_server *s);

/* Returns the metrics of one worker. */
const struct tbg_metrics *tbg_server_metrics(const struct tbg_server *s, unsigned int nr);

/*
 * Returns the current sites with a reference, for threads other than workers. See
 * tbg_sites_put().
 */
const struct tbg_sites *tbg_server_sites_hold(struct tbg_server *s);

/* Replaces the sites; references to the old ones stay valid. Called by the control thread. */
void tbg_server_sites_set(struct tbg_server *s, const struct tbg_sites *sites);

/* Returns whether tbg_server_log() has any effect: then it needs the client and the head. */
bool tbg_server_logs(const struct tbg_server *s);

/* Logs a request of this site and shows it to live viewers. Any thread; never blocks. */
void tbg_server_log(const struct tbg_server *s, const struct tbg_sites *sites,
		    const struct tbg_site *site, struct tbg_log_record *r);

void tbg_server_user_stats(const struct tbg_server *s,
			   struct tbg_user_stats *ret);

#endif
