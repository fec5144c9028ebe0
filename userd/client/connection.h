/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A client's connection: it receives bytes, parses requests and sends answers. An idle
 * one consists of struct tbg_conn alone, which is small. The state of an unfinished
 * request or answer is allocated separately and freed with it.
 */
#ifndef TBG_USERD_CLIENT_CONNECTION_H
#define TBG_USERD_CLIENT_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/uio.h>

#include "http/framing.h"
#include "http/header.h"
#include "http/request.h"
#include "http/range.h"
#include "client/answerer.h"
#include "os/units.h"
#include "serve/dispatch.h"
#include "serve/worker.h"

enum tbg_conn_state {
	TBG_CONN_FREE,
	TBG_CONN_OPEN,
	TBG_CONN_LINGER,	/* our side is shut down; the client may still read and send */
	TBG_CONN_CLOSING,	/* waits for the end of its io_uring operations */
};

/* The state of an incomplete request or an unsent answer. */
struct tbg_conn_active {
	uint8_t *in;			/* received, not yet parsed */
	uint32_t in_len, in_room;
	struct tbg_message message;	/* of a head that has begun */
	bool has_message, in_body;
	struct tbg_body_decoder body;
	uint64_t body_len, body_taken;	/* received so far: content; content with its framing */
	uint64_t body_max;		/* limit of the request's location */
	uint64_t begin_ns;		/* arrival of the current request; 0: in this round */
	uint8_t *held;			/* head of the request whose body is being received */
	uint32_t held_len;
	uint8_t *original;		/* request as sent by the client, before redirects */
	uint32_t original_len;
	uint8_t redirects;		/* number of these redirects, which programs cause */
	uint8_t *out;			/* not yet accepted by the socket */
	uint32_t out_len, out_off;
	int fd;				/* file to send after out; -1: none */
	int64_t fd_off;
	uint64_t fd_left;
	struct tbg_file_version fd_version;
	struct tbg_parts *parts;	/* parts to send after fd_left bytes of fd, or NULL */
	uint32_t fd_taken;		/* request bytes that fd and parts answer */
	struct tbg_unlogged *unlogged;	/* log record of a file that is being sent, or NULL */
	bool close_after;
	struct tbg_answerer *answerer;	/* of the current request, or NULL */
	struct tbg_aside_task *aside;	/* task that the answer waits for, or NULL */
	uint32_t aside_taken;		/* length of that request; its head is held */
	uint8_t asides;			/* number of tasks for this request */
	bool turn_over;			/* input is left for the connection's next turn */
	struct tbg_conn *c;		/* the connection of this state */
	TAILQ_ENTRY(tbg_conn_active) turn;	/* in the worker's list of waiting connections */
	bool in_turns;
};

struct tbg_client;

struct tbg_conn {
	int fd;
	int slot;			/* index of its connection word in wire's map; -1: none */
	uint32_t taken, written;	/* see abi/conn.h */
	uint32_t noted;			/* value of `written` when a request was last logged */
	uint32_t stamp_ms;		/* last progress, in the worker's time */
	uint32_t begin_ms;		/* start of the connection, in the same time */
	uint32_t answers;		/* so far, including wire's before the hand-over */
	uint32_t left_stamp_ms;		/* value of stamp_ms when this many bytes */
	int left;			/* were not yet acknowledged */
	uint32_t taking_ms;		/* while draining: when enough was last acknowledged, */
	uint64_t taken_nr;		/* and how many bytes in total then */
	uint16_t ops;			/* io_uring operations in progress */
	uint8_t state;
	uint8_t period;			/* period of the worker in which it last sent something */
	bool receiving, polling, eof, used, claimed, waiting;
	bool shut;			/* sock is shut out until pending output has been sent */
	bool drained;			/* sock had nothing to send one tick ago */
	bool head_counted;		/* counted as an unfinished head of its client */
	uint8_t listener;		/* its index + 1, if listeners have lists; 0: unknown */
	int sock;			/* index of its slot in sock; -1: none */
	struct tbg_conn_active *active;		/* NULL: idle */
	struct sockaddr_storage *peer;	/* for the log; NULL: not looked up yet */
	struct tbg_endpoints *endpoints;	/* for transfers; NULL: not looked up yet */
	struct tbg_client *client;	/* entry of its client if clients are counted, or NULL */
	struct tbg_taken *taken_from;	/* state for a give-back to wire, or NULL */
	SLIST_ENTRY(tbg_conn) link;	/* in the free list */
} __attribute__((aligned(64)));

