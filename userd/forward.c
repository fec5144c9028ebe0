// SPDX-License-Identifier: GPL-2.0
/*
 * Fields are dropped by name, all else is passed on as it came and in its
 * order. What we say of the client ourselves replaces what the client said,
 * but for the lists that hops add to.
 */
#include <string.h>

#include "abi/cache.h"
#include "forward.h"
#include "gateway/order.h"
#include "policy.h"

#define NR(a) (sizeof(a) / sizeof(*(a)))

/* Named by a Connection field of these lines. Rarely asked: see names_others(). */
static bool connection_names(const char *b, size_t len, struct tbg_value name)
{
	return tbg_elements_have(b, len, TBG_VALUE("Connection"), name);
}

/* Whether a Connection field names any that would not be dropped anyway. */
static bool names_others(const char *b, size_t len)
{
	struct tbg_elements all = { .b = b, .len = len };
	struct tbg_value one;

	while (tbg_elements_next(&all, TBG_VALUE("Connection"), &one))
		if (!tbg_field_hops(one))
			return true;
	return false;
}

/* Whether a quoted string is open at its end: what follows would be part of that. */
static bool open_quoted(struct tbg_value v)
{
	bool quoted = false;

	for (size_t i = 0; i < v.len; i++) {
		if (v.text[i] == '"')
			quoted = !quoted;
		else if (quoted && v.text[i] == '\\')
			i++;
	}
	return quoted;
}

/* A list field with all that its lines have; one element more is to follow. */
static void list_begin(struct tbg_lines *ret, const struct tbg_forward *f,
		       struct tbg_value name)
{
	bool quotes = tbg_value_is(name, "Forwarded");
	struct tbg_value field, v;
	size_t at = 0;

	tbg_lines_put(ret, name.text, name.len);
	tbg_lines_text(ret, ": ");
	while (tbg_field_next(f->fields, f->fields_len, &at, &field, &v)) {
		if (!v.len || !tbg_value_same(field, name) ||
		    connection_names(f->fields, f->fields_len, name) ||
		    (quotes && open_quoted(v)))
			continue;
		tbg_lines_put(ret, v.text, v.len);
		tbg_lines_text(ret, ", ");
	}
}

static void via_add(struct tbg_lines *ret, const struct tbg_forward *f)
{
	list_begin(ret, f, TBG_VALUE("Via"));
	tbg_lines_text(ret, f->minor ? "1.1 " : "1.0 ");
	tbg_lines_text(ret, f->via);
	tbg_lines_text(ret, "\r\n");
}

/* The last element, which is the nearest hop's, of a field that is sent on; len 0: none. */
static struct tbg_value claim(const struct tbg_forward *f, struct tbg_value name)
{
	struct tbg_elements all = { .b = f->fields, .len = f->fields_len };
	struct tbg_value one, ret = { NULL, 0 };

	while (tbg_elements_next(&all, name, &one))
		ret = one;
	if (ret.len && connection_names(f->fields, f->fields_len, name))
		ret.len = 0;
	return ret;
}

const char *tbg_forward_scheme(const struct tbg_forward *f)
{
	return tbg_value_is(claim(f, TBG_VALUE("X-Forwarded-Proto")), "https") ? "https" : "http";
}

/* The client as Forwarded names it (RFC 7239 6): an IPv6 address in quotes. */
static void forwarded_add(struct tbg_lines *ret, const struct tbg_forward *f)
{
	struct tbg_value host = claim(f, TBG_VALUE("X-Forwarded-Host"));
	const char *scheme = tbg_forward_scheme(f);
	bool six = strchr(f->peer, ':');

	list_begin(ret, f, TBG_VALUE("X-Forwarded-For"));
	tbg_lines_text(ret, f->peer);
	tbg_lines_text(ret, "\r\nX-Forwarded-Proto: ");
	tbg_lines_text(ret, scheme);
	tbg_lines_text(ret, "\r\n");
	if (host.len || f->host.len)
		tbg_lines_field(ret, TBG_VALUE("X-Forwarded-Host"), host.len ? host : f->host);
	list_begin(ret, f, TBG_VALUE("Forwarded"));
	tbg_lines_text(ret, six ? "for=\"[" : "for=");
	tbg_lines_text(ret, f->peer);
	tbg_lines_text(ret, six ? "]\";host=\"" : ";host=\"");
	tbg_lines_put(ret, f->host.text, f->host.len < 512 ? f->host.len : 512);
	tbg_lines_text(ret, "\";proto=");
	tbg_lines_text(ret, scheme);
	tbg_lines_text(ret, "\r\n");
}

bool tbg_forward_connection(const struct tbg_forward *f)
{
	return names_others(f->fields, f->fields_len);
}

