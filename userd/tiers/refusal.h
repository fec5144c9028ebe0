/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Why a client is refused: a list, or a limit. For the code that refuses, counts and
 * shows it.
 */
#ifndef TBG_USERD_TIERS_REFUSAL_H
#define TBG_USERD_TIERS_REFUSAL_H

/* Its name in counters, and the reason in the log. */
#define TBG_REFUSAL_LIST(X) \
	X(list, "denied") \
	X(requests, "limit-requests") \
	X(connections, "limit-connections") \
	X(heads, "limit-heads")

enum tbg_refusal {
#define X(name, reason) TBG_REFUSAL_##name,
	TBG_REFUSAL_LIST(X)
#undef X
	TBG_REFUSAL_NR
};

static inline const char *tbg_refusal_name(enum tbg_refusal by)
{
	static const char *const names[TBG_REFUSAL_NR] = {
#define X(name, reason) [TBG_REFUSAL_##name] = #name,
		TBG_REFUSAL_LIST(X)
#undef X
	};

	return names[by];
}

static inline const char *tbg_refusal_reason(enum tbg_refusal by)
{
	static const char *const reasons[TBG_REFUSAL_NR] = {
#define X(name, reason) [TBG_REFUSAL_##name] = reason,
		TBG_REFUSAL_LIST(X)
#undef X
	};

	return reasons[by];
}

#endif
