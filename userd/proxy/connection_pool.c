// SPDX-License-Identifier: GPL-2.0
/*
 * Connections to upstreams on the worker's ring. An idle connection always has a
 * receive in progress: if the server closes it or sends data without a request, this is
 * noticed at once, and such data never becomes part of a response.
 *
 * Data that a server sends without a request, but just after the next one was sent to it,
 * looks like the response to that request. This can't be detected. But a server that does
 * so has often done it at other times, too, when it was detected: then, for a while, each
 * request gets a new connection, and responses recently stored from that connection are
 * withdrawn.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "proxy/fetch.h"
#include "proxy/connection_pool.h"
#include "http/response.h"
#include "proxy/transfer.h"

#define STARVED_NS 1000000000ull	/* time without keeping connections */
#define APART_NS   60000000000ull	/* after a server has sent data without a request */
#define EARLY_MS   1000	/* close before the server does, or after half of its time */
#define SETTLED_MS 20	/* then the server has not closed the connection right after an answer */

#define conn_of(call, member) \
	((struct tbg_upstream_conn *)((char *)(call) - offsetof(struct tbg_upstream_conn, member)))

static void conn_free(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	struct tbg_transfer *x = o->x;

	if (o->fd >= 0)
		close(o->fd);
	w->upstream_conns_nr--;
	atomic_fetch_sub(&o->backend->open, 1);
	tbg_upstream_put(o->backend->upstream);
	for (unsigned int i = 0; i < TBG_UPSTREAM_CONN_STORED; i++)
		free((char *)o->stored[i].text);
	free(o->head);
	free(o);
	if (x)
		tbg_transfer_conn_gone(x);
}

/* Returns false if the connection is being closed: then its events are not reported. */
static bool alive(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	if (!o->closing)
		return true;
	if (!o->connect.busy && !o->send.busy && !o->recv.busy)
		conn_free(w, o);
	return false;
}

static void on_connect(struct tbg_worker *w, struct tbg_call *call, int res)
{
	struct tbg_upstream_conn *o = conn_of(call, connect);

	if (!alive(w, o))
		return;
	/* the queue of a Unix socket is full: retry at the next tick */
	o->refused = res == -EAGAIN;
	if (o->refused)
		return;
	o->connected = !res;
	tbg_fetch_connected(o->x, res);
}

static void on_send(struct tbg_worker *w, struct tbg_call *call, int res)
{
	struct tbg_upstream_conn *o = conn_of(call, send);

	if (!alive(w, o))
		return;
	o->sent |= res > 0;
	tbg_fetch_sent(o->x, res);
}

/* Returns the pool that contains a server's idle connections, perhaps with those of others. */
static struct tbg_upstream_conn_pool *pool_of(struct tbg_worker *w, const struct tbg_backend *b)
{
	return &w->idle[b->id % TBG_UPSTREAM_CONN_POOLS];
}

static void idle_remove(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	struct tbg_upstream_conn_pool *pool = pool_of(w, o->backend);

	LIST_REMOVE(o, link);
	pool->nr--;
}

/*
 * Returns whether connections to the server are not reused, so that no data can precede
 * the answer to another request.
 */
static bool is_apart(const struct tbg_worker *w, struct tbg_backend *b)
{
	return w->now_ns < atomic_load_explicit(&b->apart_ns, memory_order_relaxed);
}

/* A FastCGI server frames the program's bytes, so a program cannot forge a second response. */
void tbg_upstream_conn_apart(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	if (o->backend->upstream->settings.protocol != TBG_PROTOCOL_HTTP)
		return;
	atomic_store_explicit(&o->backend->apart_ns, w->now_ns + APART_NS,
			      memory_order_relaxed);
	for (unsigned int i = 0; i < TBG_UPSTREAM_CONN_STORED; i++)
		if (o->stored[i].text)
			tbg_store_withdraw(w->s->store, &o->stored[i]);
}

void tbg_upstream_conn_stored(struct tbg_upstream_conn *o, const struct tbg_uri *u)
{
	struct tbg_uri *to = &o->stored[o->stored_at];
	char *text = strndup(u->text, u->len);

	if (!text)
		return;
	free((char *)to->text);
	*to = *u;
	to->text = text;
	to->proxy_host = (struct tbg_slice){ NULL, 0 };	/* sufficient for a withdrawal */
	o->stored_at = (o->stored_at + 1) % TBG_UPSTREAM_CONN_STORED;
}

