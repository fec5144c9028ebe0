// SPDX-License-Identifier: GPL-2.0
/*
 * A connection's requests in order, each answered before the next is looked
 * at. The answers to what one receive brought leave in one send. While the
 * socket does not take output, input waits (and beyond IN_MAX is not received).
 *
 * The counts of the idle equation (abi/conn.h) are kept here: taken grows when
 * a request's answer is about to be queued whole (that of a file: with its last
 * bytes), written with every byte queued; both are published before the send.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cache/objects.h"
#include "os/clock.h"
#include "client/connection.h"
#include "core/conditional.h"
#include "core/encoding.h"
#include "core/key.h"
#include "files/files.h"
#include "log/access.h"
#include "files/pages.h"
#include "http/reply.h"
#include "os/limits.h"
#include "os/message.h"
#include "tiers/sock.h"
#include "proxy/transfer.h"
#include "tiers/tcb.h"
#include "tiers/wire.h"
#include "tiers/take_back.h"

#define IN_MAX		(64 << 10)	/* received ahead of a slow reader */
#define SLICE_BYTES	(256 << 10)	/* of one sendfile */
#define ROUNDS_MAX	4		/* sendings of several parts in one turn */
#define PARTS_BYTES	(64 << 10)	/* of several parts in one sending */
#define OUT_FLUSH	(TBG_OUT_BYTES - (64 << 10))
#define REDIRECTS_MAX	10		/* by programs, of one request */
#define STATUS_LEFT	499		/* in the log: its client left before the answer */
#define BODY_COPY_MAX	(4 << 10)	/* larger bodies are sent where they lie */
#define TURN_NS		200000		/* for requests that have come together, */
#define TURN_SEND_NS	300000		/* or for a file, before others have their turn */
#define SAY_NS		10000000000ull	/* between two lines of the log */
#define ASIDES_MAX	8		/* for one request, whose file changes meanwhile */

static bool blocked(const struct tbg_conn *c)
{
	const struct tbg_conn_active *t = c->traffic;

	return t && (t->out || t->fd >= 0 || t->parts || t->transfer || t->aside);
}

/* Its time is over for now, with requests left that have come already. */
static bool turn_over(const struct tbg_conn *c)
{
	return c->traffic && c->traffic->turn_over;
}

static struct tbg_conn_active *traffic_get(struct tbg_conn *c)
{
	if (!c->traffic) {
		c->traffic = malloc(sizeof(*c->traffic));
		if (c->traffic)
			*c->traffic = (struct tbg_conn_active){ .fd = -1 };
	}
	return c->traffic;
}

/* Memory that its client holds goes back to all. */
static void out_drop(struct tbg_conn_active *t)
{
	if (t->out)
		tbg_output_hold(-(int64_t)t->out_len);
	free(t->out);
	t->out = NULL;
}

static void traffic_free(struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->traffic;

	if (!t)
		return;
	if (t->transfer)
		tbg_transfer_abandon(t->transfer);
	if (t->aside)
		tbg_aside_leave(t->aside);
	if (t->turn_prev)
		tbg_worker_turn_leave(c);
	if (t->fd >= 0)
		close(t->fd);
	tbg_file_version_end(&t->fd_version);
	tbg_parts_free(t->parts);
	free(t->in);
	free(t->held);
	free(t->asked);
	out_drop(t);
	free(t);
	c->traffic = NULL;
}

/* The client's address; NULL: unknown. Kept: a broken socket no longer knows it. */
static const struct sockaddr_storage *conn_peer(struct tbg_conn *c)
{
	socklen_t len = sizeof(*c->peer);

	if (c->peer)
		return c->peer;
	c->peer = calloc(1, sizeof(*c->peer));
	if (c->peer && getpeername(c->fd, (struct sockaddr *)c->peer, &len)) {
		free(c->peer);
		c->peer = NULL;
	}
	return c->peer;
}

static void end_read(char text[TBG_END_TEXT], uint16_t *port,
		     const struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *six = (const void *)a;
	const struct sockaddr_in *four = (const void *)a;

	if (a && a->ss_family == AF_INET) {
		inet_ntop(AF_INET, &four->sin_addr, text, TBG_END_TEXT);
		*port = ntohs(four->sin_port);
	} else if (a && a->ss_family == AF_INET6) {
		inet_ntop(AF_INET6, &six->sin6_addr, text, TBG_END_TEXT);
		*port = ntohs(six->sin6_port);
	} else {
		strcpy(text, "unknown");
	}
}

const struct tbg_endpoints *tbg_conn_ends(struct tbg_conn *c)
{
	static const struct tbg_endpoints unknown = { .peer = "unknown", .local = "unknown" };
	struct sockaddr_storage local = { .ss_family = AF_UNSPEC };
	socklen_t len = sizeof(local);

	if (c->ends || !(c->ends = malloc(sizeof(*c->ends))))
		return c->ends ?: &unknown;
	*c->ends = unknown;
	getsockname(c->fd, (struct sockaddr *)&local, &len);
	end_read(c->ends->local, &c->ends->local_port, &local);
	end_read(c->ends->peer, &c->ends->peer_port, conn_peer(c));
	return c->ends;
}

/* What the log will say of a file, once it is known how much of it was sent. */
struct tbg_unlogged {
	unsigned int status;
	enum tbg_metric_method method;
	uint32_t vhost;
	const char *reason;
	uint64_t body, begin_ns;
	size_t req_len;
	char req[];
};

/* When the request that is answered now began to arrive. */
static uint64_t begin_take(const struct tbg_worker *w, struct tbg_conn *c)
{
	uint64_t ret = c->traffic ? c->traffic->begin_ns : 0;

	if (ret)
		c->traffic->begin_ns = 0;
	return ret ?: w->now_ns;
}

/* Bytes of the answer that is noted now: body of them, and head and framing. */
static uint64_t sent_take(struct tbg_conn *c, uint64_t body)
{
	uint32_t more = c->written - c->noted - (uint32_t)body;

	c->noted = c->written;
	/* of an answer that has not begun, nothing */
	return more > INT32_MAX ? body : body + more;
}

/* Each request once, whichever way it ended: for monitoring, and for the log. */
static void request_note(struct tbg_worker *w, uint32_t vhost,
			 enum tbg_metric_method method, const struct tbg_log_record *r)
{
	tbg_metrics_count(&w->metrics, vhost, method, r->status, r->body, r->took_ns);
	tbg_log_write(w->s->log, r);
}

static void log_held(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_unlogged *u = c->traffic ? c->traffic->unlogged : NULL;
	struct tbg_log_record r = { .remote = c->peer, .tier = TBG_TIER_user };

	if (!u)
		return;
	c->traffic->unlogged = NULL;
	r.req = u->req;
	r.req_len = u->req_len;
	r.status = u->status;
	r.body = u->body - c->traffic->fd_left;
	r.reason = u->reason;
	r.second = time(NULL);
	r.took_ns = tbg_mono_ns() - u->begin_ns;
	r.sent = sent_take(c, r.body);
	request_note(w, u->vhost, u->method, &r);
	free(u);
}

/* What the client has asked for is what the log tells, whoever answered. */
static void asked(const struct tbg_conn *c, const uint8_t **req, size_t *len)
{
	if (!c->traffic || !c->traffic->asked)
		return;
	*req = c->traffic->asked;
	*len = c->traffic->asked_len;
}

/* Its answer is made; the next request has come by itself. */
static void asked_end(struct tbg_conn *c)
{
	if (!c->traffic)
		return;
	free(c->traffic->asked);
	c->traffic->asked = NULL;
	c->traffic->redirects = 0;
}

/* x: which has answered, or NULL. */
static void log_answer(struct tbg_worker *w, struct tbg_conn *c,
		       const uint8_t *req, size_t req_len, unsigned int status,
		       uint64_t body, const char *reason, const struct tbg_transfer *x)
{
	struct tbg_log_record r = { .req = (const char *)req,
		.req_len = req_len, .status = status, .body = body,
		.tier = TBG_TIER_user, .reason = reason };

	if (w->s->log)
		r.remote = conn_peer(c);
	r.second = time(NULL);
	r.took_ns = tbg_mono_ns() - begin_take(w, c);
	r.sent = sent_take(c, body);
	if (x && x->sent_ns && !x->hit) {
		r.upstream = x->upstream->name;
		r.upstream_ns = tbg_mono_ns() - x->sent_ns;
	}
	request_note(w, w->vhost, tbg_metric_method(r.req, req_len), &r);
}

