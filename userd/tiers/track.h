/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes conntrack take connections for established whose beginning, or part of which,
 * it has not seen. For wire.c and births.c, in the control thread.
 */
#ifndef TBG_USERD_TIERS_TRACK_H
#define TBG_USERD_TIERS_TRACK_H

#include <stdbool.h>

#include "tiers/tcb.h"

struct mnl_socket;
struct ring_buffer;
struct tbg_births;

struct tbg_track {
	const struct tbg_tcbs *tcbs;
	struct tbg_births *births;
	struct mnl_socket *nl;		/* NULL: there is no netfilter */
	struct ring_buffer *ring;	/* tbg_untracked */
	unsigned int read_nr;		/* of the call in progress */
};

/* births: hears of what conntrack refuses. ring_fd: the map tbg_untracked. 0 or negative errno. */
int tbg_track_open(struct tbg_track *t, const struct tbg_tcbs *tcbs, struct tbg_births *births,
		   int ring_fd);
void tbg_track_close(struct tbg_track *t);

/* Readable when segments wait; -1: not open. */
int tbg_track_fd(const struct tbg_track *t);

/*
 * Tells conntrack of the connections of the segments that wait, and lets these arrive again. The
 * clients of those that it refuses have to send them again. Raises CAP_NET_ADMIN.
 */
void tbg_track_admit(struct tbg_track *t);

/*
 * Adds the connections to conntrack that the kernel has made no socket of, see tbg_tcbs_stuck(),
 * before their clients send again. Returns the number of those that conntrack has accepted: of
 * the others, the firewall has not judged any segment. Raises CAP_NET_ADMIN.
 */
unsigned int tbg_track_stuck(struct tbg_track *t);

/*
 * Whether conntrack takes such connections: 0 or negative errno. Tries it with one
 * between addresses for documentation. Needs CAP_NET_ADMIN.
 */
int tbg_track_try(void);

#endif
