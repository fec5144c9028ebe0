// SPDX-License-Identifier: GPL-2.0
/*
 * A Range field is parsed again for each use, so that memory does not grow
 * with the number of ranges.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "http/range.h"

enum spec { SPEC_END, SPEC_BAD, SPEC_UNSATISFIABLE, SPEC_EMPTY, SPEC_GOOD };

/* 1*DIGIT, saturating; false: no digit. */
static bool number(struct tbg_ranges *r, uint64_t *ret)
{
	size_t from = r->at;
	bool over = false;
	uint64_t n = 0;

	for (; r->at < r->len; r->at++) {
		char c = r->text[r->at];

		if (c < '0' || c > '9')
			break;
		over |= __builtin_mul_overflow(n, 10, &n) ||
			__builtin_add_overflow(n, c - '0', &n);
	}
	if (r->at == from)
		return false;
	*ret = over ? UINT64_MAX : n;
	return true;
}

static bool blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Skips the end of a range: white space, then a comma or the end. */
static bool spec_ends(struct tbg_ranges *r)
{
	while (r->at < r->len && blank(r->text[r->at]))
		r->at++;
	return r->at == r->len || r->text[r->at] == ',';
}

/* "-" suffix-length, after its dash. */
static enum spec suffix(struct tbg_ranges *r, struct tbg_range *ret)
{
	uint64_t n;

	if (!number(r, &n) || !spec_ends(r))
		return SPEC_BAD;
	if (!n)
		return SPEC_UNSATISFIABLE;
	if (!r->size)
		return SPEC_EMPTY;
	ret->len = n < r->size ? n : r->size;
	ret->first = r->size - ret->len;
	return SPEC_GOOD;
}

/* The next range-spec; elements of a list may be empty (RFC 9110 5.6.1.2). */
static enum spec spec_next(struct tbg_ranges *r, struct tbg_range *ret)
{
	uint64_t first, last = UINT64_MAX;

	while (r->at < r->len && (blank(r->text[r->at]) || r->text[r->at] == ','))
		r->at++;
	if (r->at == r->len)
		return SPEC_END;
	if (r->text[r->at] == '-') {
		r->at++;
		return suffix(r, ret);
	}
	if (!number(r, &first) || r->at == r->len || r->text[r->at] != '-')
		return SPEC_BAD;
	r->at++;
	if (number(r, &last) && last < first)
		return SPEC_BAD;
	if (!spec_ends(r))
		return SPEC_BAD;
	if (first >= r->size)
		return SPEC_UNSATISFIABLE;
	if (last >= r->size)
		last = r->size - 1;
	ret->first = first;
	ret->len = last - first + 1;
	return SPEC_GOOD;
}

unsigned int tbg_ranges_open(struct tbg_ranges *ret, const char *text,
			     size_t len, uint64_t size)
{
	struct tbg_ranges r = { .size = size, .malformed = true };
	struct tbg_range range;
	uint64_t sum = 0;
	bool empty = false;
	enum spec spec;

	if (len < 6 || strncasecmp(text, "bytes=", 6))
		return 200;
	r.text = text + 6;
	r.len = len - 6;
	while ((spec = spec_next(&r, &range)) != SPEC_END) {
		r.malformed = spec == SPEC_BAD;
		if (r.malformed)
			break;
		empty |= spec == SPEC_EMPTY;
		if (spec != SPEC_GOOD)
			continue;
		if (!r.nr++)
			r.one = range;
		if (__builtin_add_overflow(sum, range.len, &sum))
			return 200;
	}
	r.at = 0;
	*ret = r;
	if (r.malformed)
		return 416;
	if (sum > size || empty)	/* Content-Range cannot express an empty range */
		return 200;
	return r.nr ? 206 : 416;
}

/* The next satisfiable range, in the order of the field; false: no more. */
static bool ranges_next(struct tbg_ranges *r, struct tbg_range *ret)
{
	enum spec spec;

	do {
		spec = spec_next(r, ret);
	} while (spec == SPEC_UNSATISFIABLE);
	return spec == SPEC_GOOD;
}