/* As log_answer(), for a body that is about to be sent from a file. */
static void log_hold(struct tbg_worker *w, struct tbg_conn *c,
		     const uint8_t *req, size_t req_len, unsigned int status,
		     uint64_t body, const char *reason)
{
	enum tbg_metric_method method = tbg_metric_method((const char *)req, req_len);
	struct tbg_conn_active *t = traffic_get(c);
	struct tbg_unlogged *u;

	if (!w->s->log)
		req_len = 0;
	u = malloc(sizeof(*u) + req_len);
	if (!t || !u) {
		free(u);
		log_answer(w, c, req, req_len, status, body, reason, NULL);
		return;
	}
	if (w->s->log)
		conn_peer(c);
	*u = (struct tbg_unlogged){ .status = status, .method = method, .vhost = w->vhost,
				    .body = body, .reason = reason,
				    .begin_ns = begin_take(w, c), .req_len = req_len };
	memcpy(u->req, req, req_len);
	t->fd_left = body;
	t->unlogged = u;
}

static void answer_count(struct tbg_worker *w, struct tbg_conn *c,
			 unsigned int status)
{
	tbg_stat_add(&w->stats.requests, 1);
	tbg_stat_add(&w->stats.status[status / 100 % 6], 1);
	c->used = true;
}

/* What a transfer's client has had, if anything, is counted, and goes to the log. */
static void transfer_note(struct tbg_worker *w, struct tbg_conn *c,
			  const struct tbg_transfer *x, bool answered)
{
	const uint8_t *req = (uint8_t *)x->req + x->m.head_off;
	size_t req_len = x->m.len - x->m.head_off;
	unsigned int status = answered ? x->status : STATUS_LEFT;

	answer_count(w, c, status);
	w->vhost = tbg_site_find(w->sites, x->host.text, x->host.len)->id;
	asked(c, &req, &req_len);
	log_answer(w, c, req, req_len, status, x->body_sent,
		   answered ? tbg_transfer_reason(x) : "left", x);
}

/* Back to the small form when nothing is under way. */
static void traffic_trim(struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->traffic;

	if (t && !t->in_len && !t->has_message && !t->in_body && !blocked(c) &&
	    !t->close_after)
		traffic_free(c);
}

void tbg_conn_begin(struct tbg_worker *w, struct tbg_conn *c, int fd)
{
	*c = (struct tbg_conn){ .fd = fd, .slot = -1, .sock = -1,
				.state = TBG_CONN_OPEN, .stamp_ms = w->now_ms };
	if (w->s->sock)
		c->sock = tbg_sock_claim(w->s->sock, fd);
	if (c->sock >= 0) {
		w->by_sock[c->sock] = c;
		tbg_sock_conn(w->s->sock, c->sock)->worker = w->id;
	}
	if (w->s->log)
		conn_peer(c);	/* whoever resets has one in the log all the same */
	/* at once: nothing else makes the kernel look at what has come already */
	tbg_worker_recv(w, c);
}

/* Its counts in sock; NULL: it is not enrolled. */
static struct tbg_sock_conn *sock_of(const struct tbg_worker *w,
				     const struct tbg_conn *c)
{
	return c->sock >= 0 ? tbg_sock_conn(w->s->sock, c->sock) : NULL;
}

/* When it is closed, the client gets a reset, and the socket is gone. */
static void reset_at_close(const struct tbg_conn *c)
{
	struct linger now = { .l_onoff = 1 };

	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

/*
 * Whether bytes have come that nobody will read. TCP resets a connection that is closed
 * so (RFC 9293 3.6.1), but knows nothing of those that sock has handed up: TIME_WAIT
 * would hold its client to the window that they have left, which may be none.
 */
static bool is_unread(const struct tbg_conn *c)
{
	char b;

	return c->sock >= 0 && recv(c->fd, &b, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void conn_release(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->slot >= 0) {
		w->by_slot[c->slot] = NULL;
		tbg_conn_release(w->s->wire, c->slot);
	}
	if (is_unread(c))
		reset_at_close(c);
	close(c->fd);
	if (c->sock >= 0) {
		w->by_sock[c->sock] = NULL;
		tbg_sock_release(w->s->sock, c->sock);
	}
	free(c->peer);
	free(c->ends);
	free(c->taken_from);
	traffic_free(c);
	tbg_worker_conn_free(w, c);
}

/*
 * Whether its socket has still to bring bytes to the client, in numbers that wire has
 * shifted: sent without wire, they would stand at another place. Our FIN is one of `left`.
 */
static bool owes(const struct tbg_worker *w, const struct tbg_conn *c)
{
	struct pollfd p = { .fd = c->fd };
	int left;

	return w->s->wire && !ioctl(c->fd, SIOCOUTQ, &left) && left > 1 &&
	       !(poll(&p, 1, 0) > 0 && p.revents & POLLERR) &&
	       tbg_conn_hit_ns(w->s->wire, c->fd, w->now_ns);
}

/* Whether sock has lost bytes of either direction. */
static bool is_broken(const struct tbg_worker *w, const struct tbg_conn *c)
{
	const struct tbg_sock_conn *s = sock_of(w, c);

	return s && s->flags & TBG_SOCK_BROKEN;
}

static void conn_close(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_transfer *x = c->traffic ? c->traffic->transfer : NULL;

	if (is_broken(w, c))
		reset_at_close(c);
	c->state = TBG_CONN_CLOSING;
	w->out_len = 0;		/* never another connection's */
	log_held(w, c);
	if (x)
		transfer_note(w, c, x, x->told);
	traffic_free(c);
	if (!c->ops) {
		conn_release(w, c);
		return;
	}
	tbg_worker_recv_stop(w, c);
}

void tbg_conn_kill(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->state == TBG_CONN_CLOSING || c->state == TBG_CONN_FREE)
		return;
	if (owes(w, c))		/* it could outlive us */
		reset_at_close(c);
	conn_close(w, c);
}

/* A connection in CLOSING goes when its last operation has ended. */
static bool closing(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->state != TBG_CONN_CLOSING)
		return false;
	if (!c->ops)
		conn_release(w, c);
	return true;
}

/* Our side ends: the client may still be sending, and must not get a reset. */
static void conn_finish(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->eof && !owes(w, c)) {
		conn_close(w, c);
		return;
	}
	shutdown(c->fd, SHUT_WR);
	traffic_free(c);
	c->state = TBG_CONN_LINGER;
	c->stamp_ms = w->now_ms;
	if (!c->receiving && !c->eof)
		tbg_worker_recv(w, c);
}

/* Nothing is under way: it goes, as soon as it owes nothing. */
static void conn_end(struct tbg_worker *w, struct tbg_conn *c)
{
	if (!owes(w, c))
		conn_close(w, c);
	else if (c->state == TBG_CONN_OPEN)
		conn_finish(w, c);
}

/*
 * A connection that ends with its answer is never idle again: wire could take
 * a request that comes before our FIN.
 */
static void publish(struct tbg_worker *w, struct tbg_conn *c, uint32_t taken,
		    uint32_t written)
{
	if (c->traffic && c->traffic->close_after)
		return;
	if (c->slot >= 0)
		tbg_conn_publish(&w->s->maps->conns[c->slot].word, taken, written);
	if (c->sock >= 0)
		tbg_conn_publish(&sock_of(w, c)->word, taken, written);
}

/* Nothing waits to be sent, perhaps: the kernel tiers may go on. */
static void kernel_resume(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->state != TBG_CONN_OPEN || blocked(c) || w->out_len)
		return;
	publish(w, c, c->taken, c->written);
	if (c->shut)
		tbg_sock_reopen(sock_of(w, c));
	c->shut = false;
}

/* A line now and then. */
static void output_report(const struct tbg_worker *w)
{
	static _Atomic uint64_t said_ns;
	uint64_t was_ns = said_ns;

	if ((!was_ns || w->now_ns - was_ns >= SAY_NS) &&
	    atomic_compare_exchange_strong(&said_ns, &was_ns, w->now_ns))
		tbg_report("toboggand: answers that clients do not take have used up an eighth of the memory budget; the slowest clients are cut off: raise --memory, or lower --send-timeout");
}

/* Clients that have taken nothing for the longest make room for what another one holds. */
static bool out_room(struct tbg_worker *w, struct tbg_conn *c, size_t bytes)
{
	struct tbg_conn *slowest;

	while (!tbg_output_hold(bytes)) {
		slowest = tbg_worker_oldest(w, c, tbg_conn_holds);
		tbg_stat_add(&w->stats.timeouts, 1);
		output_report(w);
		if (!slowest)
			return false;
		tbg_conn_kill(w, slowest);
	}
	return true;
}

