// SPDX-License-Identifier: GPL-2.0
/*
 * Exchanges a connection with the kernel tiers: its connection word for wire and sock,
 * take-back of unacknowledged bytes from wire, and give-back to wire.
 *
 * This file publishes the counts of the idle equation (abi/conn.h), always before the
 * send. `taken` grows when the whole answer to a request is about to be queued (a file:
 * with its last bytes), `written` with every byte queued.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "client/connection.h"
#include "tiers/sock.h"
#include "tiers/tcb.h"
#include "tiers/wire.h"
#include "tiers/take_back.h"
#include "client/internal.h"

struct tbg_sock_conn *tbg_conn_sock(const struct tbg_worker *w, const struct tbg_conn *c)
{
	return c->sock >= 0 ? tbg_sock_conn(w->s->sock, c->sock) : NULL;
}

void tbg_conn_word_publish(struct tbg_worker *w, struct tbg_conn *c, uint32_t taken,
			   uint32_t written)
{
	if (c->active && c->active->close_after)
		return;
	if (c->slot >= 0)
		tbg_conn_publish(&w->s->maps->conns[c->slot].word, taken, written);
	if (c->sock >= 0)
		tbg_conn_publish(&tbg_conn_sock(w, c)->word, taken, written);
}

void tbg_conn_kernel_resume(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->state != TBG_CONN_OPEN || blocked(c) || w->out_len)
		return;
	tbg_conn_word_publish(w, c, c->taken, c->written);
	if (c->shut)
		tbg_sock_reopen(tbg_conn_sock(w, c));
	c->shut = false;
}

/*
 * Called when the daemon receives the first request, or when wire's reply must be taken
 * back.
 */
void tbg_conn_claim_slot(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->claimed || !w->by_slot || c->state != TBG_CONN_OPEN || tbg_wire_owns(w->s->wire))
		return;
	c->slot = tbg_conn_claim(w->s->wire, c->fd);
	if (c->slot < 0)
		return;
	c->claimed = true;
	w->by_slot[c->slot] = c;
}

/* The bytes already sent cannot be completed: resets the connection. */
static void conn_reset(struct tbg_worker *w, struct tbg_conn *c)
{
	tbg_conn_reset_at_close(c);
	tbg_conn_kill(w, c);
}

void tbg_conn_take_over(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_taken taken;

	if (c->claimed || !w->by_slot || !tbg_wire_owns(w->s->wire))
		return;
	c->claimed = c->sock >= 0;
	if (tbg_conn_take(w->s->wire, c->fd, &taken))
		return;
	c->used |= !!taken.tcb.answers;
	c->answers += taken.tcb.answers;
	c->begin_ms -= (uint32_t)(w->now_ns / 1000000) - taken.tcb.born_ms;
	/* sock answers what wire could: the daemon sees no request to give it back with */
	if (w->s->opt.give_back && c->sock < 0)
		c->taken_from = malloc(sizeof(*c->taken_from));
	if (c->taken_from)
		*c->taken_from = taken;
}

bool tbg_conn_give_back(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *b, uint32_t n)
{
	if (!c->taken_from || c->active || w->out_len || atomic_load(&w->s->draining))
		return false;
	c->taken_from->tcb.answers = c->answers;
	if (!tbg_conn_give(w->s->wire, c->taken_from, c->fd, c->taken, b, n,
			   w->s->opt.give_back))
		return false;
	tbg_conn_close(w, c);
	return true;
}

/*
 * A next request may already be in progress: tbg_take_back_bytes() returns nothing once
 * a byte of its answer is counted as written, sent or not. Nothing can happen between
 * the publication of the word and the send: only this thread writes to the socket, and
 * never through the ring.
 */
void tbg_conn_take_back(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_sock_conn *s = tbg_conn_sock(w, c);
	int n;

	if (c->state != TBG_CONN_OPEN)
		return;
	c->drained = false;
	/* a hit of sock would take the place of the reply in the stream */
	if (s && !tbg_sock_shut(s)) {
		tbg_sock_reopen(s);
		return;
	}
	c->shut = s;
	n = tbg_take_back_bytes(w->s->maps, c->slot,
			   c->written + (s ? TBG_CONN_WRITTEN(s->hits) : 0),
			   w->out, TBG_OUT_BYTES);
	if (n < 0) {
		conn_reset(w, c);
	} else if (n) {
		w->out_len = n;
		c->written += n;
		tbg_conn_flush(w, c, NULL, 0, 0);
	}
	tbg_conn_kernel_resume(w, c);
}
