/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A connection to an upstream server, and the pool of idle ones of a worker.
 * Used by the fetch, one at a time; what it receives between two uses ends it.
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
#define TBG_UPSTREAM_CONNS_IDLE 64	/* kept in a pool */
#define TBG_UPSTREAM_CONN_POOLS 64		/* of a worker; servers share them by number */

struct tbg_upstream_conn {
	struct tbg_call connect, send, recv;
	struct tbg_backend *backend;
	struct tbg_transfer *x;		/* its transfer, until its operations end */
	int fd;
	bool connected, closing;
	bool refused;			/* for now: see tbg_upstream_conn_again() */
	bool reused;			/* has served a request before */
	bool sent;			/* of this use: something has gone out */
	bool due;			/* to be sent at the end of the round */
	bool looked_at;			/* since then; see tbg_upstream_conns_look() */
	uint32_t stamp_ms, keep_ms;	/* idle since, and for how long at most */
	LIST_ENTRY(tbg_upstream_conn) link;	/* idle */
	STAILQ_ENTRY(tbg_upstream_conn) due_link;
	struct tbg_uri stored[TBG_UPSTREAM_CONN_STORED];	/* by its last exchanges */
	uint8_t stored_at;		/* the oldest of them */
	struct msghdr msg;
	struct iovec iov[TBG_UPSTREAM_CONN_IOV];
	uint8_t *head;			/* what is received first: see fetch.c */
	uint32_t head_len;
};

/* Idle connections, the newest first. */
struct tbg_upstream_conn_pool {
	LIST_HEAD(, tbg_upstream_conn) all;
	unsigned int nr;
};

/*
 * A connection for x, reported by tbg_fetch_connected() unless it comes
 * from the pool (connected is set then). pooled: such a one may be used. NULL:
 * no memory or no descriptor, not even one of an idle connection.
 */
struct tbg_upstream_conn *tbg_upstream_conn_take(struct tbg_worker *w, struct tbg_transfer *x,
				   struct tbg_backend *b, bool pooled);

/*
 * Sends o->iov[0..nr), with what is due to other servers (tbg_upstream_conns_due());
 * tbg_fetch_sent() reports the bytes sent.
 */
void tbg_upstream_conn_send(struct tbg_worker *w, struct tbg_upstream_conn *o, unsigned int nr);

/* At the end of a round. */
void tbg_upstream_conns_due(struct tbg_worker *w);

/*
 * Before the caller looks at what has come: tbg_upstream_conns_due() then sends what is
 * due by now, nothing that became so meanwhile.
 */
void tbg_upstream_conns_look(struct tbg_worker *w);

/* Not any more. False: it has been sent already, as far as it has. */
bool tbg_upstream_conn_unsend(struct tbg_worker *w, struct tbg_upstream_conn *o);

/* Receives; tbg_fetch_received() reports the bytes. One at a time. */
void tbg_upstream_conn_recv(struct tbg_worker *w, struct tbg_upstream_conn *o, void *b,
		     uint32_t len);

/* The same to o->head, of which nothing can have come yet. */
void tbg_upstream_conn_listen(struct tbg_worker *w, struct tbg_upstream_conn *o);

/*
 * Whether the server has our request, all that was sent of it. What comes from
 * it before that answers something else: a response carries an acknowledgement
 * of the bytes it answers.
 */
bool tbg_upstream_conn_asked(const struct tbg_upstream_conn *o);

/*
 * The server's processes may all be with connections of ours that are idle,
 * while this one waits for one of them: these are ended then.
 */
void tbg_upstream_conn_starves(struct tbg_worker *w, struct tbg_upstream_conn *o);

/* On a tick: to a Unix socket that had no room for it once more. */
void tbg_upstream_conn_again(struct tbg_worker *w, struct tbg_upstream_conn *o);

/*
 * On a tick: ends a receive under way on a connection that is reset and has
 * nothing left to read. The ring does not always tell (see tbg_conn_check()).
 */
void tbg_upstream_conn_check(struct tbg_worker *w, struct tbg_upstream_conn *o);

/* An answer that came by it, of HTTP, has been stored under that URI. */
void tbg_upstream_conn_stored(struct tbg_upstream_conn *o, const struct tbg_uri *u);

/*
 * len bytes at the front of its head's room came before they were asked for; or a second
 * response came behind the first: for a while no connection of the server is used twice.
 * What came by it and is stored may be a second response too, and goes.
 */
void tbg_upstream_conn_unasked(struct tbg_worker *w, struct tbg_upstream_conn *o, size_t len);
void tbg_upstream_conn_apart(struct tbg_worker *w, struct tbg_upstream_conn *o);

/* The request is over and the connection in order: back to the pool. */
void tbg_upstream_conn_keep(struct tbg_worker *w, struct tbg_upstream_conn *o);

/*
 * Ends it. Buffers given to it must stay until tbg_transfer_conn_gone(),
 * which may be at once.
 */
void tbg_upstream_conn_drop(struct tbg_worker *w, struct tbg_upstream_conn *o);

/* On every tick: closes what has been idle for too long. */
void tbg_upstream_conns_check(struct tbg_worker *w);

/* At the worker's end: closes all idle ones. w->upstream_conns_nr counts the rest. */
void tbg_upstream_conns_end(struct tbg_worker *w);

#endif
