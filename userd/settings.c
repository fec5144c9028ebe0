// SPDX-License-Identifier: GPL-2.0
/*
 * The table of settings, and sites made of scopes. To add a setting: a field in
 * struct tbg_location, a set_ function here, a row, and its paragraph in
 * Documentation/toboggan.conf.5.rst.
 */
#include "settings.h"

#include <errno.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "encode.h"
#include "gateway/order.h"
#include "mime.h"
#include "room.h"
#include "root.h"
#include "token.h"
#include "upstream.h"
#include "value.h"

#define GRACE_MS	5000	/* for a pool to say that a program's time is over */
#define LOCATIONS_MAX	1000	/* of a site */
#define MIME_TYPES	"/etc/mime.types"
#define INDEX		"index.html"
#define BODY_FOLDER	"/var/tmp"
#define BODY_MAX_UNSAID	(UINT64_MAX - 1)
#define COMPRESS_MIN	256
#define CONTROL_MAX	150	/* bytes */
#define TEXT_OF(x)	#x
#define TEXT(x)		TEXT_OF(x)

/* What a setting may put its value into. */
struct target {
	struct tbg_sites *sites;
	struct tbg_location *location;
	struct tbg_policy *policy;	/* of the scope at hand */
	struct tbg_upstream_terms *terms;
	struct tbg_order *cgi, *module;
	const char **servers;		/* of the upstream, or of the location */
	unsigned int servers_nr;
	const char *named;		/* an upstream; NULL: its servers are given */
	const char *beside;		/* a value that cannot stand with the others */
	bool fallback;
	bool trial;			/* nothing comes of it */
	bool begins;			/* the first value of its list */
	bool paged[200];		/* statuses from 400 on that this list has a page for */
	const char *why;		/* what the system says */
};

/* A copy of a list of nr members, with room for one more; NULL: no memory. */
static void *list_grow(struct target *t, const void *list, unsigned int nr, size_t size)
{
	void *ret = tbg_sites_alloc(t->sites, (nr + 1) * size);

	return ret && nr ? memcpy(ret, list, nr * size) : ret;
}

static bool text_list_add(struct target *t, const char ***list,
			  unsigned int *nr, const char *v)
{
	const char **more = list_grow(t, *list, *nr, sizeof(*more));

	if (!more)
		return false;
	more[*nr] = tbg_sites_text(t->sites, v);
	*list = more;
	return more[(*nr)++];
}

static bool set_root(struct target *t, const char *v)
{
	int nr = *v ? tbg_sites_root(t->sites, v) : -ENOENT;

	t->why = nr == -E2BIG ? "more than " TEXT(TBG_SITES_ROOTS) " different roots, or "
				TEXT(TBG_ROOTS_MAX) " with those of before that are in use" :
		 nr < 0 ? strerror(-nr) : "";
	if (nr < 0)
		return false;
	t->location->root = nr;
	t->location->handler = TBG_HANDLER_FILES;
	return true;
}

