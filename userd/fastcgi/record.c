// SPDX-License-Identifier: GPL-2.0
/*
 * Content is returned in place; only headers and fixed bodies are copied, since they
 * may arrive in pieces. A record whose content was returned may have padding left,
 * which the next call consumes.
 */
#include <string.h>

#include "fastcgi/record.h"


/* Returns whether the content is a structure of TBG_FCGI_RECORD_BODY bytes. */
static bool fixed(uint8_t type)
{
	return type == TBG_FCGI_RECORD_BEGIN || type == TBG_FCGI_RECORD_END ||
	       type == TBG_FCGI_RECORD_UNKNOWN;
}

static bool header_read(struct tbg_fcgi_record_reader *rd)
{
	const uint8_t *h = rd->header;

	rd->left = h[4] << 8 | h[5];
	rd->padding = h[6];
	rd->body_len = 0;
	return h[0] == TBG_FCGI_RECORD_VERSION &&
	       (!fixed(h[1]) || rd->left == TBG_FCGI_RECORD_BODY);
}

/* Copies up to `want` bytes. Returns their number. */
static size_t collect(uint8_t *to, uint8_t *have, size_t want, const uint8_t *b,
		      size_t len)
{
	size_t n = want < len ? want : len;

	memcpy(to + *have, b, n);
	*have += n;
	return n;
}

/* Returns as much content as is available. */
static size_t run(struct tbg_fcgi_record_reader *rd, const uint8_t *b, size_t len,
		  struct tbg_fcgi_record *ret)
{
	size_t n = rd->left < len ? rd->left : len;

	rd->left -= n;
	ret->data = b;
	ret->len = n;
	ret->left = rd->left;
	return n;
}

