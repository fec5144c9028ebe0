// SPDX-License-Identifier: GPL-2.0
/*
 * Two parts belong to one representation if they have the same strong entity tag and
 * size (RFC 9110 15.3.7.3). Dates are never accepted as strong validators. One
 * contiguous range is kept; a part that does not join it replaces it.
 */
#include <stdio.h>
#include <string.h>

#include "http/header.h"
#include "store/partials.h"

uint64_t tbg_partial_size(const struct tbg_stored *s)
{
	return s->directives.status == 206 ? s->directives.size : s->body->len;
}

uint64_t tbg_partial_from(const struct tbg_stored *s)
{
	return s->directives.status == 206 ? s->directives.range_from : 0;
}

/* Finds a strong entity tag in field lines. Returns false if there is none. */
static bool strong_tag(const char *fields, size_t len, struct tbg_slice *ret)
{
	return tbg_field_find(fields, len, "ETag", ret) && ret->len > 1 &&
	       ret->text[0] == '"';
}

bool tbg_partial_rest(const struct tbg_stored *partial, char ret[64],
		      struct tbg_slice *ret_if_range)
{
	uint64_t from = partial->directives.range_from, end = from + partial->directives.range_len;

	if (!strong_tag(partial->head, partial->head_len, ret_if_range))
		return false;
	if (!from)
		snprintf(ret, 64, "bytes=%llu-", (unsigned long long)end);
	else if (end == partial->directives.size)
		snprintf(ret, 64, "bytes=0-%llu", (unsigned long long)from - 1);
	else
		return false;
	return true;
}

bool tbg_partial_joins(const struct tbg_stored *partial, const struct tbg_response_directives *t,
		       const char *fields, size_t len, uint64_t *ret_from,
		       uint64_t *ret_len)
{
	uint64_t from = partial->directives.range_from, end = from + partial->directives.range_len;
	uint64_t more_end = t->range_from + t->range_len;
	struct tbg_slice ours, theirs;

	if (t->status != 206 || t->size != partial->directives.size ||
	    t->range_from > end || more_end < from)
		return false;
	if (!strong_tag(partial->head, partial->head_len, &ours) ||
	    !strong_tag(fields, len, &theirs) ||
	    ours.len != theirs.len || memcmp(ours.text, theirs.text, ours.len))
		return false;
	*ret_from = t->range_from < from ? t->range_from : from;
	*ret_len = (more_end > end ? more_end : end) - *ret_from;
	return true;
}

/* Appends len bytes of `from`, or all if it has fewer, starting at offset skip. */
static bool chain_append(struct tbg_byte_chain *to, const struct tbg_byte_chain *from,
			 uint64_t skip, uint64_t len)
{
	const struct tbg_piece *p;
	uint64_t n;

	TAILQ_FOREACH(p, &from->pieces, link) {
		if (!len)
			break;
		if (skip >= p->len) {
			skip -= p->len;
			continue;
		}
		n = p->len - skip < len ? p->len - skip : len;
		if (!tbg_byte_chain_add(to, p->data + skip, n))
			return false;
		len -= n;
		skip = 0;
	}
	return true;
}

struct tbg_byte_chain *tbg_partial_join(const struct tbg_stored *partial,
			       const struct tbg_response_directives *t,
			       const struct tbg_byte_chain *more)
{
	uint64_t from = partial->directives.range_from;
	bool first = from <= t->range_from;	/* the stored part comes first */
	uint64_t skip = first ? from + partial->directives.range_len - t->range_from
			      : t->range_from + t->range_len - from;
	struct tbg_byte_chain *ret = tbg_byte_chain_new();

	if (ret && chain_append(ret, first ? partial->body : more, 0, UINT64_MAX) &&
	    chain_append(ret, first ? more : partial->body, skip, UINT64_MAX))
		return ret;
	tbg_byte_chain_put(ret);
	return NULL;
}

struct tbg_byte_chain *tbg_partial_several(const struct tbg_byte_chain *body, struct tbg_parts *p)
{
	struct tbg_byte_chain *ret = tbg_byte_chain_new();
	bool ok = ret && tbg_byte_chain_room(ret, p->len);
	struct tbg_range piece = { 0 };
	char text[TBG_PARTS_ROOM];

	while (ok && !p->ended) {
		ssize_t n = tbg_parts_read(p, text, sizeof(text), &piece);

		ok = n >= 0 && tbg_byte_chain_add(ret, text, n) &&
		     chain_append(ret, body, piece.first, piece.len);
	}
	if (ok)
		return ret;
	tbg_byte_chain_put(ret);
	return NULL;
}
