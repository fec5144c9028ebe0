/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connections that wire is on for and does not follow: whether that is all of them, and
 * the likely reason. Workers note them, the control thread asks.
 */
#ifndef TBG_USERD_UNFOLLOWED_H
#define TBG_USERD_UNFOLLOWED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct tbg_interfaces;
struct tbg_maps;

#define TBG_UNFOLLOWED_LEN 300

struct tbg_unfollowed {
	atomic_uint nr;		/* requests in a row, of connections that are not followed */
	atomic_ullong sampled_ns;
	pthread_mutex_t lock;		/* of those below */
	struct sockaddr_storage local, remote;	/* of one of them */
	struct sockaddr_storage asked;	/* for, by conntrack; or family 0 */
	/* the control thread's */
	uint64_t born;			/* connections that were followed, when last asked */
	uint64_t cookies;		/* SYN cookies taken, when wire began */
};

void tbg_unfollowed_open(struct tbg_unfollowed *u);

/* A connection's socket whose flow was looked for: found or not. Any thread. */
void tbg_unfollowed_note(struct tbg_unfollowed *u, int fd, int found);

/* Forgets those from before the last one that was followed; from time to time. */
void tbg_unfollowed_tick(struct tbg_unfollowed *u, const struct tbg_maps *maps);

/* "" or a sentence: none of the last connections is followed, and why that may be. */
void tbg_unfollowed_why(struct tbg_unfollowed *u, const struct tbg_interfaces *on,
			const struct tbg_maps *maps, char ret[TBG_UNFOLLOWED_LEN]);

#endif