/* A record has ended. Returns true if it must be returned to the caller now. */
static bool whole(const struct tbg_fcgi_record_reader *rd, struct tbg_fcgi_record *ret)
{
	const uint8_t *b = rd->body;

	if (!fixed(ret->type))
		return !rd->header[4] && !rd->header[5];
	if (ret->type == TBG_FCGI_RECORD_BEGIN) {
		ret->role = b[0] << 8 | b[1];
		ret->flags = b[2];
	} else if (ret->type == TBG_FCGI_RECORD_END) {
		ret->app_status = (uint32_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
		ret->status = b[4];
	} else {
		ret->unknown = b[0];
	}
	return true;
}

/* Handles the header, the content or the padding at the start of b. */
static enum tbg_parsed read_part(struct tbg_fcgi_record_reader *rd, const uint8_t *b,
				 size_t len, size_t *ret_used, struct tbg_fcgi_record *ret)
{
	size_t want = TBG_FCGI_RECORD_HEADER - rd->header_len, n;

	if (want) {
		n = *ret_used = collect(rd->header, &rd->header_len, want, b, len);
		if (n < want)
			return TBG_PARSED_MORE;
		if (!header_read(rd))
			return TBG_PARSED_BAD;
	}
	*ret = (struct tbg_fcgi_record){ .type = rd->header[1],
				    .id = rd->header[2] << 8 | rd->header[3],
				    .marked = rd->header[TBG_FCGI_RECORD_MARK] };
	if (!want && rd->left && fixed(ret->type)) {
		n = collect(rd->body, &rd->body_len, rd->left, b, len);
		rd->left -= n;
	} else if (!want && rd->left) {
		n = run(rd, b, len, ret);
	} else if (!want) {
		n = rd->padding < len ? rd->padding : len;
		rd->padding -= n;
	}
	*ret_used = n;
	if (rd->left || rd->padding)
		return ret->len ? TBG_PARSED_DONE : TBG_PARSED_MORE;
	rd->header_len = 0;
	return ret->len || whole(rd, ret) ? TBG_PARSED_DONE : TBG_PARSED_MORE;
}

enum tbg_parsed tbg_fcgi_record_next(struct tbg_fcgi_record_reader *rd, const uint8_t *b,
				size_t len, size_t *ret_used,
				struct tbg_fcgi_record *ret)
{
	enum tbg_parsed p = TBG_PARSED_MORE;
	size_t n;

	for (*ret_used = 0; *ret_used < len && p == TBG_PARSED_MORE; *ret_used += n)
		p = read_part(rd, b + *ret_used, len - *ret_used, &n, ret);
	return p;
}

bool tbg_fcgi_record_between(const struct tbg_fcgi_record_reader *rd)
{
	return !rd->header_len;
}

void tbg_fcgi_record_header(uint8_t ret[TBG_FCGI_RECORD_HEADER], uint8_t type, uint16_t id,
		       uint16_t len, uint8_t padding)
{
	const uint8_t h[TBG_FCGI_RECORD_HEADER] = {
		TBG_FCGI_RECORD_VERSION, type, id >> 8, id & 0xff, len >> 8, len & 0xff, padding, 0,
	};

	memcpy(ret, h, sizeof(h));
}

static void fixed_make(uint8_t *ret, uint8_t type, uint16_t id,
		       const uint8_t body[TBG_FCGI_RECORD_BODY])
{
	tbg_fcgi_record_header(ret, type, id, TBG_FCGI_RECORD_BODY, 0);
	memcpy(ret + TBG_FCGI_RECORD_HEADER, body, TBG_FCGI_RECORD_BODY);
}

void tbg_fcgi_record_begin(uint8_t ret[TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY],
		      uint16_t id, uint16_t role, uint8_t flags)
{
	fixed_make(ret, TBG_FCGI_RECORD_BEGIN, id,
		   (uint8_t[TBG_FCGI_RECORD_BODY]){ role >> 8, role & 0xff, flags });
}

void tbg_fcgi_record_end(uint8_t ret[TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY],
		    uint16_t id, uint32_t app_status, uint8_t status)
{
	fixed_make(ret, TBG_FCGI_RECORD_END, id,
		   (uint8_t[TBG_FCGI_RECORD_BODY]){ app_status >> 24, app_status >> 16 & 0xff,
					       app_status >> 8 & 0xff, app_status & 0xff,
					       status });
}

void tbg_fcgi_record_unknown(uint8_t ret[TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY],
			uint8_t type)
{
	fixed_make(ret, TBG_FCGI_RECORD_UNKNOWN, 0, (uint8_t[TBG_FCGI_RECORD_BODY]){ type });
}

void tbg_fcgi_record_put(struct tbg_lines *l, uint8_t type, uint16_t id,
		    const void *data, size_t len)
{
	const uint8_t *b = data;

	while (len) {
		size_t n = len < TBG_FCGI_RECORD_MAX ? len : TBG_FCGI_RECORD_MAX;
		uint8_t header[TBG_FCGI_RECORD_HEADER];

		tbg_fcgi_record_header(header, type, id, n, 0);
		tbg_lines_put(l, header, sizeof(header));
		tbg_lines_put(l, b, n);
		b += n;
		len -= n;
	}
}

/* Lengths below 128 take one byte, others four with the highest bit set (3.4). */
static size_t length_size(uint32_t n)
{
	return n < 128 ? 1 : 4;
}

/* Returns the end of the written bytes. */
static char *length_write(char *at, uint32_t n)
{
	if (length_size(n) == 4) {
		*at++ = n >> 24 | 0x80;
		*at++ = n >> 16;
		*at++ = n >> 8;
	}
	*at++ = n;
	return at;
}

static bool length_take(const uint8_t *b, size_t len, size_t *at, size_t *ret)
{
	const uint8_t *p = b + *at;
	size_t n = *at < len ? (*p & 0x80 ? 4 : 1) : 0;

	if (!n || len - *at < n)
		return false;
	*ret = n == 1 ? *p : (size_t)(*p & 0x7f) << 24 | p[1] << 16 | p[2] << 8 | p[3];
	*at += n;
	return true;
}

void tbg_pair_put(struct tbg_lines *l, struct tbg_slice name,
		  struct tbg_slice value)
{
	char *at = tbg_lines_take(l, length_size(name.len) + length_size(value.len) +
				     name.len + value.len);

	if (!at)
		return;
	at = length_write(length_write(at, name.len), value.len);
	memcpy(at, name.text, name.len);
	if (value.len)
		memcpy(at + name.len, value.text, value.len);
}

enum tbg_parsed tbg_pair_next(const uint8_t *b, size_t len, size_t *at,
			      struct tbg_slice *ret_name,
			      struct tbg_slice *ret_value)
{
	size_t name_len, value_len, off = *at;

	if (off == len)
		return TBG_PARSED_MORE;
	if (!length_take(b, len, &off, &name_len) ||
	    !length_take(b, len, &off, &value_len) ||
	    name_len > len - off || value_len > len - off - name_len)
		return TBG_PARSED_BAD;
	*ret_name = (struct tbg_slice){ (const char *)b + off, name_len };
	*ret_value = (struct tbg_slice){ (const char *)b + off + name_len, value_len };
	*at = off + name_len + value_len;
	return TBG_PARSED_DONE;
}
