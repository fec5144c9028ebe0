/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Asks the kernel by which interface it sends from an address of this host to a client, for
 * BPF (abi/pair.h). For wire.c and routes.c, in the control thread. Needs no privilege.
 */
#ifndef TBG_USERD_TIERS_PAIRS_H
#define TBG_USERD_TIERS_PAIRS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi/pair.h"

struct mnl_socket;
struct tbg_tcbs;

struct tbg_pairs {
	struct mnl_socket *nl;	/* NULL: nothing was asked yet, or cannot be */
	int pairs_fd, asks_fd;
	uid_t user;		/* of the daemon's sockets, as far as rules tell them apart */
	unsigned int nr;	/* answers in the map, at most */
	uint32_t ways;		/* number of the routes for which they were renewed */
	uint32_t seq;		/* of the last question */
	struct tbg_pair_key next;	/* that BPF wants to know, if has_next */
	bool has_next;
	uint64_t filled_ns, swept_ns;
	unsigned int tokens;	/* questions that may be asked now, since filled_ns */
};

void tbg_pairs_open(struct tbg_pairs *p, int pairs_fd, int asks_fd, uid_t user);
void tbg_pairs_close(struct tbg_pairs *p);

/*
 * Asks for some of the pairs that BPF wants to know, as many as the time since the last call
 * allows, and removes old answers. ways: number of the routes as they were last read.
 */
void tbg_pairs_answer(struct tbg_pairs *p, uint32_t ways, uint64_t now_ns);

/*
 * Asks again for the pairs of connections of wire, before their answers are too old: so these
 * are known when routes change. asks: TBG_ASKS_*, the IP versions of those outside of VRFs. To
 * be called more often than TBG_PAIR_MS - TBG_PAIR_AGAIN_MS. Each call asks half of the questions
 * of a second at most.
 */
void tbg_pairs_keep(struct tbg_pairs *p, const struct tbg_tcbs *tcbs, uint32_t asks,
		    uint32_t ways, uint64_t now_ns);

/*
 * Asks again for pairs that are known, if the routes have been read since. To be called before
 * BPF gets the new number: other answers do not count any more then.
 */
void tbg_pairs_renew(struct tbg_pairs *p, uint32_t ways);

/* Asks for this pair now. */
void tbg_pairs_ask(struct tbg_pairs *p, const struct tbg_pair_key *key, uint32_t ways,
		   uint64_t now_ns);

#endif
