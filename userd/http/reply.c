// SPDX-License-Identifier: GPL-2.0
/* Heads, error bodies, entity tags, preconditions. No I/O. */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "abi/cache.h"
#include "core/key.h"
#include "os/clock.h"
#include "http/reply.h"

const char *tbg_persist_line(enum tbg_persist persist)
{
	static const char *const lines[] = {
#define X(name, line) [TBG_##name] = line,
		TBG_PERSIST_LIST(X)
#undef X
	};

	return lines[persist];
}

const char *tbg_cache_word(enum tbg_cache_status cache)
{
	static const char *const words[] = {
		[TBG_CACHE_HIT] = "hit",
		[TBG_CACHE_STORED] = "stored",
		[TBG_CACHE_MISS] = "miss",
		[TBG_CACHE_NONE] = "none",
	};

	return words[cache];
}

struct writer {
	char *at;
	size_t room;
	bool full;
};

__attribute__((format(printf, 2, 3)))
static void put(struct writer *w, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(w->at, w->room, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= w->room) {
		w->full = true;
		return;
	}
	w->at += n;
	w->room -= n;
}

int tbg_reply_head(const struct tbg_reply *r, const char *date, char *ret,
		   size_t size, struct tbg_head_at *ret_at)
{
	static const char *const cache[] = {
		[TBG_CACHE_HIT] = "; hit; detail=wire",
		[TBG_CACHE_STORED] = "; fwd=uri-miss; stored",
		[TBG_CACHE_MISS] = "; fwd=uri-miss",
		[TBG_CACHE_NONE] = "",
	};
	struct writer w = { .at = ret, .room = size };

	put(&w, "HTTP/1.1 %u %s\r\nServer: toboggan\r\nDate: ", r->status,
	    tbg_status_text(r->status));
	ret_at->date_off = w.at - ret;
	put(&w, "%.*s\r\n", TBG_DATE_LEN, date);
	if (r->type)
		put(&w, "Content-Type: %s\r\n", r->type);
	if (r->encoding)
		put(&w, "Content-Encoding: %s\r\n", r->encoding);
	if (r->length >= 0)
		put(&w, "Content-Length: %lld\r\n", (long long)r->length);
	if (r->range)
		put(&w, "Content-Range: %s\r\n", r->range);
	if (r->ranges)
		put(&w, "Accept-Ranges: bytes\r\n");
	if (r->modified)
		put(&w, "Last-Modified: %s\r\n", r->modified);
	if (r->etag)
		put(&w, "ETag: %s\r\n", r->etag);
	if (r->vary)
		put(&w, "Vary: Accept-Encoding\r\n");
	if (r->location)
		put(&w, "Location: %s\r\n", r->location);
	if (r->allow)
		put(&w, "Allow: %s\r\n", r->allow);
	if (r->retry_s)
		put(&w, "Retry-After: %u\r\n", r->retry_s);
	if (r->fields)
		put(&w, "%s", r->fields);
	put(&w, "Cache-Status: toboggan%s", cache[r->cache]);
	ret_at->tier_off = r->cache == TBG_CACHE_HIT ? w.at - ret - 4 : 0;
	put(&w, "\r\n%s\r\n", tbg_persist_line(r->persist));
	return w.full ? -EMSGSIZE : w.at - ret;
}

static bool line_is(const char *line, size_t len, const char *name)
{
	size_t n = strlen(name);

	return len > n && !memcmp(line, name, n);
}

/* Writes a line of the 200's head, without its CRLF, as the head of the 206 has it. */
static void partial_line(struct writer *w, const char *line, size_t len,
			 const struct tbg_reply *r, const char *date)
{
	static const char tier[] = "detail=wire";

	if (line_is(line, len, "HTTP/1.1 ")) {
		put(w, "HTTP/1.1 %u %s\r\n", r->status, tbg_status_text(r->status));
	} else if (line_is(line, len, "Date: ")) {
		put(w, "Date: %.*s\r\n", TBG_DATE_LEN, date);
	} else if (line_is(line, len, "Content-Length: ")) {
		put(w, "Content-Length: %lld\r\n", (long long)r->length);
		if (r->range)
			put(w, "Content-Range: %s\r\n", r->range);
	} else if (r->type && line_is(line, len, "Content-Type: ")) {
		put(w, "Content-Type: %s\r\n", r->type);
	} else if (line_is(line, len, "Cache-Status: ") && len > strlen(tier) &&
		   !memcmp(line + len - strlen(tier), tier, strlen(tier))) {
		put(w, "%.*suser\r\n", (int)len - 4, line);
	} else {
		put(w, "%.*s\r\n", (int)len, line);
	}
}

int tbg_reply_partial(const char *whole, size_t len, const struct tbg_reply *r,
		      const char *date, char *ret, size_t size)
{
	struct writer w = { .at = ret, .room = size };
	const char *end = whole + len, *cr;

	for (; (cr = memchr(whole, '\r', end - whole)); whole = cr + 2) {
		if (cr == whole)
			break;
		partial_line(&w, whole, cr - whole, r, date);
	}
	put(&w, "%s\r\n", tbg_persist_line(r->persist));
	return w.full ? -EMSGSIZE : w.at - ret;
}

