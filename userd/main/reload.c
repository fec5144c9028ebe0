// SPDX-License-Identifier: GPL-2.0
/*
 * Replaces sites and logs, waits for the workers, frees the old ones.
 *
 * Sites that answer differently have new ids (config/sites.c), so with the new
 * configuration their old objects are not found. The objects are withdrawn twice:
 * at the exchange, so that the kernel tiers stop using them, and once all workers
 * have moved on, since until then one may still publish under an old id.
 */
#include "main/reload.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "upstream/address.h"
#include "cache/objects.h"
#include "client/clients.h"
#include "gateway/supervise.h"
#include "tiers/bans.h"
#include "tiers/hosts.h"
#include "tiers/rate.h"
#include "tiers/tcb.h"
#include "main/access_log.h"
#include "store/spool.h"
#include "os/clock.h"
#include "os/loop.h"
#include "os/privilege.h"
#include "os/limits.h"
#include "os/service.h"
#include "os/message.h"
#include "serve/server.h"
#include "files/watch.h"
#include "tiers/wire.h"
#include "serve/worker.h"

#define MSG_LEN 1200

/* Objects that workers may still use. */
struct retired {
	LIST_ENTRY(retired) link;
	struct tbg_sites *sites;
	struct tbg_logs *logs;
};

struct tbg_reload {
	struct tbg_server *s;
	char **argv;
	LIST_HEAD(, retired) retired;	/* the newest first */
	bool waiting;			/* for workers to use the new sites */
	bool again;			/* requested again while it waited */
	bool reports;			/* the end of this reload is to be logged */
	pthread_t lookup;		/* looks up addresses of servers */
	bool lookup_runs, read;		/* and read the file afterwards */
	bool moved;			/* some addresses differ from those of the sites */
	atomic_bool lookup_ended;
	uint64_t lookup_ns;		/* time of the last look-up */
	char later[300];		/* options that need a restart */
};

int tbg_reload_open(struct tbg_reload **ret, struct tbg_server *s, char **argv)
{
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	(*ret)->s = s;
	(*ret)->argv = argv;
	(*ret)->lookup_ns = tbg_mono_ns();
	return 0;
}

static bool site_stays(const struct tbg_sites *s, uint32_t id)
{
	for (unsigned int i = 0; i < s->nr; i++)
		if (s->site[i].id == id)
			return true;
	return false;
}

/* Withdraws everything that was published for replaced sites. */
static void withdraw(struct tbg_server *s, const struct tbg_sites *old)
{
	for (unsigned int i = 0; i < old->nr; i++)
		if (!site_stays(s->sites, old->site[i].id))
			tbg_cache_withdraw_below(s->files.cache, old->site[i].id, "", 0);
}

/* Sets lists and limits of clients. 0, or negative errno after a message. */
static int clients_take(struct tbg_server *s, const struct tbg_options *o)
{
	struct tbg_rate_settings rate = {
		.gap_ns = o->request_gap_ns, .burst = o->request_burst,
		.v4_bits = o->client_v4_bits, .v6_bits = o->client_v6_bits,
	};
	struct tbg_tcbs *tcbs = tbg_wire_tcbs(s->wire);
	int err = tbg_bans_file(s->bans, tbg_option_given(o, "deny"), tbg_option_given(o, "allow"));

	tbg_rates_set(s->rates, &rate);
	if (tcbs)
		tbg_tcbs_crowd(tcbs, &s->maps->knob->crowd_most, o->limit_connections,
			       rate.v4_bits << 8 | rate.v6_bits);
	if (err)
		tbg_report("toboggand: deny: %s", strerror(-err));
	return err;
}

int tbg_clients_open(struct tbg_server *s, const uint64_t key[2])
{
	int err = tbg_bans_open(&s->bans, s->maps) ?: tbg_rates_open(&s->rates, s->maps, key);

	s->clients = tbg_clients_make();
	if (!s->clients)
		err = -ENOMEM;
	else if (tbg_wire_tcbs(s->wire))
		tbg_clients_watch(s->clients, tbg_tcbs_crowd_holds, tbg_wire_tcbs(s->wire));
	if (err)
		tbg_report("toboggand: deny: %s", strerror(-err));
	return err ?: clients_take(s, &s->opt);
}

static uint64_t ban_end_ns(void *bans)
{
	return tbg_bans_next_ns(bans);
}

static void on_ban_end(void *bans, uint64_t now_ns)
{
	tbg_bans_tick(bans, now_ns);
}

int tbg_clients_follow(struct tbg_server *s)
{
	return tbg_loop_at(s->loop, ban_end_ns, on_ban_end, s->bans);
}

void tbg_clients_close(struct tbg_server *s)
{
	tbg_bans_close(s->bans);
	tbg_rates_close(s->rates);
	tbg_clients_free(s->clients);
}

