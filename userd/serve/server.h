/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The running daemon: what its parts share, made by main.c. Read-only once
 * workers run, but for what a reload changes, in the control thread: sites and
 * log, which are atomics, logs, and the numbers of opt that workers read as
 * they go (numbers_take() of reload.c).
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

struct tbg_user_stats {			/* one per worker, summed by readers */
	_Atomic uint64_t accepted, closed, connections;
	_Atomic uint64_t requests, hits, bytes_sent;
	_Atomic uint64_t status[6];	/* [n]: nxx */
	_Atomic uint64_t timeouts, refused, bad;
	_Atomic uint64_t refusals[TBG_REFUSAL_NR];	/* of clients */
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
	const struct tbg_sites *_Atomic sites;	/* of the configuration now */
	struct tbg_wire *wire;		/* NULL: off */
	char wire_off[256];		/* why wire is off, if it is */
	struct tbg_sock *sock;		/* NULL: off */
	char sock_off[256];		/* why sock is off, if it is */
	const struct tbg_maps *maps;	/* NULL without kernel tiers */
	struct tbg_bans *bans;		/* clients that are denied */
	struct tbg_clients *clients;	/* and what each has at once */
	struct tbg_rates *rates;	/* and how often each may ask */
	struct tbg_store *store;	/* of what upstreams answer */
	char via[32];			/* our name in Via of requests */
	char mark[TBG_POOL_COMMAND_MARK];	/* of modules' fetches */
	struct tbg_gateway *gateway;	/* of programs and modules */
	struct tbg_aside *aside;	/* what takes a worker too long */
	struct tbg_clock *clock;
	struct tbg_log *_Atomic log;	/* of hosts that have none of their own; NULL: off */
	struct tbg_logs *logs;		/* all that are open, see main/access_log.h */
	atomic_bool logging;		/* there are any */
	struct tbg_control *control;
	struct tbg_admin *admin;	/* NULL: off */
	_Atomic uint64_t beat_ns;	/* of the control thread, every 100 ms */
	struct tbg_loop *loop;
	struct tbg_worker *workers;
	unsigned int workers_nr;
	uint64_t started_ns;
	atomic_bool draining;
	pthread_mutex_t sites_lock;	/* of who takes sites without being a worker */
};

/* Workers begin a round now rather than with their next tick. */
void tbg_server_wake(const struct tbg_server *s);

/* Number of the root of all that no host and no location has. */
int tbg_server_root(const struct tbg_server *s);

/* Of one worker. */
const struct tbg_metrics *tbg_server_metrics(const struct tbg_server *s, unsigned int nr);

/* The sites of now, held: for threads that are no workers. See tbg_sites_put(). */
const struct tbg_sites *tbg_server_sites_hold(struct tbg_server *s);

/* Exchanges them: what others hold stays. The control thread. */
void tbg_server_sites_set(struct tbg_server *s, const struct tbg_sites *sites);

/* Whether anything comes of tbg_server_log(): then it wants the client and the head. */
bool tbg_server_logs(const struct tbg_server *s);

/* A request of this site's, for its log and whoever watches. Any thread; never blocks. */
void tbg_server_log(const struct tbg_server *s, const struct tbg_sites *sites,
		    const struct tbg_site *site, struct tbg_log_record *r);

void tbg_server_user_stats(const struct tbg_server *s,
			   struct tbg_user_stats *ret);

#endif
