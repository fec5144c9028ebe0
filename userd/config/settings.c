// SPDX-License-Identifier: GPL-2.0
/*
 * The table of settings: how a value is tried when it is read, and how those of
 * a scope are applied. To add a setting: a field in struct tbg_location, the
 * function that takes it in the file of what it is about, settings/, with its
 * line in settings/target.h, a row here, and its paragraph in
 * Documentation/toboggan.conf.5.rst.
 */
#include "config/settings.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/build.h"

#define T TBG_SCOPE_TOP
#define H TBG_SCOPE_HOST
#define L TBG_SCOPE_LOCATION
#define M TBG_SCOPE_TYPE
#define U TBG_SCOPE_UPSTREAM

/* X(name, function's, scopes, several values, what is accepted) */
#define SETTING_LIST(X) \
	X("root", root, T | H | L, false, "a folder") \
	X("upstream", upstream, T | H | L, true, "the name of an upstream, or http://HOST:PORT or unix:PATH, at most 32 of them") \
	X("protocol", protocol, U, false, "http or fastcgi") \
	X("script-root", script_root, U, false, "an absolute path") \
	X("script-filename", script_filename, U, false, "the absolute path of a program") \
	X("script-index", script_index, U, false, "the name of a program") \
	X("script-split", script_split, U, false, "what the name of a program ends in, such as .php") \
	X("script-params", script_params, U, true, "\"NAME=value\" with a name of A-Z, 0-9 and _") \
	X("server", server, U, true, "HOST:PORT, http://HOST:PORT or unix:PATH, at most 32 of them") \
	X("balance", balance, T | U, false, "turn (or round-robin) or least") \
	X("connect-timeout", connect_timeout, T | U, false, "a time up to a day, such as 5s") \
	X("first-byte-timeout", first_byte_timeout, T | U, false, "a time up to a day, such as 60s") \
	X("upstream-idle-timeout", upstream_idle_timeout, T | U, false, "a time up to a day, such as 60s") \
	X("upstream-keep", upstream_keep, T | U, false, "a time up to a day, such as 30s") \
	X("health-path", health_path, T | U, false, "a path such as /health, of at most 512 bytes") \
	X("health-interval", health_interval, T | U, false, "a time up to a day, such as 5s") \
	X("cgi", cgi, T | H | L, false, "a folder of programs, as an absolute path") \
	X("cgi-time", cgi_time, T | H | L, false, "a time up to a day, such as 30s") \
	X("cgi-cpu", cgi_cpu, T | H | L, false, "a time up to a day, such as 10s; 0: no limit") \
	X("cgi-memory", cgi_memory, T | H | L, false, "a size such as 256M; 0: no limit") \
	X("cgi-output", cgi_output, T | H | L, false, "a size such as 64M; 0: no limit") \
	X("cgi-at-once", cgi_at_once, T | H | L, false, "a number from 1 to 1000") \
	X("cgi-processes", cgi_processes, T | H | L, false, "a number; 0: no limit") \
	X("cgi-user", cgi_user, T | H | L, false, "the name of a user who is not root") \
	X("cgi-chroot", cgi_chroot, T | H | L, false, "a folder that the programs are in, as an absolute path") \
	X("module", module, T | H | L, true, "the absolute path of a shared object, then its arguments, of at most " TBG_TEXT(TBG_POOL_COMMAND_ARGS) " bytes") \
	X("module-workers", module_workers, T | H | L, false, "a number from 1 to " TBG_TEXT(TBG_MODULE_WORKERS_MAX)) \
	X("module-time", module_time, T | H | L, false, "a time up to a day, such as 10s") \
	X("module-memory", module_memory, T | H | L, false, "a size such as 256M; 0: no limit") \
	X("module-requests", module_requests, T | H | L, false, "a number; 0: no limit") \
	X("index", index, T | H | L, true, "names of files without a slash, or off alone") \
	X("autoindex", autoindex, T | H | L, false, "on or off") \
	X("error-page", error_page, T | H | L, true, "statuses from 400 to 599, each once, and the path of a file, without //, /./ and /../, such as \"500 503 /50x.html\"") \
	X("expires", expires, T | H | L | M, false, "a time such as 30d, 12h, 90s or 0; max, epoch or off") \
	X("cache-control", cache_control, T | H | L | M, false, "a value for Cache-Control of at most " TBG_TEXT(TBG_CONTROL_MAX) " bytes, or off") \
	X("headers", headers, T | H | L | M, true, "\"Name: value\", of fields that the daemon does not make itself") \
	X("cookies", cookies, T | H | L, false, "pass or ignore") \
	X("store-cookies", store_cookies, T | H | L, false, "on or off") \
	X("odd-field-names", odd_field_names, T | H | L, false, "drop or pass") \
	X("client-stale", client_stale, T | H | L, false, "on or off") \
	X("precompressed", precompressed, T | H | L, false, "on, any-age or off") \
	X("codings", codings, T | H | L, true, "a coding and suffixes without a dot, such as \"gzip svgz\", or off alone") \
	X("compress", compress, T | H | L, true, "gzip, br and zstd, or off alone") \
	X("compress-min", compress_min, T | H | L, false, "a size such as 512 or 4K") \
	X("body-max", body_max, T | H | L, false, "a size up to 1024G, such as 512, 64K or 8M") \
	X("body-buffer", body_buffer, T | H | L, false, "a size up to 1024M, such as 64K, or off") \
	X("body-folder", body_folder, T | H | L, false, "a folder, from its slash on") \
	X("trusted-proxies", trusted_proxies, T | H | L, true, "addresses or prefixes such as 192.0.2.1, 10.0.0.0/8 and 2001:db8::/32, with no bit set behind the prefix, or off alone") \
	X("alias", alias, H, true, "names of hosts, or *. and a name") \
	X("default", default, H, false, "yes or no") \
	X("media-types", media_types, T, false, "a file of \"type suffix ...\" lines") \
	X("types", types, T, true, "a media type and its suffixes without a dot, such as \"text/markdown md markdown\" or \"text/html; charset=utf-8 html\"")

