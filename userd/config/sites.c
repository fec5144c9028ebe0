// SPDX-License-Identifier: GPL-2.0
/*
 * Makes a struct tbg_sites from a configuration: first the upstreams, which
 * locations name, then a site for each host. Called for each reading; a site
 * whose answers stay the same must keep its id, or its objects would be lost.
 */
#include "config/build.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/media_types.h"
#include "os/units.h"


/* See sites_make(): this and the following settings concern the site or all sites. */
bool tbg_alias_set(struct tbg_target *t, const char *v)
{
	return tbg_host_valid(v);
}

bool tbg_default_set(struct tbg_target *t, const char *v)
{
	return tbg_value_bool(v, &t->fallback);
}

bool tbg_media_types_set(struct tbg_target *t, const char *v)
{
	static char why[TBG_MIME_WHY];

	if (!t->check_only)
		return true;
	t->why = why;
	return !tbg_mime_file_check(v, why);
}

bool tbg_types_set(struct tbg_target *t, const char *v)
{
	return tbg_mime_line_valid(v);
}

/* --- which sites stay what they were ------------------------------------- */

static void scope_print(FILE *f, const struct tbg_scope *scope)
{
	fprintf(f, "%d %s{\n", scope->kind, scope->title);
	for (unsigned int i = 0; i < scope->settings_nr; i++) {
		const struct tbg_setting *s = &scope->settings[i];
		const struct tbg_setting_row *row = tbg_setting_row(s->row);

		/* names, log and trusted proxies do not affect the content of answers */
		if (!strcmp(row->name, "alias") || !strcmp(row->name, "default") ||
		    row->object == TBG_OBJECT_OPTIONS || tbg_setting_upstreams(s))
			continue;
		fprintf(f, "%s\n", row->name);
		for (unsigned int j = 0; j < s->values_nr; j++)
			fprintf(f, "=%s\n", s->values[j]);
	}
	for (unsigned int i = 0; i < scope->below_nr; i++)
		if (!(scope->below[i]->kind & (TBG_SCOPE_HOST | TBG_SCOPE_UPSTREAM)))
			scope_print(f, scope->below[i]);
	fprintf(f, "}\n");
}

/* Computed once for all sites: there may be ten thousand. */
static int around_print(struct tbg_build *m)
{
	size_t len;
	FILE *f = open_memstream(&m->around, &len);

	if (!f)
		return -ENOMEM;
	scope_print(f, m->top);
	fprintf(f, "%llx\n", (unsigned long long)tbg_mime_print(m->sites->mime));
	fclose(f);
	return m->around ? 0 : -ENOMEM;
}

/* Roots and upstreams count by id: the same text may now mean another one. */
static int site_print(struct tbg_build *m, struct tbg_site *site,
		      const struct tbg_scope *host)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return -ENOMEM;
	fputs(m->around, f);
	if (host)
		scope_print(f, host);
	for (unsigned int i = 0; i < site->locations_nr; i++)
		fprintf(f, "%d %u %d\n", site->locations[i].root,
			site->locations[i].upstream ? site->locations[i].upstream->id : 0,
			site->locations[i].clients.nr > 0);
	fclose(f);
	site->print = text ? tbg_sites_text(m->sites, text) : NULL;
	free(text);
	return site->print ? 0 : -ENOMEM;
}

/*
 * A site keeps its number as long as the daemon runs; numbers are shared only when all
 * are used.
 */
static unsigned int number_give(struct tbg_sites *s, const char *name)
{
	unsigned int nr = 0;

	while (nr < s->numbered_nr && strcmp(s->numbered[nr], name))
		nr++;
	if (nr < s->numbered_nr || nr == TBG_METRIC_OTHER)
		return nr;
	s->numbered[nr] = tbg_sites_text(s, name);
	if (!s->numbered[nr])
		return TBG_METRIC_OTHER;
	s->numbered_nr++;
	return nr;
}

static void numbers_copy(struct tbg_sites *s, const struct tbg_sites *old)
{
	for (unsigned int i = 0; i < old->numbered_nr; i++) {
		s->numbered[i] = tbg_sites_text(s, old->numbered[i]);
		if (!s->numbered[i])
			return;
		s->numbered_nr++;
	}
}

static void ids_give(struct tbg_sites *s, const struct tbg_sites *old)
{
	s->next_id = old ? old->next_id : 0;
	if (old)
		numbers_copy(s, old);
	for (unsigned int i = 0; i < s->nr; i++) {
		const struct tbg_site *same = NULL;

		/* usually it is the one at the same index */
		for (unsigned int j = 0; old && j < old->nr && !same; j++) {
			const struct tbg_site *was = &old->site[(i + j) % old->nr];

			if (!strcmp(was->name, s->site[i].name) &&
			    !strcmp(was->print, s->site[i].print))
				same = was;
		}
		s->site[i].id = same ? same->id :
			s->next_id++ << 8 | number_give(s, s->site[i].name);
	}
}

