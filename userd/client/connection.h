/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A client's connection: bytes in, requests, answers, bytes out. Small while
 * idle (struct tbg_conn alone); what a request in progress or an answer in
 * transmission needs hangs off it and goes with it.
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
	TBG_CONN_LINGER,	/* we have closed our side; the client reads */
	TBG_CONN_CLOSING,	/* waits for its operations to end */
};

/* While a request is incomplete or an answer is on its way. */
struct tbg_conn_active {
	uint8_t *in;			/* received, not yet eaten */
	uint32_t in_len, in_room;
	struct tbg_message message;	/* of a head that has begun */
	bool has_message, in_body;
	struct tbg_body_decoder body;
	uint64_t body_len, body_taken;	/* bytes so far: content, with framing */
	uint64_t body_max;		/* of its location */
	uint64_t begin_ns;		/* of the request under way; 0: this round */
	uint8_t *held;			/* head of the request with that body */
	uint32_t held_len;
	uint8_t *asked;			/* the request that a program has sent on, */
	uint32_t asked_len;
	uint8_t redirects;		/* so often */
	uint8_t *out;			/* not yet accepted by the socket */
	uint32_t out_len, out_off;
	int fd;				/* behind out: a file, -1: none */
	int64_t fd_off;
	uint64_t fd_left;
	struct tbg_file_version fd_version;
	struct tbg_parts *parts;	/* behind fd_left bytes of fd, or NULL */
	uint32_t fd_taken;		/* request bytes that these answer */
	struct tbg_unlogged *unlogged;	/* file on its way; NULL: none */
	bool close_after;
	struct tbg_answerer *answerer;	/* of the request at hand; or NULL */
	struct tbg_aside_task *aside;	/* what that needs is being made; or NULL */
	uint32_t aside_taken;		/* request bytes of it; its head is held */
	uint8_t asides;			/* this many for this request */
	bool turn_over;			/* there is more to eat, when it is our turn */
	struct tbg_conn *c;		/* its connection */
	TAILQ_ENTRY(tbg_conn_active) turn;	/* in the worker's list then */
	bool in_turns;
};

struct tbg_client;

struct tbg_conn {
	int fd;
	int slot;			/* of its conn word; -1: none */
	uint32_t taken, written;	/* see abi/conn.h */
	uint32_t noted;			/* written, when a request was last logged */
	uint32_t stamp_ms;		/* last progress, in the worker's time */
	uint32_t begin_ms;		/* of the connection, in the same */
	uint32_t answers;		/* so far, those of wire before its socket too */
	uint32_t left_stamp_ms;		/* stamp_ms when so much */
	int left;			/* was not acknowledged */
	uint32_t taking_ms;		/* draining: the client has taken enough then, */
	uint64_t taken_nr;		/* which makes this many bytes */
	uint16_t ops;			/* io_uring operations under way */
	uint8_t state;
	uint8_t period;			/* of the worker, when it last sent something */
	bool receiving, polling, eof, used, claimed, waiting;
	bool shut;			/* to sock, until what waits has been sent */
	bool drained;			/* sock owed nothing, a tick ago */
	bool half;			/* its unfinished head counts against its client */
	uint8_t listener;		/* + 1, where listeners have lists; 0: not asked yet */
	int sock;			/* its slot in sock; -1: none */
	struct tbg_conn_active *active;		/* NULL: idle */
	struct sockaddr_storage *peer;	/* for the log; NULL: not asked yet */
	struct tbg_endpoints *endpoints;	/* for transfers; NULL: not asked yet */
	struct tbg_client *client;	/* where clients are counted; or NULL */
	struct tbg_taken *taken_from;	/* wire, which may have it again; or NULL */
	SLIST_ENTRY(tbg_conn) link;	/* in the free list */
} __attribute__((aligned(64)));

void tbg_conn_begin(struct tbg_worker *w, struct tbg_conn *c, int fd);

/* n > 0 bytes arrived at b, with TBG_REQ_SLACK readable bytes behind them. */
void tbg_conn_receive(struct tbg_worker *w, struct tbg_conn *c,
		      const uint8_t *b, uint32_t n);
/*
 * Receives, if it does not: unless there is no room, or nothing to receive yet
 * and sock will tell.
 */
void tbg_conn_recv(struct tbg_worker *w, struct tbg_conn *c);
void tbg_conn_eof(struct tbg_worker *w, struct tbg_conn *c);
void tbg_conn_writable(struct tbg_worker *w, struct tbg_conn *c);
/* The wait that tbg_conn_eof() asked for is over. */
void tbg_conn_again(struct tbg_worker *w, struct tbg_conn *c);

/* What it waits for has been made, see aside.h. */
void tbg_conn_made(struct tbg_worker *w, struct tbg_conn *c);
/* It is its turn again. */
void tbg_conn_turn(struct tbg_worker *w, struct tbg_conn *c);

/* Finds out its slot in wire, if it has one and that is not known yet. */
void tbg_conn_claim_slot(struct tbg_worker *w, struct tbg_conn *c);

/* Sends what its client has not acknowledged of wire's last reply. */
void tbg_conn_take_back(struct tbg_worker *w, struct tbg_conn *c);

/* Time limits, about once a second. */
void tbg_conn_check(struct tbg_worker *w, struct tbg_conn *c);

/* Whether it holds memory for a client that is slow; or nothing is under way on it. */
bool tbg_conn_holds(const struct tbg_conn *c);
bool tbg_conn_rests(const struct tbg_conn *c);
/* Ends one that has rested for so long, hits of the kernel tiers included. */
bool tbg_conn_give_way(struct tbg_worker *w, struct tbg_conn *c, uint32_t idle_ms);