void tbg_conn_begin(struct tbg_worker *w, struct tbg_conn *c, int fd);

/* n > 0 bytes arrived at b. TBG_REQ_SLACK bytes after them are readable. */
void tbg_conn_receive(struct tbg_worker *w, struct tbg_conn *c,
		      const uint8_t *b, uint32_t n);
/*
 * Starts to receive unless the connection already does, its input buffer is full, or it
 * rests: then sock reports the next bytes.
 */
void tbg_conn_recv(struct tbg_worker *w, struct tbg_conn *c);
void tbg_conn_eof(struct tbg_worker *w, struct tbg_conn *c);
void tbg_conn_writable(struct tbg_worker *w, struct tbg_conn *c);
/* The wait that tbg_conn_eof() started is over. */
void tbg_conn_again(struct tbg_worker *w, struct tbg_conn *c);

/* The worker gives the connection its next turn. */
void tbg_conn_turn(struct tbg_worker *w, struct tbg_conn *c);

/* Looks up its slot in wire, if it has one that is not known yet. */
void tbg_conn_claim_slot(struct tbg_worker *w, struct tbg_conn *c);

/* Sends the bytes of wire's last reply that the client has not acknowledged. */
void tbg_conn_take_back(struct tbg_worker *w, struct tbg_conn *c);

/* Checks the time limits; called about once a second. */
void tbg_conn_check(struct tbg_worker *w, struct tbg_conn *c);

/* holds: has memory in use for a client that reads slowly; rests: nothing is in progress. */
bool tbg_conn_holds(const struct tbg_conn *c);
bool tbg_conn_rests(const struct tbg_conn *c);
/*
 * Ends the connection if it has been idle for idle_ms, counting hits of the kernel
 * tiers as activity.
 */
bool tbg_conn_give_way(struct tbg_worker *w, struct tbg_conn *c, uint32_t idle_ms);

/* Returns whether an unfinished head began at least ms ago. */
bool tbg_conn_head_is_late(const struct tbg_worker *w, const struct tbg_conn *c, uint32_t ms);
/* Ends such a connection as its time limit would. */
void tbg_conn_head_end(struct tbg_worker *w, struct tbg_conn *c);
/* Returns whether both clients are one: the same IPv4 address, or the same /64 of IPv6. */
bool tbg_conn_same_client(struct tbg_conn *a, struct tbg_conn *b);

/*
 * While draining: returns whether the client has acknowledged this many bytes within
 * that time.
 */
bool tbg_conn_takes(struct tbg_worker *w, struct tbg_conn *c, uint32_t bytes, uint32_t within_ms);

/* While draining: closes the connection if it is idle, else after its answer. */
void tbg_conn_drain(struct tbg_worker *w, struct tbg_conn *c);

/* Closes it now. It is freed when its operations have ended. */
void tbg_conn_kill(struct tbg_worker *w, struct tbg_conn *c);

/*
 * For an answerer. Sends len bytes or a part of them. Returns the number sent, -EAGAIN
 * (writable() is called later) or -EPIPE. last: these bytes end the answer to a request
 * of `taken` bytes.
 */
ssize_t tbg_conn_write(struct tbg_worker *w, struct tbg_conn *c,
		       struct iovec *iov, int nr, size_t len, bool last,
		       uint32_t taken);
/* The answer has been sent: the connection continues or ends. */
void tbg_conn_answered(struct tbg_worker *w, struct tbg_conn *c, struct tbg_answerer *a);
/*
 * Replaces a's request by head, a request that the daemon has made: abandons a and
 * answers head instead. Returns 0, or the status that a must answer with.
 */
