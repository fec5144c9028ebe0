// SPDX-License-Identifier: GPL-2.0
/*
 * Output: the answers to all requests of one receive leave in one send. Bytes that the
 * socket does not accept are kept, and input waits for them.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cache/objects.h"
#include "os/clock.h"
#include "client/connection.h"
#include "files/files.h"
#include "http/reply.h"
#include "os/limits.h"
#include "os/message.h"
#include "client/internal.h"

#define SLICE_BYTES	(256 << 10)	/* per sendfile call */
#define ROUNDS_MAX	4		/* sends of several parts per turn */
#define PARTS_BYTES	(64 << 10)	/* bytes of several parts per send */
#define BODY_COPY_MAX	(4 << 10)	/* larger bodies are sent without a copy */
#define TURN_SEND_NS	300000		/* time for a file per turn */
#define LOG_INTERVAL_NS		10000000000ull	/* between two messages */

void tbg_conn_output_drop(struct tbg_conn_active *t)
{
	if (t->out)
		tbg_output_hold(-(int64_t)t->out_len);
	free(t->out);
	t->out = NULL;
}

/* Logs at most one message per interval. */
static void output_report(const struct tbg_worker *w)
{
	static _Atomic uint64_t logged_ns;
	uint64_t was_ns = logged_ns;

	if ((!was_ns || w->now_ns - was_ns >= LOG_INTERVAL_NS) &&
	    atomic_compare_exchange_strong(&logged_ns, &was_ns, w->now_ns))
		tbg_warn("toboggand: answers that clients do not take have used up an eighth of the memory budget; the slowest clients are cut off: raise --memory, or lower --send-timeout");
}

/*
 * Reserves bytes of the output budget. If it is used up, ends the connections whose
 * clients have read nothing for the longest.
 */
static bool out_room(struct tbg_worker *w, struct tbg_conn *c, size_t bytes)
{
	struct tbg_conn *slowest;

	while (!tbg_output_hold(bytes)) {
		slowest = tbg_conns_oldest(w, c, tbg_conn_holds);
		tbg_stat_add(&w->stats.timeouts, 1);
		output_report(w);
		if (!slowest)
			return false;
		tbg_conn_kill(w, slowest);
	}
	return true;
}

/*
 * Appends the bytes of iov[] from off on, which the socket did not accept, to the kept
 * output.
 */
