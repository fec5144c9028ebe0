// SPDX-License-Identifier: GPL-2.0
/*
 * Formats one line of the access log from a record: combined, JSON, or fields by name.
 * Text from the client is escaped. No I/O; any thread.
 */
#include "log/line.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* --- one line ------------------------------------------------------------ */

static bool must_escape(unsigned char c)
{
	return c < 0x20 || c == '"' || c == '\\' || c >= 0x7f;
}

/* How a byte is escaped: \xHH, or \u00HH in JSON, because bytes need not be UTF-8. */
static const char *const escapes[] = {
	[TBG_LOG_COMBINED] = "\\x",
	[TBG_LOG_JSON] = "\\u00",
	[TBG_LOG_CUSTOM] = "\\x",
};

static size_t escaped_len(struct tbg_log_text t, enum tbg_log_format format)
{
	size_t more = strlen(escapes[format]) + 1, len = t.len;

	for (size_t i = 0; i < t.len; i++)
		len += must_escape(t.p[i]) ? more : 0;
	return len;
}

static char *escape(char *to, struct tbg_log_text t, enum tbg_log_format format)
{
	static const char hex[] = "0123456789ABCDEF";

	for (size_t i = 0; i < t.len; i++) {
		unsigned char c = t.p[i];

		if (!must_escape(c)) {
			*to++ = c;
			continue;
		}
		to = stpcpy(to, escapes[format]);
		*to++ = hex[c >> 4];
		*to++ = hex[c & 15];
	}
	return to;
}

static struct tbg_log_text cut(struct tbg_log_text t)
{
	if (t.len > TBG_LOG_FIELD_MAX)
		t.len = TBG_LOG_FIELD_MAX;
	return t;
}

/* Returns the text up to the end of the line; *rest is the text after it. */
static struct tbg_log_text line_take(struct tbg_log_text *rest)
{
	const char *lf = memchr(rest->p, '\n', rest->len);
	struct tbg_log_text line = { rest->p, lf ? (size_t)(lf - rest->p) : rest->len };
	size_t used = line.len + (lf != NULL);

	rest->p += used;
	rest->len -= used;
	if (line.len && line.p[line.len - 1] == '\r')
		line.len--;
	return line;
}

/* Returns the field's value without surrounding white space; false: another field. */
static bool field_is(struct tbg_log_text line, const char *name, size_t name_len,
		     struct tbg_log_text *ret)
{
	if (line.len <= name_len || line.p[name_len] != ':' ||
	    strncasecmp(line.p, name, name_len))
		return false;
	line.p += name_len + 1;
	line.len -= name_len + 1;
	while (line.len && (*line.p == ' ' || *line.p == '\t'))
		line.p++, line.len--;
	while (line.len && (line.p[line.len - 1] == ' ' ||
			    line.p[line.len - 1] == '\t'))
		line.len--;
	*ret = line;
	return true;
}

/* Returns the six bits of a base64 character; -1: invalid. */
static int base64_bits(char c)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(letters, c) : NULL;

	return at ? at - letters : -1;
}

/*
 * Decodes base64 up to the first "=", which is optional, as nginx does. Returns the
 * number of bytes in ret, at most TBG_LOG_FIELD_MAX; 0: invalid.
 */
static size_t base64_take(struct tbg_log_text coded, char ret[TBG_LOG_FIELD_MAX])
{
	unsigned int bits = 0;
	size_t nr = 0, len = 0;

	for (; nr < coded.len && coded.p[nr] != '='; nr++) {
		int six = base64_bits(coded.p[nr]);

		if (six < 0)
			return 0;
		bits = bits << 6 | six;
		if (nr % 4 && len < TBG_LOG_FIELD_MAX)
			ret[len++] = bits >> (6 - nr % 4 * 2);
	}
	return nr % 4 == 1 ? 0 : len;
}

