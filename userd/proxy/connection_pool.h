/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A connection to an upstream server, and a worker's pool of idle ones. A fetch uses
 * one connection at a time. Data that arrives between two uses closes the connection.
 */
#ifndef TBG_USERD_PROXY_CONNECTION_POOL_H
#define TBG_USERD_PROXY_CONNECTION_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/uio.h>

#include "store/responses.h"
#include "upstream/upstream.h"
#include "serve/worker.h"

#define TBG_UPSTREAM_CONN_IOV	4
#define TBG_UPSTREAM_CONN_STORED 8
#define TBG_UPSTREAM_CONNS_IDLE 64	/* limit for idle connections in a pool */
#define TBG_UPSTREAM_CONN_POOLS 64		/* per worker; servers share them by id */

struct tbg_upstream_conn {
	struct tbg_call connect, send, recv;
	struct tbg_backend *backend;
	struct tbg_transfer *x;		/* current transfer, until the operations have ended */
	int fd;
	bool connected, closing;
	/* connect() found the queue full: see tbg_upstream_conn_again() */
	bool refused;
	bool reused;			/* has served a request before */
	bool sent;			/* bytes were sent in this use */
	bool due;			/* in the list of sends at the end of the round */
	bool looked_at;			/* see tbg_upstream_conns_look() */
	uint32_t stamp_ms, keep_ms;	/* start of idleness, and its limit */
	LIST_ENTRY(tbg_upstream_conn) link;	/* in the list of idle ones */
	STAILQ_ENTRY(tbg_upstream_conn) due_link;
	/* URIs of responses stored from it */
	struct tbg_uri stored[TBG_UPSTREAM_CONN_STORED];
	uint8_t stored_at;		/* index of the oldest of them */
	struct msghdr msg;
	struct iovec iov[TBG_UPSTREAM_CONN_IOV];
	uint8_t *head;			/* buffer for response heads, see fetch.c */
	uint32_t head_len;
};

/* Idle connections, the most recent first. */
struct tbg_upstream_conn_pool {
	LIST_HEAD(, tbg_upstream_conn) all;
	unsigned int nr;
};

/*
 * Returns a connection for x. A new one is reported by tbg_fetch_connected(); one from
 * the pool has `connected` set. pooled: the pool may be used. NULL: no memory or no
 * descriptor, even after closing an idle connection.
 */
struct tbg_upstream_conn *tbg_upstream_conn_take(struct tbg_worker *w, struct tbg_transfer *x,
				   struct tbg_backend *b, bool pooled);

/*
 * Sends o->iov[0..nr) in tbg_upstream_conns_due(), together with data for other
 * servers. tbg_fetch_sent() reports the bytes sent.
 */
void tbg_upstream_conn_send(struct tbg_worker *w, struct tbg_upstream_conn *o, unsigned int nr);

/* Performs pending sends; called at the end of a round. */
void tbg_upstream_conns_due(struct tbg_worker *w);

/*
 * Call it before handling completions: tbg_upstream_conns_due() then performs only the
 * sends that are pending now.
 */
void tbg_upstream_conns_look(struct tbg_worker *w);

/* Cancels a pending send. Returns false if it has already been performed, even in part. */
bool tbg_upstream_conn_unsend(struct tbg_worker *w, struct tbg_upstream_conn *o);

/* Receives once; tbg_fetch_received() reports the bytes. */
void tbg_upstream_conn_recv(struct tbg_worker *w, struct tbg_upstream_conn *o, void *b,
		     uint32_t len);

/* Receives into o->head, as tbg_upstream_conn_recv(). No data can have arrived yet. */
void tbg_upstream_conn_listen(struct tbg_worker *w, struct tbg_upstream_conn *o);

/*
 * Returns whether the server has acknowledged the whole request that was sent. Earlier
 * data does not answer it: a response carries an acknowledgement of the bytes that it
 * answers.
 */
bool tbg_upstream_conn_acknowledged(const struct tbg_upstream_conn *o);

/*
 * Call it when a request waits for a server process: all processes may be occupied by
 * idle connections of this daemon, which are then closed.
 */
void tbg_upstream_conn_starves(struct tbg_worker *w, struct tbg_upstream_conn *o);

/* On a tick: retries connect() to a Unix socket whose queue was full. */
void tbg_upstream_conn_again(struct tbg_worker *w, struct tbg_upstream_conn *o);

/*
 * On a tick: cancels a receive on a connection that was reset and has no data left.
 * io_uring does not always report it (see tbg_conn_check()).
 */
void tbg_upstream_conn_check(struct tbg_worker *w, struct tbg_upstream_conn *o);

/* Remembers that an HTTP response from this connection was stored under that URI. */
void tbg_upstream_conn_stored(struct tbg_upstream_conn *o, const struct tbg_uri *u);

/*
 * unsolicited: len bytes at the start of its head buffer arrived before the request. apart:
 * a second response followed the first. In both cases connections to this server are
 * not reused for a while, and responses stored from this connection are withdrawn,
 * because they may have been such second responses.
 */
void tbg_upstream_conn_unsolicited(struct tbg_worker *w, struct tbg_upstream_conn *o, size_t len);
void tbg_upstream_conn_apart(struct tbg_worker *w, struct tbg_upstream_conn *o);

/* Returns the connection to the pool after a complete exchange. */
void tbg_upstream_conn_keep(struct tbg_worker *w, struct tbg_upstream_conn *o);

/*
 * Closes the connection. Buffers passed to it must remain valid until
 * tbg_transfer_conn_gone(), which may be called at once.
 */
void tbg_upstream_conn_drop(struct tbg_worker *w, struct tbg_upstream_conn *o);

/* On every tick: closes connections that have been idle for too long. */
void tbg_upstream_conns_check(struct tbg_worker *w);

/* At the worker's end: closes all idle connections. w->upstream_conns_nr counts the others. */
void tbg_upstream_conns_end(struct tbg_worker *w);

#endif
