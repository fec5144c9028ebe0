// SPDX-License-Identifier: GPL-2.0
/*
 * A log is opened once for all hosts that write to it, and stays open over a reload
 * that does not change it: sets of logs share it. Workers log by w->site, the control
 * thread logs hits of kernel tiers; both look up client and request id if the format
 * needs them.
 */
#include "main/access_log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "log/access.h"
#include "log/hits.h"
#include "log/line.h"
#include "log/live.h"
#include "main/privileged.h"
#include "serve/server.h"
#include "os/message.h"
#include "site/forwarded.h"

#define MSG_LEN		512

/* An open log. */
struct open_log {
	struct tbg_log *log;
	char *path, *format;	/* as configured */
	unsigned int sets;	/* number of sets that contain it */
	bool started;
};

struct tbg_logs {
	struct open_log *logs[TBG_LOGS_MAX];
	unsigned int nr;
	struct open_log *main;	/* the daemon's; NULL: off */
};

static void log_free(struct open_log *o)
{
	tbg_log_close(o->log);
	free(o->path);
	free(o->format);
	free(o);
}

static struct open_log *find(const struct tbg_logs *l, const char *path)
{
	for (unsigned int i = 0; l && i < l->nr; i++)
		if (!strcmp(l->logs[i]->path, path))
			return l->logs[i];
	return NULL;
}

static struct open_log *open_new(const char *path, const char *format, char msg[MSG_LEN])
{
	struct open_log *o = calloc(1, sizeof(*o));
	enum tbg_log_format kind = TBG_LOG_COMBINED;

	snprintf(msg, MSG_LEN, "%s: out of memory", path);
	if (!o)
		return NULL;
	tbg_log_format_find(format, &kind, NULL, 0);
	o->path = strdup(path);
	o->format = strdup(format);
	if (o->path && o->format &&
	    !tbg_log_open(&o->log, path, kind, kind == TBG_LOG_CUSTOM ? format : NULL,
			  tbg_privileged_log, msg, MSG_LEN))
		return o;
	log_free(o);
	return NULL;
}

/*
 * Finds or opens the log with this path in l. The options have checked that there are
 * not too many, and that each has one format. NULL: see msg.
 */
static struct open_log *take(struct tbg_logs *l, const char *path, const char *format,
			   const struct tbg_logs *before, char msg[MSG_LEN])
{
	struct open_log *o = find(l, path);

	if (o)
		return o;
	o = find(before, path);
	if (!o || strcmp(o->format, format))
		o = open_new(path, format, msg);
	if (!o)
		return NULL;
	o->sets++;
	return l->logs[l->nr++] = o;
}

static int sites_take(struct tbg_logs *l, const struct tbg_options *o, struct tbg_sites *sites,
		      const struct tbg_logs *before)
{
	char msg[MSG_LEN];

	for (unsigned int i = 0; i < sites->nr; i++) {
		struct tbg_site *site = &sites->site[i];
		struct open_log *own;

		site->log = NULL;
		if (!site->log_path || !*site->log_path)
			continue;
		own = take(l, site->log_path, site->log_format ?: o->log_format, before, msg);
		if (!own) {
			tbg_option_log_at(o, site->log_line, "access-log", msg);
			return -EINVAL;
		}
		site->log = own->log;
	}
	return 0;
}

int tbg_logs_open(struct tbg_logs **ret, const struct tbg_options *o, struct tbg_sites *sites,
		  const struct tbg_logs *before)
{
	struct tbg_logs *l = calloc(1, sizeof(*l));
	char msg[MSG_LEN];
	int err = 0;

	if (!l)
		return -ENOMEM;
	if (o->access_log)
		l->main = take(l, o->access_log, o->log_format, before, msg);
	if (o->access_log && !l->main) {
		tbg_option_log(o, "access-log", 0, "%s", msg);
		err = -EINVAL;
	}
	err = err ?: sites_take(l, o, sites, before);
	if (!err)
		*ret = l;
	else
		tbg_logs_close(l);
	return err;
}

int tbg_logs_start(struct tbg_logs *l)
{
	int err = 0;

	for (unsigned int i = 0; i < l->nr && !err; i++) {
		if (l->logs[i]->started)
			continue;
		err = tbg_log_start(l->logs[i]->log);
		l->logs[i]->started = !err;
	}
	return err;
}

void tbg_logs_use(struct tbg_server *s, struct tbg_logs *l)
{
	bool had = s->logs && s->logs->nr, has = l && l->nr;

	tbg_hits_read_all();
	if (has && !had)
		tbg_hits_want();
	else if (had && !has)
		tbg_hits_unwant();
	s->logs = l;
	s->log = l && l->main ? l->main->log : NULL;
	s->logging = has;
}

void tbg_logs_flush(const struct tbg_logs *l)
{
	tbg_hits_read();
	for (unsigned int i = 0; i < l->nr; i++)
		tbg_log_flush(l->logs[i]->log);
}

void tbg_logs_reopen(const struct tbg_logs *l)
{
	tbg_hits_read_all();
	for (unsigned int i = 0; i < l->nr; i++)
		tbg_log_reopen(l->logs[i]->log);	/* logs its errors */
}

bool tbg_logs_end(struct tbg_logs *l)
{
	if (!l)
		return true;
	while (l->nr) {
		struct open_log *o = l->logs[l->nr - 1];

		if (o->sets == 1 && !tbg_log_stop(o->log))
			return false;
		l->nr--;
		if (!--o->sets)
			log_free(o);
	}
	free(l);
	return true;
}

void tbg_logs_close(struct tbg_logs *l)
{
	/* stop all of them before waiting for one */
	for (unsigned int i = 0; l && i < l->nr; i++)
		if (l->logs[i]->sets == 1)
			tbg_log_stop(l->logs[i]->log);
	while (l && l->nr) {
		struct open_log *o = l->logs[--l->nr];

		if (!--o->sets)
			log_free(o);
	}
	free(l);
}

/* --- a request ------------------------------------------------------------ */

void tbg_logs_hit(void *arg, struct tbg_log_record *r)
{
	const struct tbg_server *s = arg;
	const struct tbg_sites *sites = s->sites;

	tbg_server_log(s, sites, sites->logs || tbg_live_watched() ?
		       tbg_forwarded_site(sites, r->req, r->req_len) : sites->fallback, r);
}
