// SPDX-License-Identifier: GPL-2.0
/*
 * Fields are dropped by name; all others are forwarded unchanged and in
 * their order. Fields that the daemon writes about the client replace the
 * client's own, except lists to which each hop appends.
 */
#include <string.h>

#include "abi/cache.h"
#include "http/forward.h"
#include "http/freshness.h"

#define BIT(name) TBG_NAME_BIT(name)
#define OPTIONS_MAX 64		/* options of Connection: each is compared with each field */

/* Named by a Connection field of these lines. */
static bool connection_names(const struct tbg_fields *fields, struct tbg_slice name)
{
	return tbg_fields_have(fields, TBG_NAME_CONNECTION, name);
}

/* Whether a Connection field names a field that would not be dropped anyway. */
static bool names_others(const struct tbg_fields *fields)
{
	const struct tbg_field_line *f = NULL;
	struct tbg_slice one;

	while ((f = tbg_fields_next(fields, f, TBG_NAME_CONNECTION)))
		for (size_t at = 0; tbg_list_next(f->value, &at, &one);)
			if (!tbg_name_in(tbg_name_of(one), tbg_names_with(TBG_HOP)))
				return true;
	return false;
}

/* Whether a quoted string is unterminated: appended text would become part of it. */
static bool open_quoted(struct tbg_slice v)
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

bool tbg_forward_odd(struct tbg_slice name)
{
	for (size_t i = 0; i < name.len; i++) {
		char c = name.text[i], low = c | 0x20;

		if (!(low >= 'a' && low <= 'z') && !(c >= '0' && c <= '9') && c != '-')
			return true;
	}
	return false;
}

/* Writes a list field with the elements of all its lines; one more element follows. */
static void list_begin(struct tbg_lines *ret, const struct tbg_forward *f,
		       enum tbg_name id, struct tbg_slice name)
{
	const struct tbg_field_line *line = NULL;

	tbg_lines_put(ret, name.text, name.len);
	tbg_lines_text(ret, ": ");
	while ((line = tbg_fields_next(f->fields, line, id))) {
		struct tbg_slice v = line->value;

		if (!v.len || connection_names(f->fields, name) ||
		    (id == TBG_NAME_FORWARDED && open_quoted(v)))
			continue;
		tbg_lines_put(ret, v.text, v.len);
		tbg_lines_text(ret, ", ");
	}
}

static void via_add(struct tbg_lines *ret, const struct tbg_forward *f)
{
	list_begin(ret, f, TBG_NAME_VIA, TBG_SLICE("Via"));
	tbg_lines_text(ret, f->minor ? "1.1 " : "1.0 ");
	tbg_lines_text(ret, f->via);
	tbg_lines_text(ret, "\r\n");
}

/* The last element of a forwarded field, added by the nearest hop; len 0: none. */
static struct tbg_slice claim(const struct tbg_fields *fields, enum tbg_name id)
{
	struct tbg_slice one, ret = { NULL, 0 };
	const struct tbg_field_line *line = NULL;

	while ((line = tbg_fields_next(fields, line, id))) {
		for (size_t at = 0; tbg_list_next(line->value, &at, &one);)
			ret = one;
		if (connection_names(fields, line->name))
			return (struct tbg_slice){ NULL, 0 };
	}
	return ret;
}

bool tbg_forward_https(const struct tbg_fields *fields)
{
	return tbg_slice_is(claim(fields, TBG_NAME_X_FORWARDED_PROTO), "https");
}

struct tbg_slice tbg_forward_host(const struct tbg_fields *fields)
{
	return claim(fields, TBG_NAME_X_FORWARDED_HOST);
}

/* Writes the client in the form of Forwarded (RFC 7239 6): an IPv6 address in quotes. */
static void forwarded_add(struct tbg_lines *ret, const struct tbg_forward *f)
{
	struct tbg_slice host = tbg_forward_host(f->fields);
	const char *scheme = tbg_forward_https(f->fields) ? "https" : "http";
	bool six = strchr(f->peer, ':');

	list_begin(ret, f, TBG_NAME_X_FORWARDED_FOR, TBG_SLICE("X-Forwarded-For"));
	tbg_lines_text(ret, f->peer);
	tbg_lines_text(ret, "\r\nX-Forwarded-Proto: ");
	tbg_lines_text(ret, scheme);
	tbg_lines_text(ret, "\r\n");
	if (host.len || f->host.len)
		tbg_lines_field(ret, TBG_SLICE("X-Forwarded-Host"), host.len ? host : f->host);
	list_begin(ret, f, TBG_NAME_FORWARDED, TBG_SLICE("Forwarded"));
	tbg_lines_text(ret, six ? "for=\"[" : "for=");
	tbg_lines_text(ret, f->peer);
	tbg_lines_text(ret, six ? "]\";host=\"" : ";host=\"");
	tbg_lines_put(ret, f->host.text, f->host.len < 512 ? f->host.len : 512);
	tbg_lines_text(ret, "\";proto=");
	tbg_lines_text(ret, scheme);
	tbg_lines_text(ret, "\r\n");
}

