// SPDX-License-Identifier: GPL-2.0
/*
 * Pending fetches: one request fetches, others wait for its response. Called by
 * transfers before they ask a server and when they are done.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "http/header.h"
#include "http/vary.h"
#include "store/responses.h"
#include "store/internal.h"

#define PASS_NS		(120 * 1000000000ull)	/* time without waiting for a URI */

/*
 * Returns whether a fetch in progress probably answers the request: the newest
 * variant's Vary must not distinguish them.
 */
static bool pending_fits(const struct tbg_pending_fetch *f, const struct tbg_lines *secondary)
{
	return !f->doomed && f->secondary.len == secondary->len &&
	       !memcmp(f->secondary.text ?: "", secondary->text ?: "", secondary->len);
}

static struct tbg_pending_fetch *pending_new(struct entry *e, struct tbg_lines *secondary,
				     uint64_t now_ns)
{
	struct tbg_pending_fetch *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->entry = e;
	TAILQ_INIT(&f->waiters);
	f->seen_ns = now_ns;
	f->secondary = *secondary;
	*secondary = (struct tbg_lines){ 0 };
	LIST_INSERT_HEAD(&e->pending, f, link);
	return f;
}

static void waiter_add(struct tbg_pending_fetch *f, struct tbg_waiter *waiter)
{
	waiter->pending = f;
	TAILQ_INSERT_TAIL(&f->waiters, waiter, link);
	f->waiting++;
}

static enum tbg_turn turn_of(struct entry *e, struct tbg_lines *secondary, enum tbg_join join,
			     struct tbg_waiter *waiter, uint64_t now_ns,
			     struct tbg_pending_fetch **ret)
{
	struct tbg_pending_fetch *f;

	LIST_FOREACH(f, &e->pending, link)
		if (pending_fits(f, secondary))
			break;
	if ((f || join == TBG_JOIN_HOPING) && now_ns < e->pass_ns)
		return TBG_TURN_ALONE;
	if (f) {
		waiter_add(f, waiter);
		return TBG_TURN_WAIT;
	}
	if (join == TBG_JOIN_AFTER)
		return TBG_TURN_ALONE;
	*ret = pending_new(e, secondary, now_ns);
	return *ret ? TBG_TURN_LEAD : TBG_TURN_ALONE;
}

enum tbg_turn tbg_store_enter(struct tbg_store *s, const struct tbg_uri *u,
			      const char *req, size_t req_len, enum tbg_join join,
			      struct tbg_waiter *waiter, uint64_t now_ns,
			      struct tbg_pending_fetch **ret_pending)
{
	enum tbg_turn turn = TBG_TURN_ALONE;
	struct tbg_lines secondary = { 0 };
	uint64_t hash[2];
	const struct tbg_stored *newest;
	struct entry *e;

	*ret_pending = NULL;
	if (!join)
		return turn;
	pthread_mutex_lock(&s->lock);
	e = join == TBG_JOIN_AFTER ? tbg_store_entry_find(s, u, hash) : tbg_store_entry_get(s, u);
	newest = e ? LIST_FIRST(&e->variants) : NULL;
	if (e &&
	    (!newest || tbg_vary_make(&secondary, newest->head, newest->head_len, req, req_len)))
		turn = turn_of(e, &secondary, join, waiter, now_ns, ret_pending);
	pthread_mutex_unlock(&s->lock);
	tbg_lines_free(&secondary);
	return turn;
}

void tbg_store_pending_end(struct tbg_store *s, struct tbg_pending_fetch *f,
			   unsigned int status, bool pass, uint64_t now_ns)
{
	struct entry *e = f->entry;
	struct tbg_waiter *waiter;

	pthread_mutex_lock(&s->lock);
	LIST_REMOVE(f, link);
	if (pass)
		e->pass_ns = now_ns + PASS_NS;
	while ((waiter = TAILQ_FIRST(&f->waiters))) {
		TAILQ_REMOVE(&f->waiters, waiter, link);
		waiter->pending = NULL;
		waiter->status = status;
		tbg_mail_post(waiter->mailbox, &waiter->mail);
	}
	if (LIST_EMPTY(&e->pending) && LIST_EMPTY(&e->variants) && !e->pass_ns)
		tbg_store_entry_free(s, e);
	else
		tbg_store_room_make(s, e);
	pthread_mutex_unlock(&s->lock);
	tbg_lines_free(&f->secondary);
	free(f);
}

unsigned int tbg_store_waiting(struct tbg_store *s, const struct tbg_pending_fetch *f)
{
	unsigned int nr;

	pthread_mutex_lock(&s->lock);
	nr = f->waiting;
	pthread_mutex_unlock(&s->lock);
	return nr;
}

void tbg_store_pending_alive(struct tbg_pending_fetch *f, uint64_t now_ns)
{
	__atomic_store_n(&f->seen_ns, now_ns, __ATOMIC_RELAXED);
}

bool tbg_store_lost(struct tbg_store *s, const struct tbg_waiter *waiter,
		    uint64_t since_ns)
{
	const struct tbg_pending_fetch *f;
	bool lost;

	pthread_mutex_lock(&s->lock);
	f = waiter->pending;
	lost = f && __atomic_load_n(&f->seen_ns, __ATOMIC_RELAXED) < since_ns;
	pthread_mutex_unlock(&s->lock);
	return lost;
}

void tbg_store_leave(struct tbg_store *s, struct tbg_waiter *waiter)
{
	struct tbg_pending_fetch *f;

	pthread_mutex_lock(&s->lock);
	f = waiter->pending;
	if (f) {
		TAILQ_REMOVE(&f->waiters, waiter, link);
		f->waiting--;
		waiter->pending = NULL;
	}
	pthread_mutex_unlock(&s->lock);
	if (!f)
		tbg_mail_unpost(waiter->mailbox, &waiter->mail);
}
