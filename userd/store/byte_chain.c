// SPDX-License-Identifier: GPL-2.0
/*
 * A body that is sent while it is being received. Any thread with a reference may read
 * it; only its fetch appends.
 */
#include <stdlib.h>
#include <string.h>

#include "os/refcount.h"
#include "store/responses.h"

struct tbg_byte_chain *tbg_byte_chain_new(void)
{
	struct tbg_byte_chain *p = malloc(sizeof(*p));

	if (p) {
		*p = (struct tbg_byte_chain){ .refs = 1 };
		TAILQ_INIT(&p->pieces);
	}
	return p;
}

void tbg_byte_chain_put(struct tbg_byte_chain *p)
{
	if (!p || !tbg_refcount_put(&p->refs))
		return;
	tbg_byte_chain_cut(p, NULL);
	free(p);
}

static void chain_count(struct tbg_byte_chain *p, int64_t room)
{
	p->room += room;
	if (p->outside)
		atomic_fetch_add_explicit(p->outside, room, memory_order_relaxed);
}

void tbg_byte_chain_cut(struct tbg_byte_chain *p, const struct tbg_piece *until)
{
	struct tbg_piece *one;

	while ((one = TAILQ_FIRST(&p->pieces)) && one != until) {
		TAILQ_REMOVE(&p->pieces, one, link);
		chain_count(p, -(int64_t)one->room);
		free(one);
	}
}

struct tbg_piece *tbg_byte_chain_room(struct tbg_byte_chain *p, uint32_t room)
{
	struct tbg_piece *one = TAILQ_LAST(&p->pieces, tbg_pieces);

	if (one && one->len < one->room)
		return one;
	one = malloc(sizeof(*one) + room);
	if (!one)
		return NULL;
	one->len = 0;
	one->room = room;
	chain_count(p, room);
	TAILQ_INSERT_TAIL(&p->pieces, one, link);
	return one;
}

bool tbg_byte_chain_add(struct tbg_byte_chain *p, const void *b, size_t len)
{
	while (len) {
		struct tbg_piece *one = tbg_byte_chain_room(p, len < 4096 ? 4096 : len);
		size_t n;

		if (!one)
			return false;
		n = len < one->room - one->len ? len : one->room - one->len;
		memcpy(one->data + one->len, b, n);
		one->len += n;
		p->len += n;
		b = (const char *)b + n;
		len -= n;
	}
	return true;
}

struct tbg_byte_chain *tbg_byte_chain_keep(struct tbg_byte_chain *p)
{
	const struct tbg_piece *one;
	struct tbg_byte_chain *ret;

	if (p->room / 2 <= p->len) {
		tbg_refcount_get(&p->refs);
		return p;
	}
	ret = tbg_byte_chain_new();
	if (!ret || (p->len && !tbg_byte_chain_room(ret, p->len)))
		goto fail;
	TAILQ_FOREACH(one, &p->pieces, link)
		if (!tbg_byte_chain_add(ret, one->data, one->len))
			goto fail;
	return ret;

fail:
	tbg_byte_chain_put(ret);
	return NULL;
}