size_t tbg_reply_field(const char *head, size_t len, const char *name,
		       const char **ret_value)
{
	const char *end = head + len, *cr;

	for (; (cr = memchr(head, '\r', end - head)); head = cr + 2) {
		if (!line_is(head, cr - head, name))
			continue;
		*ret_value = head + strlen(name);
		return cr - *ret_value;
	}
	return 0;
}

/*
 * SipHash with a public key: tags stay the same after a restart, and do not reveal the
 * inode.
 */
int tbg_etag_make(const struct tbg_version *v, const char *suffix, char ret[40])
{
	const uint64_t words[] = { v->ino, v->ctime_ns, v->mtime_ns, v->size };
	uint64_t v0 = 0x736f6d6570736575ull, v1 = 0x646f72616e646f6dull ^ 0xee;
	uint64_t v2 = 0x6c7967656e657261ull, v3 = 0x7465646279746573ull, high;

	for (int i = 0; i < 4; i++) {
		v3 ^= words[i];
		TBG_SIP_ROUND(v0, v1, v2, v3);
		v0 ^= words[i];
	}
	v2 ^= 0xee;
	for (int i = 0; i < 3; i++)
		TBG_SIP_ROUND(v0, v1, v2, v3);
	high = v0 ^ v1 ^ v2 ^ v3;
	v1 ^= 0xdd;
	for (int i = 0; i < 3; i++)
		TBG_SIP_ROUND(v0, v1, v2, v3);
	return snprintf(ret, 40, "\"%016llx%016llx%s%s\"", (unsigned long long)high,
			(unsigned long long)(v0 ^ v1 ^ v2 ^ v3), *suffix ? "-" : "", suffix);
}

/*
 * The next tag of a list: its opaque part with quotes, and whether it is weak.
 * False at the end, or if the list is malformed.
 */
static bool tag_next(const struct tbg_slice *f, size_t *at,
		     struct tbg_slice *ret, bool *ret_weak)
{
	const char *p = f->text + *at, *end = f->text + f->len, *close, *next;

	while (p < end && (*p == ' ' || *p == '\t' || *p == ','))
		p++;
	*ret_weak = end - p > 2 && p[0] == 'W' && p[1] == '/';
	if (*ret_weak)
		p += 2;
	if (p >= end || *p != '"')
		return false;
	close = memchr(p + 1, '"', end - p - 1);
	if (!close)
		return false;
	for (next = close + 1; next < end && (*next == ' ' || *next == '\t');)
		next++;
	if (next < end && *next != ',')
		return false;
	*ret = (struct tbg_slice){ p, close + 1 - p };
	*at = next - f->text;
	return true;
}

/* strong: weak tags never match, on either side (RFC 9110 8.8.3.2). */
static bool tags_match(const struct tbg_slice *f, const char *etag,
		       size_t etag_len, bool strong)
{
	bool ours_weak = etag_len > 2 && etag[0] == 'W', weak;
	struct tbg_slice tag;
	size_t at = 0;

	if (f->len == 1 && f->text[0] == '*')
		return true;
	if (strong && ours_weak)
		return false;
	etag += ours_weak ? 2 : 0;
	etag_len -= ours_weak ? 2 : 0;
	while (tag_next(f, &at, &tag, &weak))
		if (!(strong && weak) && tag.len == etag_len &&
		    !memcmp(tag.text, etag, etag_len))
			return true;
	return false;
}

bool tbg_if_range_eval(const struct tbg_slice *f, const char *etag,
		       size_t etag_len, int64_t modified_s)
{
	int64_t second;

	if (!f->text)
		return true;
	if (memchr(f->text, '"', f->len))
		return etag_len && etag[0] == '"' && f->len == etag_len &&
		       !memcmp(f->text, etag, etag_len);
	return !tbg_date_parse(f->text, f->len, &second) && second == modified_s;
}

unsigned int tbg_conditions_eval(const struct tbg_conditions *c,
				 const char *etag, size_t etag_len,
				 int64_t modified_s)
{
	const struct tbg_slice *f = &c->if_unmodified_since;
	int64_t second;

	if (c->if_match.text) {
		if (!tags_match(&c->if_match, etag, etag_len, true))
			return 412;
	} else if (f->text && modified_s != TBG_NO_DATE &&
		   !tbg_date_parse(f->text, f->len, &second)) {
		if (modified_s > second)
			return 412;
	}
	f = &c->if_modified_since;
	if (c->if_none_match.text)
		return tags_match(&c->if_none_match, etag, etag_len, false) ?
		       304 : 0;
	if (f->text && !tbg_date_parse(f->text, f->len, &second))
		return modified_s <= second ? 304 : 0;
	return 0;
}