/* Keeps what the socket did not take, from iov[] at off, behind what is kept. */
static bool out_keep(struct tbg_worker *w, struct tbg_conn *c, const struct iovec *iov,
		     int nr, size_t off)
{
	struct tbg_conn_active *t = traffic_get(c);
	size_t len = t && t->out ? t->out_len : 0, more;
	uint8_t *out;

	for (int i = 0; i < nr; i++)
		len += iov[i].iov_len;
	more = len - off - (t && t->out ? t->out_len : 0);
	if (!t || !out_room(w, c, more))
		return false;
	out = realloc(t->out, len - off);
	if (!out) {
		tbg_output_hold(-(int64_t)more);
		return false;
	}
	if (!t->out)
		t->out_len = t->out_off = 0;
	t->out = out;
	for (int i = 0; i < nr; i++) {
		size_t skip = off < iov[i].iov_len ? off : iov[i].iov_len;

		if (skip < iov[i].iov_len)	/* an empty one may have no address */
			memcpy(t->out + t->out_len, (char *)iov[i].iov_base + skip,
			       iov[i].iov_len - skip);
		t->out_len += iov[i].iov_len - skip;
		off -= skip;
	}
	return true;
}

static bool would_block(int err)
{
	return err == EAGAIN || err == EWOULDBLOCK || err == EINTR ||
	       err == ENOBUFS;
}

/* Sends the worker's buffer and body behind it. False: the connection broke. */
static bool flush_with(struct tbg_worker *w, struct tbg_conn *c,
		       const void *body, size_t body_len, int flags)
{
	struct iovec iov[2] = { { w->out, w->out_len }, { (void *)body, body_len } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = body_len ? 2 : 1 };
	size_t len = w->out_len + body_len;
	ssize_t n;

	if (!len)
		return true;
	w->out_len = 0;
	publish(w, c, c->taken, c->written);
	flags |= MSG_DONTWAIT | MSG_NOSIGNAL;
	if (c->traffic && c->traffic->out)
		n = 0;			/* a redirect's: behind the answers before */
	else if (body_len)
		n = sendmsg(c->fd, &m, flags);
	else
		n = send(c->fd, iov[0].iov_base, len, flags);
	if (n == (ssize_t)len) {
		tbg_stat_add(&w->stats.bytes_sent, len);
		return true;
	}
	if (n < 0 && !would_block(errno)) {
		tbg_conn_kill(w, c);
		return false;
	}
	if (n < 0)
		n = 0;
	tbg_stat_add(&w->stats.bytes_sent, n);
	if (!out_keep(w, c, iov, 2, n)) {
		tbg_conn_kill(w, c);
		return false;
	}
	tbg_worker_poll(w, c);
	return true;
}

/* Queues a body behind its head. False: the connection broke. */
static bool body_add(struct tbg_worker *w, struct tbg_conn *c, const void *b,
		    size_t len)
{
	c->written += len;
	if (len > BODY_COPY_MAX)
		return flush_with(w, c, b, len, 0);
	memcpy(w->out + w->out_len, b, len);
	w->out_len += len;
	return true;
}

/*
 * A part of an object, as it lies in the cache but for Date, the tier's name
 * and the Connection line. False: the connection broke.
 */
static bool object_put(struct tbg_worker *w, struct tbg_conn *c,
		       const struct tbg_object *o, enum tbg_part_id id,
		       enum tbg_persist persist)
{
	const struct tbg_blob *blob = o->blob;
	const struct tbg_part *p = &blob->part[id];
	uint32_t head_len = id == TBG_PART_GET ? blob->part[TBG_PART_HEAD].len : p->len;
	char *at = (char *)w->out + w->out_len;
	const char *line = tbg_persist_line(persist);
	uint32_t body_len = p->len - head_len;

	memcpy(at, blob->data + p->off, head_len);
	memcpy(at + p->date_off, w->date, TBG_DATE_LEN);
	memcpy(at + p->tier_off, "user", 4);
	if (persist != TBG_PERSIST) {
		size_t len = strlen(line);

		memcpy(at + head_len - 2, line, len);
		memcpy(at + head_len - 2 + len, "\r\n", 2);
		head_len += len;
	}
	w->out_len += head_len;
	c->written += head_len;
	tbg_stat_add(&w->stats.hits, 1);
	return !body_len || body_add(w, c, blob->data + p->off + p->len - body_len,
				    body_len);
}

/* The socket's turn for a file: 1 done, 0 later, -1 the connection broke. */
static int file_send(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->traffic;

	uint64_t until_ns = tbg_mono_ns() + TURN_SEND_NS;

	for (int i = 0; t->fd_left && (!i || tbg_mono_ns() < until_ns); i++) {
		bool last = t->fd_left <= SLICE_BYTES;
		size_t want = last ? t->fd_left : SLICE_BYTES;
		off64_t off = t->fd_off;
		ssize_t n;

		/* "complete" must not be said of two versions */
		if (last && tbg_file_rewritten(w->s->roots, t->fd, &t->fd_version))
			return -1;
		if (last && !t->parts)
			publish(w, c, c->taken + t->fd_taken,
				c->written + (uint32_t)t->fd_left);
		n = sendfile64(c->fd, t->fd, &off, want);
		if (n < 0 && would_block(errno))
			return 0;
		if (n <= 0)		/* broken, or the file has shrunk */
			return -1;
		t->fd_off += n;
		t->fd_left -= n;
		c->written += n;
		c->stamp_ms = w->now_ms;
		tbg_stat_add(&w->stats.bytes_sent, n);
		if ((size_t)n < want)
			return t->fd_left ? 0 : 1;
	}
	return !t->fd_left;
}

/* What comes next of several parts, sent. False: the connection broke. */
static bool parts_send(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->traffic;
	uint32_t room = TBG_OUT_BYTES - w->out_len;
	struct tbg_range piece;
	ssize_t n = tbg_parts_read(t->parts, w->out + w->out_len,
				   room < PARTS_BYTES ? room : PARTS_BYTES, &piece);

	/* short parts are complete without file_send(), which asks this too */
	if (n < 0 || (t->fd >= 0 && tbg_file_rewritten(w->s->roots, t->fd, &t->fd_version)))
		return false;
	w->out_len += n;
	c->written += n;
	c->stamp_ms = w->now_ms;
	t->fd_off = piece.first;
	t->fd_left = piece.len;
	if (!t->parts->ended)
		return flush_with(w, c, NULL, 0, MSG_MORE);
	tbg_parts_free(t->parts);
	t->parts = NULL;
	c->taken += t->fd_taken;
	t->fd_taken = 0;
	return flush_with(w, c, NULL, 0, 0);
}

/* What is behind the head: 1 done, 0 later, -1 the connection broke. */
static int rest_send(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->traffic;
	int r = t->fd_left ? file_send(w, c) : 1;

	for (int i = 0; r > 0 && t->parts; i++) {
		if (i == ROUNDS_MAX)
			return 0;
		if (!parts_send(w, c))
			return -1;
		if (t->out)
			return 0;
		if (t->fd_left)
			r = file_send(w, c);
	}
	return r;
}

static void rest_done(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->traffic;

	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
	tbg_file_version_end(&t->fd_version);
	c->taken += t->fd_taken;
	t->fd_taken = 0;
	log_held(w, c);
}

/* Starts the file or the parts of w->answer behind the head that is queued. */
static bool rest_begin(struct tbg_worker *w, struct tbg_conn *c, uint32_t taken)
{
	struct tbg_answer *a = &w->answer;
	struct tbg_conn_active *t;
	int r;

	if (!a->parts && !flush_with(w, c, NULL, 0, MSG_MORE))
		return false;
	t = traffic_get(c);
	if (!t) {
		tbg_conn_kill(w, c);
		return false;
	}
	t->fd = a->fd;
	a->fd = -1;
	t->fd_off = a->fd_off;
	t->fd_left = a->fd_len;
	t->fd_version = a->fd_version;
	a->fd_version.name = NULL;
	if (t->fd >= 0)
		tbg_file_mark(t->fd, &t->fd_version);
	t->parts = a->parts;
	a->parts = NULL;
	t->fd_taken = taken;
	if (t->out)
		return true;
	r = rest_send(w, c);
	if (r < 0) {
		tbg_conn_kill(w, c);
		return false;
	}
	if (r)
		rest_done(w, c);
	else
		tbg_worker_poll(w, c);
	return true;
}