/* Some servers send a 408 before they close an idle connection (RFC 9110 15.5.9): ignored. */
void tbg_upstream_conn_unsolicited(struct tbg_worker *w, struct tbg_upstream_conn *o, size_t len)
{
	const char *b = (const char *)o->head;

	if (len >= 12 && !memcmp(b, "HTTP/1.", 7) && !memcmp(b + 8, " 408", 4))
		return;
	tbg_backend_failed(o->backend, "sent data without a request", w->now_ns);
	tbg_upstream_conn_apart(w, o);
}

static void on_recv(struct tbg_worker *w, struct tbg_call *call, int res)
{
	struct tbg_upstream_conn *o = conn_of(call, recv);

	if (!alive(w, o))
		return;
	if (o->x) {
		tbg_fetch_received(o->x, res);
		return;
	}
	idle_remove(w, o);	/* closed by the server, or data without a request */
	if (res > 0)
		tbg_upstream_conn_unsolicited(w, o, res);
	tbg_upstream_conn_drop(w, o);
}

static struct tbg_upstream_conn *conn_new(struct tbg_worker *w, struct tbg_backend *b)
{
	struct tbg_upstream_conn *o = aligned_alloc(64, (sizeof(*o) + 63) & ~63ul);
	int on = 1;

	if (!o)
		return NULL;
	memset(o, 0, sizeof(*o));
	o->head = malloc(TBG_RESPONSE_HEAD_MAX);
	o->fd = o->head ? socket(b->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC |
				 SOCK_NONBLOCK, 0) : -1;
	if (o->fd < 0) {
		free(o->head);
		free(o);
		return NULL;
	}
	if (b->address.ss_family != AF_UNIX)
		setsockopt(o->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	o->backend = b;
	tbg_upstream_get(b->upstream);
	atomic_fetch_add(&b->open, 1);
	w->upstream_conns_nr++;
	o->connect.fn = on_connect;
	o->send.fn = on_send;
	o->recv.fn = on_recv;
	return o;
}

/* Takes the newest idle connection to a server, or the oldest, out of the pool. NULL: none. */
static struct tbg_upstream_conn *idle_take(struct tbg_worker *w, const struct tbg_backend *b,
					   bool oldest)
{
	struct tbg_upstream_conn *ret = NULL, *o;

	LIST_FOREACH(o, &pool_of(w, b)->all, link)
		if (o->backend == b && (!ret || oldest))
			ret = o;
	if (ret)
		idle_remove(w, ret);
	return ret;
}

/*
 * Some FastCGI servers close connections right after an answer (php-fpm with
 * pm.max_requests) and, unlike HTTP servers, cannot announce it. A request that must
 * not be sent twice is not sent into such a close: it uses the oldest idle connection,
 * or a new one if that became idle only just now. The gateway's pools let the daemon
 * close first.
 */
static bool is_wary(const struct tbg_transfer *x)
{
	return x->protocol->runs_programs && !x->upstream->command &&
	       (tbg_transfer_uploads(x) || !tbg_method_idempotent(x->m.method));
}

static void connect_begin(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	struct io_uring_sqe *sqe = tbg_worker_sqe(w);

	io_uring_prep_connect(sqe, o->fd, (struct sockaddr *)&o->backend->address,
			      o->backend->address_len);
	tbg_worker_call(sqe, &o->connect);
}

/* Closes the descriptor of an idle connection immediately. Returns false if there is none. */
static bool idle_close(struct tbg_worker *w)
{
	struct tbg_upstream_conn *o = NULL;

	for (unsigned int i = 0; !o && i < TBG_UPSTREAM_CONN_POOLS; i++)
		o = LIST_FIRST(&w->idle[i].all);
	tbg_ring_submit(&w->ring);	/* submit operations that refer to its number */
	if (!o || tbg_ring_unsubmitted(&w->ring))
		return false;
	idle_remove(w, o);
	tbg_upstream_conn_drop(w, o);		/* the object remains until its receive has ended */
	close(o->fd);
	o->fd = -1;
	return true;
}

/* No data is in flight. A reset leaves no TIME_WAIT; many of those would exhaust the ports. */
static void reset(struct tbg_upstream_conn *o)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };

	if (o->backend->address.ss_family != AF_UNIX)
		connect(o->fd, &none, sizeof(none));
}

