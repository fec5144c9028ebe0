// SPDX-License-Identifier: GPL-2.0
/*
 * RFC 9112 4 to 6 for a gateway. Tolerated are LF alone at the end of a line
 * (2.2), a missing reason with its space, and white space before a field's
 * colon, which is removed (5.1). Ambiguous framing (both lengths, lengths
 * that differ, codings other than chunked, folded lines) is refused.
 */
#include <string.h>

#include "http/response.h"
#include "http/token.h"

bool tbg_response_bodiless(unsigned int status, unsigned int method)
{
	return method == TBG_METHOD_HEAD || status < 200 || status == 204 ||
	       status == 304;
}

/*
 * Offset after the empty line that ends the head; 0: not received yet; -1: a
 * byte that is not allowed in a line, or too long. A CR at the end of the
 * received bytes is checked again.
 */
static long head_end(struct tbg_response *r, const uint8_t *b, size_t len)
{
	size_t max = len < TBG_RESPONSE_HEAD_MAX ? len : TBG_RESPONSE_HEAD_MAX;
	size_t at = r->scan_off, line = r->line_off;

	for (;;) {
		at += tbg_value_run(b + at, max - at);
		if (at + (at < max && b[at] == '\r') >= max)
			break;
		at += b[at] == '\r';
		if (b[at] != '\n')
			return -1;
		if (at - line == (at > line && b[at - 1] == '\r'))
			return at + 1;
		line = ++at;
	}
	r->scan_off = at;
	r->line_off = line;
	return max == TBG_RESPONSE_HEAD_MAX ? -1 : 0;
}

static bool digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

/* Parses "HTTP/1.1 200 OK", len bytes without the line end, checked by head_end(). */
static bool status_line(struct tbg_response *r, const char *b, size_t len)
{
	if (len < 12 || memcmp(b, "HTTP/1.", 7) || !digit(b[7]) || b[8] != ' ' ||
	    !digit(b[9]) || !digit(b[10]) || !digit(b[11]))
		return false;
	if (len > 12 && b[12] != ' ')
		return false;
	r->minor = b[7] != '0';
	r->status = (b[9] - '0') * 100 + (b[10] - '0') * 10 + b[11] - '0';
	if (r->status < 100 || r->status > 599)
		return false;
	if (len > 13)
		r->reason = (struct tbg_text){ 13, len - 13 };
	return true;
}

/* Repeated equal lengths are accepted (RFC 9112 6.3). */
static bool length_field(struct tbg_response *r, struct tbg_slice v)
{
	struct tbg_slice one;
	size_t at = 0;
	uint64_t n;

	if (!v.len || v.text[v.len - 1] == ',' || v.text[0] == ',')
		return false;
	while (tbg_list_next(v, &at, &one)) {
		if (!tbg_digits_parse(one, &n) ||
		    (r->has_length && n != r->content_length))
			return false;
		r->has_length = true;
		r->content_length = n;
	}
	return r->has_length;
}

static bool coding_field(struct tbg_response *r, struct tbg_slice v)
{
	if (r->chunked || !r->minor || !tbg_slice_is(v, "chunked"))
		return false;
	r->chunked = true;
	return true;
}

/*
 * Reads "timeout=5, max=99" of Keep-Alive; many servers send it, and close the connection
 * then.
 */
static void keep_field(struct tbg_response *r, struct tbg_slice v)
{
	static const struct tbg_slice timeout = TBG_SLICE("timeout=");
	struct tbg_slice one;
	size_t at = 0;
	uint64_t s;

	while (tbg_list_next(v, &at, &one)) {
		struct tbg_slice name = { one.text, timeout.len };
		struct tbg_slice arg = { one.text + timeout.len, one.len - timeout.len };

		if (one.len <= timeout.len || !tbg_slice_same(name, timeout) ||
		    !tbg_digits_parse(arg, &s))
			continue;
		r->keep_s = s < TBG_KEEP_MAX_S ? s : TBG_KEEP_MAX_S;
		r->close |= !s;
	}
}

/*
 * Reads the fields of b[len], which ends with the empty line; head_end() has checked the
 * values.
 */
static bool fields_read(struct tbg_fields *f, const char *b, size_t len)
{
	long n = tbg_fields_read(f, b, len);
	size_t left = len - n;

	if (n < 0 || f->nr > TBG_RESPONSE_FIELDS_MAX || left > 2 || (left == 2 && b[n] != '\r'))
		return false;
	for (uint32_t i = 0; i < f->nr; i++)	/* known names are tokens */
		if (f->all[i].id == TBG_NAME_OTHER &&
		    !tbg_token_valid(f->all[i].name.text, f->all[i].name.len))
			return false;
	return true;
}

/* Takes a field about framing; *keep: Connection: keep-alive. */
static bool field_take(struct tbg_response *r, const struct tbg_field_line *f, bool *keep)
{
	struct tbg_slice one;
	size_t at = 0;

	switch (f->id) {
	case TBG_NAME_CONTENT_LENGTH:
		return length_field(r, f->value);
	case TBG_NAME_TRANSFER_ENCODING:
		return coding_field(r, f->value);
	case TBG_NAME_CONNECTION:
		while (tbg_list_next(f->value, &at, &one)) {
			r->close |= tbg_slice_is(one, "close");
			*keep |= tbg_slice_is(one, "keep-alive");
		}
		return true;
	case TBG_NAME_KEEP_ALIVE:
		keep_field(r, f->value);
		return true;
	default:
		return true;
	}
}