static bool out_keep(struct tbg_worker *w, struct tbg_conn *c, const struct iovec *iov,
		     int nr, size_t off)
{
	struct tbg_conn_active *t = tbg_conn_active_get(c);
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

		if (skip < iov[i].iov_len)	/* an empty iovec may have no address */
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

bool tbg_conn_flush(struct tbg_worker *w, struct tbg_conn *c, const void *body,
		    size_t body_len, int flags)
{
	struct iovec iov[2] = { { w->out, w->out_len }, { (void *)body, body_len } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = body_len ? 2 : 1 };
	size_t len = w->out_len + body_len;
	ssize_t n;

	if (!len)
		return true;
	w->out_len = 0;
	tbg_conn_word_publish(w, c, c->taken, c->written);
	flags |= MSG_DONTWAIT | MSG_NOSIGNAL;
	if (c->active && c->active->out)
		n = 0;			/* keep the order: earlier output waits, after a redirect */
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
	tbg_conn_poll(w, c);
	return true;
}

/* Queues a body after its head. Returns false if the connection broke. */
static bool body_add(struct tbg_worker *w, struct tbg_conn *c, const void *b,
		    size_t len)
{
	c->written += len;
	if (len > BODY_COPY_MAX)
		return tbg_conn_flush(w, c, b, len, 0);
	memcpy(w->out + w->out_len, b, len);
	w->out_len += len;
	return true;
}

bool tbg_conn_object_put(struct tbg_worker *w, struct tbg_conn *c, const struct tbg_object *o,
			 enum tbg_part_id id, enum tbg_persist persist)
{
	const struct tbg_blob *blob = o->blob;
	const struct tbg_blob_part *p = &blob->part[id];
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

/* Sends a file for one turn. Returns 1: done, 0: later, -1: the connection broke. */
static int file_send(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->active;

	uint64_t until_ns = tbg_mono_ns() + TURN_SEND_NS;

	for (int i = 0; t->fd_left && (!i || tbg_mono_ns() < until_ns); i++) {
		bool last = t->fd_left <= SLICE_BYTES;
		size_t want = last ? t->fd_left : SLICE_BYTES;
		off64_t off = t->fd_off;
		ssize_t n;

		/* do not complete a body that mixes two versions of the file */
		if (last && tbg_file_rewritten(w->s->files.roots, t->fd, &t->fd_version))
			return -1;
		if (last && !t->parts)
			tbg_conn_word_publish(w, c, c->taken + t->fd_taken,
				c->written + (uint32_t)t->fd_left);
		n = sendfile64(c->fd, t->fd, &off, want);
		if (n < 0 && would_block(errno))
			return 0;
		if (n <= 0)		/* the connection broke, or the file has become shorter */
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

/* Sends the next piece of several parts. Returns false if the connection broke. */
static bool parts_send(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->active;
	uint32_t room = TBG_OUT_BYTES - w->out_len;
	struct tbg_range piece;
	ssize_t n = tbg_parts_read(t->parts, w->out + w->out_len,
				   room < PARTS_BYTES ? room : PARTS_BYTES, &piece);

	/* check here, too: short parts are complete without file_send() */
	if (n < 0 || (t->fd >= 0 && tbg_file_rewritten(w->s->files.roots, t->fd, &t->fd_version)))
		return false;
	w->out_len += n;
	c->written += n;
	c->stamp_ms = w->now_ms;
	t->fd_off = piece.first;
	t->fd_left = piece.len;
	if (!t->parts->ended)
		return tbg_conn_flush(w, c, NULL, 0, MSG_MORE);
	tbg_parts_free(t->parts);
	t->parts = NULL;
	c->taken += t->fd_taken;
	t->fd_taken = 0;
	return tbg_conn_flush(w, c, NULL, 0, 0);
}

/*
 * Sends the file or the parts after the head. Returns 1: done, 0: later, -1: the
 * connection broke.
 */
static int rest_send(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->active;
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
	struct tbg_conn_active *t = c->active;

	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
	tbg_file_version_end(&t->fd_version);
	c->taken += t->fd_taken;
	t->fd_taken = 0;
	tbg_conn_log_held(w, c);
}

/* Starts to send the file or the parts of w->answer, after the queued head. */
static bool rest_begin(struct tbg_worker *w, struct tbg_conn *c, uint32_t taken)
{
	struct tbg_answer *a = &w->answer;
	struct tbg_conn_active *t;
	int r;

	if (!a->parts && !tbg_conn_flush(w, c, NULL, 0, MSG_MORE))
		return false;
	t = tbg_conn_active_get(c);
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
		tbg_conn_poll(w, c);
	return true;
}

/*
 * Queues the head of an answer that differs from the cached one. Returns false if it is
 * too long.
 */
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

bool tbg_conn_answer_put(struct tbg_worker *w, struct tbg_conn *c, uint32_t taken,
			 const uint8_t *req, size_t req_len)
{
	struct tbg_answer *a = &w->answer;
	enum tbg_persist persist = a->reply.persist;
	bool rest = a->parts || (a->fd >= 0 && a->fd_len);
	const char *reason = a->reason ?:
		tbg_cache_word(a->hit ? TBG_CACHE_HIT : a->reply.cache);
	uint64_t body = a->parts ? a->parts->len : rest ? a->fd_len : a->body_len;
	bool ok;

	if (persist == TBG_PERSIST_NOT && tbg_conn_active_get(c))
		c->active->close_after = true;
	/* for a large body, body_add() sends and publishes the counts */
	if (!rest)
		c->taken += taken;
	if (a->hit && !a->partial) {
		const struct tbg_blob_part *p = &a->object->blob->part[a->part];

		ok = tbg_conn_object_put(w, c, a->object, a->part, persist);
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
	tbg_conn_answer_count(w, c, a->reply.status);
	tbg_conn_original(c, &req, &req_len);
	if (rest && !a->parts)
		tbg_conn_log_hold(w, c, req, req_len, a->reply.status, body, reason);
	else
		tbg_conn_log_answer(w, c, req, req_len, a->reply.status, body, reason, NULL);
	tbg_conn_original_end(c);
	return !rest || rest_begin(w, c, taken);
}

/* Copies small pieces into w->out, which is empty: one send() is cheaper than sendmsg(). */
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

	if (!tbg_conn_flush(w, c, NULL, 0, MSG_MORE))
		return -EPIPE;
	if (c->active->out) {		/* an earlier answer is not sent yet */
		tbg_conn_poll(w, c);
		return -EAGAIN;
	}
	if (last)
		tbg_conn_word_publish(w, c, c->taken + taken, c->written + (uint32_t)len);
	n = iov_send(w, c->fd, iov, nr, len);
	if (n < 0 && would_block(errno)) {
		tbg_conn_poll(w, c);
		return -EAGAIN;
	}
	if (n < 0)
		return -EPIPE;
	c->written += n;
	c->stamp_ms = w->now_ms;
	tbg_stat_add(&w->stats.bytes_sent, n);
	return n;
}

/* Sends pending output. Returns 1: all sent, 0: later, -1: the connection broke. */
static int out_send(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->active;
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
		tbg_conn_output_drop(t);
	}
	return rest_send(w, c);
}

void tbg_conn_writable(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->active;
	int r;

	if (tbg_conn_is_closing(w, c) || c->state != TBG_CONN_OPEN || !blocked(c))
		return;
	r = out_send(w, c);
	if (r < 0) {
		tbg_conn_kill(w, c);
		return;
	}
	if (!r) {
		tbg_conn_poll(w, c);
		return;
	}
	rest_done(w, c);
	if (t->answerer) {
		t->answerer->ops->writable(t->answerer);
		return;
	}
	if (t->in_len && tbg_conn_may_eat(c))
		tbg_conn_input_eat(w, c);
	tbg_conn_after(w, c);
}
