// SPDX-License-Identifier: GPL-2.0
/*
 * Selects servers without a lock: the shared counters are hints, and a turn that two
 * workers take costs nothing.
 */
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/un.h>

#include "upstream/address.h"
#include "upstream/pool_command.h"
#include "os/message.h"
#include "upstream/upstream.h"
#include "os/units.h"

#define OWN_BYTES 16	/* of a random name */
#define LOG_INTERVAL_NS	  (10 * 1000000000ll)

static const struct {
	const char *name;
	bool root;
} protocols[] = {
#define X(name, text, root) { text, root },
	TBG_PROTOCOL_LIST(X)
#undef X
};

bool tbg_protocol_find(const char *name, uint8_t *ret)
{
	for (uint8_t i = 0; i < TBG_PROTOCOL_NR; i++) {
		if (strcmp(protocols[i].name, name))
			continue;
		*ret = i;
		return true;
	}
	return false;
}

bool tbg_protocol_needs_root(uint8_t protocol)
{
	return protocols[protocol].root;
}

bool tbg_protocol_needs_length(uint8_t protocol)
{
	return protocol != TBG_PROTOCOL_HTTP;
}

/* Addresses of servers */

static bool unix_set(struct tbg_backend *b, const char *path)
{
	struct sockaddr_un *a = (struct sockaddr_un *)&b->address;

	if (*path != '/' || strlen(path) >= sizeof(a->sun_path))
		return false;
	a->sun_family = AF_UNIX;
	strcpy(a->sun_path, path);
	b->address_len = sizeof(*a);
	strcpy(b->authority, "localhost");
	return true;
}

/*
 * Parses HOST[:PORT] or [ADDR6][:PORT], with an optional final slash. A name without
 * addresses leaves the server without an address.
 */
static bool inet_set(struct tbg_backend *b, const char *text, uint8_t protocol,
		     unsigned int nr)
{
	const char *usual = protocol == TBG_PROTOCOL_HTTP ? "80" : NULL;
	size_t len = strcspn(text, "/");
	char host[256], *name = host, *port;
	unsigned int number;
	int err;

	if (!len || len >= sizeof(host) || (text[len] && text[len + 1]))
		return false;
	snprintf(host, sizeof(host), "%.*s", (int)len, text);
	strcpy(b->authority, host);
	port = strrchr(host, ':');
	if (*host == '[') {
		char *end = strchr(host, ']');

		if (!end || (end[1] && end[1] != ':') || !memchr(host, ':', end - host))
			return false;
		port = end[1] ? end + 1 : NULL;
		*end = 0;
		name++;
	}
	if (port)
		*port++ = 0;
	if (!*name || (port ? !tbg_value_number(port, 1, 65535, &number) : !usual))
		return false;
	err = tbg_address_find(name, port ?: usual, nr, &b->address, &b->address_len);
	return !err || (err == EAI_AGAIN && !nr);
}

bool tbg_backend_parse(const char *text, uint8_t protocol, bool bare, unsigned int nr,
		       struct tbg_backend *ret)
{
	const char *name = protocols[protocol].name;
	size_t len = strlen(name);
	bool scheme = !strncasecmp(text, name, len) && !strncmp(text + len, "://", 3);

	*ret = (struct tbg_backend){ 0 };
	if (strlen(text) >= sizeof(ret->text))
		return false;
	strcpy(ret->text, text);
	if (scheme)
		text += len + 3;
	if (!strncmp(text, "unix:", 5))
		return !nr && unix_set(ret, text + 5);
	return (scheme || bare) && inet_set(ret, text, protocol, nr);
}