bool tbg_forward_names_many(const struct tbg_fields *fields)
{
	const struct tbg_field_line *f = NULL;
	struct tbg_slice one;
	unsigned int nr = 0;

	while ((f = tbg_fields_next(fields, f, TBG_NAME_CONNECTION)))
		for (size_t at = 0; tbg_list_next(f->value, &at, &one);)
			nr++;
	return nr > OPTIONS_MAX;
}

bool tbg_forward_connection(const struct tbg_forward *f)
{
	return names_others(f->fields);
}

#define CONDITIONS (tbg_names_with(TBG_CONDITION) | BIT(RANGE))

bool tbg_forward_drops(const struct tbg_forward *f, const struct tbg_field_line *one,
		       bool connection)
{
	uint64_t drops = tbg_names_with(TBG_HOP) | BIT(CONTENT_LENGTH) |
			 (f->expect ? 0 : BIT(EXPECT)) |
			 (f->framing == TBG_FRAMING_CHUNKED ? 0 : BIT(TRAILER)) |
			 /* the mark is secret: with it anyone passes for a module */
			 (f->depth ? 0 : BIT(DEPTH)) | (f->refreshes ? BIT(CACHE_CONTROL) : 0) |
			 (f->unconditional ? CONDITIONS : 0);

	return tbg_name_in(one->id, drops) ||
	       (connection && connection_names(f->fields, one->name));
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
		tbg_lines_copy(ret, f->fields, TBG_NAME_UPGRADE);
	} else if (tbg_fields_have(f->fields, TBG_NAME_TE, TBG_SLICE("trailers"))) {
		tbg_lines_text(ret, "Connection: TE\r\nTE: trailers\r\n");
	}
}

/* Decrements the number of hops (RFC 9110 7.6.2); anything but a number is unchanged. */
static void hops_left(struct tbg_lines *ret, const struct tbg_forward *f,
		      const struct tbg_field_line *one)
{
	uint64_t left;

	if (tbg_slice_is(f->method, "OPTIONS") && tbg_digits_parse(one->value, &left) && left)
		tbg_lines_add(ret, "Max-Forwards: %llu\r\n",
			      (unsigned long long)left - 1);
	else
		tbg_lines_field(ret, one->name, one->value);
}

void tbg_forward_request(struct tbg_lines *ret, const struct tbg_forward *f)
{
	bool connection = tbg_forward_connection(f);

	tbg_lines_put(ret, f->method.text, f->method.len);
	tbg_lines_text(ret, " ");
	tbg_lines_put(ret, f->target.text, f->target.len);
	tbg_lines_text(ret, " HTTP/1.1\r\nHost: ");
	if (f->host.len)
		tbg_lines_put(ret, f->host.text, f->host.len);
	else
		tbg_lines_text(ret, f->authority);
	tbg_lines_text(ret, "\r\n");
	for (uint32_t i = 0; i < f->fields->nr; i++) {
		const struct tbg_field_line *one = &f->fields->all[i];

		if (tbg_name_in(one->id, tbg_names_with(TBG_ADDED)) ||
		    tbg_forward_drops(f, one, connection))
			continue;
		if (one->id == TBG_NAME_MAX_FORWARDS)
			hops_left(ret, f, one);
		else
			tbg_lines_field(ret, one->name, one->value);
	}
	if (f->etag.len)
		tbg_lines_field(ret, TBG_SLICE("If-None-Match"), f->etag);
	if (f->modified.len)
		tbg_lines_field(ret, TBG_SLICE("If-Modified-Since"), f->modified);
	if (f->range.len) {
		tbg_lines_field(ret, TBG_SLICE("Range"), f->range);
		tbg_lines_field(ret, TBG_SLICE("If-Range"), f->if_range);
	}
	via_add(ret, f);
	forwarded_add(ret, f);
	if (f->id.len)
		tbg_lines_field(ret, TBG_SLICE("X-Request-ID"), f->id);
	request_framing(ret, f);
	request_connection(ret, f);
	tbg_lines_put(ret, "\r\n", 2);
}

/* Responses */

