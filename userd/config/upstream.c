// SPDX-License-Identifier: GPL-2.0
/*
 * Upstreams as configured: servers, settings, the program that a path names;
 * and the objects made from them, or those of the previous configuration if
 * nothing has changed. Called while sites are made; names are resolved by
 * upstream/address.h.
 */
#include "config/build.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/units.h"

/* The protocol is not known until the scope is complete. */
static bool server_add(struct tbg_target *t, const char *v, bool bare)
{
	struct tbg_backend b;
	bool ok = !t->check_only;

	for (uint8_t p = 0; p < TBG_PROTOCOL_NR && !ok; p++)
		ok = tbg_backend_parse(v, p, bare, 0, &b);
	return ok && t->servers_nr < TBG_BACKEND_MAX &&
	       tbg_text_list_add(t, &t->servers, &t->servers_nr, v);
}

/* One name, or servers. */
bool tbg_upstream_set(struct tbg_target *t, const char *v)
{
	const char **to;

	if (t->begins) {
		t->servers_nr = 0;
		t->named = t->beside = NULL;
	}
	t->location->handler = TBG_HANDLER_UPSTREAM;
	if (!t->named && !tbg_name_valid(v))
		return server_add(t, v, false);
	to = t->named || t->servers_nr ? &t->beside : &t->named;
	*to = tbg_sites_text(t->sites, v);
	return *to;
}

bool tbg_server_set(struct tbg_target *t, const char *v)
{
	return server_add(t, v, true);
}

bool tbg_protocol_set(struct tbg_target *t, const char *v)
{
	return tbg_protocol_find(v, &t->upstream->protocol);
}

bool tbg_balance_set(struct tbg_target *t, const char *v)
{
	t->upstream->least = !strcmp(v, "least");
	return t->upstream->least || !strcmp(v, "turn") || !strcmp(v, "round-robin");
}

bool tbg_health_path_set(struct tbg_target *t, const char *v)
{
	size_t len = strlen(v);

	for (size_t i = 0; i < len; i++)
		if (v[i] <= ' ' || v[i] > '~' || v[i] == '#')
			return false;
	t->upstream->health_path = tbg_sites_text(t->sites, v);
	return *v == '/' && len <= 512 && t->upstream->health_path;
}

/* An absolute path without a final slash: "/srv/www"; "/" becomes "". */
static bool absolute(struct tbg_target *t, const char **ret, const char *v)
{
	char *copy = tbg_sites_text(t->sites, v);
	size_t len = copy ? strlen(copy) : 0;

	while (len && copy[len - 1] == '/')
		copy[--len] = 0;
	*ret = copy;
	return *v == '/' && copy && strlen(v) < 1024;
}

bool tbg_script_root_set(struct tbg_target *t, const char *v)
{
	return absolute(t, &t->upstream->script.root, v);
}

bool tbg_script_filename_set(struct tbg_target *t, const char *v)
{
	return absolute(t, &t->upstream->script.file, v) && *t->upstream->script.file;
}

bool tbg_script_index_set(struct tbg_target *t, const char *v)
{
	t->upstream->script.index = tbg_sites_text(t->sites, v);
	return tbg_file_name(v) && strlen(v) < 128 && t->upstream->script.index;
}

bool tbg_script_split_set(struct tbg_target *t, const char *v)
{
	t->upstream->script.split = tbg_sites_text(t->sites, v);
	return *v && strlen(v) < 128 && !strchr(v, '/') && t->upstream->script.split;
}