int tbg_backend_own(struct tbg_backend *ret, const char *text)
{
	struct sockaddr_un *a = (struct sockaddr_un *)&ret->address;
	uint8_t name[OWN_BYTES];
	char *to = a->sun_path + 1;	/* after the NUL that makes it an abstract address */

	*ret = (struct tbg_backend){ 0 };
	if (getrandom(name, sizeof(name), 0) != sizeof(name))
		return -errno;
	a->sun_family = AF_UNIX;
	to += sprintf(to, "toboggan-");
	for (int i = 0; i < OWN_BYTES; i++)
		to += sprintf(to, "%02x", name[i]);
	ret->address_len = to - (char *)a;
	snprintf(ret->text, sizeof(ret->text), "%s", text);
	strcpy(ret->authority, "localhost");
	return 0;
}

/* Life */

static void script_free(struct tbg_script *s)
{
	for (unsigned int i = 0; i < s->params_nr; i++)
		free((char *)s->params[i]);
	free(s->params);
	free((char *)s->root);
	free((char *)s->file);
	free((char *)s->index);
	free((char *)s->split);
}

/* Returns false without memory; the copies made so far can be freed. */
static bool text_copy(const char **ret, const char *text)
{
	*ret = text ? strdup(text) : NULL;
	return !*ret == !text;
}

static bool script_copy(struct tbg_script *ret, const struct tbg_script *s)
{
	bool ok;

	*ret = (struct tbg_script){ .params = calloc(s->params_nr + 1, sizeof(*s->params)) };
	ok = text_copy(&ret->root, s->root) & text_copy(&ret->file, s->file) &
	     text_copy(&ret->index, s->index) & text_copy(&ret->split, s->split);
	while (ok && ret->params && ret->params_nr < s->params_nr) {
		ok = text_copy(&ret->params[ret->params_nr], s->params[ret->params_nr]);
		ret->params_nr++;
	}
	return ok && ret->params;
}

