// SPDX-License-Identifier: GPL-2.0
/* The phases: their texts, and which may follow which. */
#include <assert.h>

#include "proxy/phases.h"
#include "proxy/transfer.h"

struct phase {
	const char *text;
	unsigned int follow;	/* 1 << each phase that may */
};

#define TO(name) (1u << TBG_TRANSFER_##name)
#define X(name, text, next) [TBG_TRANSFER_##name] = { text, next },
static const struct phase transfers[] = { TBG_TRANSFER_PHASE_LIST(X) };
#undef X
#undef TO

#define TO(name) (1u << TBG_UPLOAD_##name)
#define X(name, text, next) [TBG_UPLOAD_##name] = { text, next },
static const struct phase uploads[] = { TBG_UPLOAD_PHASE_LIST(X) };
#undef X
#undef TO

#define TO(name) (1u << TBG_SENDING_##name)
#define X(name, text, next) [TBG_SENDING_##name] = { text, next },
static const struct phase sendings[] = { TBG_SENDING_PHASE_LIST(X) };
#undef X
#undef TO

#define TO(name) (1u << TBG_DELIVERY_##name)
#define X(name, text, next) [TBG_DELIVERY_##name] = { text, next },
static const struct phase deliveries[] = { TBG_DELIVERY_PHASE_LIST(X) };
#undef X
#undef TO

void tbg_transfer_enter(struct tbg_transfer *x, enum tbg_transfer_phase next)
{
	assert(transfers[x->phase].follow & 1u << next);
	tbg_trace_note(&x->w->trace, x->w->now_ns, TBG_TRACE_PHASE, x, next);
	x->phase = next;
}

void tbg_upload_enter(struct tbg_transfer *x, enum tbg_upload_phase next)
{
	assert(uploads[x->upload].follow & 1u << next);
	x->upload = next;
}

void tbg_sending_enter(struct tbg_transfer *x, enum tbg_sending_phase next)
{
	assert(sendings[x->sending].follow & 1u << next);
	x->sending = next;
}

void tbg_delivery_enter(struct tbg_transfer *x, enum tbg_delivery_phase next)
{
	assert(deliveries[x->delivery].follow & 1u << next);
	x->delivery = next;
}

const char *tbg_transfer_phase_text(uint32_t phase)
{
	return phase < sizeof(transfers) / sizeof(*transfers) ? transfers[phase].text : "?";
}

const char *tbg_upload_phase_text(enum tbg_upload_phase phase)
{
	return uploads[phase].text;
}

const char *tbg_sending_phase_text(enum tbg_sending_phase phase)
{
	return sendings[phase].text;
}

const char *tbg_delivery_phase_text(enum tbg_delivery_phase phase)
{
	return deliveries[phase].text;
}
