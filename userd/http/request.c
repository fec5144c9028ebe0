// SPDX-License-Identifier: GPL-2.0
/*
 * RFC 9112 for a server, line by line. Tolerant only where the RFC requires
 * it: empty lines before a request, LF alone as the end of a line (2.2).
 * Everything else that two parsers could interpret differently is refused.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "http/header.h"
#include "http/request.h"
#include "http/token.h"

#define EMPTY_LINES_MAX	8	/* before a request */
#define REQUEST_LINE_MAX (TBG_TARGET_MAX + 64)

enum { REQUEST_LINE, FIELDS };

enum {				/* classes of bytes */
	TCHAR = 1,
	TARGET = 2,		/* visible ASCII but '#': what targets are made of */
	HOST = 4,		/* reg-name and port, without '%' */
	IP = 8,			/* inside [ ] */
};

static uint8_t class_of(uint8_t c)
{
	uint8_t r = 0;
	bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
		     (c >= 'A' && c <= 'Z');

	if (tbg_token_byte(c))
		r |= TCHAR;
	if (c > 0x20 && c < 0x7f && c != '#')
		r |= TARGET;
	if (alnum || (c && strchr("-._~!$&'()*+,;=", c)))
		r |= HOST;
	if (alnum || (c && strchr("-._~!$&'()*+,;=:", c)))
		r |= IP;
	return r;
}

static uint8_t class[256];

__attribute__((constructor)) static void class_init(void)
{
	for (int i = 0; i < 256; i++)
		class[i] = class_of(i);
}

static bool all(const uint8_t *b, size_t len, uint8_t what)
{
	for (size_t i = 0; i < len; i++)
		if (!(class[b[i]] & what))
			return false;
	return true;
}

static enum tbg_parsed bad(struct tbg_message *m, unsigned int status)
{
	m->status = status;
	m->close = true;
	return TBG_PARSED_BAD;
}

static bool same(const uint8_t *b, size_t len, const char *word)
{
	return len == strlen(word) && !strncasecmp((const char *)b, word, len);
}

static bool port_valid(const uint8_t *b, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (b[i] < '0' || b[i] > '9')
			return false;
	return len <= 5;
}

/*
 * Whether the text between [ and ] is an IPv6 address (RFC 3986 3.2.2). Future
 * versions, which are allowed there, do not exist yet.
 */
static bool ip6_valid(const uint8_t *b, size_t len)
{
	char text[INET6_ADDRSTRLEN];
	struct in6_addr addr;

	if (!len || len >= sizeof(text) || !all(b, len, IP))
		return false;
	memcpy(text, b, len);
	text[len] = '\0';
	return inet_pton(AF_INET6, text, &addr) == 1;
}

/* Whether b is uri-host [":" port] (RFC 9110 7.2) and not empty. */
static bool host_valid(const uint8_t *b, size_t len)
{
	size_t i = 0;

	if (len && b[0] == '[') {
		const uint8_t *end = memchr(b, ']', len);

		if (!end || !ip6_valid(b + 1, end - b - 1))
			return false;
		i = end - b + 1;
	} else {
		for (; i < len && b[i] != ':'; i++) {
			if (b[i] == '%') {
				if (len - i < 3 || tbg_hex_value(b[i + 1]) < 0 ||
				    tbg_hex_value(b[i + 2]) < 0)
					return false;
				i += 2;
			} else if (!(class[b[i]] & HOST)) {
				return false;
			}
		}
		if (!i)
			return false;
	}
	if (i == len)
		return true;
	return b[i] == ':' && port_valid(b + i + 1, len - i - 1);
}

/* Ends the segment that began at seg; false: above the root. */
static bool segment_end(char *ret, size_t seg, size_t *n)
{
	size_t len = *n - seg;

	if (len == 1 && ret[seg] == '.') {
		*n = seg;
	} else if (len == 2 && ret[seg] == '.' && ret[seg + 1] == '.') {
		if (seg < 2)
			return false;
		for (seg--; ret[seg - 1] != '/'; seg--)
			;
		*n = seg;
	}
	return true;
}