struct tbg_upstream_conn *tbg_upstream_conn_take(struct tbg_worker *w, struct tbg_transfer *x,
				   struct tbg_backend *b, bool pooled)
{
	bool wary = is_wary(x);
	struct tbg_upstream_conn *o = pooled && !is_apart(w, b) ? idle_take(w, b, wary) : NULL;

	if (o && wary && w->now_ms - o->stamp_ms < SETTLED_MS) {
		reset(o);
		tbg_upstream_conn_drop(w, o);
		o = NULL;
	}
	if (o) {
		o->x = x;
		o->sent = false;
		o->reused = true;
		o->head_len = 0;
		return o;
	}
	o = conn_new(w, b);
	if (!o && (errno == EMFILE || errno == ENFILE) && idle_close(w))
		o = conn_new(w, b);
	if (!o)
		return NULL;
	o->x = x;
	connect_begin(w, o);
	return o;
}

void tbg_upstream_conn_send(struct tbg_worker *w, struct tbg_upstream_conn *o, unsigned int nr)
{
	o->msg = (struct msghdr){ .msg_iov = o->iov, .msg_iovlen = nr };
	o->send.busy = o->due = true;
	o->looked_at = false;
	STAILQ_INSERT_TAIL(&w->due_upstream_conns, o, due_link);
}

static void due_remove(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	STAILQ_REMOVE(&w->due_upstream_conns, o, tbg_upstream_conn, due_link);
	o->due = o->send.busy = false;
}

bool tbg_upstream_conn_unsend(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	if (!o->due)
		return false;
	due_remove(w, o);
	return true;
}

/* Sends directly. Bytes that the socket does not accept are sent through the ring. */
static void due_send(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
	struct io_uring_sqe *sqe;
	ssize_t n;

	if (o->msg.msg_iovlen == 1)	/* the usual case, and cheaper */
		n = send(o->fd, o->iov->iov_base, o->iov->iov_len, flags);
	else
		n = sendmsg(o->fd, &o->msg, flags);

	if (n >= 0 || errno != EAGAIN) {
		on_send(w, &o->send, n < 0 ? -errno : n);
		return;
	}
	sqe = tbg_worker_sqe(w);
	io_uring_prep_sendmsg(sqe, o->fd, &o->msg, MSG_NOSIGNAL);
	tbg_worker_call(sqe, &o->send);
}

void tbg_upstream_conns_look(struct tbg_worker *w)
{
	struct tbg_upstream_conn *o;

	STAILQ_FOREACH(o, &w->due_upstream_conns, due_link)
		o->looked_at = true;
}

void tbg_upstream_conns_due(struct tbg_worker *w)
{
	struct tbg_upstream_conn *o;

	/* sends added since then are at the end of the list */
	while ((o = STAILQ_FIRST(&w->due_upstream_conns)) && o->looked_at) {
		due_remove(w, o);
		due_send(w, o);
	}
}

void tbg_upstream_conn_recv(struct tbg_worker *w, struct tbg_upstream_conn *o, void *b,
		     uint32_t len)
{
	struct io_uring_sqe *sqe = tbg_worker_sqe(w);

	io_uring_prep_recv(sqe, o->fd, b, len, 0);
	tbg_worker_call(sqe, &o->recv);
}

void tbg_upstream_conn_listen(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	struct io_uring_sqe *sqe = tbg_worker_sqe(w);

	io_uring_prep_recv(sqe, o->fd, o->head, TBG_RESPONSE_HEAD_MAX, 0);
	sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
	tbg_worker_call(sqe, &o->recv);
}

/*
 * Returns whether requests have recently waited for a server process. A FastCGI server
 * has one process per connection, and a fixed number of them.
 */
static bool starved(const struct tbg_worker *w, struct tbg_backend *b)
{
	uint64_t then_ns = atomic_load_explicit(&b->starved_ns, memory_order_relaxed);

	return then_ns && w->now_ns - then_ns < STARVED_NS;
}

