/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The daemon's side of connections that wire owns (abi/tcb.h): those that the kernel
 * takes over, replies that nobody has acknowledged, connections that idle or that
 * nobody ended. For wire.c.
 */
#ifndef TBG_USERD_TCB_H
#define TBG_USERD_TCB_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/tcb.h"

/* What is left of a closed connection is kept this long, as TIME_WAIT is. */
#define TBG_TCB_CLOSED_S 60

/* One that was handed over and whose client says nothing more. */
#define TBG_TCB_HANDED_S 120

/* Between our FINs, while the client does not acknowledge one: doubled each time. */
#define TBG_TCB_FIN_MS	1000

struct tbg_tcbs {
	int tcbs_fd, dues_fd, stuck_fd;
	int push_fd;		/* the program tbg_push */
	int crowds_fd, holders_fd;
	unsigned int crowd_most, crowd_bits;	/* as clients are counted */
	uint32_t vrfs;		/* 1: some interface is in a VRF */
	unsigned int idle_ms, header_ms;
	struct tbg_tcb_key *due;	/* replies that our timer waits for */
	unsigned int due_nr, due_room;
	unsigned int nr;	/* that the last sweep left, tombstones too */
	unsigned int open_nr;	/* of them, those not closed on both sides */
};

struct tbg_prefix;

int tbg_tcbs_open(struct tbg_tcbs *t, int tcbs_fd, int dues_fd, int stuck_fd, int push_fd);
void tbg_tcbs_close(struct tbg_tcbs *t);

/* A connection that was wire's, and may be again. */
struct tbg_taken {
	struct tbg_tcb_key key;
	struct tbg_tcb tcb;		/* as it was when the kernel took it over */
	unsigned int streak;		/* requests in a row that wire could have answered */
	unsigned int refusals, rest;	/* since it was taken; requests until wire is asked again */
};

/*
 * The connection of a socket that was made for a hand-over: it is the kernel's now, and
 * wire forgets it as soon as its last reply is acknowledged. 0 and *ret as it was; or
 * negative errno: it was never wire's.
 */
int tbg_tcb_take(const struct tbg_tcbs *t, int fd, struct tbg_taken *ret);

/*
 * Gives the connection of socket fd back to wire, if this request is the answers-th in a row
 * that wire could answer, which it then does: the len bytes in b, which stand behind the
 * taken bytes of requests that the socket was read and that are answered. True: the socket is
 * dead, and fd to be closed. Where wire refuses, it is asked more rarely. Needs CAP_NET_ADMIN
 * among the thread's permitted capabilities.
 */
bool tbg_tcb_give(const struct tbg_tcbs *t, struct tbg_taken *k, int fd, uint32_t taken,
		  const uint8_t *b, uint32_t len, unsigned int answers);

/* Bytes of wire's last reply on *t that the client has not acknowledged. */
uint32_t tbg_tcb_owed(const struct tbg_tcb *t);

/*
 * Takes out at most nr connections whose hand-over has failed, since the last call: how
 * many.
 */
unsigned int tbg_tcbs_stuck(const struct tbg_tcbs *t, struct tbg_tcb_key *ret, unsigned int nr);

/* Sends again what is overdue; several times a second, by one thread. */
void tbg_tcbs_again(struct tbg_tcbs *t, uint64_t now_ns);

/*
 * Closes what idles, sends FINs again, deletes what is over. drain: every open
 * connection is closed that has nothing under way.
 */
void tbg_tcbs_sweep(struct tbg_tcbs *t, uint64_t now_ns, bool drain);

/* Resets all that is not over: nobody is going to answer any more. */
void tbg_tcbs_reset(struct tbg_tcbs *t);

/*
 * Limits the open connections of a client to `most` (0: no limit), in *knob for BPF. If
 * there was none, or the prefix of a client (bits) changes, connections so far do not count.
 */
void tbg_tcbs_crowd(struct tbg_tcbs *t, uint32_t *knob, unsigned int most, unsigned int bits);
/* How many are wire's; t NULL: none. Any thread. */
unsigned int tbg_tcbs_crowd_of(const struct tbg_tcbs *t, const struct tbg_prefix *client);
/* How many have a socket, which BPF is told. One thread at a time for a client. */
void tbg_tcbs_crowd_holds(void *tcbs, const struct tbg_prefix *client, unsigned int nr);

/* Shows fn every connection, until it returns false. */
void tbg_tcbs_read(const struct tbg_tcbs *t,
		   bool (*fn)(const struct tbg_tcb_key *key, const struct tbg_tcb *tcb,
			      void *arg),
		   void *arg);

#endif