/* The head of an answer that is not as the cache has it; false: too long. */
static bool head_put(struct tbg_worker *w, struct tbg_conn *c,
		     const struct tbg_answer *a)
{
	char *at = (char *)w->out + w->out_len;
	struct tbg_head_at where = { 0 };
	int n;

	if (a->hit)
		n = tbg_reply_partial((const char *)a->object->blob->data,
				      a->object->blob->part[TBG_PART_HEAD].len,
				      &a->reply, w->date, at, TBG_HEAD_MAX);
	else
		n = tbg_reply_head(&a->reply, w->date, at, TBG_HEAD_MAX, &where);
	if (n < 0)
		return false;
	if (a->hit)
		tbg_stat_add(&w->stats.hits, 1);
	if (where.tier_off)
		memcpy(at + where.tier_off, "user", 4);
	w->out_len += n;
	c->written += n;
	return true;
}

/* w->answer, to the request whose bytes are req. False: stop. */
static bool answer_put(struct tbg_worker *w, struct tbg_conn *c, uint32_t taken,
		       const uint8_t *req, size_t req_len)
{
	struct tbg_answer *a = &w->answer;
	enum tbg_persist persist = a->reply.persist;
	bool rest = a->parts || (a->fd >= 0 && a->fd_len);
	const char *reason = a->reason ?:
		tbg_cache_word(a->hit ? TBG_CACHE_HIT : a->reply.cache);
	uint64_t body = a->parts ? a->parts->len : rest ? a->fd_len : a->body_len;
	bool ok;

	if (persist == TBG_PERSIST_NOT && traffic_get(c))
		c->traffic->close_after = true;
	/* a large body is sent, and the counts published, within body_add() */
	if (!rest)
		c->taken += taken;
	if (a->hit && !a->partial) {
		const struct tbg_part *p = &a->object->blob->part[a->part];

		ok = object_put(w, c, a->object, a->part, persist);
		body = a->part == TBG_PART_GET ?
		       p->len - a->object->blob->part[TBG_PART_HEAD].len : 0;
	} else if (head_put(w, c, a)) {
		ok = !a->body_len || body_add(w, c, a->body, a->body_len);
	} else {
		tbg_conn_kill(w, c);
		return false;
	}
	if (!ok)
		return false;
	answer_count(w, c, a->reply.status);
	asked(c, &req, &req_len);
	if (rest && !a->parts)
		log_hold(w, c, req, req_len, a->reply.status, body, reason);
	else
		log_answer(w, c, req, req_len, a->reply.status, body, reason, NULL);
	asked_end(c);
	return !rest || rest_begin(w, c, taken);
}

/* After answers: send, or end the connection if that is what they said. */
static void conn_settle(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->state != TBG_CONN_OPEN || !flush_with(w, c, NULL, 0, 0))
		return;
	if (blocked(c) || turn_over(c))
		return;
	if (c->eof || (c->traffic && c->traffic->close_after))
		conn_finish(w, c);
}

/* Fields of a request, out of its head at b, and the memory of those joined. */
struct fields {
	const uint8_t *b;
	const struct tbg_message *m;
	char *joined[3];
	unsigned int joined_nr;
};

/* A field that may stand once: twice it is as good as none. */
static struct tbg_value field_one(const struct fields *f, struct tbg_text t,
				  bool many)
{
	return t.off && !many ? (struct tbg_value){ (const char *)f->b + t.off, t.len }
			      : (struct tbg_value){ 0 };
}

/* A list, which may stand on several lines. Without memory: one of nothing. */
static struct tbg_value field_list(struct fields *f, struct tbg_text t,
				   bool many, const char *name)
{
	uint32_t len = f->m->len - f->m->head_off;
	char *joined;

	if (!many)
		return field_one(f, t, false);
	joined = malloc(len);
	if (!joined)
		return (struct tbg_value){ "", 0 };
	f->joined[f->joined_nr++] = joined;
	return (struct tbg_value){ joined, tbg_message_list(f->b + f->m->head_off,
							    len, name, joined, len) };
}

static void fields_take(struct fields *f, struct tbg_ask *ask)
{
	const struct tbg_message *m = f->m;

	ask->conditions = (struct tbg_conditions){
		.if_match = field_list(f, m->im, m->im_many, "If-Match"),
		.if_unmodified_since = field_one(f, m->ius, m->ius_many),
		.if_none_match = field_list(f, m->inm, m->inm_many, "If-None-Match"),
		.if_modified_since = field_one(f, m->ims, m->ims_many),
	};
	ask->accept_encoding = field_list(f, m->ae, m->ae_many, "Accept-Encoding");
	ask->range = field_one(f, m->range, m->range_many);
	ask->if_range = field_one(f, m->if_range, m->if_range_many);
	if (m->if_range_many)		/* matches nothing */
		ask->if_range = (struct tbg_value){ "", 0 };
}

static enum tbg_persist persist_of(const struct tbg_worker *w,
				   const struct tbg_message *m)
{
	if (m->close || w->draining)
		return TBG_PERSIST_NOT;
	return m->minor ? TBG_PERSIST : TBG_PERSIST_OLD;
}

static const struct tbg_site *site_of(struct tbg_worker *w, const struct tbg_message *m,
				      const uint8_t *b)
{
	const struct tbg_site *ret =
		tbg_site_find(w->sites, m->host.off ? (const char *)b + m->host.off :
			      NULL, m->host.len);

	w->vhost = ret->id;
	return ret;
}

/* Keeps the head of a request until its answer can be made. */
static bool head_hold(struct tbg_conn_active *t, const struct tbg_message *m, const uint8_t *b)
{
	uint8_t *held = t ? malloc(m->len) : NULL;

	if (!held)
		return false;
	memcpy(held, b, m->len);
	free(t->held);
	t->held = held;
	t->held_len = m->len;
	return true;
}

/* What w->answer needs first is made aside; then tbg_conn_made(). False: no memory. */
static bool aside_begin(struct tbg_worker *w, struct tbg_conn *c, const struct tbg_message *m,
			const uint8_t *b, uint32_t taken)
{
	struct tbg_conn_active *t = traffic_get(c);
	struct tbg_aside_task *task = NULL;

	if (head_hold(t, m, b))
		task = tbg_aside_begin(w->s->aside, w, c, &w->answer.want);
	if (!task) {
		tbg_want_free(&w->answer.want);
		tbg_conn_kill(w, c);
		return false;
	}
	if (t->aside)
		tbg_aside_leave(t->aside);
	t->aside = task;
	t->aside_taken = taken;
	t->asides++;
	t->begin_ns = t->begin_ns ?: w->now_ns;
	return true;
}

/* The request m, whose head is at b; its path is in w->path. */
static bool request_answer(struct tbg_worker *w, struct tbg_conn *c,
			   const struct tbg_message *m, const uint8_t *b,
			   uint32_t taken, bool missed)
{
	struct tbg_conn_active *t = c->traffic;
	struct tbg_ask ask = {
		.may_wait = !t || t->asides < ASIDES_MAX,
		.made = t && t->aside ? tbg_aside_made(t->aside) : NULL,
		.method = m->method,
		.expect_other = m->expect_other, .missed = missed,
		.persist = persist_of(w, m),
		.path = w->path, .path_len = m->path_len,
		.query = m->has_query ? (const char *)b + m->query.off : NULL,
		.query_len = m->query.len,
		.site = site_of(w, m, b),
	};
	struct fields fields = { .b = b, .m = m };
	bool ok;

	fields_take(&fields, &ask);
	tbg_route(w->s, &ask, &w->answer);
	while (fields.joined_nr)
		free(fields.joined[--fields.joined_nr]);
	if (w->answer.want.kind != TBG_WANT_NOTHING)
		return aside_begin(w, c, m, b, taken);
	ok = answer_put(w, c, taken, b + m->head_off, m->len - m->head_off);
	tbg_answer_done(&w->answer);
	return ok;
}

/* As far as it has come, whether it asks for a head alone (RFC 9110 9.3.2). */
static bool head_wanted(const uint8_t *b, size_t len)
{
	static const char method[] = "HEAD ";
	size_t at = 0;

	while (at < len && (b[at] == '\r' || b[at] == '\n'))	/* RFC 9112 2.2 */
		at++;
	return len - at >= strlen(method) && !memcmp(b + at, method, strlen(method));
}

/*
 * An error in place of an answer, with the page of a location; NULL: its host is
 * not known, so the page is the default site's.
 */