static bool store_drops(const struct tbg_fields *fields, const struct tbg_field_line *one,
			unsigned int status)
{
	/* RFC 9111 3.1; parts are joined, and answered in others (3.4) */
	uint64_t drops = BIT(PROXY_AUTHENTICATE) | BIT(PROXY_AUTHENTICATION_INFO) |
			 (status == 206 ? tbg_names_with(TBG_CONTENT) : 0);

	return tbg_name_in(one->id, drops) || tbg_cc_names(fields, "no-cache", one->name) ||
	       tbg_cc_names(fields, "private", one->name);
}

void tbg_forward_fields(struct tbg_lines *ret, const struct tbg_fields *fields,
			const char *date, unsigned int store)
{
	bool connection = names_others(fields), dated = false;

	for (uint32_t i = 0; i < fields->nr; i++) {
		const struct tbg_field_line *one = &fields->all[i];

		if (tbg_name_in(one->id, tbg_names_with(TBG_HOP) | BIT(CONTENT_LENGTH)) ||
		    (connection && connection_names(fields, one->name)) ||
		    (store && store_drops(fields, one, store)))
			continue;
		dated |= one->id == TBG_NAME_DATE;
		tbg_lines_field(ret, one->name, one->value);
	}
	if (date && !dated)
		tbg_lines_field(ret, TBG_SLICE("Date"),
				(struct tbg_slice){ date, TBG_DATE_LEN });
}

/*
 * Fields about framing, coding and digests of the stored bytes are not updated (RFC 9111
 * 3.2).
 */
#define UPDATE_KEEPS (tbg_names_with(TBG_CONTENT) | BIT(CONTENT_LENGTH) | BIT(CONTENT_ENCODING))

static bool updated(const struct tbg_fields *news, const struct tbg_field_line *old)
{
	if (old->id == TBG_NAME_AGE)		/* not copied: outdated */
		return true;
	if (tbg_name_in(old->id, UPDATE_KEEPS))
		return false;
	if (old->id != TBG_NAME_OTHER)
		return tbg_name_in(old->id, news->has);
	for (uint32_t i = 0; i < news->nr; i++)
		if (tbg_slice_same(news->all[i].name, old->name))
			return true;
	return false;
}

/* The field lines of both, as text. */
static void both_put(struct tbg_lines *ret, const struct tbg_fields *stored,
		     const struct tbg_fields *news)
{
	for (uint32_t i = 0; i < stored->nr; i++)
		if (!updated(news, &stored->all[i]))
			tbg_lines_field(ret, stored->all[i].name, stored->all[i].value);
	for (uint32_t i = 0; i < news->nr; i++)
		if (!tbg_name_in(news->all[i].id, UPDATE_KEEPS))
			tbg_lines_field(ret, news->all[i].name, news->all[i].value);
}

void tbg_forward_update(struct tbg_lines *ret, const char *stored,
			size_t stored_len, const char *news, size_t news_len)
{
	struct tbg_fields old = { 0 }, new = { 0 };
	struct tbg_lines both = { 0 };

	if (tbg_fields_read(&old, stored, stored_len) < 0 ||
	    tbg_fields_read(&new, news, news_len) < 0)
		both.failed = true;
	both_put(&both, &old, &new);
	/* no-cache and private of either name fields that must not be stored */
	if (!both.failed && tbg_fields_read(&new, both.text ?: "", both.len) < 0)
		both.failed = true;
	for (uint32_t i = 0; i < new.nr; i++)
		if (!store_drops(&new, &new.all[i], 0))
			tbg_lines_field(ret, new.all[i].name, new.all[i].value);
	ret->failed |= both.failed;
	tbg_lines_free(&both);
	tbg_fields_free(&old);
	tbg_fields_free(&new);
}

/*
 * RFC 9110 6.5.1: nothing that frames, routes, authenticates or caches; nor what Connection
 * names (7.6.1).
 */
#define NO_TRAILER \
	tbg_names_with(TBG_HOP | TBG_FRAMING | TBG_CONDITION | TBG_ADDED | TBG_NO_TRAILER)

void tbg_forward_trailer(struct tbg_lines *ret, const char *lines, size_t len,
			 const struct tbg_fields *fields, bool odd)
{
	struct tbg_slice name, v;
	size_t at = 0;

	while (tbg_field_next(lines, len, &at, &name, &v))
		if (!tbg_name_in(tbg_name_of(name), NO_TRAILER) &&
		    !connection_names(fields, name) && (odd || !tbg_forward_odd(name)))
			tbg_lines_field(ret, name, v);
}