/* Whether a head has begun on it, and not ended, for so long. */
bool tbg_conn_head_is_late(const struct tbg_worker *w, const struct tbg_conn *c, uint32_t ms);
/* Ends such a one as its time limit would. */
void tbg_conn_head_end(struct tbg_worker *w, struct tbg_conn *c);
/* Whether both are of one client: an IPv4 address, or the network of an IPv6 one. */
bool tbg_conn_same_client(struct tbg_conn *a, struct tbg_conn *b);

/* Draining: whether its client has taken this many bytes within that time. */
bool tbg_conn_takes(struct tbg_worker *w, struct tbg_conn *c, uint32_t bytes, uint32_t within_ms);

/* Draining: closes it if it is idle; else it closes after its answer. */
void tbg_conn_drain(struct tbg_worker *w, struct tbg_conn *c);

/* Ends it now; it is freed once its operations have ended. */
void tbg_conn_kill(struct tbg_worker *w, struct tbg_conn *c);

/*
 * For an answerer. Sends len bytes, all of it or some: how many, -EAGAIN (its
 * writable() comes), -EPIPE. last: they end the answer to a
 * request of `taken` bytes.
 */
ssize_t tbg_conn_write(struct tbg_worker *w, struct tbg_conn *c,
		       struct iovec *iov, int nr, size_t len, bool last,
		       uint32_t taken);
/* Its answer is out: the connection goes on, or ends. */
void tbg_conn_answered(struct tbg_worker *w, struct tbg_conn *c, struct tbg_answerer *a);
/*
 * What answers a's request is what answers head, a request of ours: abandons a, and
 * begins with that. Or a status: a shall answer with it.
 */
unsigned int tbg_conn_redirect(struct tbg_worker *w, struct tbg_conn *c,
			       struct tbg_answerer *a, const struct tbg_lines *head);
/*
 * What has been received behind the request's head, for the caller to free;
 * NULL: nothing. What is not the body's comes back with tbg_conn_input_back(),
 * before what has come since (false: no memory), and then tbg_conn_input_more()
 * receives on.
 */
uint8_t *tbg_conn_input_take(struct tbg_conn *c, uint32_t *ret_len);
bool tbg_conn_input_back(struct tbg_conn *c, const uint8_t *b, size_t len);
void tbg_conn_input_more(struct tbg_worker *w, struct tbg_conn *c);
/* Both addresses as text. */
const struct tbg_endpoints *tbg_conn_endpoints(struct tbg_conn *c);

/* A connection as `toboggan connections` shows it. */
struct tbg_conn_shown {
	struct tbg_prefix peer, local;	/* of all bits; 0 bits: unknown */
	uint16_t peer_port, local_port;
	const char *state, *tier;
	struct tbg_answerer_phases phases;	/* of its answerer, if it has one */
	bool socket;
	uint32_t age_ms, idle_ms, answers;
};

void tbg_conn_show(const struct tbg_worker *w, const struct tbg_conn *c,
		   struct tbg_conn_shown *ret);

/* ring.c */
/* What the kernel receives into, for all connections of a worker. 0 or negative errno. */
int tbg_conn_buffers_open(struct tbg_worker *w);
void tbg_conn_recv_arm(struct tbg_worker *w, struct tbg_conn *c);
/* Cancels what is under way; completions come all the same. */
void tbg_conn_recv_stop(struct tbg_worker *w, struct tbg_conn *c);
void tbg_conn_poll(struct tbg_worker *w, struct tbg_conn *c);
void tbg_conn_wait(struct tbg_worker *w, struct tbg_conn *c);
void tbg_conn_recv_event(struct tbg_worker *w, const struct io_uring_cqe *cqe);
void tbg_conn_poll_event(struct tbg_worker *w, const struct io_uring_cqe *cqe);
void tbg_conn_wait_event(struct tbg_worker *w, const struct io_uring_cqe *cqe);
/* Before it runs, with sock: opens what tells of connections that rest; or negative errno. */
int tbg_conn_news_open(struct tbg_worker *w);
void tbg_conn_news_arm(struct tbg_worker *w);
void tbg_conn_news_close(struct tbg_worker *w);

/* slabs.c */
struct tbg_conn *tbg_conn_alloc(struct tbg_worker *w);	/* NULL: no memory */
void tbg_conn_free(struct tbg_worker *w, struct tbg_conn *c);
void tbg_conns_each(struct tbg_worker *w,
		    void (*fn)(struct tbg_worker *w, struct tbg_conn *c));
/* Those of the slabs from..to - 1. */
void tbg_conns_each_of(struct tbg_worker *w, unsigned int from, unsigned int to,
		       void (*fn)(struct tbg_worker *w, struct tbg_conn *c));
/* But for one, that of which is() is true and that has not moved for the longest; NULL: none. */
struct tbg_conn *tbg_conns_oldest(struct tbg_worker *w, const struct tbg_conn *but,
				  bool (*is)(const struct tbg_conn *c));
/* Those that are allocated together: false: there is no such slab. Takes 0.2 ms at most. */
bool tbg_conns_slab_show(struct tbg_worker *w, unsigned int slab,
			 struct tbg_conn_shown ret[TBG_SLAB_CONNS], unsigned int *ret_nr);
/* Behind all whose turn it is; and not any more. */
void tbg_conn_turn_await(struct tbg_worker *w, struct tbg_conn *c);
void tbg_conn_turn_leave(struct tbg_worker *w, struct tbg_conn_active *t);
/* Gives their turn to the first few. */
void tbg_conn_turns_take(struct tbg_worker *w);

#endif