static bool error_put(struct tbg_worker *w, struct tbg_conn *c,
		      unsigned int status, const struct tbg_location *location,
		      const uint8_t *b, size_t len)
{
	bool ok;

	location = location ?: tbg_location_find(w->sites->fallback, "/", 1);
	w->vhost = location->site->id;
	tbg_answer_error(&w->answer, status, TBG_PERSIST_NOT);
	w->answer.reason = "refused";
	tbg_pages_error(w->s, location, &w->answer);
	if (head_wanted(b, len))
		w->answer.body_len = 0;
	ok = answer_put(w, c, 0, b, len);
	tbg_answer_done(&w->answer);
	return ok;
}

/* A refusal, after which nothing of the stream can be relied on. */
static bool request_refuse(struct tbg_worker *w, struct tbg_conn *c,
			   unsigned int status, const struct tbg_location *location,
			   const uint8_t *b, size_t len)
{
	tbg_stat_add(&w->stats.bad, 1);
	return error_put(w, c, status, location, b, len);
}

/* Of a request whose path is in w->path. */
static const struct tbg_location *location_of(struct tbg_worker *w,
					      const struct tbg_message *m,
					      const uint8_t *b)
{
	return tbg_location_find(site_of(w, m, b), w->path, m->path_len);
}

/* Of the request whose body is coming; NULL: it is none any more, since a reload. */
static const struct tbg_location *location_held(struct tbg_worker *w,
						const struct tbg_conn_active *t)
{
	struct tbg_message m = { 0 };

	return tbg_message_parse(&m, t->held, t->held_len, t->held_len + 1,
				 w->path) == TBG_PARSED_DONE ?
	       location_of(w, &m, t->held) : NULL;
}

/* Whether the message has a body that must be passed over before answering. */
static bool body_follows(const struct tbg_message *m)
{
	return m->chunked || m->content_length;
}

/* Whose handler answers the request, if not files; e->location: its path's. */
static bool handed_over(const struct tbg_worker *w, const struct tbg_message *m,
			struct tbg_transfer_request *e)
{
	const struct tbg_location *other;

	if (tbg_route_hands_over(e->location, m))
		return true;
	other = tbg_route_index(w->s, e->location, w->path, m->path_len, &e->index);
	if (!other || !tbg_route_hands_over(other, m))
		return false;
	e->location = other;
	return true;
}

/* Its answer comes from behind; the bytes behind its head are the transfer's. */
static bool transfer_begin(struct tbg_worker *w, struct tbg_conn *c,
			   const struct tbg_message *m, const void *b,
			   const struct tbg_transfer_request *e)
{
	struct tbg_conn_active *t = traffic_get(c);

	if (t) {
		t->begin_ns = t->begin_ns ?: w->now_ns;
		if (tbg_transfer_start(w, c, m, b, e))
			return c->state == TBG_CONN_OPEN;
	}
	tbg_conn_kill(w, c);
	return false;
}

static bool body_hold(struct tbg_worker *w, struct tbg_conn *c,
		      const struct tbg_message *m, const uint8_t *b,
		      uint64_t body_max)
{
	struct tbg_conn_active *t = traffic_get(c);

	if (!head_hold(t, m, b))
		return false;
	t->body_max = body_max;
	t->begin_ns = t->begin_ns ?: w->now_ns;
	t->in_body = true;
	t->body_len = t->body_taken = 0;
	tbg_body_decoder_begin_request(&t->body, m);
	return true;
}

/*
 * Told whether or not the body is on its way already (RFC 9110 10.1.1 would
 * let us keep it back then): the answer must not depend on how bytes arrive.
 */
static void continue_put(struct tbg_worker *w, struct tbg_conn *c)
{
	static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";

	memcpy(w->out + w->out_len, line, sizeof(line) - 1);
	w->out_len += sizeof(line) - 1;
	c->written += sizeof(line) - 1;
}

/* A whole head at b. False: stop. */
static bool head_done(struct tbg_worker *w, struct tbg_conn *c,
		      struct tbg_message *m, const uint8_t *b, bool missed)
{
	const struct tbg_location *location = location_of(w, m, b);
	struct tbg_transfer_request e = { .location = location, .persist = persist_of(w, m),
				.taken = m->len };

	if (handed_over(w, m, &e))
		return m->raw_target ? request_refuse(w, c, 400, location, b, m->len) :
				       transfer_begin(w, c, m, b, &e);
	if (!body_follows(m))
		return request_answer(w, c, m, b, m->len, missed);
	if (m->content_length > location->body_max)
		return request_refuse(w, c, 413, location, b, m->len);
	if (m->expect_other || (m->expect_continue && !tbg_route_takes(m->method))) {
		m->close = true;	/* the client may never send its body */
		return request_answer(w, c, m, b, m->len, missed);
	}
	if (m->expect_continue)
		continue_put(w, c);
	if (body_hold(w, c, m, b, location->body_max))
		return true;
	tbg_conn_kill(w, c);
	return false;
}

/* Bytes of a body; *ret_used of them are eaten. False: stop. */
static bool body_eat(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *b,
		     size_t len, size_t *ret_used)
{
	struct tbg_conn_active *t = c->traffic;
	struct tbg_message m = { 0 };
	size_t content;
	enum tbg_parsed p = tbg_body_decoder_skip(&t->body, b, len, ret_used, &content);
	uint8_t *held;
	uint32_t taken;
	bool ok;

	c->stamp_ms = w->now_ms;
	t->body_taken += *ret_used;
	t->body_len += content;
	if (p == TBG_PARSED_BAD)
		return request_refuse(w, c, 400, location_held(w, t), t->held, t->held_len);
	if (tbg_body_exceeds(t->body_len, tbg_body_decoder_comes(&t->body), t->body_max))
		return request_refuse(w, c, 413, location_held(w, t), t->held, t->held_len);
	if (p == TBG_PARSED_MORE)
		return true;
	t->in_body = false;
	held = t->held;
	taken = t->held_len + t->body_taken;
	t->held = NULL;
	/* it was whole: a reload may have lowered the limit since */
	p = tbg_message_parse(&m, held, t->held_len, t->held_len + 1, w->path);
	ok = p == TBG_PARSED_DONE ? request_answer(w, c, &m, held, taken, false) :
				    request_refuse(w, c, 400, NULL, held, t->held_len);
	free(held);
	return ok;
}

/*
 * The fast grammar on exactly one whole request, answered from the cache.
 * *ret_missed: it is not there.
 */
static bool fast_answer(struct tbg_worker *w, struct tbg_conn *c,
			const uint8_t *b, size_t len, bool *ret_missed)
{
	const struct tbg_head *h = (const struct tbg_head *)b;
	const struct tbg_server *s = w->s;
	const struct tbg_site *site;
	struct tbg_object *o;
	struct tbg_path path;
	struct tbg_req req = { 0 };
	struct tbg_scan scan;
	struct tbg_key key;
	unsigned int have;
	int part, encoding;

	if (!w->sites->files || tbg_request_parse(h, &scan, len, &req) ||
	    tbg_path_load(h, req.path_off, req.path_len, &path))
		return false;
	site = tbg_site_find(w->sites, (const char *)b + req.host_off, req.host_len);
	w->vhost = site->id;
	tbg_key_make((const __u64 *)tbg_cache_hash_key(s->cache), site->id,
		     &path, req.path_len, &key);
	o = tbg_route_find(s, &key, site->id, (const char *)b + req.path_off,
			   req.path_len, w->now_ns);
	if (!o) {
		*ret_missed = true;
		return false;
	}
	have = atomic_load_explicit(&o->variants, memory_order_relaxed);
	if (have && req.ae_len) {
		encoding = tbg_encoding_choose(h, req.ae_off, req.ae_len, have);
		if (encoding)
			o = tbg_route_variant(s, &key, o, encoding, w->now_ns);
		if (!o)
			return false;
	}
	part = req.flags & TBG_REQ_HEAD ? TBG_PART_HEAD : TBG_PART_GET;
	if (req.inm_len || req.ims_len) {
		int status = tbg_condition(h, &req, (const __u8 *)o->etag,
					   o->etag_len, o->modified_s);

		if (status < 0) {
			tbg_object_put(o);
			return false;
		}
		if (status == 304)
			part = TBG_PART_304;
	}
	c->taken += len;	/* before object_put(), which may publish it */
	if (object_put(w, c, o, part, TBG_PERSIST)) {
		answer_count(w, c, o->blob->part[part].status);
		log_answer(w, c, b, len, o->blob->part[part].status,
			   part == TBG_PART_GET ? o->blob->part[part].len -
			   o->blob->part[TBG_PART_HEAD].len : 0,
			   tbg_cache_word(TBG_CACHE_HIT), NULL);
	}
	tbg_object_put(o);
	return true;
}

