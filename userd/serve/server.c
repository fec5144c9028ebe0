// SPDX-License-Identifier: GPL-2.0
/*
 * Functions that all parts of the running daemon use: its sites, its counters, and the
 * logging of a request. Any thread.
 */
#include "serve/server.h"

#include <arpa/inet.h>
#include <string.h>
#include <unistd.h>

#include "log/access.h"
#include "log/live.h"
#include "serve/worker.h"
#include "site/forwarded.h"

void tbg_server_user_stats(const struct tbg_server *s,
			   struct tbg_user_stats *ret)
{
	_Atomic uint64_t *sum = (_Atomic uint64_t *)ret;

	memset(ret, 0, sizeof(*ret));
	for (unsigned int i = 0; i < s->workers_nr; i++) {
		const _Atomic uint64_t *one =
			(const _Atomic uint64_t *)&s->workers[i].stats;

		for (size_t j = 0; j < sizeof(*ret) / sizeof(*sum); j++)
			sum[j] += atomic_load_explicit(&one[j], memory_order_relaxed);
	}
}

const struct tbg_metrics *tbg_server_metrics(const struct tbg_server *s, unsigned int nr)
{
	return &s->workers[nr].metrics;
}

const struct tbg_sites *tbg_server_sites_hold(struct tbg_server *s)
{
	const struct tbg_sites *ret;

	pthread_mutex_lock(&s->sites_lock);
	ret = s->sites;
	tbg_sites_hold(ret);
	pthread_mutex_unlock(&s->sites_lock);
	return ret;
}

void tbg_server_sites_set(struct tbg_server *s, const struct tbg_sites *sites)
{
	pthread_mutex_lock(&s->sites_lock);
	s->sites = sites;
	pthread_mutex_unlock(&s->sites_lock);
}

void tbg_server_wake(const struct tbg_server *s)
{
	uint64_t one = 1;

	for (unsigned int i = 0; i < s->workers_nr; i++)
		if (write(s->workers[i].wake_fd, &one, sizeof(one)) < 0)
			return;
}

int tbg_server_root(const struct tbg_server *s)
{
	const struct tbg_sites *sites = s->sites;
	const struct tbg_site *site = sites->fallback;

	return site->locations[site->locations_nr - 1].root;
}

/* Adds the facts that depend on the site, see tbg_log_needs_site(). */
static void site_facts_add(const struct tbg_sites *sites, struct tbg_log_record *r)
{
	static _Thread_local struct tbg_forwarded forwarded;
	char peer[INET6_ADDRSTRLEN];

	tbg_forwarded_read(&forwarded, sites, r->req, r->req_len, tbg_log_peer(r, peer));
	if (*forwarded.client)
		r->client = forwarded.client;
	if (r->request_id)
		return;
	r->request_id = forwarded.id;
	r->request_id_len = strlen(forwarded.id);
}

bool tbg_server_logs(const struct tbg_server *s)
{
	return s->logging || tbg_live_watched();
}

void tbg_server_log(const struct tbg_server *s, const struct tbg_sites *sites,
		    const struct tbg_site *site, struct tbg_log_record *r)
{
	bool live = tbg_live_watched();
	struct tbg_log *log = site->log_path ? site->log : s->log;

	if (!log && !live)
		return;
	if (live || tbg_log_needs_site(log))
		site_facts_add(sites, r);
	tbg_log_write(log, r);
	if (live)
		tbg_live_write(site->name, r);
}
