/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Detects that wire is attached but follows no connection, and names the likely reason.
 * Workers note connections, the control thread evaluates.
 */
#ifndef TBG_USERD_TIERS_UNFOLLOWED_H
#define TBG_USERD_TIERS_UNFOLLOWED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct tbg_interfaces;
struct tbg_maps;

#define TBG_UNFOLLOWED_LEN 300

struct tbg_unfollowed {
	atomic_uint nr;		/* consecutive requests on connections without a flow */
	atomic_ullong sampled_ns;
	pthread_mutex_t lock;		/* of the members below */
	struct sockaddr_storage local, remote;	/* of one of them */
	int ifindex;			/* by which its packets came at first; 0: unknown */
	struct sockaddr_storage asked;	/* the last one looked up in conntrack; or family 0 */
	/* of the control thread */
	uint64_t born;			/* followed connections at the last check */
	uint64_t cookies;		/* SYN cookies received when wire began */
};

void tbg_unfollowed_open(struct tbg_unfollowed *u);

/* Notes whether the flow of a connection's socket was found. Any thread. */
void tbg_unfollowed_note(struct tbg_unfollowed *u, int fd, int found);

/* Forgets connections from before the last followed one; to be called from time to time. */
void tbg_unfollowed_tick(struct tbg_unfollowed *u, const struct tbg_maps *maps);

/* "", or a sentence: none of the last connections was followed, and the likely reason. */
void tbg_unfollowed_why(struct tbg_unfollowed *u, const struct tbg_interfaces *on,
			const struct tbg_maps *maps, char ret[TBG_UNFOLLOWED_LEN]);

#endif
