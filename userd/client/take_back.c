// SPDX-License-Identifier: GPL-2.0
/*
 * Finds overdue replies of wire and the connections that must send the rest of each.
 * Called by the worker at each tick; tiers/take_back.c supplies the bytes.
 */
#include "client/take_back.h"

#include "client/connection.h"
#include "serve/worker.h"
#include "tiers/wire.h"

#define OVERDUE_MS 200

/* Returns the time at which the reply was sent if it is overdue, or 0. */
static uint32_t overdue(const struct tbg_conn_word *word, uint32_t now_ms)
{
	uint32_t sent_ms = __atomic_load_n(&word->sent_ms, __ATOMIC_RELAXED);

	return (int32_t)(now_ms - sent_ms) >= OVERDUE_MS ? sent_ms : 0;
}

/*
 * Forgets the reply of a slot that no connection waits for, for example after a reset
 * by the client, and returns true then. The slot may belong to another flow by now, so a
 * newer reply is left alone.
 */
static bool slot_forget(struct tbg_worker *w, uint32_t slot, uint32_t sent_ms)
{
	if (tbg_slot_waits(w->s->wire, slot))
		return false;
	__atomic_compare_exchange_n(&w->s->maps->conns[slot].sent_ms, &sent_ms, 0,
				    false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	return true;
}

/*
 * Returns whether recent attempts for this reply have failed, so that the next one must
 * wait. A reply that is never acknowledged, and after which the socket has sent
 * more, cannot be taken back; each attempt costs every worker two system calls per
 * tick.
 */
static bool must_wait(struct tbg_worker *w, uint32_t slot, uint32_t sent_ms, uint32_t now_ms)
{
	static const uint32_t waits_ms[] = { 0, 16000, 60000 };
	struct tbg_take_back_tries *t = &w->take_back_tries[slot];
	unsigned int last = sizeof(waits_ms) / sizeof(*waits_ms) - 1;

	if (t->sent_ms != sent_ms)
		*t = (struct tbg_take_back_tries){ .sent_ms = sent_ms, .next_ms = now_ms };
	if ((int32_t)(now_ms - t->next_ms) < 0)
		return true;
	t->next_ms = now_ms + waits_ms[t->tries < last ? t->tries : last];
	t->tries += t->tries < last;
	return false;
}

void tbg_take_back_tick(struct tbg_worker *w)
{
	const struct tbg_maps *maps = w->s->maps;
	uint32_t now_ms = w->now_ns / 1000000, sent_ms;
	bool claimed = false;

	if (!w->by_slot)
		return;
	if (!w->id)
		tbg_wire_again(w->s->wire, w->now_ns);
	for (uint32_t slot = 0; slot < maps->conns_nr; slot++) {
		sent_ms = overdue(&maps->conns[slot], now_ms);
		if (!sent_ms || must_wait(w, slot, sent_ms, now_ms) ||
		    (!w->by_slot[slot] && slot_forget(w, slot, sent_ms)))
			continue;
		/* connections that have never missed have no known slot yet */
		if (!w->by_slot[slot] && !claimed) {
			tbg_conns_each(w, tbg_conn_claim_slot);
			claimed = true;
		}
		if (w->by_slot[slot])
			tbg_conn_take_back(w, w->by_slot[slot]);
	}
}