/* One head, or as much of it as is there. False: no more can be eaten now. */
static bool head_eat(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *b,
		     size_t len, bool missed, size_t *ret_used)
{
	struct tbg_conn_active *t = c->traffic;
	bool resumed = t && t->has_message;
	bool begun = resumed && tbg_message_begun(&t->message);
	struct tbg_message m = { 0 };
	enum tbg_parsed p;

	*ret_used = 0;
	if (resumed)
		m = t->message;
	if (resumed && !begun)
		t->begin_ns = w->now_ns;
	p = tbg_message_parse(&m, b, len, tbg_option_now(&w->s->opt.header_max), w->path);
	if (p == TBG_PARSED_DONE && resumed) {
		/*
		 * w->path is the last line's that any connection sent: again, and
		 * as a reload since may have it.
		 */
		m = (struct tbg_message){ 0 };
		p = tbg_message_parse(&m, b, len, tbg_option_now(&w->s->opt.header_max), w->path);
	}
	if (p == TBG_PARSED_MORE) {
		t = traffic_get(c);
		if (!t) {
			tbg_conn_kill(w, c);
			return false;
		}
		if (!begun) {
			c->stamp_ms = w->now_ms;
			t->begin_ns = w->now_ns;
		}
		t->message = m;
		t->has_message = true;
		return false;
	}
	if (t)
		t->has_message = false;
	if (p == TBG_PARSED_BAD) {
		*ret_used = len;
		return request_refuse(w, c, m.status, NULL, b, len);
	}
	*ret_used = m.len;
	return head_done(w, c, &m, b, missed);
}

static bool may_eat(const struct tbg_conn *c)
{
	return c->state == TBG_CONN_OPEN && !blocked(c) && !turn_over(c) &&
	       !(c->traffic && c->traffic->close_after);
}

/*
 * Whether it is others' turn, once a request has been dealt with. The first look at the
 * clock is behind that, which alone may have taken as long.
 */
static bool turn_ends(struct tbg_worker *w, struct tbg_conn *c, uint64_t *until_ns)
{
	uint64_t now_ns = tbg_mono_ns();
	struct tbg_conn_active *t;

	if (!*until_ns)
		*until_ns = now_ns + TURN_NS;
	if (now_ns < *until_ns)
		return false;
	t = traffic_get(c);
	if (t)
		t->turn_over = true;
	else
		tbg_conn_kill(w, c);
	return true;
}

/*
 * Deals with as many requests as len bytes hold; how many bytes are done
 * with. fast: the fast grammar may read TBG_REQ_SLACK bytes beyond.
 */
static size_t conn_eat(struct tbg_worker *w, struct tbg_conn *c,
		       const uint8_t *b, size_t len, bool fast)
{
	uint64_t until_ns = 0;
	size_t at = 0, used;

	while (at < len && may_eat(c)) {
		struct tbg_conn_active *t = c->traffic;
		bool missed = false;

		if (at && turn_ends(w, c, &until_ns))
			break;
		if (w->out_len > OUT_FLUSH) {
			if (!flush_with(w, c, NULL, 0, 0))
				break;
			continue;
		}
		if (t && t->in_body) {
			if (!body_eat(w, c, b + at, len - at, &used))
				break;
			at += used;
			continue;
		}
		if (fast && !(t && t->has_message) && !w->draining &&
		    fast_answer(w, c, b + at, len - at, &missed)) {
			at = len;
			break;
		}
		if (!head_eat(w, c, b + at, len - at, missed, &used)) {
			at += used;
			break;
		}
		at += used;
	}
	return at;
}

/* Appends to what waits to be eaten. */
static bool in_add(struct tbg_conn *c, const uint8_t *b, size_t len)
{
	struct tbg_conn_active *t = traffic_get(c);

	if (!t)
		return false;
	if (t->in_len + len > t->in_room) {
		size_t room = t->in_len + len + 1024;
		uint8_t *in = realloc(t->in, room);

		if (!in)
			return false;
		t->in = in;
		t->in_room = room;
	}
	memcpy(t->in + t->in_len, b, len);
	t->in_len += len;
	return true;
}

/* Eats what waits; its buffer may go while an answer ends the connection. */
static void in_eat(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->traffic;
	uint8_t *in = t->in;
	uint32_t len = t->in_len, room = t->in_room;
	size_t used;

	t->in = NULL;
	t->in_len = t->in_room = 0;
	used = conn_eat(w, c, in, len, false);
	t = c->traffic;
	if (used < len && c->state == TBG_CONN_OPEN && t && !t->close_after) {
		memmove(in, in + used, len - used);
		t->in = in;
		t->in_len = len - used;
		t->in_room = room;
	} else {
		free(in);
	}
}

/* When its first request comes here, or wire's reply must be taken back. */
void tbg_conn_claim_slot(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->claimed || !w->by_slot || c->state != TBG_CONN_OPEN || tbg_wire_owns(w->s->wire))
		return;
	c->slot = tbg_conn_claim(w->s->wire, c->fd);
	if (c->slot < 0)
		return;
	c->claimed = true;
	w->by_slot[c->slot] = c;
}

/* What the client got can't be made good. */
static void conn_reset(struct tbg_worker *w, struct tbg_conn *c)
{
	reset_at_close(c);
	tbg_conn_kill(w, c);
}

/* A connection that was wire's until now, and may be wire's again. */
static void take_over(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_taken taken;

	if (c->claimed || !w->by_slot || !tbg_wire_owns(w->s->wire) ||
	    tbg_conn_take(w->s->wire, c->fd, &taken))
		return;
	c->used |= !!taken.tcb.answers;
	if (w->s->opt.give_back && c->sock < 0)
		c->taken_from = malloc(sizeof(*c->taken_from));
	if (c->taken_from)
		*c->taken_from = taken;
}

/*
 * Wire answers the request, if it could have answered enough before it, and has the
 * connection again. Only where nothing else is under way on it.
 */
static bool give_back(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *b, uint32_t n)
{
	if (!c->taken_from || c->traffic || w->out_len || atomic_load(&w->s->draining) ||
	    !tbg_conn_give(w->s->wire, c->taken_from, c->fd, c->taken, b, n,
			   w->s->opt.give_back))
		return false;
	conn_close(w, c);
	return true;
}

/*
 * Whatever is at hand of a next request: tbg_yield gives nothing once a byte of
 * its answer is written, be it sent or not. None can be between its word and our
 * send: this thread alone writes to the socket, and never leaves that to the ring.
 */
void tbg_conn_take_back(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_sock_conn *s = sock_of(w, c);
	int n;

	if (c->state != TBG_CONN_OPEN)
		return;
	c->drained = false;
	/* a hit of sock would come to stand where the reply does */
	if (s && !tbg_sock_shut(s)) {
		tbg_sock_reopen(s);
		return;
	}
	c->shut = s;
	n = tbg_yield_take(w->s->maps, c->slot,
			   c->written + (s ? TBG_CONN_WRITTEN(s->hits) : 0),
			   w->out, TBG_OUT_BYTES);
	if (n < 0) {
		conn_reset(w, c);
	} else if (n) {
		w->out_len = n;
		c->written += n;
		flush_with(w, c, NULL, 0, 0);
	}
	kernel_resume(w, c);
}

/* A slow reader's input waits in its socket. */
static bool is_full(const struct tbg_conn *c)
{
	uint32_t most = tbg_output_tight() ? IN_MAX / 8 : IN_MAX;

	return c->traffic && c->traffic->in_len > most && (blocked(c) || turn_over(c));
}

void tbg_conn_recv(struct tbg_worker *w, struct tbg_conn *c)
{
	const struct tbg_sock_conn *s = sock_of(w, c);

	if (c->state == TBG_CONN_OPEN && !c->receiving && !c->eof && !c->waiting &&
	    !is_full(c) && !(s && tbg_sock_rests(s)))
		tbg_worker_recv(w, c);
}

/* Once all that can be eaten is: send, trim, close, or go on receiving. */
static void conn_after(struct tbg_worker *w, struct tbg_conn *c)
{
	conn_settle(w, c);
	if (c->state == TBG_CONN_OPEN && c->traffic && c->traffic->transfer)
		tbg_transfer_input(c->traffic->transfer);
	if (c->state != TBG_CONN_OPEN)
		return;
	if (!blocked(c) && !(c->traffic && c->traffic->has_message))
		c->stamp_ms = w->now_ms;
	kernel_resume(w, c);
	traffic_trim(c);
	if (turn_over(c))
		tbg_worker_turn(w, c);
	if (is_full(c))
		tbg_worker_recv_stop(w, c);
	else
		tbg_conn_recv(w, c);
}