/* "NAME=value" */
bool tbg_script_params_set(struct tbg_target *t, const char *v)
{
	struct tbg_script *s = &t->upstream->script;
	size_t len = strspn(v, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");

	if (t->begins)
		s->params_nr = 0;
	return len && v[len] == '=' && strlen(v) < 4096 &&
	       (!v[len + 1] || tbg_field_value(v + len + 1)) &&
	       tbg_text_list_add(t, &s->params, &s->params_nr, v);
}

/*
 * Further addresses of its name become servers with the same text, as far as there
 * is room besides the following servers.
 */
static int addresses_add(const struct tbg_target *t, struct tbg_upstream *u,
			 const char *text, unsigned int to_come)
{
	struct tbg_backend b;

	for (unsigned int nr = 1; u->nr + to_come < TBG_BACKEND_MAX &&
	     tbg_backend_parse(text, t->upstream->protocol, !t->location, nr, &b); nr++)
		if (!tbg_upstream_add(u, &b))
			return -ENOMEM;
	return 0;
}

/* A name without addresses adds nothing, until a look-up finds some. */
static int servers_add(struct tbg_build *m, const struct tbg_target *t,
		       struct tbg_upstream *u, unsigned int line)
{
	struct tbg_backend b;

	for (unsigned int i = 0; i < t->servers_nr; i++) {
		if (!tbg_backend_parse(t->servers[i], t->upstream->protocol, !t->location,
				       0, &b))
			return tbg_build_wrong(m, line, "%.100s: expected a server of the upstream's protocol",
					       t->servers[i]);
		if (!b.address_len)
			continue;
		if (!tbg_upstream_add(u, &b) ||
		    addresses_add(t, u, t->servers[i], t->servers_nr - i - 1))
			return -ENOMEM;
	}
	return 0;
}

int tbg_upstream_keep(struct tbg_build *m, struct tbg_upstream *u)
{
	struct tbg_upstream *same = NULL;

	if (m->old)
		same = tbg_sites_upstream_find(m->old, u->name);
	if (same && tbg_upstream_same(same, u)) {
		tbg_upstream_put(u);
		u = tbg_upstream_get(same);
	} else if (same) {
		tbg_upstream_follow(u, same);
	}
	return tbg_sites_upstream(m->sites, u) ? 0 : -ENOMEM;
}

/* The servers separated by blanks; NULL: no memory. */
static char *servers_text(const struct tbg_target *t)
{
	char *ret = NULL;
	size_t len;
	FILE *f = open_memstream(&ret, &len);

	for (unsigned int i = 0; f && i < t->servers_nr; i++)
		fprintf(f, "%s%s", i ? " " : "", t->servers[i]);
	if (f)
		fclose(f);
	return ret;
}

/* Its servers are in t. */
static int upstream_new(struct tbg_build *m, const struct tbg_target *t,
			const char *name, unsigned int line)
{
	char *servers = servers_text(t);
	struct tbg_upstream *u = servers ? tbg_upstream_new(name, servers, t->upstream) : NULL;
	int err = u ? servers_add(m, t, u, line) : -ENOMEM;

	free(servers);
	if (err) {
		tbg_upstream_put(u);
		return err;
	}
	return tbg_upstream_keep(m, u);
}

int tbg_upstream_settings_make(struct tbg_build *m, struct tbg_target *t)
{
	*t->upstream = (struct tbg_upstream_settings){ 0 };
	return tbg_settings_default(t, TBG_OBJECT_UPSTREAM) ?: tbg_scope_apply(m, t, m->top, true);
}

int tbg_upstream_make(struct tbg_build *m, const struct tbg_scope *own)
{
	struct tbg_upstream_settings settings;
	struct tbg_target t = { .sites = m->sites, .upstream = &settings };
	int err;

	if (!tbg_setting_of(own, "server"))
		return tbg_build_wrong(m, own->line, "upstream \"%.100s\": no server; expected server = \"HOST:PORT\" or \"unix:PATH\" in it",
					own->title);
	err = tbg_upstream_settings_make(m, &t);
	err = err ?: tbg_scope_apply(m, &t, own, true);
	err = err ?: upstream_new(m, &t, own->title, tbg_setting_of(own, "server")->line);
	return err ?: tbg_effect_check(m, own, tbg_reach_upstream(
					       tbg_sites_upstream_find(m->sites, own->title)));
}

int tbg_upstream_given(struct tbg_build *m, struct tbg_target *t, unsigned int line)
{
	struct tbg_upstream_settings settings;
	char *name = servers_text(t);
	int err = 0;

	if (!name)
		return -ENOMEM;
	t->upstream = &settings;
	if (!tbg_sites_upstream_find(m->sites, name))
		err = tbg_upstream_settings_make(m, t) ?: upstream_new(m, t, name, line);
	t->location->upstream = tbg_sites_upstream_find(m->sites, name);
	free(name);
	return err;
}
