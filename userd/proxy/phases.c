// SPDX-License-Identifier: GPL-2.0
/* Phases: which may follow which, and what they are called. */
#include <assert.h>

#include "proxy/phases.h"
#include "proxy/transfer.h"

void tbg_transfer_enter(struct tbg_transfer *x, enum tbg_transfer_phase next)
{
#define TO(name) (1u << TBG_TRANSFER_##name)
#define X(name, text, next) [TBG_TRANSFER_##name] = next,
	static const unsigned int follows[] = { TBG_TRANSFER_PHASE_LIST(X) };
#undef X
#undef TO

	assert(follows[x->phase] & 1u << next);
	(void)follows;			/* without assertions */
	tbg_trace_note(&x->w->trace, x->w->now_ns, TBG_TRACE_PHASE, x, next);
	x->phase = next;
}

void tbg_delivery_enter(struct tbg_transfer *x, enum tbg_delivery_phase next)
{
#define TO(name) (1u << TBG_DELIVERY_##name)
#define X(name, text, next) [TBG_DELIVERY_##name] = next,
	static const unsigned int follows[] = { TBG_DELIVERY_PHASE_LIST(X) };
#undef X
#undef TO

	assert(follows[x->delivery] & 1u << next);
	(void)follows;
	x->delivery = next;
}

const char *tbg_transfer_phase_text(enum tbg_transfer_phase phase)
{
#define X(name, text, next) [TBG_TRANSFER_##name] = text,
	static const char *const texts[] = { TBG_TRANSFER_PHASE_LIST(X) };
#undef X

	return texts[phase];
}

const char *tbg_delivery_phase_text(enum tbg_delivery_phase phase)
{
#define X(name, text, next) [TBG_DELIVERY_##name] = text,
	static const char *const texts[] = { TBG_DELIVERY_PHASE_LIST(X) };
#undef X

	return texts[phase];
}