/* Numbers that workers read at any time; none depends on another. */
static void numbers_take(struct tbg_server *s, const struct tbg_options *o,
			 const struct tbg_sites *sites)
{
	unsigned int conns = tbg_conn_limit_set(o->connections_max ?: TBG_CONNECTIONS,
					  sites->upstreams_nr);

	tbg_report_level_set(o->log_level);
	__atomic_store_n(&s->opt.header_ms, o->header_ms, __ATOMIC_RELAXED);
	__atomic_store_n(&s->opt.idle_ms, o->idle_ms, __ATOMIC_RELAXED);
	__atomic_store_n(&s->opt.send_ms, o->send_ms, __ATOMIC_RELAXED);
	tbg_spool_total_set(o->body_total);
	__atomic_store_n(&s->opt.drain_ms, o->drain_ms, __ATOMIC_RELAXED);
	__atomic_store_n(&s->opt.header_max, o->header_max, __ATOMIC_RELAXED);
	__atomic_store_n(&s->opt.deny_answer, o->deny_answer, __ATOMIC_RELAXED);
	__atomic_store_n(&s->opt.limit_connections, o->limit_connections, __ATOMIC_RELAXED);
	__atomic_store_n(&s->opt.limit_heads, o->limit_heads, __ATOMIC_RELAXED);
	__atomic_store_n(&s->opt.client_v4_bits, o->client_v4_bits, __ATOMIC_RELAXED);
	__atomic_store_n(&s->opt.client_v6_bits, o->client_v6_bits, __ATOMIC_RELAXED);
	__atomic_store_n(&s->opt.connections_max, conns, __ATOMIC_RELAXED);
	if (s->wire)
		tbg_wire_limits(s->wire, o->idle_ms, o->header_ms);
}

static void exchange(struct tbg_reload *r, struct tbg_sites *sites, struct tbg_logs *logs,
		     struct retired *old)
{
	struct tbg_server *s = r->s;

	old->logs = s->logs;
	tbg_logs_use(s, logs);
	old->sites = (struct tbg_sites *)s->sites;
	tbg_hosts_update(s->maps, tbg_cache_hash_key(s->files.cache), sites, old->sites);
	tbg_server_sites_set(s, sites);
	withdraw(s, old->sites);
	LIST_INSERT_HEAD(&r->retired, old, link);
	r->waiting = true;
	tbg_server_wake(s);
}

static void *lookup_thread(void *arg)
{
	struct tbg_reload *r = arg;

	tbg_privilege_none();
	r->moved |= tbg_addresses_look();
	atomic_store(&r->lookup_ended, true);
	return NULL;
}

static int look_begin(struct tbg_reload *r)
{
	sigset_t all, old;
	int err;

	atomic_store(&r->lookup_ended, false);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&r->lookup, NULL, lookup_thread, r);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	r->lookup_runs = !err;
	if (err)
		tbg_report("toboggand: no thread to look up names: %s", strerror(err));
	return -err;
}

/* Names are only collected: -EINPROGRESS if the reload continues after their look-up. */
static int names_look(struct tbg_reload *r)
{
	int err;

	if (!tbg_addresses_noted())
		return 0;
	err = look_begin(r);
	r->read = !err;
	return err ?: -EINPROGRESS;
}

/* Compares the looked-up names with the sites that were read last. */
static void options_keep(struct tbg_server *s, struct tbg_options *o)
{
	static const char *const logs[] = { "access-log", "access-log-format" };
	struct tbg_scope *top = s->opt.top;

	s->opt.top = o->top;
	o->top = top;
	s->opt.access_log = o->access_log;
	s->opt.log_format = o->log_format;
	for (int i = 0; i < 2; i++) {		/* their text */
		int row = tbg_setting_find(logs[i], strlen(logs[i]));
		char *given = s->opt.given[row];

		s->opt.given[row] = o->given[row];
		o->given[row] = given;
	}
}

/*
 * Reads the file and, if it is valid, applies it, if necessary after the look-up of
 * server addresses. False: it is invalid, messages were logged.
 */
static bool take(struct tbg_reload *r)
{
	struct retired *old = calloc(1, sizeof(*old));
	struct tbg_server *s = r->s;
	struct tbg_sites *sites = NULL;
	struct tbg_options o;
	struct tbg_logs *logs = NULL;
	int err;

	/* as at the start: files that it names need not be accessible to our user */
	tbg_privilege_raise();
	err = tbg_options_parse(&o, r->argv, s->files.roots);
	err = err ?: tbg_options_sites(&o, s->sites, &sites);
	if (!err && !old)
		err = -ENOMEM;
	err = err ?: names_look(r);
	err = err ?: tbg_logs_open(&logs, &o, sites, s->logs);
	tbg_privilege_lower();
	err = err ?: tbg_logs_start(logs);
	err = err ?: tbg_gateway_take(s->gateway, sites);
	if (err) {
		tbg_logs_close(logs);
		tbg_sites_close(sites, NULL, NULL);
		tbg_options_free(&o);
		free(old);
		return err == -EINPROGRESS;
	}
	tbg_options_later(&s->opt, &o, r->later, sizeof(r->later));
	clients_take(s, &o);
	numbers_take(s, &o, sites);
	exchange(r, sites, logs, old);
	r->reports = true;
	r->moved = false;
	options_keep(s, &o);
	tbg_options_free(&o);
	return true;
}