static const struct row {
	struct tbg_setting_row row;
	bool (*set)(struct tbg_target *t, const char *v);
} rows[] = {
#define X(name, fn, scopes, list, accepts) \
	{ { name, scopes, list, accepts }, tbg_##fn##_set },
	SETTING_LIST(X)
#undef X
};

#undef T
#undef H
#undef L
#undef M
#undef U

#define ROWS (sizeof(rows) / sizeof(*rows))

bool tbg_setting_row(unsigned int row, struct tbg_setting_row *ret)
{
	if (row >= ROWS)
		return false;
	*ret = rows[row].row;
	return true;
}

int tbg_setting_find(const char *name)
{
	for (size_t i = 0; i < ROWS; i++)
		if (!strcmp(rows[i].row.name, name))
			return i;
	return -1;
}

bool tbg_setting_upstreams(const struct tbg_setting *s)
{
	return rows[s->row].row.scopes & TBG_SCOPE_UPSTREAM;
}

/* --- a value is tried ---------------------------------------------------- */

static struct tbg_setting *setting_get(struct tbg_scope *scope,
				       unsigned int row)
{
	struct tbg_setting *more;

	for (unsigned int i = 0; i < scope->settings_nr; i++)
		if (scope->settings[i].row == row)
			return &scope->settings[i];
	more = reallocarray(scope->settings, scope->settings_nr + 1, sizeof(*more));
	if (!more)
		return NULL;
	scope->settings = more;
	more[scope->settings_nr] = (struct tbg_setting){ .row = row };
	return &more[scope->settings_nr++];
}

static bool setting_keep(struct tbg_scope *scope, unsigned int row,
			 unsigned int line, const char *value)
{
	struct tbg_setting *s = setting_get(scope, row);
	char **more;

	if (!s)
		return false;
	if (!rows[row].row.list && s->values_nr) {
		free(s->values[0]);
		s->values_nr = 0;
	}
	more = reallocarray(s->values, s->values_nr + 1, sizeof(*more));
	if (!more)
		return false;
	s->values = more;
	s->line = line;
	more[s->values_nr] = strdup(value);
	return more[s->values_nr] && ++s->values_nr;
}

/* "off" is no member of these lists, but in place of one. */
static bool off_beside(const struct tbg_scope *scope, unsigned int row,
		       const char *value)
{
	if (rows[row].set != tbg_index_set && rows[row].set != tbg_compress_set &&
	    rows[row].set != tbg_trusted_proxies_set && rows[row].set != tbg_codings_set)
		return false;
	for (unsigned int i = 0; i < scope->settings_nr; i++)
		if (scope->settings[i].row == row)
			return !strcmp(value, "off") ||
			       !strcmp(scope->settings[i].values[0], "off");
	return false;
}

/* Tries the value on a location that nobody will see. */
bool tbg_scope_set(struct tbg_scope *scope, unsigned int row,
		   unsigned int line, const char *value,
		   struct tbg_roots *roots, const char **ret_why)
{
	struct tbg_pool_command cgi = { 0 }, module = { 0 };
	struct tbg_upstream_terms terms = { 0 };
	struct tbg_location location = { 0 };
	struct tbg_header_rules policy = { 0 };
	struct tbg_target t = {
		.sites = tbg_sites_new(roots), .location = &location,
		.policy = &policy, .terms = &terms, .cgi = &cgi,
		.module = &module, .trial = true, .begins = true,
		.why = "",
	};
	bool ok = t.sites && rows[row].set(&t, value);

	*ret_why = t.why;
	tbg_sites_close(t.sites, NULL, NULL);
	return ok && !off_beside(scope, row, value) &&
	       setting_keep(scope, row, line, value);
}

/* --- the values of a scope are applied ----------------------------------- */

int tbg_build_wrong(struct tbg_build *m, unsigned int line, const char *format, ...)
{
	va_list args;

	m->error->line = line;
	va_start(args, format);
	vsnprintf(m->error->text, sizeof(m->error->text), format, args);
	va_end(args);
	return -EINVAL;
}

/* Accepted alone, but not here and now: its list is too long, a folder went away. */
static int refused(struct tbg_build *m, const struct tbg_target *t,
		   const struct tbg_setting *s, const char *v)
{
	const struct tbg_setting_row *row = &rows[s->row].row;

	if (errno == ENOMEM)
		return -ENOMEM;
	return tbg_build_wrong(m, s->line, "%s \"%.100s\": %s%sexpected %s", row->name, v, t->why,
				*t->why ? "; " : "", row->accepts);
}

int tbg_scope_apply(struct tbg_build *m, struct tbg_target *t,
		    const struct tbg_scope *scope, bool upstreams)
{
	for (unsigned int i = 0; i < scope->settings_nr; i++) {
		const struct tbg_setting *s = &scope->settings[i];

		if (tbg_setting_upstreams(s) != upstreams)
			continue;
		for (unsigned int j = 0; j < s->values_nr; j++) {
			t->begins = !j;
			t->why = "";
			errno = 0;
			if (!rows[s->row].set(t, s->values[j]))
				return refused(m, t, s, s->values[j]);
		}
	}
	return 0;
}