/* Takes the user name from Basic authentication (RFC 7617): $remote_user, unverified. */
static void user_take(struct tbg_log_text value, struct tbg_log_parts *ret)
{
	const char *colon;
	size_t len;

	if (value.len < 6 || strncasecmp(value.p, "Basic ", 6))
		return;
	while (value.len > 6 && value.p[6] == ' ')
		value.p++, value.len--;
	len = base64_take((struct tbg_log_text){ value.p + 6, value.len - 6 }, ret->name);
	colon = memchr(ret->name, ':', len);
	if (!colon && len == TBG_LOG_FIELD_MAX)		/* the colon is after the logged part */
		colon = ret->name + len;
	if (colon && colon != ret->name)
		ret->user = (struct tbg_log_text){ ret->name, colon - ret->name };
}

static void head_split(const char *req, size_t len, struct tbg_log_parts *ret)
{
	const struct tbg_log_text none = { "-", 1 };
	struct tbg_log_text rest = { req, len };

	ret->user = ret->request = ret->referer = ret->agent = none;
	ret->host = ret->forwarded = ret->request_id = none;
	/* RFC 9112 2.2: ignore empty lines before the request line */
	while (rest.len && (*rest.p == '\r' || *rest.p == '\n'))
		rest.p++, rest.len--;
	if (!rest.len)
		return;
	ret->request = cut(line_take(&rest));
	while (rest.len) {
		struct tbg_log_text line = line_take(&rest), value;

		if (!line.len)
			break;
		/* log the first of repeated fields, as nginx does */
		if (ret->referer.p == none.p &&
		    field_is(line, "Referer", 7, &value))
			ret->referer = cut(value);
		else if (ret->agent.p == none.p &&
			 field_is(line, "User-Agent", 10, &value))
			ret->agent = cut(value);
		else if (ret->user.p == none.p &&
			 field_is(line, "Authorization", 13, &value))
			user_take(value, ret);
		else if (ret->host.p == none.p && field_is(line, "Host", 4, &value))
			ret->host = cut(value);
		else if (ret->forwarded.p == none.p &&
			 field_is(line, "X-Forwarded-For", 15, &value))
			ret->forwarded = cut(value);
		else if (ret->request_id.p == none.p &&
			 field_is(line, "X-Request-ID", 12, &value))
			ret->request_id = cut(value);
	}
}

const char *tbg_log_peer(const struct tbg_log_record *r, char b[INET6_ADDRSTRLEN])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	const uint8_t *six = (const uint8_t *)r->remote6;
	const void *four = NULL;

	if (r->remote && r->remote->ss_family == AF_INET)
		four = &((const struct sockaddr_in *)r->remote)->sin_addr;
	else if (r->remote && r->remote->ss_family == AF_INET6)
		six = ((const struct sockaddr_in6 *)r->remote)->sin6_addr.s6_addr;
	else if (r->remote)
		return "unix:";
	if (!four && !six)
		return "-";
	if (!four && !memcmp(six, mapped, sizeof(mapped)))
		four = six + 12;
	if (four)
		return inet_ntop(AF_INET, four, b, INET6_ADDRSTRLEN);
	return inet_ntop(AF_INET6, six, b, INET6_ADDRSTRLEN);
}

/* $time_local, computed once per second and thread because localtime_r() takes a lock. */
static const char *time_text(int64_t second)
{
	static const char *const months[] = {
		"Jan", "Feb", "Mar", "Apr", "May", "Jun",
		"Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
	};
	static _Thread_local int64_t known = INT64_MIN;
	static _Thread_local char text[64];
	time_t t = second;
	struct tm tm;
	long off;

	if (second == known)
		return text;
	if (!localtime_r(&t, &tm))
		memset(&tm, 0, sizeof(tm));
	off = tm.tm_gmtoff / 60;
	snprintf(text, sizeof(text), "%02d/%s/%d:%02d:%02d:%02d %c%02ld%02ld",
		 tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900,
		 tm.tm_hour, tm.tm_min, tm.tm_sec, off < 0 ? '-' : '+',
		 labs(off) / 60, labs(off) % 60);
	known = second;
	return text;
}

