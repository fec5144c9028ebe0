// SPDX-License-Identifier: GPL-2.0
/*
 * RFC 9112 4 to 6 for a gateway. Tolerated are LF alone at the end of a line
 * (2.2), a reason that is missing with its space, and blanks before a field's
 * colon, which nobody after us sees (5.1). What two parsers
 * could frame in two ways (both lengths, lengths that differ, codings other
 * than chunked, folded lines) is refused.
 */
#include <string.h>

#include "field.h"
#include "response.h"

bool tbg_response_bodiless(unsigned int status, unsigned int method)
{
	return method == TBG_METHOD_HEAD || status < 200 || status == 204 ||
	       status == 304;
}

/*
 * Offset behind the empty line that ends the head; 0: not there yet; -1: a
 * control byte that no line may hold, or too long.
 */
static long head_end(struct tbg_response *r, const uint8_t *b, size_t len)
{
	size_t max = len < TBG_RESPONSE_HEAD_MAX ? len : TBG_RESPONSE_HEAD_MAX;

	while (r->scan_off < max) {
		size_t at = r->scan_off, from = at ? at - 1 : 0;
		const uint8_t *lf = memchr(b + at, '\n', max - at);
		size_t end = lf ? (size_t)(lf - b) : max;
		const uint8_t *cr = memchr(b + from, '\r', end - from);

		if (memchr(b + at, 0, end - at) || (cr && cr + 1 < b + end))
			return -1;
		if (lf && end - !!cr <= r->line_off)
			return end + 1;
		if (lf)
			r->line_off = end + 1;
		r->scan_off = lf ? end + 1 : max;
	}
	return max == TBG_RESPONSE_HEAD_MAX ? -1 : 0;
}

static bool digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

/* "HTTP/1.1 200 OK" of len bytes, without its line end. */
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
	return tbg_value_valid(b, len);
}

/* Equal lengths may be told several times (RFC 9112 6.3). */
static bool length_field(struct tbg_response *r, struct tbg_value v)
{
	struct tbg_value one;
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

static bool coding_field(struct tbg_response *r, struct tbg_value v)
{
	if (r->chunked || !r->minor || !tbg_value_is(v, "chunked"))
		return false;
	r->chunked = true;
	return true;
}

/* "timeout=5, max=99"; many servers tell it, and end the connection then. */
static void keep_field(struct tbg_response *r, struct tbg_value v)
{
	static const struct tbg_value timeout = TBG_VALUE("timeout=");
	struct tbg_value one;
	size_t at = 0;
	uint64_t s;

	while (tbg_list_next(v, &at, &one)) {
		struct tbg_value name = { one.text, timeout.len };
		struct tbg_value arg = { one.text + timeout.len, one.len - timeout.len };

		if (one.len <= timeout.len || !tbg_value_same(name, timeout) ||
		    !tbg_digits_parse(arg, &s))
			continue;
		r->keep_s = s < TBG_KEEP_MAX_S ? s : TBG_KEEP_MAX_S;
		r->close |= !s;
	}
}

/* One line, without its end, which follows. */
static bool line_split(const char *b, size_t len, struct tbg_value *ret_name,
		       struct tbg_value *ret_value)
{
	size_t at = 0;

	return tbg_field_next(b, len + 2, &at, ret_name, ret_value) &&
	       tbg_token_valid(ret_name->text, ret_name->len) &&
	       tbg_value_valid(ret_value->text, ret_value->len);
}

/* One line; the framing fields are taken. */
static bool field_line(struct tbg_response *r, const char *b, size_t len,
		       bool *keep)
{
	struct tbg_value name, v;

	if (!line_split(b, len, &name, &v))
		return false;
	if (tbg_value_is(name, "Content-Length"))
		return length_field(r, v);
	if (tbg_value_is(name, "Transfer-Encoding"))
		return coding_field(r, v);
	if (tbg_value_is(name, "Connection")) {
		r->close |= tbg_list_has(v, "close");
		*keep |= tbg_list_has(v, "keep-alive");
	} else if (tbg_value_is(name, "Keep-Alive")) {
		keep_field(r, v);
	}
	return true;
}

static bool head_read(struct tbg_response *r, const char *b, size_t len)
{
	size_t off = 0, nr = 0;
	bool keep = false;

	while (off < len) {
		const char *line = b + off, *lf = memchr(line, '\n', len - off);
		const char *end = lf > line && lf[-1] == '\r' ? lf - 1 : lf;

		if (!off) {
			if (!status_line(r, line, end - line))
				return false;
			r->fields_off = lf + 1 - b;
		} else if (end == line) {
			break;
		} else if (++nr > TBG_RESPONSE_FIELDS_MAX ||
			   !field_line(r, line, end - line, &keep)) {
			return false;
		}
		off = lf + 1 - b;
	}
	if (!off || (r->chunked && r->has_length))
		return false;
	/* of a length of 0 nothing follows, whoever reads it (RFC 9110 8.6) */
	if ((r->status < 200 || r->status == 204) && (r->chunked || r->content_length))
		return false;
	if (r->status == 101)		/* many say it, and then what follows */
		r->has_length = false;
	r->len = len;
	r->close = r->close || (!r->minor && !keep);
	return true;
}

enum tbg_parsed tbg_response_parse(struct tbg_response *r, const uint8_t *b,
				   size_t len)
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
	return head_read(r, (const char *)b, end) ? TBG_PARSED_DONE : TBG_PARSED_BAD;
}