unsigned int tbg_conn_redirect(struct tbg_worker *w, struct tbg_conn *c,
			       struct tbg_answerer *a, const struct tbg_lines *head);
/*
 * Takes the bytes received after the request's head; the caller frees them. NULL: none.
 * tbg_conn_input_back() returns those that do not belong to the body, before bytes
 * received since (false: no memory); then tbg_conn_input_more() continues to receive.
 */
uint8_t *tbg_conn_input_take(struct tbg_conn *c, uint32_t *ret_len);
bool tbg_conn_input_back(struct tbg_conn *c, const uint8_t *b, size_t len);
void tbg_conn_input_more(struct tbg_worker *w, struct tbg_conn *c);
/* Returns both addresses as text. */
const struct tbg_endpoints *tbg_conn_endpoints(struct tbg_conn *c);

/* A connection as shown by `toboggan connections`. */
struct tbg_conn_shown {
	struct tbg_prefix peer, local;	/* all bits significant; 0 bits: unknown */
	uint16_t peer_port, local_port;
	const char *state, *tier;
	struct tbg_answerer_phases phases;	/* of its answerer, if it has one */
	bool socket;
	uint32_t age_ms, idle_ms, answers;
};

void tbg_conn_show(const struct tbg_worker *w, const struct tbg_conn *c,
		   struct tbg_conn_shown *ret);

/* ring.c */
/*
 * Allocates the receive buffers that all connections of a worker share. Returns 0 or a
 * negative errno.
 */
int tbg_conn_buffers_open(struct tbg_worker *w);
void tbg_conn_recv_arm(struct tbg_worker *w, struct tbg_conn *c);
/* Cancels the operations in progress. Their completions still arrive. */
void tbg_conn_recv_stop(struct tbg_worker *w, struct tbg_conn *c);
void tbg_conn_poll(struct tbg_worker *w, struct tbg_conn *c);
void tbg_conn_wait(struct tbg_worker *w, struct tbg_conn *c);
void tbg_conn_recv_event(struct tbg_worker *w, const struct io_uring_cqe *cqe);
void tbg_conn_poll_event(struct tbg_worker *w, const struct io_uring_cqe *cqe);
void tbg_conn_wait_event(struct tbg_worker *w, const struct io_uring_cqe *cqe);
/*
 * With sock, before the worker runs: opens the ring buffer that reports events of
 * resting connections. Returns 0 or a negative errno.
 */
int tbg_conn_news_open(struct tbg_worker *w);
void tbg_conn_news_arm(struct tbg_worker *w);
void tbg_conn_news_close(struct tbg_worker *w);

/* slabs.c */
struct tbg_conn *tbg_conn_alloc(struct tbg_worker *w);	/* NULL: no memory */
void tbg_conn_free(struct tbg_worker *w, struct tbg_conn *c);
void tbg_conns_each(struct tbg_worker *w,
		    void (*fn)(struct tbg_worker *w, struct tbg_conn *c));
/* Calls fn for the connections of slabs from to to - 1. */
void tbg_conns_each_of(struct tbg_worker *w, unsigned int from, unsigned int to,
		       void (*fn)(struct tbg_worker *w, struct tbg_conn *c));
/*
 * Returns the connection, other than `but`, for which is() is true and whose last
 * progress is the oldest; NULL: none.
 */
struct tbg_conn *tbg_conns_oldest(struct tbg_worker *w, const struct tbg_conn *but,
				  bool (*is)(const struct tbg_conn *c));
/*
 * Shows the connections of one slab. Returns false if there is no such slab. Takes at
 * most 0.2 ms.
 */
bool tbg_conns_slab_show(struct tbg_worker *w, unsigned int slab,
			 struct tbg_conn_shown ret[TBG_SLAB_CONNS], unsigned int *ret_nr);
/* Appends the connection to those that wait for a turn; removes it from them. */
void tbg_conn_turn_await(struct tbg_worker *w, struct tbg_conn *c);
void tbg_conn_turn_leave(struct tbg_worker *w, struct tbg_conn_active *t);
/* Gives a turn to the first few of them. */
void tbg_conn_turns_take(struct tbg_worker *w);

#endif