/* An answer is out, or the next one begun. */
static void conn_go_on(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->traffic && c->traffic->in_len && may_eat(c))
		in_eat(w, c);
	conn_after(w, c);
}

void tbg_conn_turn(struct tbg_worker *w, struct tbg_conn *c)
{
	c->traffic->turn_over = false;
	conn_go_on(w, c);
}

/* The request is looked at anew, with what has been made. */
void tbg_conn_made(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->traffic;
	struct tbg_aside_task *task = t->aside;
	struct tbg_message m = { 0 };
	uint8_t *held = t->held;
	uint32_t len = t->held_len;

	t->held = NULL;
	if (tbg_message_parse(&m, held, len, len + 1, w->path) == TBG_PARSED_DONE)
		request_answer(w, c, &m, held, t->aside_taken, true);
	else				/* a reload has lowered its limits */
		request_refuse(w, c, 400, NULL, held, len);
	free(held);
	t = c->traffic;
	if (t && t->aside == task) {
		t->aside = NULL;
		t->asides = 0;
		tbg_aside_leave(task);
	}
	if (c->state != TBG_CONN_OPEN)
		return;
	c->stamp_ms = w->now_ms;
	conn_go_on(w, c);
}

/* For transfers */

/* Small ones are cheaper copied, and sent as one: w->out is empty. */
static ssize_t iov_send(struct tbg_worker *w, int fd, struct iovec *iov, int nr,
			size_t len)
{
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = nr };
	uint8_t *at = w->out;

	if (nr == 1)
		return send(fd, iov->iov_base, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (len > BODY_COPY_MAX)
		return sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	for (int i = 0; i < nr; i++) {
		memcpy(at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	return send(fd, w->out, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t tbg_conn_write(struct tbg_worker *w, struct tbg_conn *c,
		       struct iovec *iov, int nr, size_t len, bool last,
		       uint32_t taken)
{
	ssize_t n;

	if (!flush_with(w, c, NULL, 0, MSG_MORE))
		return -EPIPE;
	if (c->traffic->out) {		/* an earlier answer is still on its way */
		tbg_worker_poll(w, c);
		return -EAGAIN;
	}
	if (last)
		publish(w, c, c->taken + taken, c->written + (uint32_t)len);
	n = iov_send(w, c->fd, iov, nr, len);
	if (n < 0 && would_block(errno)) {
		tbg_worker_poll(w, c);
		return -EAGAIN;
	}
	if (n < 0)
		return -EPIPE;
	c->written += n;
	c->stamp_ms = w->now_ms;
	tbg_stat_add(&w->stats.bytes_sent, n);
	return n;
}

void tbg_conn_answered(struct tbg_worker *w, struct tbg_conn *c,
		       struct tbg_transfer *x)
{
	c->traffic->transfer = NULL;
	c->taken += x->taken;
	c->stamp_ms = w->now_ms;
	transfer_note(w, c, x, true);
	asked_end(c);
	if (x->starting)
		return;			/* conn_eat() goes on */
	conn_go_on(w, c);
}

static bool asked_keep(struct tbg_conn_active *t, const struct tbg_transfer *x)
{
	if (t->redirects++)
		return true;
	t->asked_len = x->m.len - x->m.head_off;
	t->asked = malloc(t->asked_len);
	if (!t->asked)
		return false;
	memcpy(t->asked, x->req + x->m.head_off, t->asked_len);
	return true;
}

unsigned int tbg_conn_redirect(struct tbg_worker *w, struct tbg_conn *c,
			       struct tbg_transfer *x, const struct tbg_lines *head)
{
	const uint8_t *b = (const uint8_t *)head->text;
	struct tbg_conn_active *t = c->traffic;
	struct tbg_message m = { 0 };
	struct tbg_transfer_request e;

	if (t->redirects == REDIRECTS_MAX)
		return 500;
	if (tbg_message_parse(&m, b, head->len, head->len + 1, w->path) != TBG_PARSED_DONE)
		return 502;
	if (!asked_keep(t, x))
		return 503;
	t->transfer = NULL;
	x->c = NULL;
	e = (struct tbg_transfer_request){ .location = location_of(w, &m, b),
				 .persist = persist_of(w, &m), .taken = x->taken };
	if (!handed_over(w, &m, &e))
		request_answer(w, c, &m, b, x->taken, false);
	else if (m.raw_target)
		request_refuse(w, c, 502, e.location, b, m.len);
	else
		transfer_begin(w, c, &m, b, &e);
	conn_go_on(w, c);
	return 0;
}

uint8_t *tbg_conn_input_take(struct tbg_conn *c, uint32_t *ret_len)
{
	struct tbg_conn_active *t = c->traffic;
	uint8_t *in = t->in_len ? t->in : NULL;

	if (!in)
		return NULL;
	*ret_len = t->in_len;
	t->in = NULL;
	t->in_len = t->in_room = 0;
	return in;
}

bool tbg_conn_input_back(struct tbg_conn *c, const uint8_t *b, size_t len)
{
	struct tbg_conn_active *t = c->traffic;

	if (!len || !in_add(c, b, len))
		return !len;
	memmove(t->in + len, t->in, t->in_len - len);	/* it came before that */
	memcpy(t->in, b, len);
	return true;
}

void tbg_conn_input_more(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->state == TBG_CONN_OPEN && !c->receiving && !c->eof)
		tbg_worker_recv(w, c);
}

void tbg_conn_receive(struct tbg_worker *w, struct tbg_conn *c,
		      const uint8_t *b, uint32_t n)
{
	struct tbg_conn_active *t = c->traffic;
	size_t used;

	if (c->state != TBG_CONN_OPEN) {
		closing(w, c);
		return;
	}
	tbg_conn_claim_slot(w, c);
	take_over(w, c);
	if (c->claimed && give_back(w, c, b, n))
		return;
	c->claimed = true;	/* without a flow so far, there will be none */
	if (t && (t->in_len || !may_eat(c))) {
		if (t->transfer)
			c->stamp_ms = w->now_ms;
		if (!in_add(c, b, n))
			tbg_conn_kill(w, c);
		else if (may_eat(c))
			in_eat(w, c);
	} else {
		used = conn_eat(w, c, b, n, true);
		if (used < n && c->state == TBG_CONN_OPEN &&
		    !(c->traffic && c->traffic->close_after) &&
		    !in_add(c, b + used, n - used))
			tbg_conn_kill(w, c);
	}
	conn_after(w, c);
}

/*
 * An end that has overtaken data: the kernel tells it as soon as nothing is
 * left to be read, even if more is queued behind hits that are on their way.
 */
static bool eof_is_early(struct tbg_worker *w, struct tbg_conn *c)
{
	const struct tbg_sock_conn *s = sock_of(w, c);

	return s && c->state == TBG_CONN_OPEN && !is_broken(w, c) &&
	       tbg_sock_owes(s);
}

void tbg_conn_again(struct tbg_worker *w, struct tbg_conn *c)
{
	if (!closing(w, c) && !c->receiving && !c->eof)
		tbg_worker_recv(w, c);
}

void tbg_conn_eof(struct tbg_worker *w, struct tbg_conn *c)
{
	if (eof_is_early(w, c)) {
		tbg_worker_wait(w, c);
		return;
	}
	c->eof = true;
	if (closing(w, c))
		return;
	if (c->state == TBG_CONN_OPEN && (blocked(c) || turn_over(c))) {
		c->stamp_ms = w->now_ms;
		if (c->traffic->transfer)
			tbg_transfer_input(c->traffic->transfer);
		return;		/* half-closed: it still gets its answers */
	}
	conn_end(w, c);
}

/* Pending output: 1 all out, 0 later, -1 broken. */
static int out_send(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->traffic;
	ssize_t n;

	if (t->out) {
		n = send(c->fd, t->out + t->out_off, t->out_len - t->out_off,
			 MSG_DONTWAIT | MSG_NOSIGNAL |
			 (t->fd_left || t->parts ? MSG_MORE : 0));
		if (n < 0)
			return would_block(errno) ? 0 : -1;
		tbg_stat_add(&w->stats.bytes_sent, n);
		c->stamp_ms = w->now_ms;
		t->out_off += n;
		if (t->out_off < t->out_len)
			return 0;
		out_drop(t);
	}
	return rest_send(w, c);
}

void tbg_conn_writable(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->traffic;
	int r;

	if (closing(w, c) || c->state != TBG_CONN_OPEN || !blocked(c))
		return;
	r = out_send(w, c);
	if (r < 0) {
		tbg_conn_kill(w, c);
		return;
	}
	if (!r) {
		tbg_worker_poll(w, c);
		return;
	}
	rest_done(w, c);
	if (t->transfer) {
		tbg_transfer_writable(t->transfer);
		return;
	}
	if (t->in_len && may_eat(c))
		in_eat(w, c);
	conn_after(w, c);
}

/* Nothing is under way: what has come, if anything, is no request yet. */
static bool is_idle(const struct tbg_conn *c)
{
	const struct tbg_conn_active *t = c->traffic;

	return !t || (t->has_message && !blocked(c) && !tbg_message_begun(&t->message));
}

/* A head, or a body, that does not come. */
static void head_timeout(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->traffic;
	bool ok;

	tbg_stat_add(&w->stats.timeouts, 1);
	if (!t->in_body && (!t->has_message || !t->in_len)) {
		conn_end(w, c);
		return;
	}
	t->has_message = false;
	if (t->in_body)
		ok = error_put(w, c, 408, location_held(w, t), t->held, t->held_len);
	else
		ok = error_put(w, c, 408, NULL, t->in, t->in_len);
	if (ok)
		conn_settle(w, c);
}

static uint64_t ms_ago(const struct tbg_worker *w, uint64_t ns)
{
	return ns < w->now_ns ? (w->now_ns - ns) / 1000000 : 0;
}

/* What BPF has not told: its ring was full, the kernel's worker failed with a hit. */
static bool has_news(const struct tbg_conn *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN | POLLRDHUP };

	return !c->eof && !c->waiting && poll(&p, 1, 0) > 0;
}

/*
 * The kernel tells a reader of whatever comes, also of a hit: on an idle connection
 * that sock has answered, nobody is to be one until there is something to read.
 */
static void rest_check(struct tbg_worker *w, struct tbg_conn *c, uint32_t age_ms)
{
	struct tbg_sock_conn *s = sock_of(w, c);

	if (!s || c->traffic)
		return;
	if (!c->receiving) {
		if (has_news(c))
			tbg_worker_recv(w, c);
	} else if (ms_ago(w, s->seen_ns) < age_ms) {
		tbg_sock_rest(s);
		tbg_worker_recv_stop(w, c);
	}
}

/*
 * The hits of kernel tiers are not seen here: an idle connection may be busy, and
 * one that has asked us for nothing may have had answers. age_ms: since stamp_ms.
 */
static void idle_check(struct tbg_worker *w, struct tbg_conn *c, uint32_t age_ms)
{
	uint64_t seen_ns = w->s->wire ? tbg_conn_hit_ns(w->s->wire, c->fd, w->now_ns) : 0;
	const struct tbg_options *o = &w->s->opt;
	const struct tbg_sock_conn *s = sock_of(w, c);
	uint64_t seen_ago_ms;

	if (s && s->seen_ns > seen_ns)
		seen_ns = s->seen_ns;
	seen_ago_ms = ms_ago(w, seen_ns);
	if (seen_ns)
		c->used = true;
	if (seen_ago_ms < age_ms) {
		age_ms = seen_ago_ms;
		c->stamp_ms = w->now_ms - age_ms;
	}
	if (age_ms <= (c->used ? o->idle_ms : o->header_ms))
		return;
	tbg_stat_add(&w->stats.timeouts, 1);
	conn_end(w, c);
}

/*
 * A reset that the ring has not told of: up to Linux 6.18 at least, a multishot
 * receive that has just brought more than 32 buffers can miss it.
 */
static bool is_gone(const struct tbg_conn *c)
{
	struct pollfd p = { .fd = c->fd };

	return poll(&p, 1, 0) > 0 && p.revents & (POLLERR | POLLHUP);
}

/*
 * Whether a client that no send ends for takes anything all the same: a full
 * buffer is written to only when a third of it is free.
 */
static bool client_takes(struct tbg_conn *c)
{
	bool ret;
	int left;

	if (ioctl(c->fd, SIOCOUTQ, &left))
		return false;
	ret = c->left_stamp_ms == c->stamp_ms && left < c->left;
	c->left = left;
	c->left_stamp_ms = c->stamp_ms;
	return ret;
}

/* Our side has ended; it goes when the client has all of it. */
static void linger_check(struct tbg_worker *w, struct tbg_conn *c, uint32_t age_ms)
{
	if (!c->eof && age_ms <= TBG_LINGER_MS)
		return;
	if (age_ms > tbg_option_now(&w->s->opt.send_ms))
		tbg_conn_kill(w, c);
	else if (client_takes(c))
		c->stamp_ms = c->left_stamp_ms = w->now_ms;
	else
		conn_end(w, c);
}

void tbg_conn_check(struct tbg_worker *w, struct tbg_conn *c)
{
	uint32_t send_ms = tbg_option_now(&w->s->opt.send_ms);
	uint32_t header_ms = tbg_option_now(&w->s->opt.header_ms);
	uint32_t age_ms = w->now_ms - c->stamp_ms;

	switch (c->state) {
	case TBG_CONN_LINGER:
		linger_check(w, c, age_ms);
		return;
	case TBG_CONN_OPEN:
		break;
	default:
		return;
	}
	if (is_broken(w, c)) {
		tbg_conn_kill(w, c);
		return;
	}
	if (c->traffic && c->traffic->transfer &&
	    !tbg_transfer_waits_client(c->traffic->transfer))
		return;			/* it has time limits of its own */
	if (c->traffic && c->traffic->transfer && c->receiving && is_gone(c)) {
		tbg_conn_kill(w, c);
		return;
	}
	if (blocked(c)) {
		bool looked = c->left_stamp_ms == c->stamp_ms;

		if (age_ms > send_ms / 2 && client_takes(c)) {
			c->stamp_ms = c->left_stamp_ms = w->now_ms;
		} else if (age_ms > send_ms && looked) {
			tbg_stat_add(&w->stats.timeouts, 1);
			if (!c->traffic->transfer || !tbg_transfer_late(c->traffic->transfer))
				tbg_conn_kill(w, c);
		}
		return;
	}
	if (!is_idle(c)) {
		if (age_ms > header_ms)
			head_timeout(w, c);
		return;
	}
	rest_check(w, c, age_ms);
	if (age_ms > tbg_option_now(&w->s->opt.idle_ms) || (!c->used && age_ms > header_ms))
		idle_check(w, c, age_ms);
}

bool tbg_conn_holds(const struct tbg_conn *c)
{
	return c->state == TBG_CONN_OPEN && c->traffic && c->traffic->out;
}

bool tbg_conn_rests(const struct tbg_conn *c)
{
	return c->state == TBG_CONN_OPEN && is_idle(c);
}

bool tbg_conn_give_way(struct tbg_worker *w, struct tbg_conn *c, uint32_t idle_ms)
{
	uint64_t seen_ns = w->s->wire ? tbg_conn_hit_ns(w->s->wire, c->fd, w->now_ns) : 0;
	const struct tbg_sock_conn *s = sock_of(w, c);

	if (s && s->seen_ns > seen_ns)
		seen_ns = s->seen_ns;
	if (ms_ago(w, seen_ns) < w->now_ms - c->stamp_ms)
		c->stamp_ms = w->now_ms - ms_ago(w, seen_ns);
	if (!tbg_conn_rests(c) || w->now_ms - c->stamp_ms < idle_ms)
		return false;
	tbg_stat_add(&w->stats.timeouts, 1);
	conn_end(w, c);
	return true;
}

bool tbg_conn_takes(struct tbg_worker *w, struct tbg_conn *c, uint32_t bytes, uint32_t within_ms)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		return false;
	if (!c->taking_ms || info.tcpi_bytes_acked - c->taken_nr >= bytes) {
		c->taken_nr = info.tcpi_bytes_acked;
		c->taking_ms = w->now_ms ?: 1;
	}
	return w->now_ms - c->taking_ms < within_ms;
}

void tbg_conn_drain(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->state != TBG_CONN_OPEN)
		return;
	/* hits that are on their way go first, and the last may just be being pushed */
	if (!is_idle(c) || (c->sock >= 0 && !tbg_sock_shut(sock_of(w, c))))
		c->drained = false;
	else if (c->sock < 0 || c->drained)
		conn_finish(w, c);
	else
		c->drained = true;
}