/* --- hosts --------------------------------------------------------------- */

static int host_name_add(struct tbg_build *m, struct tbg_site *site,
			 const struct tbg_scope *host, const char *name)
{
	if (tbg_sites_host(m->sites, name, site))
		return 0;
	return tbg_build_wrong(m, host->line, "host \"%.100s\": \"%.100s\" is another host's name already, or one more than %d; expected each name once",
				host->title, name, TBG_HOSTS_MAX);
}

static int site_names(struct tbg_build *m, struct tbg_site *site,
		      const struct tbg_scope *host)
{
	const struct tbg_setting *s = tbg_setting_of(host, "alias");
	int err = host_name_add(m, site, host, host->title);

	for (unsigned int i = 0; s && i < s->values_nr && !err; i++)
		err = host_name_add(m, site, host, s->values[i]);
	s = tbg_setting_of(host, "default");
	if (!err && s)
		tbg_value_bool(s->values[0], &site->fallback);
	if (err || !site->fallback)
		return err;
	if (!m->sites->fallback) {
		m->sites->fallback = site;
		return 0;
	}
	return tbg_build_wrong(m, host->line, "host \"%.100s\": \"%.100s\" is the default already; expected one default",
				host->title, m->sites->fallback->name);
}

/* Its own access log, if any: main/access_log.c opens it. */
static int site_log(struct tbg_build *m, struct tbg_site *site, const struct tbg_scope *host)
{
	const struct tbg_setting *path = tbg_setting_of(host, "access-log");
	const struct tbg_setting *format = tbg_setting_of(host, "access-log-format");

	if (format && !path)
		return tbg_build_wrong(m, format->line, "access-log-format \"%.100s\": expected an access-log beside it in host \"%.100s\"",
				       format->values[0], host->title);
	if (!path)
		return 0;
	m->sites->logs = true;
	site->log_line = path->line;
	site->log_path = tbg_sites_text(m->sites, strcmp(path->values[0], "off") ?
					path->values[0] : "");
	if (format)
		site->log_format = tbg_sites_text(m->sites, format->values[0]);
	return site->log_path && (!format || site->log_format) ? 0 : -ENOMEM;
}

static int site_make(struct tbg_build *m, const struct tbg_scope *host)
{
	struct tbg_site *site = &m->sites->site[m->sites->nr++];
	int err;

	site->sites = m->sites;
	site->name = tbg_sites_text(m->sites, host ? host->title : "");
	if (!site->name)
		return -ENOMEM;
	err = host ? site_names(m, site, host) ?: site_log(m, site, host) : 0;
	err = err ?: tbg_site_locations(m, site, host);
	return err ?: site_print(m, site, host);
}

static int mime_make(struct tbg_build *m)
{
	const struct tbg_setting *file = tbg_setting_of(m->top, "media-types");
	const struct tbg_setting *more = tbg_setting_of(m->top, "types");

	return tbg_mime_open(&m->sites->mime, file ? file->values[0] : NULL,
			     more ? more->values : NULL,
			     more ? more->values_nr : 0);
}

static int sites_make(struct tbg_build *m)
{
	const struct tbg_scope *top = m->top;
	unsigned int hosts = 0;
	int err = mime_make(m) ?: around_print(m);

	for (unsigned int i = 0; i < top->below_nr; i++)
		hosts += top->below[i]->kind == TBG_SCOPE_HOST;
	m->sites->site = tbg_sites_alloc(m->sites, (hosts + 1) * sizeof(*m->sites->site));
	if (!m->sites->site || err)
		return -ENOMEM;
	for (unsigned int i = 0; i < top->below_nr && !err; i++)
		if (top->below[i]->kind == TBG_SCOPE_UPSTREAM)
			err = tbg_upstream_make(m, top->below[i]);
	for (unsigned int i = 0; i < top->below_nr && !err; i++)
		if (top->below[i]->kind == TBG_SCOPE_HOST)
			err = site_make(m, top->below[i]);
	if (!hosts)
		err = err ?: site_make(m, NULL);
	else
		err = err ?: tbg_locations_check(m);
	err = err ?: tbg_effect_check(m, top, tbg_reach_sites(m->sites));
	if (!m->sites->fallback)
		m->sites->fallback = m->sites->site;
	if (err)
		return err;
	ids_give(m->sites, m->old);
	return tbg_sites_index(m->sites);
}

int tbg_sites_make(struct tbg_sites **ret, const struct tbg_scope *top,
		   const struct tbg_sites *old, struct tbg_roots *roots,
		   struct tbg_settings_error *ret_error)
{
	struct tbg_build m = { tbg_sites_new(roots), old, top, ret_error, NULL };
	int err;

	*ret_error = (struct tbg_settings_error){ .text = "out of memory" };
	err = m.sites ? sites_make(&m) : -ENOMEM;
	free(m.around);
	if (err) {
		tbg_sites_close(m.sites, NULL, NULL);
		return err;
	}
	*ret = m.sites;
	return 0;
}