static bool name_valid(const char *v)
{
	return *v && strlen(v) < 64 &&
	       strspn(v, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") == strlen(v);
}

/* Which protocol it will be is not known before the scope is whole. */
static bool server_add(struct target *t, const char *v, bool bare)
{
	struct tbg_backend b;
	bool ok = !t->trial;
	const char *why;

	for (uint8_t p = 0; p < TBG_PROTOCOL_NR && !ok; p++) {
		ok = tbg_backend_parse(v, p, bare, 0, &b, &why);
		if (*why)	/* the protocols that it is none of have nothing to say */
			t->why = why;
	}
	return ok && t->servers_nr < TBG_BACKEND_MAX &&
	       text_list_add(t, &t->servers, &t->servers_nr, v);
}

/* One name, or servers. */
static bool set_upstream(struct target *t, const char *v)
{
	const char **to;

	if (t->begins) {
		t->servers_nr = 0;
		t->named = t->beside = NULL;
	}
	t->location->handler = TBG_HANDLER_UPSTREAM;
	if (!t->named && !name_valid(v))
		return server_add(t, v, false);
	to = t->named || t->servers_nr ? &t->beside : &t->named;
	*to = tbg_sites_text(t->sites, v);
	return *to;
}

static bool set_server(struct target *t, const char *v)
{
	return server_add(t, v, true);
}

static bool set_protocol(struct target *t, const char *v)
{
	return tbg_protocol_find(v, &t->terms->protocol);
}

static bool set_balance(struct target *t, const char *v)
{
	t->terms->least = !strcmp(v, "least");
	return t->terms->least || !strcmp(v, "turn") || !strcmp(v, "round-robin");
}

static bool set_connect_timeout(struct target *t, const char *v)
{
	return tbg_value_ms(v, &t->terms->connect_ms);
}

static bool set_first_byte_timeout(struct target *t, const char *v)
{
	return tbg_value_ms(v, &t->terms->first_byte_ms);
}

static bool set_upstream_idle_timeout(struct target *t, const char *v)
{
	return tbg_value_ms(v, &t->terms->idle_ms);
}

static bool set_upstream_keep(struct target *t, const char *v)
{
	return tbg_value_ms(v, &t->terms->keep_ms);
}

static bool set_health_path(struct target *t, const char *v)
{
	size_t len = strlen(v);

	for (size_t i = 0; i < len; i++)
		if (v[i] <= ' ' || v[i] > '~' || v[i] == '#')
			return false;
	t->terms->health_path = tbg_sites_text(t->sites, v);
	return *v == '/' && len <= 512 && t->terms->health_path;
}

/* What may stand in a field's value, and no blank at its ends. */
static bool field_value(const char *v)
{
	size_t len = strlen(v);

	if (!len || *v == ' ' || v[len - 1] == ' ')
		return false;
	for (; *v; v++)
		if (*v < ' ' || *v > '~')
			return false;
	return true;
}

/* "/srv/www", without a slash at its end but in "/", which is "". */
static bool absolute(struct target *t, const char **ret, const char *v)
{
	char *copy = tbg_sites_text(t->sites, v);
	size_t len = copy ? strlen(copy) : 0;

	while (len && copy[len - 1] == '/')
		copy[--len] = 0;
	*ret = copy;
	return *v == '/' && copy && strlen(v) < 1024;
}

static bool set_script_root(struct target *t, const char *v)
{
	return absolute(t, &t->terms->script.root, v);
}

static bool set_script_filename(struct target *t, const char *v)
{
	return absolute(t, &t->terms->script.file, v) && *t->terms->script.file;
}

/* Of a file in whatever folder. */
static bool file_name(const char *v)
{
	return *v && !strchr(v, '/') && strcmp(v, ".") && strcmp(v, "..");
}

static bool set_script_index(struct target *t, const char *v)
{
	t->terms->script.index = tbg_sites_text(t->sites, v);
	return file_name(v) && strlen(v) < 128 && t->terms->script.index;
}

static bool set_script_split(struct target *t, const char *v)
{
	t->terms->script.split = tbg_sites_text(t->sites, v);
	return *v && strlen(v) < 128 && !strchr(v, '/') && t->terms->script.split;
}

/* "NAME=value" */
static bool set_script_params(struct target *t, const char *v)
{
	struct tbg_script *s = &t->terms->script;
	size_t len = strspn(v, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");

	if (t->begins)
		s->params_nr = 0;
	return len && v[len] == '=' && strlen(v) < 4096 &&
	       (!v[len + 1] || field_value(v + len + 1)) &&
	       text_list_add(t, &s->params, &s->params_nr, v);
}

static bool set_health_interval(struct target *t, const char *v)
{
	return tbg_value_ms(v, &t->terms->health_ms);
}

/* An absolute path to what there is, without links. */
static bool real_path(struct target *t, const char *v, mode_t type,
		      char ret[TBG_ORDER_PATH])
{
	char *path = *v == '/' ? realpath(v, NULL) : NULL;
	struct stat st;
	bool ok = path && !stat(path, &st);

	if (*v == '/' && !ok)
		t->why = strerror(errno);
	ok = ok && (st.st_mode & S_IFMT) == type && strlen(path) < TBG_ORDER_PATH;
	if (ok)
		strcpy(ret, path);
	free(path);
	return ok;
}

static bool set_cgi(struct target *t, const char *v)
{
	t->location->handler = TBG_HANDLER_UPSTREAM;
	return real_path(t, v, S_IFDIR, t->cgi->path);
}

static bool set_cgi_time(struct target *t, const char *v)
{
	return tbg_value_ms(v, &t->cgi->time_ms) && t->cgi->time_ms;
}

static bool set_cgi_cpu(struct target *t, const char *v)
{
	unsigned int ms = 0;

	if (strcmp(v, "0") && !tbg_value_ms(v, &ms))
		return false;
	t->cgi->cpu_s = (ms + 999) / 1000;
	return true;
}

static bool set_cgi_memory(struct target *t, const char *v)
{
	return tbg_value_size(v, 0, 1ull << 40, &t->cgi->memory);
}

static bool set_cgi_output(struct target *t, const char *v)
{
	return tbg_value_size(v, 0, 1ull << 40, &t->cgi->output);
}

static bool set_cgi_at_once(struct target *t, const char *v)
{
	return tbg_value_number(v, 1, 1000, &t->cgi->at_once);
}

static bool set_cgi_processes(struct target *t, const char *v)
{
	return tbg_value_number(v, 0, 1000000, &t->cgi->processes);
}

static bool set_cgi_user(struct target *t, const char *v)
{
	const struct passwd *pw = getpwnam(v);

	if (!pw || !pw->pw_uid)
		return false;
	t->cgi->uid = pw->pw_uid;
	t->cgi->gid = pw->pw_gid;
	return true;
}

static bool set_cgi_chroot(struct target *t, const char *v)
{
	return real_path(t, v, S_IFDIR, t->cgi->chroot);
}

/* The shared object, then its arguments. */
static bool set_module(struct target *t, const char *v)
{
	struct tbg_order *o = t->module;
	size_t size = strlen(v) + 1;

	t->location->handler = TBG_HANDLER_UPSTREAM;
	if (t->begins) {	/* what it leads to is looked at by pool_make() */
		o->args_len = 0;
		snprintf(o->path, sizeof(o->path), "%s", v);
		return size <= sizeof(o->path);
	}
	if (size > sizeof(o->args) - o->args_len)
		return false;
	memcpy(o->args + o->args_len, v, size);
	o->args_len += size;
	return true;
}

static bool set_module_workers(struct target *t, const char *v)
{
	return tbg_value_number(v, 1, TBG_MODULE_WORKERS_MAX, &t->module->at_once);
}

static bool set_module_time(struct target *t, const char *v)
{
	return tbg_value_ms(v, &t->module->time_ms) && t->module->time_ms;
}

static bool set_module_memory(struct target *t, const char *v)
{
	return tbg_value_size(v, 0, 1ull << 40, &t->module->memory);
}

static bool set_module_requests(struct target *t, const char *v)
{
	return tbg_value_number(v, 0, 1000000000, &t->module->requests);
}

static bool set_index(struct target *t, const char *v)
{
	struct tbg_location *l = t->location;

	if (t->begins)
		l->index_nr = 0;
	if (!strcmp(v, "off"))
		return true;
	return file_name(v) && strlen(v) < TBG_INDEX_ROOM &&
	       text_list_add(t, &l->index, &l->index_nr, v);
}

static bool set_autoindex(struct target *t, const char *v)
{
	return tbg_value_bool(v, &t->location->autoindex);
}

static bool error_page_add(struct target *t, unsigned int status,
			   const char *path)
{
	struct tbg_location *l = t->location;
	struct tbg_error_page *more;

	for (unsigned int i = 0; i < l->error_pages_nr; i++)
		if (l->error_pages[i].status == status) {
			l->error_pages[i].path = path;
			return true;
		}
	more = list_grow(t, l->error_pages, l->error_pages_nr, sizeof(*more));
	if (!more)
		return false;
	more[l->error_pages_nr++] = (struct tbg_error_page){ status, path };
	l->error_pages = more;
	return true;
}

/* Nothing that the canonical path of a request never has. */
static bool path_plain(const char *path)
{
	return !strstr(path, "//") && !strstr(path, "/./") && !strstr(path, "/../");
}

/* "404 /404.html", "500 503 /50x.html" */
static bool set_error_page(struct target *t, const char *v)
{
	char *copy = tbg_sites_text(t->sites, v), *save, *word;
	char *path = copy ? strrchr(copy, ' ') : NULL;
	unsigned int status, nr = 0;

	if (t->begins)
		memset(t->paged, 0, sizeof(t->paged));
	/* locations are found by the path as it stands here: a program's must be seen as one */
	if (!path || path[1] != '/' || !path_plain(path + 1) ||
	    !file_name(strrchr(path, '/') + 1))
		return false;
	*path++ = 0;
	for (word = strtok_r(copy, " ", &save); word;
	     word = strtok_r(NULL, " ", &save), nr++) {
		if (!tbg_value_number(word, 400, 599, &status) ||
		    t->paged[status - 400] || !error_page_add(t, status, path))
			return false;
		t->paged[status - 400] = true;
	}
	return nr;
}

static bool set_expires(struct target *t, const char *v)
{
	uint64_t seconds;
	char text[48];

	if (!strcmp(v, "off"))
		strcpy(text, "");
	else if (!strcmp(v, "epoch"))
		strcpy(text, "no-cache");
	else if (!strcmp(v, "max"))
		strcpy(text, "max-age=315360000");
	else if (tbg_value_seconds(v, &seconds))
		sprintf(text, "max-age=%llu", (unsigned long long)seconds);
	else
		return false;
	t->policy->expires = tbg_sites_text(t->sites, text);
	return t->policy->expires;
}

static bool set_cache_control(struct target *t, const char *v)
{
	if (!strcmp(v, "off"))
		v = "";
	else if (!field_value(v) || strlen(v) > CONTROL_MAX)
		return false;
	t->policy->cache_control = tbg_sites_text(t->sites, v);
	return t->policy->cache_control;
}

/*
 * Fields that the daemon makes itself, that would change the message, or that a
 * 304 would have to repeat (RFC 9110 15.4.5).
 */
static const char *const own_fields[] = {
	"Accept-Ranges", "Age", "Allow", "Cache-Control", "Cache-Status",
	"Connection", "Content-Encoding", "Content-Length",
	"Content-Location", "Content-Range", "Content-Type", "Date", "ETag",
	"Expires", "Keep-Alive", "Last-Modified", "Location", "Server", "TE", "Trailer",
	"Transfer-Encoding", "Upgrade", "Vary",
};

static bool header_valid(const char *v)
{
	size_t len = strcspn(v, ":");
	const char *value;

	if (!len || !v[len])
		return false;
	for (size_t i = 0; i < len; i++)
		if (!tbg_token_byte(v[i]))
			return false;
	for (size_t i = 0; i < sizeof(own_fields) / sizeof(*own_fields); i++)
		if (strlen(own_fields[i]) == len && !strncasecmp(own_fields[i], v, len))
			return false;
	value = v + len + 1;
	while (*value == ' ')
		value++;
	return field_value(value);
}

static bool set_headers(struct target *t, const char *v)
{
	return header_valid(v) && text_list_add(t, &t->policy->headers,
						&t->policy->headers_nr, v);
}

static bool set_cookies(struct target *t, const char *v)
{
	if (strcmp(v, "pass") && strcmp(v, "ignore"))
		return false;
	t->location->cookies_pass = *v == 'p';
	return true;
}

static bool set_precompressed(struct target *t, const char *v)
{
	return tbg_value_bool(v, &t->location->precompressed);
}

static bool set_compress(struct target *t, const char *v)
{
	enum tbg_encoding e = tbg_encoding_named(v);

	if (t->begins)
		t->location->compress = 0;
	if (!strcmp(v, "off"))
		return true;
	if (e == TBG_ENCODING_IDENTITY || e == TBG_ENCODING_NR)
		return false;
	t->location->compress |= 1u << e;
	return true;
}

static bool set_compress_min(struct target *t, const char *v)
{
	return tbg_value_size(v, 0, 1ull << 40, &t->location->compress_min);
}

static bool set_body_max(struct target *t, const char *v)
{
	return tbg_value_size(v, 0, 1ull << 40, &t->location->body_max);
}

static bool set_body_buffer(struct target *t, const char *v)
{
	uint64_t bytes;

	t->location->body_buffer = TBG_BODY_STREAMED;
	if (!strcmp(v, "off"))
		return true;
	if (!tbg_value_size(v, 0, 1ull << 30, &bytes))
		return false;
	t->location->body_buffer = bytes;
	return true;
}

static bool set_body_folder(struct target *t, const char *v)
{
	struct stat st;

	if (*v != '/')
		return false;
	if (stat(v, &st))
		t->why = strerror(errno);
	else if (!S_ISDIR(st.st_mode))
		t->why = strerror(ENOTDIR);
	if (*t->why)
		return false;
	t->location->body_folder = tbg_sites_text(t->sites, v);
	return t->location->body_folder;
}

static bool set_trusted_proxies(struct target *t, const char *v)
{
	struct tbg_location *l = t->location;
	struct tbg_prefix *more;

	if (t->begins)
		l->proxies_nr = 0;
	if (!strcmp(v, "off"))
		return true;
	more = list_grow(t, l->proxies, l->proxies_nr, sizeof(*more));
	if (!more)
		return false;
	l->proxies = more;
	return tbg_value_prefix(v, &more[l->proxies_nr++]);
}

static bool host_valid(const char *v)
{
	char name[TBG_PATH_MAX];
	size_t len;

	if (*v == '*' && *++v != '.')
		return false;
	len = strlen(v);
	if (*v == '[')
		return len > 2 && v[len - 1] == ']' &&
		       strspn(v + 1, "0123456789abcdefABCDEF:.") == len - 2;
	return tbg_host_name(v, len, name) &&
	       strspn(v, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") == len;
}

/* This one and those below are for the site or for all: see sites_make(). */
static bool set_alias(struct target *t, const char *v)
{
	return host_valid(v);
}

static bool set_default(struct target *t, const char *v)
{
	return tbg_value_bool(v, &t->fallback);
}

static bool set_media_types(struct target *t, const char *v)
{
	static char why[TBG_MIME_WHY];

	if (!t->trial)
		return true;
	t->why = why;
	return !tbg_mime_file_check(v, why);
}

static bool set_types(struct target *t, const char *v)
{
	return tbg_mime_line_valid(v);
}

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
	X("module", module, T | H | L, true, "the absolute path of a shared object, then its arguments, of at most " TEXT(TBG_ORDER_ARGS) " bytes") \
	X("module-workers", module_workers, T | H | L, false, "a number from 1 to " TEXT(TBG_MODULE_WORKERS_MAX)) \
	X("module-time", module_time, T | H | L, false, "a time up to a day, such as 10s") \
	X("module-memory", module_memory, T | H | L, false, "a size such as 256M; 0: no limit") \
	X("module-requests", module_requests, T | H | L, false, "a number; 0: no limit") \
	X("index", index, T | H | L, true, "names of files without a slash, or off alone") \
	X("autoindex", autoindex, T | H | L, false, "on or off") \
	X("error-page", error_page, T | H | L, true, "statuses from 400 to 599, each once, and the path of a file, without //, /./ and /../, such as \"500 503 /50x.html\"") \
	X("expires", expires, T | H | L | M, false, "a time such as 30d, 12h, 90s or 0; max, epoch or off") \
	X("cache-control", cache_control, T | H | L | M, false, "a value for Cache-Control of at most " TEXT(CONTROL_MAX) " bytes, or off") \
	X("headers", headers, T | H | L | M, true, "\"Name: value\", of fields that the daemon does not make itself") \
	X("cookies", cookies, T | H | L, false, "pass or ignore") \
	X("precompressed", precompressed, T | H | L, false, "on or off") \
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
	bool (*set)(struct target *t, const char *v);
} rows[] = {
#define X(name, fn, scopes, list, accepts) \
	{ { name, scopes, list, accepts }, set_##fn },
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

/* --- scopes -------------------------------------------------------------- */

struct tbg_scope *tbg_scope_new(enum tbg_scope_kind kind, const char *title)
{
	struct tbg_scope *ret = calloc(1, sizeof(*ret));

	if (!ret)
		return NULL;
	ret->kind = kind;
	ret->title = strdup(title);
	if (ret->title)
		return ret;
	free(ret);
	return NULL;
}

int tbg_scope_add(struct tbg_scope *scope, struct tbg_scope *below)
{
	struct tbg_scope **more = reallocarray(scope->below, scope->below_nr + 1,
					       sizeof(*more));

	if (!more)
		return -ENOMEM;
	scope->below = more;
	more[scope->below_nr++] = below;
	return 0;
}

static void setting_free(struct tbg_setting *s)
{
	for (unsigned int i = 0; i < s->values_nr; i++)
		free(s->values[i]);
	free(s->values);
}

void tbg_scope_free(struct tbg_scope *scope)
{
	if (!scope)
		return;
	for (unsigned int i = 0; i < scope->below_nr; i++)
		tbg_scope_free(scope->below[i]);
	for (unsigned int i = 0; i < scope->settings_nr; i++)
		setting_free(&scope->settings[i]);
	free(scope->settings);
	free(scope->below);
	free(scope->title);
	free(scope);
}

void tbg_scope_unset(struct tbg_scope *scope, unsigned int row)
{
	for (unsigned int i = 0; i < scope->settings_nr; i++) {
		struct tbg_setting *s = &scope->settings[i];

		if (s->row != row)
			continue;
		setting_free(s);
		memmove(s, s + 1, (--scope->settings_nr - i) * sizeof(*s));
		return;
	}
}

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
	if (rows[row].set != set_index && rows[row].set != set_compress &&
	    rows[row].set != set_trusted_proxies)
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
	struct tbg_order cgi = { 0 }, module = { 0 };
	struct tbg_upstream_terms terms = { 0 };
	struct tbg_location location = { 0 };
	struct tbg_policy policy = { 0 };
	struct target t = {
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

bool tbg_scope_title(enum tbg_scope_kind kind, const char *title,
		     const char **ret_accepts)
{
	const char *slash = strchr(title, '/'), *star = strchr(title, '*');

	switch (kind) {
	case TBG_SCOPE_HOST:
		*ret_accepts = "a host's name, or *. and a name";
		return host_valid(title);
	case TBG_SCOPE_LOCATION:
		*ret_accepts = "a path that begins with a slash, = and such a path, or * and what paths end in; decoded, without //, /./ and /../";
		if (!path_plain(title))
			return false;
		return title[0] == '/' || (title[0] == '=' && title[1] == '/') ||
		       (title[0] == '*' && title[1] && !strchr(title + 1, '*'));
	case TBG_SCOPE_UPSTREAM:
		*ret_accepts = "a name of letters, digits, dots, dashes and underscores";
		return name_valid(title);
	default:
		*ret_accepts = "a media type such as text/html or image/*";
		return slash && slash != title && slash[1] && !strchr(slash + 1, '/') &&
		       (!star || (star == slash + 1 && !star[1])) &&
		       field_value(title) && !strpbrk(title, " ;,");
	}
}

/* --- from scopes to sites ------------------------------------------------ */

struct making {
	struct tbg_sites *sites;
	const struct tbg_sites *old;
	const struct tbg_scope *top;
	struct tbg_settings_error *error;
};

__attribute__((format(printf, 3, 4)))
static int wrong(struct making *m, unsigned int line, const char *format, ...)
{
	va_list args;

	m->error->line = line;
	va_start(args, format);
	vsnprintf(m->error->text, sizeof(m->error->text), format, args);
	va_end(args);
	return -EINVAL;
}

static bool of_upstreams(const struct tbg_setting *s)
{
	return rows[s->row].row.scopes & TBG_SCOPE_UPSTREAM;
}

/* Accepted alone, but not here and now: its list is too long, a folder went away. */
static int refused(struct making *m, const struct target *t,
		   const struct tbg_setting *s, const char *v)
{
	const struct tbg_setting_row *row = &rows[s->row].row;

	if (errno == ENOMEM)
		return -ENOMEM;
	return wrong(m, s->line, "%s \"%.100s\": %s%sexpected %s", row->name, v, t->why,
		     *t->why ? "; " : "", row->accepts);
}

/*
 * The settings of one scope, onto what its outer scopes have made: those of
 * upstreams, or all others.
 */
static int scope_apply(struct making *m, struct target *t,
		       const struct tbg_scope *scope, bool upstreams)
{
	for (unsigned int i = 0; i < scope->settings_nr; i++) {
		const struct tbg_setting *s = &scope->settings[i];

		if (of_upstreams(s) != upstreams)
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

static struct tbg_policy *policy_add(struct target *t)
{
	struct tbg_location *l = t->location;
	struct tbg_policy *more;

	more = list_grow(t, l->policies, l->policies_nr, sizeof(*more));
	if (!more)
		return NULL;
	l->policies = more;
	return &more[l->policies_nr++];
}

/* "image/" and a star is kept as "image/". */
static const char *type_pattern(struct tbg_sites *s, const char *title)
{
	char *ret = tbg_sites_text(s, title);
	char *star = ret ? strchr(ret, '*') : NULL;

	if (star)
		*star = 0;
	return ret;
}

/* The media types of a scope that are whole, or those that end in a star. */
static int types_apply(struct making *m, struct target *t, const struct tbg_scope *scope,
		       bool whole)
{
	int err = 0;

	for (unsigned int i = 0; i < scope->below_nr && !err; i++) {
		const struct tbg_scope *type = scope->below[i];

		if (type->kind != TBG_SCOPE_TYPE || whole != !strchr(type->title, '*'))
			continue;
		t->policy = policy_add(t);
		if (!t->policy || !(t->policy->type = type_pattern(t->sites, type->title)))
			return -ENOMEM;
		err = scope_apply(m, t, type, false);
	}
	return err;
}

/* A scope and its media types: what is said last wins. */
static int level_apply(struct making *m, struct target *t, const struct tbg_scope *scope)
{
	int err;

	t->policy = policy_add(t);
	err = t->policy ? scope_apply(m, t, scope, false) : -ENOMEM;
	err = err ?: types_apply(m, t, scope, false);
	return err ?: types_apply(m, t, scope, true);
}

static size_t fields_bytes(const struct tbg_location *l)
{
	size_t ret = 0;

	for (unsigned int i = 0; i < l->policies_nr; i++) {
		const struct tbg_policy *p = &l->policies[i];

		ret += strlen(p->expires ?: "") + strlen(p->cache_control ?: "") + 32;
		for (unsigned int j = 0; j < p->headers_nr; j++)
			ret += strlen(p->headers[j]) + 2;
	}
	return ret;
}

static const struct tbg_setting *setting_of(const struct tbg_scope *scope,
					    const char *name)
{
	int row = tbg_setting_find(name);

	for (unsigned int i = 0; i < scope->settings_nr; i++)
		if (scope->settings[i].row == (unsigned int)row)
			return &scope->settings[i];
	return NULL;
}

/*
 * Its name's other addresses are servers of the same text, as far as there is room
 * beside the servers that are still to come.
 */
static int addresses_add(const struct target *t, struct tbg_upstream *u,
			 const char *text, unsigned int to_come)
{
	struct tbg_backend b;
	const char *why;

	for (unsigned int nr = 1; u->nr + to_come < TBG_BACKEND_MAX &&
	     tbg_backend_parse(text, t->terms->protocol, !t->location, nr, &b, &why); nr++)
		if (!tbg_upstream_add(u, &b))
			return -ENOMEM;
	return 0;
}

static int servers_add(struct making *m, const struct target *t,
		       struct tbg_upstream *u, unsigned int line)
{
	struct tbg_backend b;
	const char *why;

	for (unsigned int i = 0; i < t->servers_nr; i++) {
		if (!tbg_backend_parse(t->servers[i], t->terms->protocol, !t->location,
				       0, &b, &why))
			return wrong(m, line, "%.100s: %s%sexpected a server of the upstream's protocol",
				     t->servers[i], why, *why ? "; " : "");
		if (!tbg_upstream_add(u, &b) ||
		    addresses_add(t, u, t->servers[i], t->servers_nr - i - 1))
			return -ENOMEM;
	}
	return 0;
}

/* Its servers are in t; the object of before if it is still the same. */
static int upstream_new(struct making *m, const struct target *t,
			const char *name, unsigned int line)
{
	struct tbg_upstream *u = tbg_upstream_new(name, t->terms), *same = NULL;
	int err = u ? servers_add(m, t, u, line) : -ENOMEM;

	if (err) {
		tbg_upstream_put(u);
		return err;
	}
	if (m->old)
		same = tbg_sites_upstream_find(m->old, name);
	if (same && tbg_upstream_same(same, u)) {
		tbg_upstream_put(u);
		u = tbg_upstream_get(same);
	}
	return tbg_sites_upstream(m->sites, u) ? 0 : -ENOMEM;
}

/* What all upstreams have that say nothing of it themselves. */
static int terms_make(struct making *m, struct target *t)
{
	*t->terms = (struct tbg_upstream_terms){
		.connect_ms = 5000, .first_byte_ms = 60000, .idle_ms = 60000,
		.keep_ms = 30000, .health_ms = 5000,
	};
	return scope_apply(m, t, m->top, true);
}

/* An upstream section. */
static int upstream_make(struct making *m, const struct tbg_scope *own)
{
	struct tbg_upstream_terms terms;
	struct target t = { .sites = m->sites, .terms = &terms };
	int err;

	if (!setting_of(own, "server"))
		return wrong(m, own->line, "upstream \"%.100s\": no server; expected server = \"HOST:PORT\" or \"unix:PATH\" in it",
			     own->title);
	err = terms_make(m, &t);
	err = err ?: scope_apply(m, &t, own, true);
	return err ?: upstream_new(m, &t, own->title, setting_of(own, "server")->line);
}

/* The upstream of a location's servers: one for all that give the same. */
static int upstream_given(struct making *m, struct target *t, unsigned int line)
{
	struct tbg_upstream_terms terms;
	char *name = NULL;
	size_t len;
	FILE *f = open_memstream(&name, &len);
	int err = 0;

	for (unsigned int i = 0; f && i < t->servers_nr; i++)
		fprintf(f, "%s%s", i ? " " : "", t->servers[i]);
	if (f)
		fclose(f);
	if (!name)
		return -ENOMEM;
	t->terms = &terms;
	if (!tbg_sites_upstream_find(m->sites, name))
		err = terms_make(m, t) ?: upstream_new(m, t, name, line);
	t->location->upstream = tbg_sites_upstream_find(m->sites, name);
	free(name);
	return err;
}

/* All that makes a pool what it is, as text: pools of the same name are one. */
static char *pool_name(const struct tbg_order *o)
{
	struct stat st;
	char *name = NULL;
	size_t len;
	FILE *f = open_memstream(&name, &len);

	if (!f)
		return NULL;
	fprintf(f, "%s %s below %s: time %u cpu %u memory %llu output %llu at once %u processes %u requests %u user %d.%d chroot %s",
		o->kind == TBG_POOL_CGI ? "cgi" : "module", o->path, o->prefix,
		o->time_ms, o->cpu_s, (unsigned long long)o->memory,
		(unsigned long long)o->output, o->at_once, o->processes,
		o->requests, o->uid, o->gid, o->chroot);
	for (unsigned int i = 0; i < o->args_len; i += strlen(o->args + i) + 1)
		fprintf(f, " \"%s\"", o->args + i);
	/* a new file makes a new pool: its workers are of one, and its answers too */
	if (o->kind == TBG_POOL_MODULE && !stat(o->path, &st))
		fprintf(f, " file %llu of %lld.%09ld", (unsigned long long)st.st_ino,
			(long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	fclose(f);
	return name;
}

static int pool_new(struct making *m, struct target *t, const struct tbg_order *o,
		    const char *name)
{
	struct tbg_upstream_terms terms;
	struct tbg_upstream *u, *same = NULL;
	struct tbg_backend b;
	int err;

	t->terms = &terms;
	err = terms_make(m, t);
	err = err ?: tbg_backend_own(&b, o->path);
	if (err)
		return err;
	terms.protocol = TBG_PROTOCOL_FASTCGI;
	terms.health_path = NULL;
	if (o->kind == TBG_POOL_CGI && terms.first_byte_ms < o->time_ms + GRACE_MS)
		terms.first_byte_ms = o->time_ms + GRACE_MS;
	u = tbg_upstream_new(name, &terms);
	if (u)
		u->order = malloc(sizeof(*o));
	if (!u || !u->order || !tbg_upstream_add(u, &b)) {
		tbg_upstream_put(u);
		return -ENOMEM;
	}
	*u->order = *o;
	if (m->old)
		same = tbg_sites_upstream_find(m->old, name);
	if (same && tbg_upstream_same(same, u)) {
		tbg_upstream_put(u);
		u = tbg_upstream_get(same);
	}
	return tbg_sites_upstream(m->sites, u) ? 0 : -ENOMEM;
}

/* The location is answered by a pool of ours, one for all that say the same. */
static int pool_make(struct making *m, struct target *t, enum tbg_pool_kind kind,
		     unsigned int line)
{
	struct tbg_order *o = kind == TBG_POOL_CGI ? t->cgi : t->module;
	struct tbg_location *l = t->location;
	size_t len = strlen(o->chroot);
	char *name, path[TBG_ORDER_PATH];
	int err = 0;

	t->why = "";
	if (len && (strncmp(o->path, o->chroot, len) ||
		    (o->path[len] && o->path[len] != '/' && len > 1)))
		return wrong(m, line, "cgi \"%.100s\": not below %.100s; expected a folder in cgi-chroot",
			     o->path, o->chroot);
	if (kind == TBG_POOL_MODULE && !real_path(t, o->path, S_IFREG, path))
		return wrong(m, line, "module \"%.100s\": %s%sexpected the absolute path of a shared object",
			     o->path, t->why, *t->why ? "; " : "");
	if (kind == TBG_POOL_MODULE)
		strcpy(o->path, path);
	if (strlen(l->match) >= sizeof(o->prefix))
		return wrong(m, line, "%.100s: too long", l->title);
	o->kind = kind;
	strcpy(o->prefix, l->kind == TBG_MATCH_PREFIX ? l->match : "/");
	name = pool_name(o);
	if (!name)
		return -ENOMEM;
	if (!tbg_sites_upstream_find(m->sites, name))
		err = pool_new(m, t, o, name);
	l->handler = TBG_HANDLER_UPSTREAM;
	l->upstream = tbg_sites_upstream_find(m->sites, name);
	free(name);
	return err;
}

static const char *scope_name(const struct tbg_scope *scope)
{
	return *scope->title ? scope->title : "outside of all sections";
}

/* What a scope says that is no root: one thing, or nothing. */
static int pool_said(struct making *m, const struct tbg_scope *scope,
		     const struct tbg_setting **ret, enum tbg_pool_kind *ret_kind)
{
	const struct tbg_setting *upstream = setting_of(scope, "upstream");
	const struct tbg_setting *cgi = setting_of(scope, "cgi");
	const struct tbg_setting *module = setting_of(scope, "module");

	*ret = cgi ?: module ?: upstream;
	*ret_kind = cgi ? TBG_POOL_CGI : module ? TBG_POOL_MODULE : 0;
	if (!!upstream + !!cgi + !!module < 2)
		return 0;
	return wrong(m, (*ret)->line, "%.100s: several of upstream, cgi and module; expected one of them",
		     scope_name(scope));
}

/*
 * What answers, once all that is said of a location has been applied: the
 * innermost of scopes that says anything has the last word.
 */
static int location_handler(struct making *m, struct target *t,
			    const struct tbg_scope *const scopes[3])
{
	const struct tbg_setting *said = NULL, *root = NULL;
	struct tbg_location *l = t->location;
	enum tbg_pool_kind kind = 0;
	int err = 0;

	for (int i = 0; i < 3 && !said && !root; i++) {
		if (!scopes[i])
			continue;
		root = setting_of(scopes[i], "root");
		err = pool_said(m, scopes[i], &said, &kind);
		if (err)
			return err;
	}
	if (!said)
		return 0;
	if (kind)
		return pool_make(m, t, kind, said->line);
	if (t->beside)
		return wrong(m, said->line, "upstream \"%.100s\": beside others; expected the name of an upstream alone, or servers",
			     t->beside);
	l->handler = TBG_HANDLER_UPSTREAM;
	if (t->named)
		l->upstream = tbg_sites_upstream_find(m->sites, t->named);
	else
		err = upstream_given(m, t, said->line);
	if (err)
		return err;
	if (!l->upstream)
		return wrong(m, said->line, "upstream \"%.100s\": there is none of that name; expected that of a section such as upstream \"%.100s\" { server = \"HOST:PORT\" }",
			     t->named, t->named);
	if (tbg_protocol_needs_root(l->upstream->terms.protocol) && l->root < 0 &&
	    !l->upstream->terms.script.root && !l->upstream->terms.script.file)
		return wrong(m, said->line, "upstream \"%.100s\": no root; expected root = \"a folder\" around it, or script-root = \"/a/path\" in the upstream",
			     l->upstream->name);
	if (root && !tbg_protocol_needs_root(l->upstream->terms.protocol))
		return wrong(m, said->line, "upstream: not together with a root; expected one of them");
	return 0;
}

static void location_match(struct tbg_location *l, struct tbg_sites *s,
			   const char *title)
{
	l->title = tbg_sites_text(s, title);
	l->match = l->title ? l->title + (*title != '/') : "/";
	l->kind = *title == '=' ? TBG_MATCH_EXACT :
		  *title == '*' ? TBG_MATCH_SUFFIX : TBG_MATCH_PREFIX;
	l->match_len = strlen(l->match);
}

/* own NULL: what the host says of all paths. */
static int location_make(struct making *m, struct tbg_location *l,
			 const struct tbg_scope *host,
			 const struct tbg_scope *own)
{
	struct tbg_order cgi = {
		.uid = -1, .gid = -1, .time_ms = TBG_CGI_MS,
		.cpu_s = TBG_CGI_CPU_S, .memory = TBG_CGI_MEMORY,
		.output = TBG_CGI_OUTPUT, .at_once = TBG_CGI_AT_ONCE,
		.processes = TBG_CGI_PROCESSES,
	};
	struct tbg_order module = {
		.uid = -1, .gid = -1, .time_ms = TBG_MODULE_MS,
		.memory = TBG_MODULE_MEMORY, .at_once = TBG_MODULE_WORKERS,
	};
	struct tbg_upstream_terms terms = { 0 };
	struct target t = {
		.sites = m->sites, .location = l, .terms = &terms, .why = "",
		.cgi = &cgi, .module = &module,
	};
	const struct tbg_scope *scopes[] = { own, host, m->top };
	const struct tbg_scope *last = own ?: host ?: m->top;
	const struct tbg_setting *headers = NULL;
	int err;

	*l = (struct tbg_location){
		.root = -1, .body_max = BODY_MAX_UNSAID,
		.body_buffer = TBG_BODY_AS_NEEDED, .body_folder = BODY_FOLDER,
		.precompressed = true, .compress = TBG_ENCODINGS_ALL,
		.compress_min = COMPRESS_MIN,
	};
	location_match(l, m->sites, own ? own->title : "/");
	err = text_list_add(&t, &l->index, &l->index_nr, INDEX) ? 0 : -ENOMEM;
	for (int i = 2; i >= 0 && !err; i--)
		err = scopes[i] ? level_apply(m, &t, scopes[i]) : 0;
	err = err ?: location_handler(m, &t, scopes);
	if (err)
		return err;
	m->sites->files |= l->handler == TBG_HANDLER_FILES;
	if (l->body_max == BODY_MAX_UNSAID)
		l->body_max = l->handler == TBG_HANDLER_FILES ? TBG_BODY_MAX : UINT64_MAX;
	if (l->root < 0 && l->handler == TBG_HANDLER_FILES)
		return wrong(m, last->line, "%.100s: no root; expected root = \"a folder\" or upstream = \"a name\" there or outside of it",
			     *last->title ? last->title : "root");
	if (fields_bytes(l) <= TBG_FIELDS_MAX)
		return 0;
	for (int i = 2; i >= 0; i--)
		headers = scopes[i] ? setting_of(scopes[i], "headers") ?: headers : headers;
	return wrong(m, headers ? headers->line : last->line, "%.100s: %zu bytes of headers; expected at most %d, those of outer scopes included",
		     scope_name(last), fields_bytes(l), TBG_FIELDS_MAX);
}

static int precedence(const void *a, const void *b)
{
	const struct tbg_location *x = a, *y = b;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->match_len != y->match_len)
		return x->match_len > y->match_len ? -1 : 1;
	return strcmp(x->match, y->match);
}

static bool is_location(const struct tbg_scope *s)
{
	return s->kind == TBG_SCOPE_LOCATION;
}

static int site_locations(struct making *m, struct tbg_site *site,
			  const struct tbg_scope *host)
{
	const struct tbg_scope *in = host ?: m->top;
	unsigned int nr = 0, line = 0;
	bool slash = false;
	int err = 0;

	for (unsigned int i = 0; i < in->below_nr; i++) {
		if (!is_location(in->below[i]))
			continue;
		nr++;
		line = in->below[i]->line;
		slash |= !strcmp(in->below[i]->title, "/");
	}
	if (nr > LOCATIONS_MAX)
		return wrong(m, line, "%.100s: %u locations; expected at most %d",
			     scope_name(in), nr, LOCATIONS_MAX);
	site->locations = tbg_sites_alloc(m->sites, (nr + 1) * sizeof(*site->locations));
	if (!site->locations)
		return -ENOMEM;
	for (unsigned int i = 0; i < in->below_nr && !err; i++)
		if (is_location(in->below[i]))
			err = location_make(m, &site->locations[site->locations_nr++],
					    host, in->below[i]);
	if (!err && !slash)
		err = location_make(m, &site->locations[site->locations_nr++], host, NULL);
	for (unsigned int i = 0; i < site->locations_nr; i++)
		site->locations[i].site = site;
	qsort(site->locations, site->locations_nr, sizeof(*site->locations),
	      precedence);
	return err;
}

/* --- which sites stay what they were ------------------------------------- */

static void scope_print(FILE *f, const struct tbg_scope *scope)
{
	fprintf(f, "%d %s{\n", scope->kind, scope->title);
	for (unsigned int i = 0; i < scope->settings_nr; i++) {
		const struct tbg_setting *s = &scope->settings[i];
		const char *name = rows[s->row].row.name;

		/* under which names it answers, and who behind us, changes no file */
		if (!strcmp(name, "alias") || !strcmp(name, "default") ||
		    of_upstreams(s))
			continue;
		fprintf(f, "%s\n", name);
		for (unsigned int j = 0; j < s->values_nr; j++)
			fprintf(f, "=%s\n", s->values[j]);
	}
	for (unsigned int i = 0; i < scope->below_nr; i++)
		if (!(scope->below[i]->kind & (TBG_SCOPE_HOST | TBG_SCOPE_UPSTREAM)))
			scope_print(f, scope->below[i]);
	fprintf(f, "}\n");
}

/* Roots and upstreams by number: the same words may have become others. */
static int site_print(struct making *m, struct tbg_site *site,
		      const struct tbg_scope *host)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return -ENOMEM;
	scope_print(f, m->top);
	if (host)
		scope_print(f, host);
	for (unsigned int i = 0; i < site->locations_nr; i++)
		fprintf(f, "%d %u\n", site->locations[i].root,
			site->locations[i].upstream ? site->locations[i].upstream->id : 0);
	fprintf(f, "%llx\n", (unsigned long long)tbg_mime_print(m->sites->mime));
	fclose(f);
	site->print = text ? tbg_sites_text(m->sites, text) : NULL;
	free(text);
	return site->print ? 0 : -ENOMEM;
}

static void ids_give(struct tbg_sites *s, const struct tbg_sites *old)
{
	s->next_id = old ? old->next_id : 0;
	for (unsigned int i = 0; i < s->nr; i++) {
		const struct tbg_site *same = NULL;

		for (unsigned int j = 0; old && j < old->nr && !same; j++)
			if (!strcmp(old->site[j].name, s->site[i].name) &&
			    !strcmp(old->site[j].print, s->site[i].print))
				same = &old->site[j];
		s->site[i].id = same ? same->id : s->next_id++;
	}
}

/* --- hosts --------------------------------------------------------------- */

static int host_name_add(struct making *m, struct tbg_site *site,
			 const struct tbg_scope *host, const char *name)
{
	if (tbg_sites_host(m->sites, name, site))
		return 0;
	m->error->line = host->line;
	snprintf(m->error->text, sizeof(m->error->text),
		 "host \"%.100s\": \"%.100s\" is another host's name already, or one more than %d; expected each name once",
		 host->title, name, TBG_HOSTS_MAX);
	return -EEXIST;
}

static int site_names(struct making *m, struct tbg_site *site,
		      const struct tbg_scope *host)
{
	const struct tbg_setting *s = setting_of(host, "alias");
	int err = host_name_add(m, site, host, host->title);

	for (unsigned int i = 0; s && i < s->values_nr && !err; i++)
		err = host_name_add(m, site, host, s->values[i]);
	s = setting_of(host, "default");
	if (!err && s)
		tbg_value_bool(s->values[0], &site->fallback);
	if (err || !site->fallback)
		return err;
	if (!m->sites->fallback) {
		m->sites->fallback = site;
		return 0;
	}
	m->error->line = host->line;
	snprintf(m->error->text, sizeof(m->error->text),
		 "host \"%.100s\": \"%.100s\" is the default already; expected one default",
		 host->title, m->sites->fallback->name);
	return -EEXIST;
}

static int site_make(struct making *m, const struct tbg_scope *host)
{
	struct tbg_site *site = &m->sites->site[m->sites->nr++];
	int err;

	site->sites = m->sites;
	site->name = tbg_sites_text(m->sites, host ? host->title : "");
	if (!site->name)
		return -ENOMEM;
	err = host ? site_names(m, site, host) : 0;
	err = err ?: site_locations(m, site, host);
	return err ?: site_print(m, site, host);
}

static int mime_make(struct making *m)
{
	const struct tbg_setting *file = setting_of(m->top, "media-types");
	const struct tbg_setting *more = setting_of(m->top, "types");

	return tbg_mime_open(&m->sites->mime, file ? file->values[0] : MIME_TYPES,
			     more ? more->values : NULL,
			     more ? more->values_nr : 0);
}

/* A location outside of the hosts would be nobody's. */
static int locations_check(struct making *m)
{
	for (unsigned int i = 0; i < m->top->below_nr; i++) {
		const struct tbg_scope *s = m->top->below[i];

		if (!is_location(s))
			continue;
		m->error->line = s->line;
		snprintf(m->error->text, sizeof(m->error->text),
			 "location \"%.100s\": outside of the hosts; expected it in a host, or no hosts",
			 s->title);
		return -EINVAL;
	}
	return 0;
}

static int sites_make(struct making *m)
{
	const struct tbg_scope *top = m->top;
	unsigned int hosts = 0;
	int err = mime_make(m);

	for (unsigned int i = 0; i < top->below_nr; i++)
		hosts += top->below[i]->kind == TBG_SCOPE_HOST;
	m->sites->site = tbg_sites_alloc(m->sites, (hosts + 1) * sizeof(*m->sites->site));
	if (!m->sites->site || err)
		return -ENOMEM;
	for (unsigned int i = 0; i < top->below_nr && !err; i++)
		if (top->below[i]->kind == TBG_SCOPE_UPSTREAM)
			err = upstream_make(m, top->below[i]);
	for (unsigned int i = 0; i < top->below_nr && !err; i++)
		if (top->below[i]->kind == TBG_SCOPE_HOST)
			err = site_make(m, top->below[i]);
	if (!hosts)
		err = err ?: site_make(m, NULL);
	else
		err = err ?: locations_check(m);
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
	struct making m = { tbg_sites_new(roots), old, top, ret_error };
	int err;

	*ret_error = (struct tbg_settings_error){ .text = "out of memory" };
	err = m.sites ? sites_make(&m) : -ENOMEM;
	if (err) {
		tbg_sites_close(m.sites, NULL, NULL);
		return err;
	}
	*ret = m.sites;
	return 0;
}
