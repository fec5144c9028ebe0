// SPDX-License-Identifier: GPL-2.0
/*
 * Two parts are of one representation if they have the same strong entity tag
 * and size (RFC 9110 15.3.7.3); no date is strong enough for us. One stretch of
 * bytes is kept: what a part does not join takes its place.
 */
#include <stdio.h>
#include <string.h>

#include "http/header.h"
#include "store/partials.h"

uint64_t tbg_part_size(const struct tbg_stored *s)
{
	return s->terms.status == 206 ? s->terms.size : s->body->len;
}

uint64_t tbg_part_from(const struct tbg_stored *s)
{
	return s->terms.status == 206 ? s->terms.part_from : 0;
}

/* The strong entity tag of field lines. False: they have none. */
static bool strong_tag(const char *fields, size_t len, struct tbg_slice *ret)
{
	return tbg_field_find(fields, len, "ETag", ret) && ret->len > 1 &&
	       ret->text[0] == '"';
}

bool tbg_part_rest(const struct tbg_stored *part, char ret[64],
		   struct tbg_slice *ret_if_range)
{
	uint64_t from = part->terms.part_from, end = from + part->terms.part_len;

	if (!strong_tag(part->head, part->head_len, ret_if_range))
		return false;
	if (!from)
		snprintf(ret, 64, "bytes=%llu-", (unsigned long long)end);
	else if (end == part->terms.size)
		snprintf(ret, 64, "bytes=0-%llu", (unsigned long long)from - 1);
	else
		return false;
	return true;
}

bool tbg_part_joins(const struct tbg_stored *part, const struct tbg_response_directives *t,
		    const char *fields, size_t len, uint64_t *ret_from,
		    uint64_t *ret_len)
{
	uint64_t from = part->terms.part_from, end = from + part->terms.part_len;
	uint64_t more_end = t->part_from + t->part_len;
	struct tbg_slice ours, theirs;

	if (t->status != 206 || t->size != part->terms.size ||
	    t->part_from > end || more_end < from)
		return false;
	if (!strong_tag(part->head, part->head_len, &ours) ||
	    !strong_tag(fields, len, &theirs) ||
	    ours.len != theirs.len || memcmp(ours.text, theirs.text, ours.len))
		return false;
	*ret_from = t->part_from < from ? t->part_from : from;
	*ret_len = (more_end > end ? more_end : end) - *ret_from;
	return true;
}

/* Bytes of a pile, len of them if there are this many, behind what is there. */
static bool pile_append(struct tbg_byte_chain *to, const struct tbg_byte_chain *from,
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

struct tbg_byte_chain *tbg_part_join(const struct tbg_stored *part,
			       const struct tbg_response_directives *t,
			       const struct tbg_byte_chain *more)
{
	uint64_t from = part->terms.part_from;
	bool first = from <= t->part_from;	/* the stored one begins */
	uint64_t skip = first ? from + part->terms.part_len - t->part_from
			      : t->part_from + t->part_len - from;
	struct tbg_byte_chain *ret = tbg_byte_chain_new();

	if (ret && pile_append(ret, first ? part->body : more, 0, UINT64_MAX) &&
	    pile_append(ret, first ? more : part->body, skip, UINT64_MAX))
		return ret;
	tbg_byte_chain_put(ret);
	return NULL;
}

struct tbg_byte_chain *tbg_part_several(const struct tbg_byte_chain *body, struct tbg_parts *p)
{
	struct tbg_byte_chain *ret = tbg_byte_chain_new();
	bool ok = ret && tbg_byte_chain_room(ret, p->len);
	struct tbg_range piece = { 0 };
	char text[TBG_PARTS_ROOM];

	while (ok && !p->ended) {
		ssize_t n = tbg_parts_read(p, text, sizeof(text), &piece);

		ok = n >= 0 && tbg_byte_chain_add(ret, text, n) &&
		     pile_append(ret, body, piece.first, piece.len);
	}
	if (ok)
		return ret;
	tbg_byte_chain_put(ret);
	return NULL;
}
