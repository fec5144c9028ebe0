/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Finds out what a kernel tier would count for a request now, by running the tier's own
 * programs on its own maps (abi/ask.h); this changes nothing. Called by the control
 * thread, for `toboggan why`.
 */
#ifndef TBG_USERD_TIERS_ASK_H
#define TBG_USERD_TIERS_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tbg_sock;
struct tbg_wire;

struct tbg_question {
	const uint8_t *b;		/* the request as it is sent, in one segment */
	size_t len;
	uint32_t client[4];		/* IPv4 mapped into IPv6; zero: an address in no list */
	bool v6;			/* arrives by IPv6 */
	int ifindex;			/* on this interface */
};

/*
 * TBG_WHY_*, 0: it would answer. Negative errno: the program cannot be run. Where rules choose
 * the routes, the request comes to an address of the interface.
 */
int tbg_ask_wire(struct tbg_wire *w, const struct tbg_question *q);

/* The same for sock. wire: NULL, or the tier whose maps and programs it shares. */
int tbg_ask_sock(const struct tbg_sock *s, const struct tbg_wire *wire,
		 const struct tbg_question *q);

#endif
