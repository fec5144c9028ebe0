// SPDX-License-Identifier: GPL-2.0
/*
 * One table of paths. Changes need a POST with the token; everything else is read-only.
 * Answers are never cached, and no other page may frame them.
 */
#include "admin/answer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <jansson.h>

#include "admin/exposition.h"
#include "admin/page.h"
#include "http/reply.h"
#include "http/request.h"
#include "os/clock.h"
#include "serve/server.h"

#define BEAT_NS		10000000000ull	/* limit for silence of the control thread */
#define OBJECTS_MAX	10000
#define OBJECTS_USUAL	100
#define FIELD_ROOM	512
#define OPENMETRICS	"application/openmetrics-text"

static char *respond(unsigned int status, const char *type, const char *fields,
		     const void *body, size_t body_len, bool head, bool close,
		     size_t *ret_len)
{
	char *ret;
	int n;

	n = asprintf(&ret, "HTTP/1.1 %u %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
		     "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n%s%s\r\n",
		     status, tbg_status_text(status), type, body_len, fields,
		     close ? "Connection: close\r\n" : "");
	if (n < 0)
		return NULL;
	*ret_len = n;
	if (!head && body_len) {
		char *whole = realloc(ret, n + body_len);

		if (!whole) {
			free(ret);
			return NULL;
		}
		ret = whole;
		memcpy(ret + n, body, body_len);
		*ret_len += body_len;
	}
	return ret;
}

char *tbg_admin_error(unsigned int status, const char *line, size_t *ret_len)
{
	return respond(status, "text/plain; charset=utf-8",
		       status == 401 ? "WWW-Authenticate: Bearer\r\n" :
		       status == 405 ? "Allow: GET, HEAD, POST\r\n" : "",
		       line, strlen(line), false, true, ret_len);
}

struct asked {
	struct tbg_server *s;
	const struct tbg_admin_request *r;
	struct tbg_admin_answer *ret;
};

static bool answer(const struct asked *a, unsigned int status, const char *type,
		   const char *fields, const void *body, size_t len)
{
	a->ret->text = respond(status, type, fields, body, len, a->r->is_head,
			       a->r->close, &a->ret->len);
	return a->ret->text;
}

static bool error_answer(const struct asked *a, unsigned int status, const char *line)
{
	a->ret->text = tbg_admin_error(status, line, &a->ret->len);
	return a->ret->text;
}

static bool ask(const struct asked *a, json_t *line)
{
	a->ret->ask = line ? json_dumps(line, JSON_COMPACT) : NULL;
	json_decref(line);
	return a->ret->ask;
}

/* --- the query ----------------------------------------------------------- */

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ?
	       (c | 32) - 'a' + 10 : -1;
}

/* Returns the percent-decoded value of a parameter, which the caller frees; NULL: missing. */
static char *parameter(const struct tbg_admin_request *r, const char *name)
{
	const char *at = r->query, *end = at + r->query_len;
	size_t name_len = strlen(name);

	while (at && at < end) {
		const char *next = memchr(at, '&', end - at) ?: end;
		char *ret, *to;

		if ((size_t)(next - at) <= name_len || at[name_len] != '=' ||
		    memcmp(at, name, name_len)) {
			at = next + 1;
			continue;
		}
		ret = to = malloc(next - at);
		for (at += name_len + 1; ret && at < next; at++) {
			bool coded = *at == '%' && next - at > 2 && hex(at[1]) >= 0 &&
				     hex(at[2]) >= 0;

			*to++ = coded ? hex(at[1]) << 4 | hex(at[2]) : *at == '+' ? ' ' : *at;
			at += coded ? 2 : 0;
		}
		if (ret)
			*to = 0;
		return ret;
	}
	return NULL;
}

/* --- read-only requests -------------------------------------------------- */

static bool page_show(const struct asked *a)
{
	return answer(a, 200, "text/html; charset=utf-8",
		      "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; "
		      "script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; "
		      "form-action 'none'; frame-ancestors 'none'\r\n"
		      "Referrer-Policy: no-referrer\r\n", tbg_admin_page, tbg_admin_page_end -
		      tbg_admin_page);
}

static bool metrics_show(const struct asked *a)
{
	char accept[FIELD_ROOM];
	size_t len = tbg_message_list((const uint8_t *)a->r->head, a->r->head_len, "Accept",
				      accept, sizeof(accept));
	bool open = memmem(accept, len < sizeof(accept) ? len : sizeof(accept), OPENMETRICS,
			   strlen(OPENMETRICS));
	size_t text_len;
	char *text = tbg_exposition(a->s, open, &text_len);
	bool ret;

	if (!text)
		return false;
	ret = answer(a, 200, open ? OPENMETRICS "; version=1.0.0; charset=utf-8" :
		     "text/plain; version=0.0.4; charset=utf-8", "", text, text_len);
	free(text);
	return ret;
}

static bool ready_show(const struct asked *a)
{
	bool draining = atomic_load(&a->s->draining);
	const char *line = draining ? "draining\n" : "ready\n";

	return answer(a, draining ? 503 : 200, "text/plain; charset=utf-8", "", line,
		      strlen(line));
}

/* Checks the control thread, which sets beat_ns every 100 ms. */
static bool live_show(const struct asked *a)
{
	uint64_t beat_ns = atomic_load(&a->s->beat_ns);
	bool live = !beat_ns || tbg_mono_ns() - beat_ns < BEAT_NS;
	const char *line = live ? "live\n" : "the control thread does not move\n";

	return answer(a, live ? 200 : 503, "text/plain; charset=utf-8", "", line, strlen(line));
}