static bool head_read(struct tbg_response *r, struct tbg_fields *f, const char *b, size_t len)
{
	const char *lf = memchr(b, '\n', len);
	bool keep = false;

	if (!status_line(r, b, (lf > b && lf[-1] == '\r' ? lf - 1 : lf) - b))
		return false;
	r->fields_off = lf + 1 - b;
	if (!fields_read(f, lf + 1, len - r->fields_off))
		return false;
	for (uint32_t i = 0; i < f->nr; i++)
		if (!field_take(r, &f->all[i], &keep))
			return false;
	if (r->chunked && r->has_length)
		return false;
	/* with a length of 0 nothing follows for any reader (RFC 9110 8.6) */
	if ((r->status < 200 || r->status == 204) && (r->chunked || r->content_length))
		return false;
	if (r->status == 101)		/* many servers send a length, then the other protocol */
		r->has_length = false;
	r->len = len;
	r->close = r->close || (!r->minor && !keep);
	return true;
}

enum tbg_parsed tbg_response_parse(struct tbg_response *r, struct tbg_fields *fields,
				   const uint8_t *b, size_t len)
{
	static const char start[] = "HTTP/1.";
	size_t known = len < sizeof(start) - 1 ? len : sizeof(start) - 1;
	long end;

	if (memcmp(b, start, known))
		return TBG_PARSED_BAD;
	end = head_end(r, b, len);
	if (end < 0)
		return TBG_PARSED_BAD;
	if (!end)
		return TBG_PARSED_MORE;
	return head_read(r, fields, (const char *)b, end) ? TBG_PARSED_DONE : TBG_PARSED_BAD;
}

/* CGI programs */

/* Parses three digits, then optionally a blank and a reason. */
static bool status_field(struct tbg_response *r, const char *b, struct tbg_slice v)
{
	const char *d = v.text;

	if (v.len < 3 || !digit(d[0]) || !digit(d[1]) ||
	    !digit(d[2]) || (v.len > 3 && d[3] != ' '))
		return false;
	r->status = (d[0] - '0') * 100 + (d[1] - '0') * 10 + d[2] - '0';
	if (v.len > 4)
		r->reason = (struct tbg_text){ d + 4 - b, v.len - 4 };
	return r->status >= 200 && r->status <= 599;
}

static void reverse(char *from, char *to)
{
	for (; from < to && from < --to; from++) {
		char c = *from;

		*from = *to;
		*to = c;
	}
}

/* Moves the Status line to the front, by rotation. */
static void status_first(struct tbg_response *r, char *b, size_t from, size_t to)
{
	reverse(b, b + from);
	reverse(b + from, b + to);
	reverse(b, b + to);
	r->reason.off -= r->reason.len ? from : 0;
	r->fields_off = to - from;
}

/*
 * A path alone is a local redirect (RFC 3875 6.2.2). A URI is for the client, as
 * is a path with further fields, which a local redirect would drop; with a
 * status it is neither.
 */
static void location_take(struct tbg_response *r, const char *b,
			  struct tbg_slice v, bool location_only)
{
	if (!r->status && v.text) {
		r->status = 302;
		r->local = location_only && v.len && v.text[0] == '/' &&
			   (v.len == 1 || v.text[1] != '/') &&
			   !memchr(v.text, '#', v.len);
		if (r->local)
			r->location = (struct tbg_text){ v.text - b, v.len };
	}
	r->status = r->status ?: 200;
}

/* Takes a line; *location_only: apart from the type, Location has been the only one. */
static bool cgi_take(struct tbg_response *r, const struct tbg_field_line *f, const char *b,
		     struct tbg_slice *location, bool *location_only)
{
	switch (f->id) {
	case TBG_NAME_STATUS:
		return status_field(r, b, f->value);
	case TBG_NAME_CONTENT_LENGTH:
		return length_field(r, f->value);
	case TBG_NAME_CONTENT_TYPE:
		return true;		/* the type of a body that does not exist */
	case TBG_NAME_LOCATION:
		*location = f->value;
		return true;
	default:
		*location_only = false;
		return true;
	}
}

static bool cgi_read(struct tbg_response *r, struct tbg_fields *f, char *b, size_t len)
{
	const struct tbg_field_line *status;
	struct tbg_slice location = { 0 };
	uint64_t seen = 0;
	bool location_only = true;
	size_t from = 0, to = 0;

	if (!fields_read(f, b, len) || !f->nr)
		return false;
	for (uint32_t i = 0; i < f->nr; i++) {
		uint64_t bit = 1ull << f->all[i].id & tbg_names_with(TBG_CGI_ONCE);

		if (seen & bit || !cgi_take(r, &f->all[i], b, &location, &location_only))
			return false;
		seen |= bit;
	}
	status = tbg_fields_next(f, NULL, TBG_NAME_STATUS);
	if (status) {
		from = status->name.text - b;
		to = (char *)memchr(b + from, '\n', len - from) + 1 - b;
	}
	location_take(r, b, location, location_only);
	status_first(r, b, from, to);
	r->minor = 1;
	r->len = len;
	return fields_read(f, b + r->fields_off, len - r->fields_off);
}

enum tbg_parsed tbg_response_parse_cgi(struct tbg_response *r, struct tbg_fields *fields,
				       uint8_t *b, size_t len)
{
	long end = head_end(r, b, len);

	if (end < 0)
		return TBG_PARSED_BAD;
	if (!end)
		return TBG_PARSED_MORE;
	return cgi_read(r, fields, (char *)b, end) ? TBG_PARSED_DONE : TBG_PARSED_BAD;
}