static void read_again(struct tbg_reload *r)
{
	if (take(r))
		return;
	tbg_service_notify("READY=1");
	tbg_report("toboggand: %s: reload failed; keeping the previous configuration",
		r->s->opt.config);
}

void tbg_reload(struct tbg_reload *r)
{
	if (atomic_load(&r->s->draining))
		return;
	if (!r->s->opt.config) {
		tbg_report("toboggand: SIGHUP: nothing to read again; give --config FILE at the start");
		return;
	}
	if (r->waiting) {
		r->again = true;
		return;
	}
	tbg_service_reloading();
	if (r->lookup_runs) {	/* the file is read afterwards */
		r->read = true;
		return;
	}
	tbg_addresses_note();
	read_again(r);
}

/* Rebuilds the same sites with the present addresses of their servers. */
static void addresses_take(struct tbg_reload *r)
{
	struct retired *old = calloc(1, sizeof(*old));
	struct tbg_server *s = r->s;
	struct tbg_sites *sites = NULL;
	struct tbg_logs *logs = NULL;
	int err = old ? 0 : -ENOMEM;

	tbg_privilege_raise();
	err = err ?: tbg_options_sites(&s->opt, s->sites, &sites);
	tbg_privilege_lower();
	err = err ?: tbg_logs_open(&logs, &s->opt, sites, s->logs);
	err = err ?: tbg_gateway_take(s->gateway, sites);
	if (err) {
		tbg_logs_close(logs);
		tbg_warn("toboggand: server names have new addresses, which cannot be used now; trying again");
		tbg_sites_close(sites, NULL, NULL);
		free(old);
		return;
	}
	exchange(r, sites, logs, old);
	r->moved = false;
}

static void lookup_end(struct tbg_reload *r)
{
	pthread_join(r->lookup, NULL);
	r->lookup_runs = false;
	r->lookup_ns = tbg_mono_ns();
	if (r->read) {
		r->read = false;
		read_again(r);
	} else if (r->moved) {
		addresses_take(r);
	}
}

/* Looks up names again while no reload is under way. */
static void lookup_again(struct tbg_reload *r)
{
	uint64_t now_ns = tbg_mono_ns();

	if (!tbg_addresses_again((now_ns - r->lookup_ns) / 1000000000))
		return;
	if (look_begin(r))
		r->lookup_ns = now_ns;
}

static void root_gone(void *arg, int root)
{
	tbg_watch_forget(arg, root);
}

/* Frees sites that are no longer held, see tbg_sites_hold(). */
static void retired_free(struct tbg_reload *r)
{
	struct tbg_server *s = r->s;

	for (struct retired *old = LIST_FIRST(&r->retired), *next; old; old = next) {
		next = LIST_NEXT(old, link);
		if (tbg_logs_end(old->logs))
			old->logs = NULL;
		if (old->logs || tbg_sites_held(old->sites))
			continue;
		LIST_REMOVE(old, link);
		tbg_sites_close(old->sites, root_gone, s->files.watch);
		free(old);
	}
}

void tbg_reload_close(struct tbg_reload *r)
{
	struct retired *old;

	LIST_FOREACH(old, &r->retired, link) {
		tbg_logs_close(old->logs);
		old->logs = NULL;
	}
}

static bool workers_moved(const struct tbg_server *s)
{
	for (unsigned int i = 0; i < s->workers_nr; i++)
		if (atomic_load(&s->workers[i].sites) != s->sites)
			return false;
	return true;
}

static void end_report(struct tbg_reload *r)
{
	if (!r->reports)
		return;
	r->reports = false;
	tbg_service_notify("READY=1");
	tbg_notice("toboggand: %s: reloaded%s%s", r->s->opt.config,
		   *r->later ? "; from the next start on: " : "", r->later);
}

bool tbg_reload_runs(const struct tbg_reload *r)
{
	return r->lookup_runs || !LIST_EMPTY(&r->retired);
}

void tbg_reload_tick(struct tbg_reload *r)
{
	struct tbg_server *s = r->s;

	if (atomic_load(&s->draining))
		return;
	if (r->lookup_runs && atomic_load(&r->lookup_ended))
		lookup_end(r);
	else if (!r->lookup_runs && !r->waiting)
		lookup_again(r);
	if (LIST_EMPTY(&r->retired) || !workers_moved(s))
		return;
	if (r->waiting) {
		withdraw(s, LIST_FIRST(&r->retired)->sites);
		r->waiting = false;
		end_report(r);
	}
	retired_free(r);
	if (!r->again)
		return;
	r->again = false;
	tbg_reload(r);
}