/* The byte at raw[*i], unescaped; *i: its last position. -1: invalid. */
static int byte_at(const uint8_t *raw, size_t len, size_t *i)
{
	int hi, lo;

	if (raw[*i] != '%')
		return raw[*i];
	if (len - *i < 3 || (hi = tbg_hex_value(raw[*i + 1])) < 0 ||
	    (lo = tbg_hex_value(raw[*i + 2])) < 0 || !(hi | lo))
		return -1;
	*i += 2;
	return hi << 4 | lo;
}

int tbg_path_decode(const uint8_t *raw, size_t len, char *ret)
{
	size_t n = 1, seg = 1;

	if (!len || raw[0] != '/')
		return -EINVAL;
	ret[0] = '/';
	for (size_t i = 1; i < len; i++) {
		int c = byte_at(raw, len, &i);

		if (c < 0)
			return -EINVAL;
		if (c != '/') {
			ret[n++] = c;
			continue;
		}
		if (!segment_end(ret, seg, &n))
			return -EINVAL;
		if (ret[n - 1] != '/')
			ret[n++] = '/';
		seg = n;
	}
	if (!segment_end(ret, seg, &n))
		return -EINVAL;
	ret[n] = 0;
	return n;
}

static uint8_t method_of(const uint8_t *b, size_t len)
{
#define X(name) \
	if (len == sizeof(#name) - 1 && !memcmp(b, #name, len)) \
		return TBG_METHOD_##name;
	TBG_METHOD_LIST(X)
#undef X
	return TBG_METHOD_OTHER;
}

/*
 * Length of the UTF-8 character at b (RFC 3629 4); 0: invalid, or a control
 * character from U+0080 to U+009F, which terminals obey.
 */
static size_t utf8_len(const uint8_t *b, size_t len)
{
	size_t n = *b >= 0xf0 ? 4 : *b >= 0xe0 ? 3 : 2;
	uint32_t c = *b & 0x7f >> n;

	if (*b < 0xc2 || *b > 0xf4 || len < n)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((b[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (b[i] & 0x3f);
	}
	if (c < 0xa0 || (n == 3 && c < 0x800) || (n == 4 && c < 0x10000) ||
	    (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
		return 0;
	return n;
}

/*
 * *ret_raw: it contains characters that must be escaped in a URI (RFC 3987) but that some
 * clients send.
 */
static bool target_valid(const uint8_t *b, size_t len, bool *ret_raw)
{
	size_t n;

	for (size_t i = 0; i < len; i += n) {
		n = 1;
		if (class[b[i]] & TARGET)
			continue;
		n = utf8_len(b + i, len - i);
		if (!n)
			return false;
		*ret_raw = true;
	}
	return true;
}

/* The target of CONNECT: a host and a mandatory port. */
static bool authority_valid(const uint8_t *b, size_t len)
{
	const uint8_t *colon = memrchr(b, ':', len);

	return host_valid(b, len) && colon && colon + 1 < b + len &&
	       (b[0] != '[' || colon[-1] == ']');
}

/*
 * Finds the authority of an absolute target. Refuses other schemes: https
 * needs a secured connection (RFC 9110 7.4).
 */
static unsigned int scheme_skip(const uint8_t *b, size_t off, size_t end,
				size_t *ret_from)
{
	if (end - off > 8 && !strncasecmp((char *)b + off, "https://", 8))
		return 421;
	if (end - off <= 7 || strncasecmp((char *)b + off, "http://", 7))
		return 400;
	*ret_from = off + 7;
	return 0;
}

int tbg_target_path(const char *target, size_t len, char ret[TBG_TARGET_MAX + 1])
{
	const char *query = memchr(target, '?', len);

	if (query)
		len = query - target;
	return len > TBG_TARGET_MAX ? -EINVAL :
	       tbg_path_decode((const uint8_t *)target, len, ret);
}

/* The target's four forms (RFC 9112 3.2). */
static enum tbg_parsed target_parse(struct tbg_message *m, const uint8_t *b,
				    char *path)
{
	size_t off = m->target.off, end = off + m->target.len;
	const uint8_t *query;
	int n;

	m->asterisk = true;
	if (m->method == TBG_METHOD_CONNECT) {
		if (!authority_valid(b + off, end - off))
			return bad(m, 400);
		return TBG_PARSED_MORE;
	}
	if (m->target.len == 1 && b[off] == '*')
		return m->method == TBG_METHOD_OPTIONS ? TBG_PARSED_MORE
						       : bad(m, 400);
	m->asterisk = false;
	if (b[off] != '/') {
		size_t from;
		unsigned int status = scheme_skip(b, off, end, &from);

		if (status)
			return bad(m, status);
		for (off = from; off < end && b[off] != '/' && b[off] != '?';)
			off++;
		if (!host_valid(b + from, off - from))
			return bad(m, 400);
		m->host = (struct tbg_text){ from, off - from };
	}
	/* of the server as a whole (RFC 9112 3.2.4) */
	if (off == end && m->method == TBG_METHOD_OPTIONS) {
		m->asterisk = true;
		return TBG_PARSED_MORE;
	}
	query = memchr(b + off, '?', end - off);
	if (query) {
		m->has_query = true;
		m->query.off = query + 1 - b;
		m->query.len = end - m->query.off;
		end = query - b;
	}
	n = off == end ? tbg_path_decode((const uint8_t *)"/", 1, path)
		       : tbg_path_decode(b + off, end - off, path);
	if (n < 0)
		return bad(m, 400);
	m->path_len = n;
	return TBG_PARSED_MORE;
}

static enum tbg_parsed request_line(struct tbg_message *m, const uint8_t *b,
				    size_t off, size_t end, char *path)
{
	const uint8_t *sp = memchr(b + off, ' ', end - off), *sp2, *v;

	if (!sp || sp == b + off || !all(b + off, sp - b - off, TCHAR))
		return bad(m, 400);
	m->head_off = off;
	m->method = method_of(b + off, sp - b - off);
	sp2 = memchr(sp + 1, ' ', b + end - sp - 1);
	if (!sp2 || sp2 == sp + 1 || !target_valid(sp + 1, sp2 - sp - 1, &m->raw_target))
		return bad(m, 400);
	m->target = (struct tbg_text){ sp + 1 - b, sp2 - sp - 1 };
	v = sp2 + 1;
	if (b + end - v != 8 || memcmp(v, "HTTP/", 5) || v[6] != '.' ||
	    v[5] < '0' || v[5] > '9' || v[7] < '0' || v[7] > '9')
		return bad(m, 400);
	if (v[5] != '1')
		return bad(m, 505);
	m->minor = v[7] != '0';
	if (m->target.len > TBG_TARGET_MAX)
		return bad(m, 414);
	return target_parse(m, b, path);
}

/* Calls fn for each element of a comma-separated list. */
static bool list_next(const uint8_t *b, size_t end, size_t *at,
		      struct tbg_text *ret)
{
	size_t off = *at, last;

	while (off < end && (b[off] == ',' || b[off] == ' ' || b[off] == '\t'))
		off++;
	if (off >= end)
		return false;
	for (last = off; last < end && b[last] != ','; last++)
		;
	*at = last;
	while (last > off && (b[last - 1] == ' ' || b[last - 1] == '\t'))
		last--;
	*ret = (struct tbg_text){ off, last - off };
	return true;
}

static void connection_field(struct tbg_message *m, const uint8_t *b,
			     size_t off, size_t len)
{
	struct tbg_text t;
	size_t at = off;

	while (list_next(b, off + len, &at, &t)) {
		if (same(b + t.off, t.len, "close"))
			m->conn_close = true;
		else if (same(b + t.off, t.len, "keep-alive"))
			m->conn_keep = true;
	}
}

/* Checks a transfer-coding: 0 for chunked, else the status that refuses it. */
static unsigned int coding_one(const uint8_t *b, size_t len)
{
	size_t n = 0, rest;

	while (n < len && tbg_token_byte(b[n]))
		n++;
	for (rest = n; rest < len && (b[rest] == ' ' || b[rest] == '\t');)
		rest++;
	if (!n || (rest < len && b[rest] != ';'))
		return 400;
	if (!same(b, n, "chunked"))
		return 501;
	return rest < len ? 400 : 0;	/* chunked has no parameters: 7.1 */
}

/* Only "chunked" alone; RFC 9112 6.1 and 6.3. */
static unsigned int coding_field(struct tbg_message *m, const uint8_t *b,
				 size_t off, size_t len)
{
	struct tbg_text t = { 0 };
	size_t at = off;
	unsigned int other = 0, status;

	if (!m->minor)
		return 400;
	while (list_next(b, off + len, &at, &t)) {
		status = coding_one(b + t.off, t.len);
		if (status == 400 || m->chunked)	/* or chunked not last */
			return 400;
		if (status)
			other = status;
		else
			m->chunked = true;
	}
	return other ? other : m->chunked ? 0 : 400;
}

static unsigned int length_field(struct tbg_message *m, const uint8_t *b,
				 size_t off, size_t len)
{
	bool over = false;
	uint64_t n = 0;

	if (!len)
		return 400;
	for (size_t i = 0; i < len; i++) {
		if (b[off + i] < '0' || b[off + i] > '9')
			return 400;
		over |= __builtin_mul_overflow(n, 10, &n) ||
			__builtin_add_overflow(n, b[off + i] - '0', &n);
	}
	m->has_length = true;
	m->content_length = over ? UINT64_MAX : n;
	return 0;
}

/* Unknown expectations are 417; elements may be empty (RFC 9110 5.6.1.2). */
static void expect_field(struct tbg_message *m, const uint8_t *b, size_t off,
			 size_t len)
{
	struct tbg_text t;
	size_t at = off;

	while (list_next(b, off + len, &at, &t)) {
		if (same(b + t.off, t.len, "100-continue"))
			m->expect_continue = true;
		else
			m->expect_other = true;
	}
}

static unsigned int host_field(struct tbg_message *m, const uint8_t *b,
			       size_t off, size_t len)
{
	if (!host_valid(b + off, len))
		return 400;
	if (!m->host.off)
		m->host = (struct tbg_text){ off, len };
	return 0;
}

/* Takes a field by its name; 0, or the status that refuses the request. */
static unsigned int field_take(struct tbg_message *m, const uint8_t *b,
			       size_t name, size_t name_len, size_t off,
			       size_t len)
{
	enum tbg_name id = tbg_name_of((struct tbg_slice){ (const char *)b + name, name_len });
	uint64_t bit = id == TBG_NAME_OTHER ? 0 : 1ull << id;
	struct tbg_text value = { off, len };

	if (m->seen & bit & tbg_names_with(TBG_ONCE))
		return 400;
	m->repeated |= m->seen & bit;
	m->seen |= bit;
	switch (id) {
	case TBG_NAME_HOST:
		return host_field(m, b, off, len);
	case TBG_NAME_CONTENT_LENGTH:
		return length_field(m, b, off, len);
	case TBG_NAME_TRANSFER_ENCODING:
		return coding_field(m, b, off, len);
	case TBG_NAME_CONNECTION:
		connection_field(m, b, off, len);
		break;
	case TBG_NAME_IF_NONE_MATCH:
		m->inm = value;
		break;
	case TBG_NAME_IF_MODIFIED_SINCE:
		m->ims = value;
		break;
	case TBG_NAME_IF_MATCH:
		m->im = value;
		break;
	case TBG_NAME_IF_UNMODIFIED_SINCE:
		m->ius = value;
		break;
	case TBG_NAME_ACCEPT_ENCODING:
		m->ae = value;
		break;
	case TBG_NAME_RANGE:
		m->range = value;
		break;
	case TBG_NAME_IF_RANGE:
		m->if_range = value;
		break;
	case TBG_NAME_EXPECT:
		if (m->minor)
			expect_field(m, b, off, len);
		break;
	case TBG_NAME_MAX_FORWARDS:
		m->last_hop = same(b + off, len, "0");
		break;
	default:
		break;
	}
	return 0;
}

static enum tbg_parsed field_line(struct tbg_message *m, const uint8_t *b,
				  size_t off, size_t end)
{
	const uint8_t *colon = memchr(b + off, ':', end - off);
	size_t value, name_len;
	unsigned int status;

	m->fields_nr++;
	/* An empty name, white space before the colon and obs-fold are refused: no TCHAR. */
	if (!colon || colon == b + off || !all(b + off, colon - b - off, TCHAR))
		return bad(m, 400);
	name_len = colon - b - off;
	for (value = colon + 1 - b; value < end &&
	     (b[value] == ' ' || b[value] == '\t'); value++)
		;
	while (end > value && (b[end - 1] == ' ' || b[end - 1] == '\t'))
		end--;
	status = field_take(m, b, off, name_len, value, end - value);
	return status ? bad(m, status) : TBG_PARSED_MORE;
}

/* Checks that need all fields. */
static enum tbg_parsed head_end(struct tbg_message *m, size_t len)
{
	m->len = len;
	if (m->minor && !tbg_name_in(TBG_NAME_HOST, m->seen))
		return bad(m, 400);
	if (m->chunked && m->has_length)
		return bad(m, 400);
	m->close = m->conn_close || (!m->minor && !m->conn_keep);
	if (m->method == TBG_METHOD_CONNECT)
		m->close = true;
	return TBG_PARSED_DONE;
}

/*
 * The offset of the LF that ends the line at line_off; -EAGAIN: not
 * received yet; -EINVAL: a byte that is not allowed in a line (NUL, CR not
 * before LF, other controls). A CR at the end of the received bytes is
 * checked again later.
 */
static long line_end(struct tbg_message *m, const uint8_t *b, size_t len)
{
	size_t at = m->scan_off;

	at += tbg_value_run(b + at, len - at);
	if (at == len || (b[at] == '\r' && at + 1 == len)) {
		m->scan_off = at;
		return -EAGAIN;
	}
	at += b[at] == '\r';
	return b[at] == '\n' ? (long)at : -EINVAL;
}

/* RFC 9112 3: a method longer than all known ones is 501, a target that is too long is 414. */
static enum tbg_parsed too_long(struct tbg_message *m, const uint8_t *b,
				size_t end)
{
	const uint8_t *line = b + m->line_off;

	if (m->state == FIELDS)
		return bad(m, 431);
	return bad(m, memchr(line, ' ', b + end - line) ? 414 : 501);
}

static enum tbg_parsed line_take(struct tbg_message *m, const uint8_t *b,
				 size_t off, size_t lf, char *path)
{
	size_t end = lf > off && b[lf - 1] == '\r' ? lf - 1 : lf;
	enum tbg_parsed p;

	if (m->state == FIELDS)
		return end == off ? head_end(m, lf + 1)
				  : field_line(m, b, off, end);
	if (end == off)		/* RFC 9112 2.2: before the request */
		return off < 2 * EMPTY_LINES_MAX ? TBG_PARSED_MORE : bad(m, 400);
	p = request_line(m, b, off, end, path);
	m->state = FIELDS;
	return p;
}

enum tbg_parsed tbg_message_parse(struct tbg_message *m, const uint8_t *b,
				  size_t len, size_t head_max, char *path)
{
	for (;;) {
		size_t off = m->line_off, max = head_max;
		enum tbg_parsed p;
		long lf;

		if (m->state == REQUEST_LINE &&
		    off + REQUEST_LINE_MAX < max)
			max = off + REQUEST_LINE_MAX;
		lf = line_end(m, b, len < max ? len : max);
		if (lf == -EINVAL)
			return bad(m, 400);
		if (lf < 0)
			return len < max ? TBG_PARSED_MORE : too_long(m, b, max);
		m->line_off = m->scan_off = lf + 1;
		p = line_take(m, b, off, lf, path);
		if (p != TBG_PARSED_MORE)
			return p;
	}
}

bool tbg_message_begun(const struct tbg_message *m)
{
	return m->state != REQUEST_LINE || m->scan_off > m->line_off;
}

size_t tbg_message_list(const uint8_t *head, size_t len, const char *name,
			char *ret, size_t size)
{
	const uint8_t *line = memchr(head, '\n', len), *next, *end = head + len;
	size_t n = 0;

	for (; line && ++line < end; line = next) {
		size_t name_len = strlen(name), value_len;
		const uint8_t *value = line + name_len + 1;

		next = memchr(line, '\n', end - line);
		if (!next || value > next || value[-1] != ':' ||
		    strncasecmp((char *)line, name, name_len))
			continue;
		value_len = next - value - (next > value && next[-1] == '\r');
		if (value_len + 2 > size - n)
			break;
		if (n) {
			memcpy(ret + n, ", ", 2);
			n += 2;
		}
		memcpy(ret + n, value, value_len);
		n += value_len;
	}
	return n;
}