/* In the format of RFC 3339, in UTC. */
static const char *stamp_text(int64_t second)
{
	static _Thread_local int64_t known = INT64_MIN;
	static _Thread_local char text[64];
	time_t t = second;
	struct tm tm;

	if (second == known)
		return text;
	if (!gmtime_r(&t, &tm) || !strftime(text, sizeof(text), "%FT%TZ", &tm))
		strcpy(text, "-");
	known = second;
	return text;
}

static void piece_add(struct tbg_log_made *l, const char *p, size_t len, bool theirs)
{
	struct tbg_log_text t = { p, len };

	l->len += theirs ? escaped_len(t, l->format) : len;
	l->piece[l->nr].text = t;
	l->piece[l->nr++].theirs = theirs;
}

#define own(l, text) piece_add(l, text, strlen(text), false)
#define theirs(l, text) piece_add(l, (text).p, (text).len, true)

const char *tbg_log_tier_text(enum tbg_tier tier)
{
	static const char *const names[] = {
#define X(name) #name,
		TBG_TIER_LIST(X)
#undef X
	};

	return tier < TBG_TIER_NR ? names[tier] : "?";
}

/* Combines the line's own texts with the client's. agent: the text before its agent. */
static void line_join(struct tbg_log_made *l, const char *agent)
{
	const struct tbg_log_parts *p = &l->parts;

	own(l, l->begin);
	theirs(l, p->user);
	own(l, l->time);
	theirs(l, p->request);
	own(l, l->middle);
	theirs(l, p->referer);
	own(l, agent);
	theirs(l, p->agent);
	own(l, l->end);
}

/* Makes nginx's combined format, then tier, reason and seconds. */
static void combined_make(const struct tbg_log_record *r, struct tbg_log_made *l)
{
	char b[INET6_ADDRSTRLEN];

	head_split(r->req, r->req_len, &l->parts);
	snprintf(l->begin, sizeof(l->begin), "%s - ", tbg_log_peer(r, b));
	snprintf(l->time, sizeof(l->time), " [%s] \"", time_text(r->second));
	snprintf(l->middle, sizeof(l->middle), "\" %u %llu \"", r->status,
		 (unsigned long long)r->body);
	snprintf(l->end, sizeof(l->end), "\" %s %s %llu.%06llu\n",
		 tbg_log_tier_text(r->tier), r->reason ?: "-",
		 (unsigned long long)(r->took_ns / 1000000000),
		 (unsigned long long)(r->took_ns / 1000 % 1000000));
	line_join(l, "\" \"");
}

static void json_make(const struct tbg_log_record *r, struct tbg_log_made *l)
{
	char b[INET6_ADDRSTRLEN];

	head_split(r->req, r->req_len, &l->parts);
	snprintf(l->begin, sizeof(l->begin), "{\"time\":\"%s\",\"remote\":\"%s\",\"user\":\"",
		 stamp_text(r->second), tbg_log_peer(r, b));
	strcpy(l->time, "\",\"request\":\"");
	snprintf(l->middle, sizeof(l->middle), "\",\"status\":%u,\"body\":%llu,\"referer\":\"",
		 r->status, (unsigned long long)r->body);
	snprintf(l->end, sizeof(l->end), "\",\"tier\":\"%s\",\"reason\":\"%s\",\"seconds\":%llu.%06llu}\n",
		 tbg_log_tier_text(r->tier), r->reason ?: "-",
		 (unsigned long long)(r->took_ns / 1000000000),
		 (unsigned long long)(r->took_ns / 1000 % 1000000));
	line_join(l, "\",\"agent\":\"");
}

/* --- fields by name ------------------------------------------------------ */

static struct tbg_log_text word_of(struct tbg_log_text request, unsigned int nr)
{
	const struct tbg_log_text none = { "-", 1 };
	const char *at = request.p, *end = at + request.len;

	for (; nr; nr--) {
		at = memchr(at, ' ', end - at);
		if (!at)
			return none;
		at++;
	}
	end = memchr(at, ' ', end - at) ?: end;
	return end > at ? (struct tbg_log_text){ at, end - at } : none;
}