int tbg_range_text(const struct tbg_range *range, uint64_t size,
		   char ret[TBG_RANGE_TEXT])
{
	if (!range)
		return snprintf(ret, TBG_RANGE_TEXT, "bytes */%llu",
				(unsigned long long)size);
	return snprintf(ret, TBG_RANGE_TEXT, "bytes %llu-%llu/%llu",
			(unsigned long long)range->first,
			(unsigned long long)(range->first + range->len - 1),
			(unsigned long long)size);
}

/*
 * Writes the delimiter and head of the next part, or the end after the last. At most
 * TBG_PARTS_ROOM bytes.
 */
static size_t delimiter(struct tbg_parts *p, char *ret)
{
	const char *before = p->begun ? "\r\n" : "";
	char range[TBG_RANGE_TEXT];

	p->begun = true;
	if (!ranges_next(&p->ranges, &p->left)) {
		p->ended = true;
		return snprintf(ret, TBG_PARTS_ROOM, "%s--%s--\r\n", before, p->boundary);
	}
	tbg_range_text(&p->left, p->ranges.size, range);
	return snprintf(ret, TBG_PARTS_ROOM, "%s--%s\r\n%s%s%sContent-Range: %s\r\n\r\n",
			before, p->boundary, *p->type ? "Content-Type: " : "",
			p->type, *p->type ? "\r\n" : "", range);
}

/* Rewinds, and computes the total length. */
static void parts_measure(struct tbg_parts *p)
{
	char text[TBG_PARTS_ROOM];

	while (!p->ended) {
		p->len += delimiter(p, text);
		p->len += p->ended ? 0 : p->left.len;
	}
	p->ended = p->begun = false;
	p->ranges.at = 0;
	p->left.len = 0;
}

struct tbg_parts *tbg_parts_new(const struct tbg_ranges *r, const char *type,
				size_t type_len, const char *tag,
				size_t tag_len)
{
	struct tbg_parts *p = malloc(sizeof(*p) + r->len);
	uint64_t hash = 0xcbf29ce484222325;	/* FNV-1a, 64 bits */

	if (!p)
		return NULL;
	*p = (struct tbg_parts){ .ranges = *r, .fd = -1 };
	memcpy(p->text, r->text, r->len);
	p->ranges.text = p->text;
	if (type_len < sizeof(p->type))
		memcpy(p->type, type, type_len);
	for (size_t i = 0; i < tag_len; i++)
		hash = (hash ^ (unsigned char)tag[i]) * 0x100000001b3;
	snprintf(p->boundary, sizeof(p->boundary), "toboggan-%016llx",
		 (unsigned long long)hash);
	parts_measure(p);
	return p;
}

void tbg_parts_free(struct tbg_parts *p)
{
	if (p && p->release)
		p->release(p->owner);
	free(p);
}

static ssize_t content_read(struct tbg_parts *p, void *buf, size_t room)
{
	size_t n = p->left.len < room ? p->left.len : room;
	ssize_t got = n;

	if (p->memory)
		memcpy(buf, p->memory + p->left.first, n);
	else
		got = pread(p->fd, buf, n, p->left.first);
	if (got <= 0)
		return got ? -errno : -EIO;
	p->left.first += got;
	p->left.len -= got;
	return got;
}

ssize_t tbg_parts_read(struct tbg_parts *p, void *buf, size_t room,
		       struct tbg_range *ret_piece)
{
	char *at = buf, *end = at + room;
	ssize_t n;

	ret_piece->len = 0;
	while (!p->ended && at < end) {
		if (!p->left.len) {
			if (end - at < TBG_PARTS_ROOM)
				break;
			at += delimiter(p, at);
			continue;
		}
		if (!p->memory && (p->fd < 0 || p->left.len >= TBG_PIECE_MIN)) {
			*ret_piece = p->left;
			p->left.len = 0;
			break;
		}
		n = content_read(p, at, end - at);
		if (n < 0)
			return n;
		at += n;
	}
	return at - (char *)buf;
}
