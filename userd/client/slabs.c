// SPDX-License-Identifier: GPL-2.0
/*
 * The connections of a worker: their memory, in slabs that are never freed, and the
 * list of connections that need more than one turn.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/connection.h"
#include "os/limits.h"
#include "serve/worker.h"

#define TURNS_MAX	4		/* turns of such connections in one round */

struct tbg_conn *tbg_conn_alloc(struct tbg_worker *w)
{
	struct tbg_conn *c = SLIST_FIRST(&w->free);

	if (!c) {
		struct tbg_conn **slabs = reallocarray(w->slabs, w->slabs_nr + 1,
						       sizeof(*slabs));

		if (!slabs)
			return NULL;
		w->slabs = slabs;
		c = aligned_alloc(64, TBG_SLAB_CONNS * sizeof(*c));
		if (!c)
			return NULL;
		memset(c, 0, TBG_SLAB_CONNS * sizeof(*c));
		w->slabs[w->slabs_nr++] = c;
		for (int i = TBG_SLAB_CONNS - 1; i >= 0; i--)
			SLIST_INSERT_HEAD(&w->free, &c[i], link);
	}
	SLIST_REMOVE_HEAD(&w->free, link);
	w->conns_nr++;
	return c;
}

/* Lets another worker accept if its clients wait, round robin, before this one does. */
static bool room_pass_on(const struct tbg_worker *w)
{
	uint64_t one = 1;

	for (unsigned int i = 1; i < w->s->workers_nr; i++) {
		struct tbg_worker *o =
			&w->s->workers[(w->id + i) % w->s->workers_nr];

		if (atomic_load_explicit(&o->waits, memory_order_relaxed) &&
		    atomic_exchange(&o->waits, false))
			return write(o->wake_fd, &one, sizeof(one)) > 0;
	}
	return false;
}

void tbg_conn_free(struct tbg_worker *w, struct tbg_conn *c)
{
	c->state = TBG_CONN_FREE;
	SLIST_INSERT_HEAD(&w->free, c, link);
	w->conns_nr--;
	tbg_conn_limit_conn_put();
	tbg_stat_add(&w->stats.closed, 1);
	tbg_stat_add(&w->stats.connections, -1);
	/* deferred: the caller may still read c, which a new connection would reuse */
	w->room_made |= !room_pass_on(w);
}

void tbg_conns_each_of(struct tbg_worker *w, unsigned int from, unsigned int to,
		      void (*fn)(struct tbg_worker *w, struct tbg_conn *c))
{
	for (unsigned int i = from; i < to && i < w->slabs_nr; i++)
		for (unsigned int j = 0; j < TBG_SLAB_CONNS; j++)
			if (w->slabs[i][j].state != TBG_CONN_FREE)
				fn(w, &w->slabs[i][j]);
}

void tbg_conns_each(struct tbg_worker *w,
		     void (*fn)(struct tbg_worker *w, struct tbg_conn *c))
{
	tbg_conns_each_of(w, 0, w->slabs_nr, fn);
}

struct tbg_conn *tbg_conns_oldest(struct tbg_worker *w, const struct tbg_conn *but,
				   bool (*is)(const struct tbg_conn *c))
{
	struct tbg_conn *ret = NULL;

	for (unsigned int i = 0; i < w->slabs_nr; i++)
		for (struct tbg_conn *c = w->slabs[i]; c < w->slabs[i] + TBG_SLAB_CONNS; c++)
			if (c != but && is(c) &&
			    (!ret || (int32_t)(c->stamp_ms - ret->stamp_ms) < 0))
				ret = c;
	return ret;
}

bool tbg_conns_slab_show(struct tbg_worker *w, unsigned int slab,
			  struct tbg_conn_shown ret[TBG_SLAB_CONNS], unsigned int *ret_nr)
{
	unsigned int nr = 0;

	for (unsigned int i = 0; slab < w->slabs_nr && i < TBG_SLAB_CONNS; i++)
		if (w->slabs[slab][i].state != TBG_CONN_FREE)
			tbg_conn_show(w, &w->slabs[slab][i], &ret[nr++]);
	*ret_nr = nr;
	return slab < w->slabs_nr;
}

void tbg_conn_turn_await(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->active;

	if (t->in_turns)
		return;
	t->in_turns = true;
	TAILQ_INSERT_TAIL(&w->turns, t, turn);
}

void tbg_conn_turn_leave(struct tbg_worker *w, struct tbg_conn_active *t)
{
	t->in_turns = false;
	TAILQ_REMOVE(&w->turns, t, turn);
}

void tbg_conn_turns_take(struct tbg_worker *w)
{
	for (int i = 0; i < TURNS_MAX && !TAILQ_EMPTY(&w->turns); i++) {
		struct tbg_conn_active *t = TAILQ_FIRST(&w->turns);

		tbg_conn_turn_leave(w, t);
		tbg_conn_turn(w, t->c);
	}
}