/* Adds a formatted text, which is stored in the line. */
__attribute__((format(printf, 2, 3)))
static void ours(struct tbg_log_made *l, const char *format, ...)
{
	char *at = l->own + l->own_len;
	size_t room = sizeof(l->own) - l->own_len;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(at, room, format, args);
	va_end(args);
	if (n < 0)
		n = 0;
	if ((size_t)n >= room)
		n = room - 1;
	l->own_len += n;
	piece_add(l, at, n, false);
}

static void seconds_put(struct tbg_log_made *l, uint64_t ns)
{
	ours(l, "%llu.%06llu", (unsigned long long)(ns / 1000000000),
	     (unsigned long long)(ns / 1000 % 1000000));
}

/*
 * Finds the text of a field that is escaped: one sent by the client, a proxy's request id,
 * or a name from the configuration. Returns false for all other fields.
 */
static bool escaped_text(const struct tbg_log_parts *p, const struct tbg_log_record *r,
			 enum tbg_log_field field, struct tbg_log_text *ret)
{
	const char *name = r->upstream ?: "-";

	switch (field) {
	case TBG_LOG_FIELD_user:
		*ret = p->user;
		return true;
	case TBG_LOG_FIELD_request:
		*ret = p->request;
		return true;
	case TBG_LOG_FIELD_method:
		*ret = word_of(p->request, 0);
		return true;
	case TBG_LOG_FIELD_target:
		*ret = word_of(p->request, 1);
		return true;
	case TBG_LOG_FIELD_protocol:
		*ret = word_of(p->request, 2);
		return true;
	case TBG_LOG_FIELD_referer:
		*ret = p->referer;
		return true;
	case TBG_LOG_FIELD_agent:
		*ret = p->agent;
		return true;
	case TBG_LOG_FIELD_host:
		*ret = p->host;
		return true;
	case TBG_LOG_FIELD_forwarded_for:
		*ret = p->forwarded;
		return true;
	case TBG_LOG_FIELD_request_id:
		*ret = r->request_id ? (struct tbg_log_text){ r->request_id, r->request_id_len } :
				       p->request_id;
		return true;
	case TBG_LOG_FIELD_upstream:
		*ret = (struct tbg_log_text){ name, strlen(name) };
		return true;
	default:
		return false;
	}
}

static void own_put(struct tbg_log_made *l, const struct tbg_log_record *r,
		    enum tbg_log_field field)
{
	char b[INET6_ADDRSTRLEN];

	switch (field) {
	case TBG_LOG_FIELD_remote:
		ours(l, "%s", tbg_log_peer(r, b));
		break;
	case TBG_LOG_FIELD_client:
		ours(l, "%s", r->client ?: tbg_log_peer(r, b));
		break;
	case TBG_LOG_FIELD_time:
		ours(l, "%s", time_text(r->second));
		break;
	case TBG_LOG_FIELD_time_iso:
		ours(l, "%s", stamp_text(r->second));
		break;
	case TBG_LOG_FIELD_status:
		ours(l, "%u", r->status);
		break;
	case TBG_LOG_FIELD_body_bytes:
		ours(l, "%llu", (unsigned long long)r->body);
		break;
	case TBG_LOG_FIELD_bytes:
		ours(l, "%llu", (unsigned long long)r->sent);
		break;
	case TBG_LOG_FIELD_upstream_seconds:
		if (r->upstream)
			seconds_put(l, r->upstream_ns);
		else
			own(l, "-");
		break;
	case TBG_LOG_FIELD_tier:
		own(l, tbg_log_tier_text(r->tier));
		break;
	case TBG_LOG_FIELD_reason:
		own(l, r->reason ?: "-");
		break;
	case TBG_LOG_FIELD_seconds:
		seconds_put(l, r->took_ns);
		break;
	default:
		break;
	}
}

static void field_put(struct tbg_log_made *l, const struct tbg_log_record *r,
		      enum tbg_log_field field)
{
	struct tbg_log_text text;

