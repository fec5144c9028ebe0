/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The daemon's side of connections that wire owns (abi/tcb.h): hand-over and
 * give-back, retransmission of unacknowledged replies, closing of idle connections,
 * removal of those that have ended. For wire.c.
 */
#ifndef TBG_USERD_TIERS_TCB_H
#define TBG_USERD_TIERS_TCB_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/tcb.h"

/* How long the rest of a closed connection is kept, as TIME_WAIT is. */
#define TBG_TCB_CLOSED_S 60

/* How long one that was handed over is kept without a segment of its client. */
#define TBG_TCB_HANDED_S 120

/* Time between retransmissions of our FIN; it doubles each time. */
#define TBG_TCB_FIN_MS	1000

#define TBG_DUE_PLACES	4096

struct tbg_tcbs {
	int tcbs_fd, dues_fd, stuck_fd;
	int push_fd;		/* the program tbg_push */
	int crowds_fd, holders_fd;
	struct tbg_tcb_room *room;	/* mapped; NULL: nobody counts */
	unsigned int conns;	/* room for connections */
	unsigned int crowd_most, crowd_bits;	/* limit and prefix length of clients */
	_Atomic uint32_t vrfs;	/* 1: some interface is in a VRF */
	unsigned int idle_ms, header_ms;
	struct tbg_due *due;	/* unacknowledged replies, for the retransmission timer */
	unsigned int due_nr, due_room;
	uint32_t due_at[TBG_DUE_PLACES];	/* where one with this hash is in due, plus 1 */
	unsigned int nr;	/* after the last sweep, including TIME_WAIT */
	unsigned int open_nr;	/* of them: not closed on both sides */
};

struct tbg_prefix;

int tbg_tcbs_open(struct tbg_tcbs *t, int tcbs_fd, int dues_fd, int stuck_fd, int push_fd);
void tbg_tcbs_close(struct tbg_tcbs *t);

/* A connection that was wire's and may be given back. */
struct tbg_taken {
	struct tbg_tcb_key key;
	struct tbg_tcb tcb;		/* its state at the hand-over */
	unsigned int streak;		/* consecutive requests that wire could have answered */
	unsigned int refusals, rest;	/* since the hand-over; requests until the next attempt */
};

/*
 * Takes the connection of a socket that was made by a hand-over: wire forgets it as
 * soon as its last reply is acknowledged. Returns 0 and its state in *ret; or negative
 * errno: it was never wire's.
 */
int tbg_tcb_take(const struct tbg_tcbs *t, int fd, struct tbg_taken *ret);

/*
 * Gives the connection of socket fd back to wire, which answers the request of len bytes
 * in b, if this is the answers-th request in a row that wire could answer; more are
 * needed if earlier give-backs did not pay. taken: bytes of earlier requests that were
 * read from the socket and answered. True: the socket is dead; close fd. If wire refuses,
 * it is asked more rarely. Needs CAP_NET_ADMIN among the thread's permitted capabilities.
 */
bool tbg_tcb_give(const struct tbg_tcbs *t, struct tbg_taken *k, int fd, uint32_t taken,
		  const uint8_t *b, uint32_t len, unsigned int answers);

/*
 * Returns at most nr connections whose hand-over has failed since the last call, and
 * their number.
 */
unsigned int tbg_tcbs_stuck(const struct tbg_tcbs *t, struct tbg_tcb_key *ret, unsigned int nr);

/* Retransmits overdue replies; called several times a second by one thread. */
void tbg_tcbs_again(struct tbg_tcbs *t, uint64_t now_ns);

/* Whether more than three quarters of the room are taken. */
bool tbg_tcbs_crowded(const struct tbg_tcbs *t);

/*
 * Closes idle connections, retransmits FINs, deletes ended connections: after a minute, or
 * after a second where tbg_tcbs_crowded(). drain:
 * closes every open connection without a reply under way.
 */
void tbg_tcbs_sweep(struct tbg_tcbs *t, uint64_t now_ns, bool drain);

/*
 * Resets all connections that have not ended, at the end of the daemon, but not those on which
 * the client has received everything and our FIN.
 */
void tbg_tcbs_reset(struct tbg_tcbs *t);

/*
 * Limits the open connections of a client to `most` (0: no limit), in *knob for BPF. If
 * there was none, or the prefix of a client (bits) changes, connections so far do not count.
 */
void tbg_tcbs_crowd(struct tbg_tcbs *t, uint32_t *knob, unsigned int most, unsigned int bits);
/* Number of this client's connections of wire; t NULL: none. Any thread. */
unsigned int tbg_tcbs_crowd_of(const struct tbg_tcbs *t, const struct tbg_prefix *client);
/*
 * Passes the number of a client's connections with a socket to BPF. One thread at a time for a
 * client.
 */
void tbg_tcbs_crowd_holds(void *tcbs, const struct tbg_prefix *client, unsigned int nr);

/* Calls fn for every connection until it returns false. */
void tbg_tcbs_read(const struct tbg_tcbs *t,
		   bool (*fn)(const struct tbg_tcb_key *key, const struct tbg_tcb *tcb,
			      void *arg),
		   void *arg);

#endif