static bool status_ask(const struct asked *a)
{
	return ask(a, json_pack("{s:s}", "cmd", "status"));
}

static bool stats_ask(const struct asked *a)
{
	return ask(a, json_pack("{s:s}", "cmd", "stats"));
}

static bool objects_ask(const struct asked *a)
{
	char *limit = parameter(a->r, "limit");
	long nr = limit ? strtol(limit, NULL, 10) : OBJECTS_USUAL;

	free(limit);
	if (nr < 1 || nr > OBJECTS_MAX)
		return error_answer(a, 400, "limit: expected a number from 1 to 10000\n");
	return ask(a, json_pack("{s:s, s:i}", "cmd", "objects", "limit", (int)nr));
}

static bool why_ask(const struct asked *a)
{
	char *url = parameter(a->r, "url");
	json_t *line = url ? json_pack("{s:s, s:s}", "cmd", "why", "url", url) : NULL;

	free(url);
	return line ? ask(a, line) : error_answer(a, 400, "url: expected a URL or a path\n");
}

/* --- changes ------------------------------------------------------------- */

/* The body is a JSON object of arguments, or empty. */
static bool change(const struct asked *a, const char *cmd)
{
	json_t *line = a->r->body_len ? json_loadb(a->r->body, a->r->body_len, 0, NULL) :
					json_object();

	if (!json_is_object(line)) {
		json_decref(line);
		return error_answer(a, 400, "expected a JSON object\n");
	}
	json_object_set_new(line, "cmd", json_string(cmd));
	return ask(a, line);
}

static bool purge_ask(const struct asked *a)
{
	return change(a, "purge");
}

static bool warm_ask(const struct asked *a)
{
	return change(a, "warm");
}

static bool deny_ask(const struct asked *a)
{
	return change(a, "deny");
}

static bool reload_ask(const struct asked *a)
{
	return change(a, "reload");
}

static const struct {
	const char *path;
	bool changes;
	bool (*fn)(const struct asked *a);
} table[] = {
	{ "/", false, page_show },
	{ "/metrics", false, metrics_show },
	{ "/ready", false, ready_show },
	{ "/live", false, live_show },
	{ "/api/status", false, status_ask },
	{ "/api/stats", false, stats_ask },
	{ "/api/objects", false, objects_ask },
	{ "/api/why", false, why_ask },
	{ "/api/purge", true, purge_ask },
	{ "/api/warm", true, warm_ask },
	{ "/api/deny", true, deny_ask },
	{ "/api/reload", true, reload_ask },
};

/* Compares in constant time. */
static bool same(const char *a, const char *b, size_t len)
{
	unsigned char differs = 0;

	for (size_t i = 0; i < len; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

/* "Authorization: Bearer TOKEN" */
static bool authorized(const struct tbg_admin_request *r, const char *token)
{
	static const char scheme[] = "Bearer ";
	size_t len, at, skip = strlen(scheme);
	char field[FIELD_ROOM];

	len = tbg_message_list((const uint8_t *)r->head, r->head_len, "Authorization", field,
			       sizeof(field));
	for (at = 0; at < len && strchr(" \t", field[at]); at++)
		;
	while (len > at && strchr(" \t", field[len - 1]))
		len--;
	len -= at;
	return len > skip && !strncasecmp(field + at, scheme, skip) &&
	       len - skip == strlen(token) && same(field + at + skip, token, len - skip);
}

bool tbg_admin_answer(struct tbg_server *s, const char *token,
		      const struct tbg_admin_request *r, struct tbg_admin_answer *ret)
{
	struct asked a = { s, r, ret };
	size_t i = 0;

	*ret = (struct tbg_admin_answer){ 0 };
	while (i < sizeof(table) / sizeof(*table) && strcmp(table[i].path, r->path))
		i++;
	if (i == sizeof(table) / sizeof(*table))
		return error_answer(&a, 404, "there are /, /metrics, /ready, /live and /api/...\n");
	if (table[i].changes ? !r->post : !r->get && !r->is_head)
		return error_answer(&a, 405, table[i].changes ? "expected POST\n" :
				    "expected GET\n");
	if (table[i].changes && !token)
		return error_answer(&a, 403, "no token is configured: see admin-token in toboggan.conf(5)\n");
	if (table[i].changes && !authorized(r, token))
		return error_answer(&a, 401, "expected Authorization: Bearer with the admin token\n");
	return table[i].fn(&a);
}

/* Returns the last line, the answer after progress lines. */
static const char *line_last(const char *text, size_t *len)
{
	const char *before = *len ? memrchr(text, '\n', *len - 1) : NULL;

	if (!before)
		return text;
	*len -= before + 1 - text;
	return before + 1;
}

char *tbg_admin_answered(const char *text, size_t len, bool close, size_t *ret_len)
{
	static const char ok[] = "{\"ok\":true";
	bool good;

	if (!text)
		return tbg_admin_error(503, "the control thread gave no answer\n", ret_len);
	text = line_last(text, &len);
	good = len >= strlen(ok) && !memcmp(text, ok, strlen(ok));
	return respond(good ? 200 : 400, "application/json", "", text, len, false, close,
		       ret_len);
}