	if (escaped_text(&l->parts, r, field, &text))
		theirs(l, text);
	else
		own_put(l, r, field);
}

static const char *const field_names[] = {
#define X(name) #name,
	TBG_LOG_FIELD_LIST(X)
#undef X
};

static size_t name_len(const char *at)
{
	return strspn(at, "abcdefghijklmnopqrstuvwxyz_");
}

/* Returns the field of that name; TBG_LOG_FIELD_NR: unknown. */
static enum tbg_log_field field_find(const char *name, size_t len)
{
	int i = 0;

	while (i < TBG_LOG_FIELD_NR && (strlen(field_names[i]) != len ||
					memcmp(field_names[i], name, len)))
		i++;
	return i;
}

static void custom_make(const struct tbg_log_record *r, const char *at,
			struct tbg_log_made *l)
{
	head_split(r->req, r->req_len, &l->parts);
	while (*at) {
		size_t len = strcspn(at, "$");

		if (len)
			piece_add(l, at, len, false);
		at += len;
		if (!*at)
			break;
		len = name_len(at + 1);
		field_put(l, r, field_find(at + 1, len));
		at += 1 + len;
	}
	own(l, "\n");
}

bool tbg_log_pattern_check(const char *pattern, char *ret_msg, size_t msg_len)
{
	unsigned int nr = 1;

	if (!strchr(pattern, '$') || pattern[strcspn(pattern, "\r\n")]) {
		snprintf(ret_msg, msg_len, "no field in it, or a line break");
		return false;
	}
	for (const char *at = strchr(pattern, '$'); at; at = strchr(at + 1, '$')) {
		size_t len = name_len(at + 1);

		nr += 2;
		if (field_find(at + 1, len) == TBG_LOG_FIELD_NR) {
			snprintf(ret_msg, msg_len, "$%.*s: no field of that name", (int)len,
				 at + 1);
			return false;
		}
	}
	if (nr <= TBG_LOG_PIECES)
		return true;
	snprintf(ret_msg, msg_len, "more than %d fields", TBG_LOG_PIECES / 2 - 1);
	return false;
}

static const char *format_name(enum tbg_log_format format)
{
	static const char *const names[] = {
#define X(name, text) text,
		TBG_LOG_FORMAT_LIST(X)
#undef X
	};

	return names[format];
}

bool tbg_log_format_find(const char *v, enum tbg_log_format *ret, char *ret_msg, size_t msg_len)
{
	if (strchr(v, '$')) {
		*ret = TBG_LOG_CUSTOM;
		return tbg_log_pattern_check(v, ret_msg, msg_len);
	}
	if (msg_len)
		*ret_msg = 0;
	for (*ret = 0; *ret < TBG_LOG_CUSTOM; (*ret)++)
		if (!strcmp(v, format_name(*ret)))
			return true;
	return false;
}

/* --- complete lines ------------------------------------------------------ */

void tbg_log_make(struct tbg_log_made *ret, const struct tbg_log_record *r,
		  enum tbg_log_format format, const char *pattern)
{
	ret->nr = 0;
	ret->len = 0;
	ret->own_len = 0;
	ret->format = format;
	if (pattern && *pattern)
		custom_make(r, pattern, ret);
	else if (format == TBG_LOG_JSON)
		json_make(r, ret);
	else
		combined_make(r, ret);
}

void tbg_log_put(const struct tbg_log_made *l, char *to)
{
	for (unsigned int i = 0; i < l->nr; i++)
		to = l->piece[i].theirs ? escape(to, l->piece[i].text, l->format) :
			mempcpy(to, l->piece[i].text.p, l->piece[i].text.len);
}

size_t tbg_log_line(char *ret, size_t size, enum tbg_log_format format,
		    const struct tbg_log_record *r)
{
	struct tbg_log_made line;

	tbg_log_make(&line, r, format, format == TBG_LOG_CUSTOM ? "$request" : NULL);
	if (line.len <= size)
		tbg_log_put(&line, ret);
	return line.len;
}