/* CGI programs */

/* Three digits, then a blank and a reason, if any. */
static bool status_field(struct tbg_response *r, const char *b, struct tbg_value v)
{
	const char *d = v.text;

	if (r->status || v.len < 3 || !digit(d[0]) || !digit(d[1]) ||
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

/* The Status line to the front; what was there comes behind it. */
static void status_first(struct tbg_response *r, char *b, size_t from, size_t to)
{
	reverse(b, b + from);
	reverse(b + from, b + to);
	reverse(b, b + to);
	r->reason.off -= r->reason.len ? from : 0;
	r->fields_off = to - from;
}

/*
 * A path alone is ours to answer (RFC 3875 6.2.2), a URI the client's, and so is
 * what comes with fields that it would miss; a status says it is neither.
 */
static void location_take(struct tbg_response *r, const char *b,
			  struct tbg_value v, bool alone)
{
	if (!r->status && v.text) {
		r->status = 302;
		r->local = alone && v.len && v.text[0] == '/' &&
			   (v.len == 1 || v.text[1] != '/') &&
			   !memchr(v.text, '#', v.len);
		if (r->local)
			r->location = (struct tbg_text){ v.text - b, v.len };
	}
	r->status = r->status ?: 200;
}

static bool cgi_read(struct tbg_response *r, char *b, size_t len)
{
	struct tbg_value name, v, location = { 0 };
	size_t nr = 0, from = 0, to = 0, next;
	bool alone = true;

	for (size_t off = 0; off < len; off = next) {
		const char *line = b + off, *lf = memchr(line, '\n', len - off);
		const char *end = lf > line && lf[-1] == '\r' ? lf - 1 : lf;

		next = lf + 1 - b;
		if (end == line)
			break;
		if (++nr > TBG_RESPONSE_FIELDS_MAX ||
		    !line_split(line, end - line, &name, &v))
			return false;
		if (tbg_value_is(name, "Status")) {
			if (!status_field(r, b, v))
				return false;
			from = off;
			to = next;
		} else if (tbg_value_is(name, "Content-Length")) {
			if (!length_field(r, v))
				return false;
		} else if (!location.text && tbg_value_is(name, "Location")) {
			location = v;
		} else if (!tbg_value_is(name, "Content-Type")) {
			alone = false;		/* that type is of nothing */
		}
	}
	location_take(r, b, location, alone);
	status_first(r, b, from, to);
	r->minor = 1;
	r->len = len;
	return nr;
}

enum tbg_parsed tbg_response_parse_cgi(struct tbg_response *r, uint8_t *b,
				       size_t len)
{
	long end = head_end(r, b, len);

	if (end < 0)
		return TBG_PARSED_BAD;
	if (!end)
		return TBG_PARSED_MORE;
	return cgi_read(r, (char *)b, end) ? TBG_PARSED_DONE : TBG_PARSED_BAD;
}