void tbg_upstream_conn_starves(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	int left;

	/* bytes read by the peer of a Unix socket show that it accepted the connection */
	if (o->reused || atomic_load(&o->backend->open) < 2 ||
	    (o->backend->address.ss_family == AF_UNIX && o->sent &&
	     !ioctl(o->fd, SIOCOUTQ, &left) && !left))
		return;
	atomic_store_explicit(&o->backend->starved_ns, w->now_ns, memory_order_relaxed);
}

/*
 * Returns how long the connection may be idle: less than the server allows. A request
 * that collides with the server's close is lost if it must not be sent twice.
 */
static uint32_t keep_ms(const struct tbg_upstream_conn *o, const struct tbg_response *r)
{
	uint32_t ours = o->backend->upstream->settings.keep_ms, theirs = r->keep_s * 1000;

	theirs -= theirs < 2 * EARLY_MS ? theirs / 2 : EARLY_MS;
	return theirs && theirs < ours ? theirs : ours;
}

void tbg_upstream_conn_keep(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	struct tbg_upstream_conn_pool *pool = pool_of(w, o->backend);
	struct tbg_transfer *x = o->x;

	if (pool->nr >= TBG_UPSTREAM_CONNS_IDLE || o->send.busy || o->recv.busy ||
	    starved(w, o->backend) || is_apart(w, o->backend)) {
		tbg_upstream_conn_drop(w, o);
		return;
	}
	o->x = NULL;
	tbg_upstream_conn_listen(w, o);
	o->stamp_ms = w->now_ms;
	o->keep_ms = keep_ms(o, &x->r);
	LIST_INSERT_HEAD(&pool->all, o, link);
	pool->nr++;
	tbg_transfer_conn_gone(x);
}

void tbg_upstream_conn_drop(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	tbg_upstream_conn_unsend(w, o);
	o->closing = true;
	shutdown(o->fd, SHUT_RDWR);
	tbg_worker_cancel(w, &o->connect);
	tbg_worker_cancel(w, &o->send);
	tbg_worker_cancel(w, &o->recv);
	alive(w, o);
}

bool tbg_upstream_conn_acknowledged(const struct tbg_upstream_conn *o)
{
	int left;

	if (!o->sent)
		return false;
	return o->backend->address.ss_family == AF_UNIX ||
	       ioctl(o->fd, SIOCOUTQ, &left) || !left;
}

void tbg_upstream_conn_again(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	if (!o->refused)
		return;
	o->refused = false;
	connect_begin(w, o);
}

void tbg_upstream_conn_check(struct tbg_worker *w, struct tbg_upstream_conn *o)
{
	struct pollfd p = { .fd = o->fd };
	int left = 0;

	if (o->connected && o->recv.busy && poll(&p, 1, 0) > 0 &&
	    p.revents & (POLLERR | POLLHUP) && !ioctl(o->fd, FIONREAD, &left) && !left)
		tbg_worker_cancel(w, &o->recv);
}

/* Returns whether it has been idle for too long, or its upstream is not configured any more. */
static bool is_over(const struct tbg_worker *w, const struct tbg_upstream_conn *o)
{
	const struct tbg_upstream *u = o->backend->upstream;

	return w->draining || starved(w, o->backend) || is_apart(w, o->backend) ||
	       !atomic_load_explicit(&u->sites, memory_order_relaxed) ||
	       w->now_ms - o->stamp_ms >= o->keep_ms;
}

static void idle_drop(struct tbg_worker *w, bool (*is)(const struct tbg_worker *w,
						       const struct tbg_upstream_conn *o))
{
	for (unsigned int i = 0; i < TBG_UPSTREAM_CONN_POOLS; i++) {
		struct tbg_upstream_conn *o = LIST_FIRST(&w->idle[i].all), *next;

		for (; o; o = next) {
			next = LIST_NEXT(o, link);
			if (!is(w, o))
				continue;
			LIST_REMOVE(o, link);
			w->idle[i].nr--;
			tbg_upstream_conn_drop(w, o);
		}
	}
}

void tbg_upstream_conns_check(struct tbg_worker *w)
{
	idle_drop(w, is_over);
}

static bool is_any(const struct tbg_worker *w, const struct tbg_upstream_conn *o)
{
	return true;
}

void tbg_upstream_conns_end(struct tbg_worker *w)
{
	idle_drop(w, is_any);
}