static bool text_same(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool script_same(const struct tbg_script *a, const struct tbg_script *b)
{
	bool same = a->params_nr == b->params_nr && text_same(a->root, b->root) &&
		    text_same(a->file, b->file) && text_same(a->index, b->index) &&
		    text_same(a->split, b->split);

	for (unsigned int i = 0; same && i < a->params_nr; i++)
		same = !strcmp(a->params[i], b->params[i]);
	return same;
}

struct tbg_upstream *tbg_upstream_new(const char *name, const char *servers,
				      const struct tbg_upstream_settings *settings)
{
	static _Atomic uint32_t ids;
	struct tbg_upstream *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->settings = *settings;
	u->name = strdup(name);
	u->servers = strdup(servers);
	atomic_store(&u->refs, 1);
	u->id = atomic_fetch_add(&ids, 1) + 1;
	if (text_copy(&u->settings.health_path, settings->health_path) &
	    script_copy(&u->settings.script, &settings->script) && u->name && u->servers)
		return u;
	tbg_upstream_put(u);
	return NULL;
}

bool tbg_upstream_add(struct tbg_upstream *u, const struct tbg_backend *b)
{
	static _Atomic uint32_t ids;
	struct tbg_backend *more;

	if (u->nr == TBG_BACKEND_MAX)
		return false;
	more = reallocarray(u->backends, u->nr + 1, sizeof(*more));
	if (!more)
		return false;
	u->backends = more;
	more[u->nr] = *b;
	more[u->nr].upstream = u;
	more[u->nr].id = atomic_fetch_add(&ids, 1);
	more[u->nr].nr = u->nr;
	u->nr++;
	return true;
}

static bool settings_same(const struct tbg_upstream_settings *a,
			  const struct tbg_upstream_settings *b)
{
	return a->protocol == b->protocol && a->least == b->least &&
	       a->connect_ms == b->connect_ms &&
	       a->first_byte_ms == b->first_byte_ms &&
	       a->idle_ms == b->idle_ms && a->keep_ms == b->keep_ms &&
	       a->health_ms == b->health_ms &&
	       text_same(a->health_path, b->health_path) &&
	       script_same(&a->script, &b->script);
}

/* Same configuration; the addresses of names in it may differ. */
static bool words_same(const struct tbg_upstream *a, const struct tbg_upstream *b)
{
	return !strcmp(a->name, b->name) && !strcmp(a->servers, b->servers) &&
	       settings_same(&a->settings, &b->settings);
}

static bool backend_same(const struct tbg_backend *a, const struct tbg_backend *b)
{
	return !strcmp(a->text, b->text) && a->address_len == b->address_len &&
	       !memcmp(&a->address, &b->address, a->address_len);
}

bool tbg_upstream_same(const struct tbg_upstream *a, const struct tbg_upstream *b)
{
	bool same = a->nr == b->nr && words_same(a, b);

	if (a->command && b->command)
		return same;		/* the name contains all settings of a pool */
	for (unsigned int i = 0; same && i < a->nr; i++)
		same = backend_same(&a->backends[i], &b->backends[i]);
	return same;
}

/* Copies the state of a server, except for requests in progress. */
static void backend_follow(struct tbg_backend *b, struct tbg_backend *old)
{
	atomic_store(&b->failures, atomic_load(&old->failures));
	atomic_store(&b->rest_ns, atomic_load(&old->rest_ns));
	atomic_store(&b->starved_ns, atomic_load(&old->starved_ns));
	atomic_store(&b->apart_ns, atomic_load(&old->apart_ns));
	atomic_store(&b->requests, atomic_load(&old->requests));
	atomic_store(&b->failed, atomic_load(&old->failed));
	atomic_store(&b->logged, atomic_load(&old->logged));
	atomic_store(&b->logged_ns, atomic_load(&old->logged_ns));
}

void tbg_upstream_follow(struct tbg_upstream *u, struct tbg_upstream *old)
{
	if (u->command || old->command || !words_same(u, old))
		return;
	u->id = old->id;
	for (unsigned int i = 0; i < u->nr; i++)
		for (unsigned int j = 0; j < old->nr; j++)
			if (backend_same(&u->backends[i], &old->backends[j]))
				backend_follow(&u->backends[i], &old->backends[j]);
}

bool tbg_upstream_module(const struct tbg_upstream *u)
{
	return u->command && u->command->kind == TBG_POOL_MODULE;
}

struct tbg_upstream *tbg_upstream_get(struct tbg_upstream *u)
{
	atomic_fetch_add(&u->refs, 1);
	return u;
}

void tbg_upstream_put(struct tbg_upstream *u)
{
	if (!u || atomic_fetch_sub(&u->refs, 1) != 1)
		return;
	free((char *)u->settings.health_path);
	script_free(&u->settings.script);
	free(u->name);
	free(u->servers);
	free(u->backends);
	free(u->command);
	free(u);
}

/* Selection */

bool tbg_backend_rests(const struct tbg_backend *b, uint64_t now_ns)
{
	return atomic_load_explicit(&b->rest_ns, memory_order_relaxed) > now_ns;
}

/* Collects untried servers, with or without resting ones. Returns their number. */
static unsigned int left(struct tbg_upstream *u, uint32_t tried, bool resting,
			 uint64_t now_ns, struct tbg_backend **ret)
{
	unsigned int nr = 0;

	for (unsigned int i = 0; i < u->nr; i++) {
		struct tbg_backend *b = &u->backends[i];

		if (!(tried & 1u << i) && (resting || !tbg_backend_rests(b, now_ns)))
			ret[nr++] = b;
	}
	return nr;
}

struct tbg_backend *tbg_upstream_choose(struct tbg_upstream *u, uint32_t tried,
					uint64_t now_ns)
{
	/* a retry takes no turn: of two servers, always the same one would be first */
	uint32_t turn = atomic_fetch_add_explicit(&u->turn, !tried, memory_order_relaxed);
	struct tbg_backend *all[TBG_BACKEND_MAX], *best;
	unsigned int nr = left(u, tried, false, now_ns, all) ?:
			  left(u, tried, true, now_ns, all);

	if (!nr)
		return NULL;
	/* only among usable ones, so that none gets the turns of a resting server as well */
	best = all[turn % nr];
	for (unsigned int i = 1; u->settings.least && i < nr; i++) {
		struct tbg_backend *b = all[(turn + i) % nr];

		if (atomic_load(&b->active) < atomic_load(&best->active))
			best = b;
	}
	return best;
}

/*
 * Logs a change of state: a worse state at once; a continued failure or a recovery not
 * within LOG_INTERVAL_NS of the last message. The gateway logs for local pools.
 */
__attribute__((format(printf, 4, 5)))
static void backend_log(struct tbg_backend *b, enum tbg_news news, uint64_t now_ns,
			const char *format, ...)
{
	uint64_t logged_ns = atomic_load(&b->logged_ns);
	uint32_t logged = atomic_load(&b->logged);
	bool due = (int64_t)(now_ns - logged_ns) >= LOG_INTERVAL_NS;
	enum tbg_report_level level = news == TBG_NEWS_WELL ? TBG_REPORT_NOTICE :
							     TBG_REPORT_WARNING;
	bool again = news == TBG_NEWS_FAILED && logged == news;
	char text[256];
	va_list args;

	if (b->upstream->command || !(news > logged || (due && (again || (logged && !news)))) ||
	    !atomic_compare_exchange_strong(&b->logged_ns, &logged_ns, now_ns))
		return;
	atomic_store(&b->logged, news);
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (strcmp(b->upstream->name, b->text))
		tbg_report_at(level, "upstream %s: server %s: %s", b->upstream->name, b->text, text);
	else
		tbg_report_at(level, "upstream %s: %s", b->text, text);
}

void tbg_backend_worked(struct tbg_backend *b, uint64_t now_ns)
{
	uint32_t logged = atomic_load_explicit(&b->logged, memory_order_relaxed);

	if (atomic_load_explicit(&b->failures, memory_order_relaxed))
		atomic_store_explicit(&b->failures, 0, memory_order_relaxed);
	/* only a health check clears the result of a health check */
	if (logged && logged != TBG_NEWS_SICK &&
	    (b->upstream->nr == 1 || !tbg_backend_rests(b, now_ns)))
		backend_log(b, TBG_NEWS_WELL, now_ns, "answers again");
}

void tbg_backend_failed(struct tbg_backend *b, const char *why, uint64_t now_ns)
{
	uint64_t until_ns = now_ns + TBG_BACKEND_REST_NS, rest_ns = atomic_load(&b->rest_ns);
	bool rested = rest_ns > now_ns;

	atomic_fetch_add_explicit(&b->failed, 1, memory_order_relaxed);
	backend_log(b, TBG_NEWS_FAILED, now_ns, "%s", why);
	if (atomic_fetch_add(&b->failures, 1) + 1 < TBG_BACKEND_FAILURES)
		return;
	/* a failed health check may have set a later time */
	while (rest_ns < until_ns &&
	       !atomic_compare_exchange_weak(&b->rest_ns, &rest_ns, until_ns))
		;
	if (!rested && b->upstream->nr > 1)
		backend_log(b, TBG_NEWS_RESTS, now_ns, "%s; after %u failures in a row it rests",
			    why, TBG_BACKEND_FAILURES);
}

void tbg_backend_found(struct tbg_backend *b, unsigned int status, uint64_t now_ns)
{
	bool well = status >= 200 && status < 400;

	if (well)
		atomic_store(&b->failures, 0);
	atomic_store(&b->rest_ns, well ? 0 : UINT64_MAX);
	if (well && atomic_load(&b->logged) >= TBG_NEWS_RESTS)
		backend_log(b, TBG_NEWS_WELL, now_ns, "its health check succeeds");
	else if (!well && status)
		backend_log(b, TBG_NEWS_SICK, now_ns,
			    "its health check got %u; not used until one succeeds", status);
	else if (!well)
		backend_log(b, TBG_NEWS_SICK, now_ns,
			    "its health check failed; not used until one succeeds");
}