bool tbg_forward_drops(const struct tbg_forward *f, struct tbg_value name,
		       bool connection)
{
	static const struct tbg_value conditions[] = {
		TBG_VALUE("If-None-Match"), TBG_VALUE("If-Modified-Since"),
		TBG_VALUE("If-Match"), TBG_VALUE("If-Range"),
		TBG_VALUE("If-Unmodified-Since"), TBG_VALUE("Range"),
	};

	if (tbg_field_hops(name) || tbg_value_is(name, "Content-Length"))
		return true;
	if (!f->expect && tbg_value_is(name, "Expect"))
		return true;
	if (f->framing != TBG_FRAMING_CHUNKED && tbg_value_is(name, "Trailer"))
		return true;
	/* nobody else is to learn the mark, and to pass for a fetch */
	if (!f->depth && tbg_value_is(name, TBG_DEPTH_FIELD))
		return true;
	if (f->refreshes && tbg_value_is(name, "Cache-Control"))
		return true;
	if (f->alone && tbg_value_in(name, conditions, NR(conditions)))
		return true;
	return connection && connection_names(f->fields, f->fields_len, name);
}

static void request_framing(struct tbg_lines *ret, const struct tbg_forward *f)
{
	if (f->framing == TBG_FRAMING_CHUNKED)
		tbg_lines_add(ret, "Transfer-Encoding: chunked\r\n");
	else if (f->has_length || f->framing == TBG_FRAMING_LENGTH)
		tbg_lines_add(ret, "Content-Length: %llu\r\n",
			      (unsigned long long)f->length);
}

static void request_connection(struct tbg_lines *ret, const struct tbg_forward *f)
{
	if (f->upgrade) {
		tbg_lines_text(ret, "Connection: upgrade\r\n");
		tbg_lines_copy(ret, TBG_VALUE("Upgrade"), f->fields, f->fields_len);
	} else if (tbg_elements_have(f->fields, f->fields_len, TBG_VALUE("TE"),
				     TBG_VALUE("trailers"))) {
		tbg_lines_text(ret, "Connection: TE\r\nTE: trailers\r\n");
	}
}

/* One hop fewer (RFC 9110 7.6.2); what is no number is as it was. */
static void hops_left(struct tbg_lines *ret, const struct tbg_forward *f,
		      struct tbg_value name, struct tbg_value v)
{
	uint64_t left;

	if (tbg_value_is(f->method, "OPTIONS") && tbg_digits_parse(v, &left) && left)
		tbg_lines_add(ret, "Max-Forwards: %llu\r\n",
			      (unsigned long long)left - 1);
	else
		tbg_lines_field(ret, name, v);
}

void tbg_forward_request(struct tbg_lines *ret, const struct tbg_forward *f)
{
	static const struct tbg_value made[] = {
		TBG_VALUE("Host"), TBG_VALUE("Via"), TBG_VALUE("Forwarded"),
		TBG_VALUE("X-Forwarded-For"), TBG_VALUE("X-Forwarded-Proto"),
		TBG_VALUE("X-Forwarded-Host"),
	};
	bool connection = tbg_forward_connection(f);
	struct tbg_value name, v;
	size_t at = 0;

	tbg_lines_put(ret, f->method.text, f->method.len);
	tbg_lines_text(ret, " ");
	tbg_lines_put(ret, f->target.text, f->target.len);
	tbg_lines_text(ret, " HTTP/1.1\r\nHost: ");
	if (f->host.len)
		tbg_lines_put(ret, f->host.text, f->host.len);
	else
		tbg_lines_text(ret, f->authority);
	tbg_lines_text(ret, "\r\n");
	while (tbg_field_next(f->fields, f->fields_len, &at, &name, &v)) {
		if (tbg_forward_drops(f, name, connection) ||
		    tbg_value_in(name, made, NR(made)))
			continue;
		if (tbg_value_is(name, "Max-Forwards"))
			hops_left(ret, f, name, v);
		else
			tbg_lines_field(ret, name, v);
	}
	if (f->etag.len)
		tbg_lines_field(ret, TBG_VALUE("If-None-Match"), f->etag);
	if (f->modified.len)
		tbg_lines_field(ret, TBG_VALUE("If-Modified-Since"), f->modified);
	if (f->range.len) {
		tbg_lines_field(ret, TBG_VALUE("Range"), f->range);
		tbg_lines_field(ret, TBG_VALUE("If-Range"), f->if_range);
	}
	via_add(ret, f);
	forwarded_add(ret, f);
	request_framing(ret, f);
	request_connection(ret, f);
	tbg_lines_put(ret, "\r\n", 2);
}

/* Responses */

