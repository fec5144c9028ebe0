/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Times that no setting has, and that tests would have to wait for. main() shortens some
 * while it starts, if TOBOGGAND_TEST_TIMERS in the environment names them: "drain=2s". They
 * cannot be made longer, so that no operator takes them for settings.
 */
#ifndef TBG_USERD_OS_TIMERS_H
#define TBG_USERD_OS_TIMERS_H

#include <stdbool.h>
#include <stdint.h>

/* X(name, text, ms) */
#define TBG_TIMER_LIST(X) \
	/* at start, for name servers */ \
	X(ADDRESSES_START,	"addresses-start",	5000) \
	/* until a server's name without addresses, and any other name, is looked up again */ \
	X(ADDRESSES_MISSING,	"addresses-missing",	5000) \
	X(ADDRESSES_AGAIN,	"addresses-again",	10000) \
	/* since the fetch that a request waits for was last reported running */ \
	X(FETCH_LOST,		"fetch-lost",		15000) \
	/* of a drain, for clients; then connections without progress for drain-still close */ \
	X(DRAIN,		"drain",		10000) \
	X(DRAIN_STILL,		"drain-still",		5000) \
	/* between sweeps of connections, interfaces and routes */ \
	X(SWEEP,		"sweep",		2000) \
	/* until a closed flow that no longer needs translation is deleted */ \
	X(FLOW_SPENT,		"flow-spent",		5000)

enum tbg_timer {
#define X(name, text, ms) TBG_TIMER_##name,
	TBG_TIMER_LIST(X)
#undef X
	TBG_TIMER_NR
};

/* Changes only before there are threads. */
extern unsigned int tbg_timers_ms[TBG_TIMER_NR];

static inline unsigned int tbg_timer_ms(enum tbg_timer t)
{
	return tbg_timers_ms[t];
}

static inline uint64_t tbg_timer_ns(enum tbg_timer t)
{
	return tbg_timers_ms[t] * 1000000ull;
}

/* Returns false if there is no such timer, or if ms is longer than it is. */
bool tbg_timer_shorten(const char *text, unsigned int ms);

#endif