static bool store_drops(const char *fields, size_t len, struct tbg_value name,
			unsigned int status)
{
	static const struct tbg_value proxy[] = {	/* RFC 9111 3.1 */
		TBG_VALUE("Proxy-Authenticate"), TBG_VALUE("Proxy-Authentication-Info"),
	};

	/* parts are joined, and answered in others (3.4) */
	if (status == 206 && tbg_value_is(name, "Content-Range"))
		return true;
	return tbg_value_in(name, proxy, NR(proxy)) ||
	       tbg_cc_names(fields, len, "no-cache", name) ||
	       tbg_cc_names(fields, len, "private", name);
}

void tbg_forward_fields(struct tbg_lines *ret, const char *fields, size_t len,
			const char *date, unsigned int store)
{
	bool connection = names_others(fields, len), dated = false;
	struct tbg_value name, v;
	size_t at = 0;

	while (tbg_field_next(fields, len, &at, &name, &v)) {
		if (tbg_field_hops(name) || tbg_value_is(name, "Content-Length"))
			continue;
		if (connection && connection_names(fields, len, name))
			continue;
		if (store && store_drops(fields, len, name, store))
			continue;
		dated |= tbg_value_is(name, "Date");
		tbg_lines_field(ret, name, v);
	}
	if (date && !dated)
		tbg_lines_field(ret, TBG_VALUE("Date"),
				(struct tbg_value){ date, TBG_DATE_LEN });
}

/* What frames the stored bytes stays with them (RFC 9111 3.2). */
static bool update_keeps(struct tbg_value name)
{
	return tbg_value_is(name, "Content-Length") ||
	       tbg_value_is(name, "Content-Range");
}

static bool updated(const char *news, size_t len, struct tbg_value name)
{
	struct tbg_value one, v;
	size_t at = 0;

	if (tbg_value_is(name, "Age"))		/* not repeated: it is over */
		return true;
	if (update_keeps(name))
		return false;
	while (tbg_field_next(news, len, &at, &one, &v))
		if (tbg_value_same(one, name))
			return true;
	return false;
}

void tbg_forward_update(struct tbg_lines *ret, const char *stored,
			size_t stored_len, const char *news, size_t news_len)
{
	struct tbg_lines both = { 0 };
	struct tbg_value name, v;
	size_t at = 0;

	while (tbg_field_next(stored, stored_len, &at, &name, &v))
		if (!updated(news, news_len, name))
			tbg_lines_field(&both, name, v);
	at = 0;
	while (tbg_field_next(news, news_len, &at, &name, &v))
		if (!update_keeps(name))
			tbg_lines_field(&both, name, v);
	/* whichever says so: what may not be stored of the two */
	at = 0;
	while (tbg_field_next(both.text ?: "", both.len, &at, &name, &v))
		if (!store_drops(both.text, both.len, name, 0))
			tbg_lines_field(ret, name, v);
	ret->failed |= both.failed;
	tbg_lines_free(&both);
}

/*
 * RFC 9110 6.5.1: nothing that frames, routes, authenticates or caches; nor what Connection
 * names (7.6.1).
 */
void tbg_forward_trailer(struct tbg_lines *ret, const char *lines, size_t len,
			 const char *fields, size_t fields_len)
{
	static const struct tbg_value never[] = {
		TBG_VALUE("Content-Length"), TBG_VALUE("Host"), TBG_VALUE("Trailer"),
		TBG_VALUE("Content-Encoding"), TBG_VALUE("Content-Type"),
		TBG_VALUE("Content-Range"), TBG_VALUE("Cache-Control"),
		TBG_VALUE("Expect"), TBG_VALUE("Max-Forwards"), TBG_VALUE("Pragma"),
		TBG_VALUE("Range"), TBG_VALUE("Authorization"),
		TBG_VALUE("Proxy-Authenticate"), TBG_VALUE("WWW-Authenticate"),
		TBG_VALUE("Set-Cookie"), TBG_VALUE("Cookie"), TBG_VALUE("Age"),
		TBG_VALUE("Date"), TBG_VALUE("Expires"), TBG_VALUE("Location"),
		TBG_VALUE("Retry-After"), TBG_VALUE("Vary"), TBG_VALUE("Via"),
		TBG_VALUE("Forwarded"), TBG_VALUE("X-Forwarded-For"),
		TBG_VALUE("X-Forwarded-Host"), TBG_VALUE("X-Forwarded-Proto"),
		TBG_VALUE("If-Match"), TBG_VALUE("If-None-Match"),
		TBG_VALUE("If-Modified-Since"), TBG_VALUE("If-Unmodified-Since"),
		TBG_VALUE("If-Range"),
	};
	struct tbg_value name, v;
	size_t at = 0;

	while (tbg_field_next(lines, len, &at, &name, &v))
		if (!tbg_field_hops(name) && !tbg_value_in(name, never, NR(never)) &&
		    !connection_names(fields, fields_len, name))
			tbg_lines_field(ret, name, v);
}
