// SPDX-License-Identifier: GPL-2.0
/*
 * One request to an upstream, on one connection after the other until one
 * answers. A request is sent again only if no byte of an answer came and it
 * was either never sent, or refused (FCGI_OVERLOADED), or is idempotent: then to
 * another server, or to the same on a new connection after one from the pool,
 * which it may have closed at that moment. A server that lets its time pass is
 * not asked again.
 *
 * What is received goes where it stays: the head into the connection's buffer,
 * the body into the pieces that the client is served from and that are stored.
 * A body that is not stored is received only as fast as the client takes it.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <time.h>

#include "client/connection.h"
#include "core/fresh.h"
#include "proxy/deliver.h"
#include "fastcgi/client.h"
#include "proxy/fetch.h"
#include "gateway/pool_command.h"
#include "proxy/request_body.h"
#include "proxy/health.h"
#include "store/partials.h"
#include "http/uri_reference.h"
#include "os/limits.h"
#include "serve/dispatch.h"
#include "main/server.h"
#include "store/spool.h"

#define PIECE_FIRST	(16u << 10)
#define PIECE_MORE	(64u << 10)
#define BACKLOG_HIGH	(512u << 10)	/* for the client, before we stop */
#define BACKLOG_LOW	(256u << 10)	/* and go on */
#define BACKLOG_TIGHT	(64u << 10)	/* where clients hold much memory already */
#define TUNNEL_AHEAD	(16u << 20)	/* bytes that wait for its server */
#define WHOLE_MAX	(4u << 10)	/* of a body with its head, or of a head at once */
#define SPOOL_PIECE	(32u << 10)	/* of a body, at a time */
#define MISSED_MS	1000		/* an end that the ring has not told by then */
#define EXPECT_MS	300		/* for a 100 from the upstream */
#define PART_JOINED_MAX	(4u << 20)	/* bytes that are copied to join parts */
#define STARVE_MS	100		/* for a process to take a connection */
#define UNREAD_MAX	(64u << 10)	/* bytes behind a redirect of our own */

/* Lets go of the connection. keep: it is in order. */
static void origin_end(struct tbg_transfer *x, bool keep)
{
	struct tbg_upstream_conn *o = x->o;

	if (!o)
		return;
	if (tbg_speaks_fastcgi(x)) {
		tbg_fastcgi_errors(x, true);
		if (!keep)
			tbg_fastcgi_abort(x);
	}
	x->o = NULL;
	x->into = NULL;
	atomic_fetch_sub(&o->backend->active, 1);
	if (keep)
		tbg_upstream_conn_keep(x->w, o);
	else
		tbg_upstream_conn_drop(x->w, o);
}

/* The end of the fetch, whatever it came to. */
static void fetch_end(struct tbg_transfer *x, unsigned int status, bool pass)
{
	x->filling = false;
	x->running = false;
	tbg_transfer_pile_put(x);
	tbg_transfer_land(x, status, pass);
}

void tbg_fetch_stop(struct tbg_transfer *x)
{
	if (!x->running)
		return;
	origin_end(x, false);
	fetch_end(x, 0, false);		/* who waits for it may have more luck */
}

/* Ends it with that status (502, 504), or by cutting off what has begun. */
static void fetch_fail(struct tbg_transfer *x, unsigned int status)
{
	if (!x->running)
		return;
	origin_end(x, false);
	fetch_end(x, status, false);
	if (x->hit)			/* the client has it from there */
		return;
	if (x->checks)
		tbg_health_found(x, 0);
	else if (x->begun && !tbg_deliver_retract(x))
		tbg_deliver_break(x);
	else
		tbg_transfer_failed(x, status);
}

/* Request out */

static void next_send(struct tbg_transfer *x);

static void head_make(struct tbg_transfer *x)
{
	const struct tbg_message *m = &x->m;
	const struct tbg_stored *s = x->selected;
	struct tbg_forward f = {
		.method = x->method, .target = x->target, .host = x->host,
		.fields = &x->asks,
		.peer = x->ends.peer, .authority = x->o->backend->authority,
		.framing = m->chunked ? TBG_FRAMING_CHUNKED :
			   m->content_length ? TBG_FRAMING_LENGTH : TBG_FRAMING_NONE,
		.length = m->content_length, .has_length = m->has_length,
		.minor = m->minor, .via = x->w->s->via, .upgrade = x->tunnel,
		.expect = x->expecting, .refreshes = x->refreshes,
		.depth = tbg_upstream_module(x->upstream),
	};
	char range[64];

	f.alone = x->alone = !x->plain && (s || (x->flight && x->wish.conditional));
	if (x->alone && s && s->terms.has_validator) {
		tbg_field_find(s->head, s->head_len, "ETag", &f.etag);
		tbg_field_find(s->head, s->head_len, "Last-Modified", &f.modified);
	}
	if (x->completes && tbg_part_rest(x->part, range, &f.if_range))
		f.range = (struct tbg_value){ range, strlen(range) };
	else
		x->completes = false;
	x->up_head.len = 0;
	if (tbg_speaks_fastcgi(x))
		tbg_fastcgi_head(x, &f);
	else
		tbg_forward_request(&x->up_head, &f);
}

static void request_begin(struct tbg_transfer *x)
{
	head_make(x);
	if (x->up_head.failed) {
		fetch_fail(x, 503);
		return;
	}
	x->r = (struct tbg_response){ 0 };
	x->up_head_done = x->up_failed = x->heard = false;
	x->extra = x->second = false;
	if (tbg_speaks_fastcgi(x)) {
		tbg_body_decoder_end(&x->frame);
		tbg_body_decoder_begin(&x->frame, TBG_FRAMING_RECORDS, 0);
	}
	x->sent_ns = x->w->now_ns;
	x->stamp_ms = x->w->now_ms;
	x->seq = tbg_store_seq(x->w->s->stock);
	x->spool_sent = 0;
	x->up_ended = false;
	if (!x->o->recv.busy)
		tbg_upstream_conn_listen(x->w, x->o);
	next_send(x);
}

/* The next server, or the end. */
static void try_next(struct tbg_transfer *x, unsigned int status)
{
	struct tbg_upstream *u = x->upstream;
	struct tbg_backend *b = NULL;

	if (x->checks)
		b = x->tries++ ? NULL : x->checks;
	else if (x->tries++ <= u->nr)
		b = tbg_upstream_choose(u, x->tried, x->w->now_ns);
	if (!b) {
		fetch_fail(x, status);
		return;
	}
	x->o = tbg_upstream_conn_take(x->w, x, b, !x->fresh_only && !x->tunnel);
	if (!x->o && errno == EAFNOSUPPORT) {	/* nor will the next one of its kind */
		x->tried |= 1u << b->nr;
		tbg_backend_failed(b, strerror(EAFNOSUPPORT), x->w->now_ns);
		try_next(x, 502);
		return;
	}
	if (!x->o && x->checks) {	/* our own lack says nothing of the server */
		x->checks->checking = false;
		fetch_end(x, 503, false);
		return;
	}
	if (!x->o) {
		fetch_fail(x, 503);
		return;
	}
	x->origins_nr++;
	x->stamp_ms = x->w->now_ms;
	atomic_fetch_add(&b->active, 1);
	atomic_fetch_add_explicit(&b->requests, 1, memory_order_relaxed);
	/* a module's next connection is to another worker, perhaps: it has two */
	if (!x->o->reused && (x->fresh_only || !tbg_upstream_module(u)))
		x->tried |= 1u << b->nr;
	if (x->o->connected)
		request_begin(x);
}

static void tell_continue(struct tbg_transfer *x)
{
	x->expecting = false;
	tbg_deliver_interim(x, 100, "Continue", 8, "", 0);
	tbg_deliver_push(x);
}

void tbg_fetch_begin(struct tbg_transfer *x)
{
	const struct tbg_message *m = &x->m;

	x->running = true;
	x->up_body = (!x->spool || x->hoards) &&
		     (m->chunked || m->content_length || x->tunnel);
	x->expecting = m->expect_continue && x->up_body;
	tbg_body_decoder_end(&x->up_frame);
	if (x->tunnel)
		tbg_body_decoder_begin(&x->up_frame, TBG_FRAMING_CLOSE, 0);
	else
		tbg_body_decoder_begin_request(&x->up_frame, m);
	if (x->expecting && tbg_speaks_fastcgi(x))
		tell_continue(x);	/* programs have no interim answers */
	try_next(x, 502);
}

static void backend_failed(struct tbg_transfer *x, const char *why)
{
	tbg_backend_failed(x->o->backend, why, x->w->now_ns);
}

/* The same of what a program has said, of which our gateway knows nothing. */
static void answer_bad(struct tbg_transfer *x, const char *why)
{
	backend_failed(x, why);
	if (x->upstream->order)
		tbg_fastcgi_say(x, why, strlen(why));
}

void tbg_fetch_connected(struct tbg_transfer *x, int err)
{
	tbg_transfer_hold(x);
	if (!err) {
		request_begin(x);
	} else {
		backend_failed(x, strerror(-err));
		origin_end(x, false);
		try_next(x, 502);
	}
	tbg_transfer_release(x);
}

static void up_submit(struct tbg_transfer *x)
{
	memcpy(x->o->iov, x->up_iov, sizeof(x->up_iov));
	tbg_upstream_conn_send(x->w, x->o, x->up_nr);
}

static void up_add(struct tbg_transfer *x, const void *b, size_t len)
{
	if (len)
		x->up_iov[x->up_nr++] = (struct iovec){ (void *)b, len };
}

/* A bad or truncated body: the upstream must not take it for whole. */
static void body_bad(struct tbg_transfer *x, unsigned int status)
{
	origin_end(x, false);
	fetch_end(x, 502, false);
	if (!x->c)
		return;
	if (x->begun) {
		tbg_deliver_break(x);
		return;
	}
	tbg_deliver_error(x, status);
	tbg_deliver_push(x);
}

/*
 * Frames for the upstream what has been taken off the client's frames. False:
 * nothing to send; a part of it alone would be another message.
 */
static bool body_frame(struct tbg_transfer *x, const void *b, size_t data,
		       bool done)
{
	bool chunked = x->up_frame.framing == TBG_FRAMING_CHUNKED;

	x->up_pre.len = x->up_post.len = 0;
	if (tbg_speaks_fastcgi(x)) {
		tbg_fastcgi_body(&x->up_pre, &x->up_post, data, done);
		chunked = false;
	}
	if (chunked && data) {
		tbg_lines_add(&x->up_pre, "%zx\r\n", data);
		tbg_lines_put(&x->up_post, "\r\n", 2);
	}
	if (chunked && done) {
		tbg_lines_put(&x->up_post, "0\r\n", 3);
		tbg_forward_trailer(&x->up_post, x->up_frame.trailer ?: "",
				    x->up_frame.trailer_len, &x->asks, x->reading.odd_names);
		tbg_lines_put(&x->up_post, "\r\n", 2);
	}
	if (x->up_pre.failed || x->up_post.failed) {
		fetch_fail(x, 503);
		return false;
	}
	up_add(x, x->up_pre.text, x->up_pre.len);
	up_add(x, b, data);
	up_add(x, x->up_post.text, x->up_post.len);
	return x->up_nr;
}

/* Takes what has come of the body. False: nothing to send. */
static bool body_take(struct tbg_transfer *x)
{
	size_t used = 0, data = 0, take;
	enum tbg_parsed p;
	uint8_t *from;

	if (!x->up_left) {
		free(x->up_data);
		x->up_data = x->up_at = tbg_conn_input_take(x->c, &x->up_left);
		if (!x->up_data)
			return false;
	}
	from = x->up_at;
	take = tbg_speaks_fastcgi(x) && x->up_left > TBG_FCGI_RECORD_MAX ?
	       TBG_FCGI_RECORD_MAX : x->up_left;
	p = tbg_body_decoder_eat(&x->up_frame, from, take, &used, &data);
	x->taken += used;
	x->body_len += data;
	x->up_at += used;
	x->up_left -= used;
	if (p == TBG_PARSED_DONE || !used) {
		p = tbg_conn_input_back(x->c, x->up_at, x->up_left) ? p : TBG_PARSED_BAD;
		x->up_left = 0;
	}
	if (p == TBG_PARSED_BAD) {
		body_bad(x, 400);
		return false;
	}
	if (tbg_transfer_exceeds(x)) {
		body_bad(x, 413);
		return false;
	}
	x->up_body = p != TBG_PARSED_DONE;
	return body_frame(x, from, data, !x->up_body);
}

static bool spool_left(const struct tbg_transfer *x)
{
	return x->spool && x->spool_sent < x->spool->len;
}

/* The request is out, all of it. */
static bool up_done(const struct tbg_transfer *x)
{
	return !x->up_body && !x->up_nr && !spool_left(x) &&
	       (!x->hoards || x->up_ended);
}

/*
 * On a socket of sock the kernel's window holds no client back: there, what has
 * come of a body that is sent on as it comes goes by way of the spool, which is
 * begun anew whenever it is empty. A tunnel, which has no end, must wait for its
 * server in time. False: the fetch has ended.
 */
static bool hoard(struct tbg_transfer *x)
{
	enum tbg_parsed p;
	unsigned int status;

	if (!x->up_body || !x->c || (x->tunnel &&
	    (!x->head_done || x->spool->len - x->spool_sent > TUNNEL_AHEAD)))
		return true;
	status = tbg_request_body_eat(x, &p);
	if (status) {
		body_bad(x, status);
		return false;
	}
	x->up_body = p != TBG_PARSED_DONE;
	if (x->up_body)
		tbg_conn_input_more(x->w, x->c);
	return true;
}

/* Takes more of what lies in the spool. False: nothing to send. */
static bool spool_take(struct tbg_transfer *x)
{
	ssize_t n;

	if (x->hoards && x->up_body && x->spool_sent && !spool_left(x)) {
		tbg_spool_empty(x->spool);
		x->spool_sent = 0;
		x->body_begun = true;
	}
	if (x->up_ended || (x->up_body && !spool_left(x)))
		return false;
	if (!x->up_data)
		x->up_data = malloc(SPOOL_PIECE);
	n = x->up_data ? tbg_spool_read(x->spool, x->spool_sent, x->up_data, SPOOL_PIECE) : -ENOMEM;
	if (n < 0) {
		fetch_fail(x, 503);
		return false;
	}
	x->spool_sent += n;
	x->up_ended = !x->up_body && !spool_left(x);
	return body_frame(x, x->up_data, n, x->up_ended);
}

/* Sends what there is, if nothing is being sent. */
static void next_send(struct tbg_transfer *x)
{
	if (!x->running || (x->hoards && !hoard(x)))
		return;
	if (!x->o || !x->o->connected || x->o->send.busy ||
	    x->up_failed)
		return;
	if (x->up_nr) {
		up_submit(x);
		return;
	}
	if (!x->up_head_done) {
		x->up_head_done = true;
		up_add(x, x->up_head.text, x->up_head.len);
		up_submit(x);
		return;
	}
	if (x->spool) {
		if (spool_take(x))
			up_submit(x);
		return;
	}
	/* a tunnel's bytes wait for the 101 */
	if (!x->up_body || !x->c || (x->tunnel && !x->head_done))
		return;
	if (body_take(x)) {
		x->body_begun = true;
		up_submit(x);
		if (!x->up_left)
			tbg_conn_input_more(x->w, x->c);
	}
}

void tbg_fetch_input(struct tbg_transfer *x)
{
	next_send(x);
	/* a tunnel's end waits for the 101, as its bytes do: or this is none */
	if (!x->running || !x->c || !x->up_body || !x->c->eof || (x->tunnel && !x->head_done))
		return;
	if (x->up_head_done && !x->up_nr && !x->o->send.busy && !spool_left(x)) {
		if (x->tunnel) {	/* its one direction */
			x->up_body = false;
			shutdown(x->o->fd, SHUT_WR);
			return;
		}
		/* the client has ended within its body */
		tbg_fetch_stop(x);
		tbg_conn_kill(x->w, x->c);
	}
}

void tbg_fetch_sent(struct tbg_transfer *x, int res)
{
	size_t n = res > 0 ? res : 0;
	unsigned int from = 0;

	tbg_transfer_hold(x);
	x->stamp_ms = x->w->now_ms;
	x->up_failed |= res <= 0;	/* its answer may be there all the same */
	while (from < x->up_nr && n >= x->up_iov[from].iov_len)
		n -= x->up_iov[from++].iov_len;
	x->up_nr -= from;
	memmove(x->up_iov, x->up_iov + from, x->up_nr * sizeof(*x->up_iov));
	if (x->up_nr) {
		x->up_iov[0].iov_base = (char *)x->up_iov[0].iov_base + n;
		x->up_iov[0].iov_len -= n;
	}
	next_send(x);
	if (x->c)
		tbg_fetch_input(x);
	tbg_transfer_release(x);
}

/* Response in */

/* Whether it can be sent again; if it was not, it never will be on this connection. */
static bool may_repeat(struct tbg_transfer *x)
{
	struct tbg_upstream_conn *o = x->o;

	return !x->heard && !x->interims && !x->body_begun &&
	       (!o->send.busy || tbg_upstream_conn_unsend(x->w, o)) &&
	       (!o->sent || x->frame.refused || tbg_method_idempotent(x->m.method));
}

/* To the next server, or the end with that status. */
static void repeat(struct tbg_transfer *x, unsigned int status)
{
	x->up_nr = 0;
	x->fresh_only = true;
	origin_end(x, false);
	try_next(x, status);
}

/* Before a byte of an answer. One from the pool may have been closed at that moment. */
static void head_died(struct tbg_transfer *x)
{
	bool again = may_repeat(x);

	if (!again || !x->o->reused)
		backend_failed(x, "ended the connection before its answer");
	if (again)
		repeat(x, 502);
	else
		fetch_fail(x, 502);
}

static void body_more(struct tbg_transfer *x)
{
	uint64_t want = PIECE_MORE;

	if (!x->o || x->o->recv.busy || x->paused)
		return;
	/* what is stored may answer the client: then nothing that comes is for it */
	if (x->c && !x->filling && !x->hit &&
	    tbg_deliver_backlog(x) > (tbg_output_tight() ? BACKLOG_TIGHT : BACKLOG_HIGH)) {
		x->paused = true;
		return;
	}
	if (!x->pile->len)
		want = PIECE_FIRST;
	if (x->frame.framing == TBG_FRAMING_LENGTH && x->frame.left > PIECE_FIRST)
		want = x->frame.left < PIECE_MORE ? x->frame.left : PIECE_MORE;
	x->into = tbg_byte_chain_room(x->pile, want);
	if (!x->into) {
		fetch_fail(x, 503);
		return;
	}
	x->stamp_ms = x->w->now_ms;
	tbg_upstream_conn_recv(x->w, x->o, x->into->data + x->into->len,
			x->into->room - x->into->len);
}

void tbg_fetch_resume(struct tbg_transfer *x)
{
	uint64_t low = tbg_output_tight() ? BACKLOG_TIGHT / 2 : BACKLOG_LOW;

	if (!x->paused || (x->c && tbg_deliver_backlog(x) > low))
		return;
	x->paused = false;
	body_more(x);
}

/* A server may leave it out, a program often does. */
static struct tbg_value reason_of(const struct tbg_transfer *x)
{
	const struct tbg_response *r = &x->r;
	const char *usual;

	if (r->reason.len || !tbg_speaks_fastcgi(x))
		return (struct tbg_value){
			(char *)x->o->head + r->reason.off, r->reason.len };
	usual = tbg_status_text(r->status);
	return (struct tbg_value){ usual, strlen(usual) };
}

/* Of what a stored response and one that has come say together. False: no memory. */
static bool updated_terms(const struct tbg_transfer *x, const struct tbg_lines *lines,
			  unsigned int status, struct tbg_response_directives *ret)
{
	struct tbg_fields fields = { 0 };
	bool ok = !lines->failed &&
		  tbg_fields_read(&fields, lines->text ?: "", lines->len) >= 0;

	if (ok)
		tbg_response_directives_read(ret, status, &fields, time(NULL), x->w->now_ns,
			       x->w->now_ns - x->sent_ns);
	tbg_fields_free(&fields);
	return ok;
}

/* The stored part and the one that has come, as far as that is one (RFC 9111 3.4). */
static struct tbg_stored *joined(struct tbg_transfer *x, const struct tbg_lines *news)
{
	const struct tbg_stored *part = x->part;
	struct tbg_lines lines = { 0 };
	struct tbg_stored *s = NULL;
	struct tbg_response_directives terms;
	struct tbg_byte_chain *pile;
	uint64_t from, n;

	if (!part || !tbg_part_joins(part, &x->terms, news->text, news->len, &from, &n) ||
	    (!x->completes && (n > PART_JOINED_MAX ||
			       n > tbg_store_body_max(x->w->s->stock))))
		return NULL;
	pile = tbg_part_join(part, &x->terms, x->pile);
	tbg_forward_update(&lines, part->head, part->head_len, news->text, news->len);
	if (pile && updated_terms(x, &lines, n == x->terms.size ? 200 : 206, &terms)) {
		terms.part_from = from;
		terms.part_len = n;
		terms.size = x->terms.size;
		s = tbg_stored_new(&terms, tbg_status_text(terms.status), lines.text,
				   lines.len, x->fields.text, x->fields.len, pile);
		pile = NULL;
	}
	tbg_byte_chain_put(pile);
	tbg_lines_free(&lines);
	return s;
}

/* To If-Range a server leaves out what the client has (RFC 9110 15.3.7). */
static bool is_terse(const struct tbg_transfer *x)
{
	return x->r.status == 206 && tbg_name_in(TBG_NAME_IF_RANGE, x->asks.has);
}

/* What has come, with the part that it joins; NULL: not to be kept. */
static struct tbg_stored *received(struct tbg_transfer *x)
{
	const struct tbg_response *r = &x->r;
	struct tbg_lines lines = { 0 };
	struct tbg_value v = reason_of(x);
	struct tbg_response_directives terms = x->terms;
	struct tbg_stored *s = NULL;
	struct tbg_byte_chain *body = NULL;
	char reason[64];

	if (r->status == 206 && x->pile->len != terms.part_len)
		return NULL;
	snprintf(reason, sizeof(reason), "%.*s", (int)v.len, v.text);
	/* a range of all bytes is the whole */
	if (r->status == 206 && terms.part_len == terms.size) {
		terms.status = 200;
		strcpy(reason, tbg_status_text(200));
	}
	tbg_forward_fields(&lines, &x->says, x->w->date, r->status);
	if (!lines.failed)
		s = joined(x, &lines);
	if (!s && !lines.failed && !x->completes && !is_terse(x))
		body = tbg_byte_chain_keep(x->pile);
	if (body)
		s = tbg_stored_new(&terms, reason, lines.text, lines.len,
				   x->fields.text, x->fields.len, body);
	tbg_lines_free(&lines);
	return s;
}

/* What is whole and may be stored is. */
static void store(struct tbg_transfer *x)
{
	struct tbg_stored *s = received(x);

	if (s)
		tbg_transfer_store(x, s);
}

/* What the stored part lacked is there: both together are the answer. */
static void completed(struct tbg_transfer *x, bool keep)
{
	struct tbg_stored *s = received(x);
	bool storable;

	if (!s) {
		fetch_fail(x, 502);
		return;
	}
	storable = !x->extra && tbg_response_directives_storable(&s->terms, &x->wish);
	if (storable) {
		tbg_stored_get(s);
		x->stored = tbg_transfer_store(x, s);
	}
	origin_end(x, keep);
	fetch_end(x, 0, !storable || tbg_response_directives_for_one(&s->terms, x->w->now_ns));
	tbg_transfer_stored(x, s, false);
}

/*
 * Another answer than the stale one that was validated, as much of it as anybody wants:
 * unless it takes its place, that goes all the same (RFC 9111 4.3.3), but for one that is
 * about who has asked, or how often.
 */
static void outdate(struct tbg_transfer *x)
{
	const struct tbg_request_directives *w = &x->wish;
	unsigned int status = x->r.status;

	if (x->alone && x->selected && !x->filling && status != 304 && status != 429 &&
	    status < 500 && w->get && !w->authorization && !w->cc.no_store &&
	    !tbg_fresh(tbg_response_directives_expires_ns(&x->selected->terms), x->w->now_ns))
		tbg_store_drop(x->w->s->stock, &x->uri, x->selected);
}

/* What goes on of the trailer section, while the head is there that it belongs to. */
static void trailer_take(struct tbg_transfer *x)
{
	if (x->frame.trailer_len &&
	    tbg_fields_have(&x->asks, TBG_NAME_TE, TBG_VALUE("trailers")))
		tbg_forward_trailer(&x->trailer, x->frame.trailer, x->frame.trailer_len, &x->says,
				    true);
}

/* The response has ended as it should. */
static void response_end(struct tbg_transfer *x)
{
	bool keep = !x->r.close && !x->extra && up_done(x) &&
		    !x->up_failed && !tbg_body_decoder_closes(&x->frame);
	bool filling = x->filling && !x->frame.failed && !x->extra;

	if (x->completes) {
		completed(x, keep);
		return;
	}
	if (filling)
		store(x);
	outdate(x);
	trailer_take(x);
	origin_end(x, keep);
	fetch_end(x, 0, !filling || tbg_response_directives_for_one(&x->terms, x->w->now_ns));
	if (x->sent_on)
		tbg_transfer_redirect(x);
	else
		tbg_deliver_end(x);
}

/* Too large to be stored after all. */
static void fill_check(struct tbg_transfer *x)
{
	struct tbg_store *s = x->w->s->stock;

	/* what completes a part is answered from: it is had in any case */
	if (!x->filling || ((x->completes || tbg_store_has_room(s)) &&
			    x->pile->len <= tbg_store_body_max(s)))
		return;
	if (x->completes) {		/* longer than it has said */
		fetch_fail(x, 503);
		return;
	}
	x->filling = false;
	tbg_transfer_land(x, 0, true);
	if (x->c && x->source) {
		tbg_deliver_consume(x);
		return;
	}
	tbg_fetch_stop(x);		/* nobody is sent it */
	tbg_deliver_push(x);
}

static enum tbg_framing framing_of(const struct tbg_transfer *x)
{
	const struct tbg_response *r = &x->r;

	if (r->status == 101)
		return TBG_FRAMING_CLOSE;
	if (tbg_response_bodiless(r->status, x->m.method))
		return TBG_FRAMING_NONE;
	if (r->chunked)
		return TBG_FRAMING_CHUNKED;
	return r->has_length ? TBG_FRAMING_LENGTH : TBG_FRAMING_CLOSE;
}

/*
 * Bytes behind a response are dropped with the connection (RFC 9112 6.3), and the
 * response is not stored. Do they begin another one, the first was made by who may
 * have made up both.
 */
static bool is_second(const struct tbg_transfer *x, const uint8_t *b, size_t len)
{
	if (tbg_speaks_fastcgi(x))
		return len >= 2 && b[0] == TBG_FCGI_RECORD_VERSION &&
		       b[1] == TBG_FCGI_RECORD_STDOUT;
	while (len && (*b == '\r' || *b == '\n')) {
		b++;
		len--;
	}
	return len >= 5 && !memcmp(b, "HTTP/", 5);
}

/* More than a program has promised, or an end with less. */
static bool contradicts(const struct tbg_transfer *x, uint64_t len, bool ended)
{
	const struct tbg_response *r = &x->r;

	return x->frame.framing == TBG_FRAMING_RECORDS && r->has_length &&
	       framing_of(x) != TBG_FRAMING_NONE &&
	       (len > r->content_length || (ended && len < r->content_length));
}

/*
 * Whether bytes that belong to no body are thrown away as they come, for a program
 * of ours is not ended for them: its limits end it.
 */
static bool wastes(const struct tbg_transfer *x)
{
	const struct tbg_pool_command *o = x->upstream->order;

	return o && o->kind == TBG_POOL_CGI && framing_of(x) == TBG_FRAMING_NONE;
}

/* data bytes of content at the end of a piece; got: what follows them. */
static void body_add(struct tbg_transfer *x, struct tbg_piece *p, size_t data,
		     enum tbg_parsed got)
{
	bool waste = wastes(x) && !x->sent_on;

	p->len += waste ? 0 : data;
	x->pile->len += waste ? 0 : data;
	if (got == TBG_PARSED_BAD || (x->sent_on && x->pile->len > UNREAD_MAX) ||
	    contradicts(x, x->pile->len, got == TBG_PARSED_DONE) ||
	    (x->second && !x->told)) {
		answer_bad(x, "its body is not as its head says");
		fetch_fail(x, 502);
		return;
	}
	fill_check(x);
	if (!x->running)
		return;
	x->extra |= data && framing_of(x) == TBG_FRAMING_NONE;
	if (got == TBG_PARSED_DONE || (x->extra && !wastes(x))) {
		response_end(x);
		return;
	}
	tbg_deliver_push(x);
	if (x->running)
		body_more(x);
}

/* len bytes of body at the end of a piece, still framed. */
static void body_eat(struct tbg_transfer *x, struct tbg_piece *p, size_t len)
{
	size_t used = 0, data = 0;
	enum tbg_parsed got = tbg_body_decoder_eat(&x->frame, p->data + p->len, len,
					    &used, &data);

	x->extra |= used < len;
	if (is_second(x, p->data + p->len + used, len - used)) {
		x->second = true;
		tbg_upstream_conn_apart(x->w, x->o);
	}
	if (tbg_speaks_fastcgi(x))
		tbg_fastcgi_errors(x, false);
	body_add(x, p, data, got);
}

/*
 * All of a short body has come with its head, and nothing behind it. If it is not stored
 * it goes to the client with the head too.
 */
static bool is_whole(const struct tbg_transfer *x)
{
	const struct tbg_response *r = &x->r;

	return framing_of(x) == TBG_FRAMING_LENGTH && r->content_length &&
	       r->content_length <= WHOLE_MAX && x->o->head_len - r->len == r->content_length &&
	       (!tbg_speaks_fastcgi(x) || tbg_body_decoder_ended(&x->frame)) && !x->extra &&
	       !r->local;
}

static bool has_body(const struct tbg_transfer *x)
{
	return framing_of(x) != TBG_FRAMING_NONE && (!x->r.has_length || x->r.content_length);
}

/* Behind the head in its buffer; of a program's, the framing is off already. */
static void body_first(struct tbg_transfer *x)
{
	struct tbg_upstream_conn *o = x->o;
	uint32_t from = x->r.len, len = o->head_len - from;
	bool records = x->frame.framing == TBG_FRAMING_RECORDS;
	bool ended = records && tbg_body_decoder_ended(&x->frame);
	bool whole = records ? ended : x->r.has_length && len >= x->r.content_length;
	struct tbg_piece *p;

	if (!x->pile) {			/* is_whole() */
		tbg_deliver_whole(x, o->head + from, len);
		response_end(x);
		return;
	}
	/*
	 * A program without a body to send may still be at work: its end is waited for,
	 * unless it will never have the rest of what it was sent.
	 */
	if (!has_body(x) && (!records || ended || (len && !wastes(x)) || x->up_body)) {
		x->extra |= len || (records && !ended);
		response_end(x);
		return;
	}
	if (!len && !ended) {
		tbg_deliver_push(x);
		if (x->running)
			body_more(x);
		return;
	}
	p = tbg_byte_chain_room(x->pile, whole || len > PIECE_FIRST ? len : PIECE_FIRST);
	if (!p) {
		fetch_fail(x, 503);
		return;
	}
	memcpy(p->data, o->head + from, len);
	if (records)
		body_add(x, p, len, ended ? TBG_PARSED_DONE : TBG_PARSED_MORE);
	else
		body_eat(x, p, len);
}

static void body_received(struct tbg_transfer *x, int res)
{
	struct tbg_piece *p = x->into;

	x->into = NULL;
	if (res > 0)
		body_eat(x, p, res);
	else if (!res && tbg_body_decoder_closes(&x->frame))
		response_end(x);
	else
		fetch_fail(x, 502);
}

/* Whose answers a path has: its location's, or for a folder those of its index. */
static const struct tbg_upstream *upstream_of(struct tbg_transfer *x, const char *path,
					      size_t len, const char **ret_index)
{
	int n = tbg_target_path(path, len, x->w->path);
	const struct tbg_location *l;

	if (n < 0)
		return NULL;
	l = tbg_location_find(tbg_site_find(x->w->sites, x->host.text, x->host.len),
			      x->w->path, n);
	if (!l->upstream)
		l = tbg_route_index(x->w->s, l, x->w->path, n, ret_index);
	return l ? l->upstream : NULL;
}

/* A URI of the same authority; an index is part of it as transfer.c has it. */
static void withdraw_uri(struct tbg_transfer *x, const struct tbg_lines *uri)
{
	size_t path_off = x->uri.path_off;
	const char *path = uri->text + path_off, *index = NULL;
	const char *query = memchr(path, '?', uri->len - path_off);
	size_t len = query ? (size_t)(query - path) : uri->len - path_off;
	const struct tbg_upstream *u = upstream_of(x, path, len, &index);
	struct tbg_lines own = { 0 };

	if (!u)
		return;
	tbg_lines_put(&own, uri->text, path_off + len);
	if (index && u->terms.protocol == TBG_PROTOCOL_HTTP) {
		tbg_lines_text(&own, path[len - 1] == '/' ? "" : "/");
		tbg_lines_text(&own, index);
	}
	tbg_lines_put(&own, path + len, uri->len - path_off - len);
	if (!own.failed)
		tbg_store_withdraw(x->w->s->stock, &(struct tbg_uri){
			.text = own.text, .len = own.len, .path_off = path_off,
			.upstream = u->id });
	tbg_lines_free(&own);
}

/* The URI that a field refers to, if it is of the request's authority. */
static bool reference_of(const struct tbg_transfer *x, const char *name,
			 const char *fields, size_t len, struct tbg_lines *ret)
{
	struct tbg_value base = { x->uri.text, x->uri.len }, v;

	return tbg_field_find(fields, len, name, &v) && v.len &&
	       tbg_uri_reference_resolve(ret, base, x->uri.https, x->uri.path_off, v);
}

/*
 * Location and Content-Location of a successful unsafe request (RFC 9111 4.4). True: it
 * refers to the request's own URI, which is withdrawn in any case.
 */
static bool withdraw_reference(struct tbg_transfer *x, const char *name,
			       const char *fields, size_t len)
{
	struct tbg_lines uri = { 0 };
	bool refers = reference_of(x, name, fields, len, &uri);
	bool own = refers && uri.len == x->uri.len &&
		   !memcmp(uri.text, x->uri.text, uri.len);

	if (refers && !own)
		withdraw_uri(x, &uri);
	tbg_lines_free(&uri);
	return own;
}

/*
 * What an unsafe request makes old (RFC 9111 4.4), before it is answered. A POST's answer
 * may say that it is what a GET would be answered: it is newer then than what goes here,
 * if not than what others have made old since it was asked for.
 */
static void withdraw(struct tbg_transfer *x, const char *fields, size_t len)
{
	bool own;

	withdraw_reference(x, "Location", fields, len);
	own = withdraw_reference(x, "Content-Location", fields, len);
	if (tbg_store_withdraw_own(x->w->s->stock, &x->uri, &x->seq))
		x->wish.represents = own && x->m.method == TBG_METHOD_POST;
}

/* Whether a field says something else than the stored one's. */
static bool differs(const struct tbg_stored *s, const char *name,
		    const char *fields, size_t len)
{
	struct tbg_value ours, theirs;

	return tbg_field_find(fields, len, name, &theirs) &&
	       (!tbg_field_find(s->head, s->head_len, name, &ours) ||
		ours.len != theirs.len || memcmp(ours.text, theirs.text, ours.len));
}

/* Whether a 304 is about something else than what is stored (RFC 9111 4.3.4). */
static bool of_another(const struct tbg_stored *s, const char *fields, size_t len)
{
	struct tbg_value v;

	if (tbg_field_find(fields, len, "ETag", &v))
		return differs(s, "ETag", fields, len);
	return tbg_field_find(s->head, s->head_len, "Last-Modified", &v) &&
	       differs(s, "Last-Modified", fields, len);
}

/* The stored response with what its 304 says of it (RFC 9111 4.3.4). */
static struct tbg_stored *freshened(struct tbg_transfer *x)
{
	const struct tbg_stored *old = x->selected;
	struct tbg_lines news = { 0 }, lines = { 0 };
	struct tbg_response_directives terms;
	struct tbg_stored *s = NULL;

	tbg_forward_fields(&news, &x->says, x->w->date, old->terms.status);
	tbg_forward_update(&lines, old->head, old->head_len, news.text ?: "", news.len);
	if (!news.failed && updated_terms(x, &lines, old->terms.status, &terms)) {
		atomic_fetch_add(&old->body->refs, 1);
		s = tbg_stored_new(&terms, old->reason, lines.text, lines.len,
				   x->fields.text, x->fields.len, old->body);
	}
	if (s)
		s->older = !x->r.minor;
	tbg_lines_free(&news);
	tbg_lines_free(&lines);
	return s;
}

/* Whether anything has come with a response that has no body. */
static bool more_behind(const struct tbg_transfer *x)
{
	return x->extra || x->o->head_len > x->r.len;
}

/*
 * Stores what a 304 or a HEAD has made of a stored response, which goes if nobody may
 * store that (NULL: there is none). A request that forbids it does so for itself alone.
 */
static bool replaced(struct tbg_transfer *x, struct tbg_stored *s)
{
	struct tbg_request_directives get = x->wish, any;

	get.get = true;
	tbg_request_directives_read(&any, TBG_METHOD_GET, &(struct tbg_fields){ 0 });
	any.store_cookies = x->wish.store_cookies;
	if (s && tbg_response_directives_storable(&s->terms, &get)) {
		tbg_stored_get(s);
		x->stored = tbg_transfer_store(x, s);
		return true;
	}
	if (!s || !tbg_response_directives_storable(&s->terms, &any))
		tbg_store_withdraw(x->w->s->stock, &x->uri);
	return false;
}

static void validated(struct tbg_transfer *x)
{
	struct tbg_stored *s = freshened(x);
	bool storable = replaced(x, more_behind(x) ? NULL : s);

	x->pile = s ? tbg_byte_chain_new() : NULL;
	if (!x->pile) {
		tbg_stored_put(s);
		fetch_fail(x, 503);
		return;
	}
	tbg_transfer_land(x, 0, !storable ||
				  tbg_response_directives_for_one(&s->terms, x->w->now_ns));
	x->head_done = true;
	if (!tbg_speaks_fastcgi(x))
		tbg_body_decoder_begin(&x->frame, TBG_FRAMING_NONE, 0);
	tbg_transfer_stored(x, s, false);
	if (x->running)
		body_first(x);
}

/* What a HEAD tells of the stored GET (RFC 9111 4.3.5): the same, or gone. */
static void head_compare(struct tbg_transfer *x, const char *fields, size_t len)
{
	const struct tbg_stored *old = x->selected;
	struct tbg_stored *s = NULL;

	if (!x->wish.head || x->r.status != 200 || !old || old->terms.status != 200 ||
	    (!tbg_speaks_fastcgi(x) && more_behind(x)))
		return;
	if (!differs(old, "ETag", fields, len) &&
	    !differs(old, "Last-Modified", fields, len) &&
	    (!x->r.has_length || x->r.content_length == old->body->len))
		s = freshened(x);
	replaced(x, s);
	tbg_stored_put(s);
}

/* An answer that is no program's, but our gateway's for one that has failed. */
static bool is_gateways(const struct tbg_transfer *x)
{
	return x->upstream->order && x->frame.marked;
}

/* An error that a stale response may hide (RFC 5861 4). */
static bool hidden(struct tbg_transfer *x)
{
	unsigned int status = x->r.status;
	struct tbg_stored *s = x->selected;
	bool told = !is_gateways(x) || status == 503;

	if (!s || (status != 500 && status != 502 && status != 503 && status != 504))
		return false;
	if (!tbg_response_directives_error_stale(&s->terms, &x->wish, told, x->w->now_ns))
		return false;
	origin_end(x, false);
	fetch_end(x, told ? TBG_LANDED_ERROR : status, false);
	x->selected = NULL;
	tbg_transfer_stored(x, s, false);
	return true;
}

/* known: the client has what comes already. */
static void answer_begin(struct tbg_transfer *x, bool known)
{
	const struct tbg_response *r = &x->r;
	struct tbg_value reason = reason_of(x);
	struct tbg_lines lines = { 0 };
	struct tbg_response_plan d = {
		.status = r->status, .reason = reason.text,
		.reason_len = reason.len, .age_s = -1,
		.length = r->has_length ? (int64_t)r->content_length : -1,
		.source = x->pile, .limit = UINT64_MAX,
		.consumes = !x->filling, .made_here = tbg_speaks_fastcgi(x),
		.older = !r->minor, .says = &x->says, .date = x->w->date,
	};

	if (!x->c)
		return;
	if (is_gateways(x)) {
		tbg_deliver_error(x, r->status);
		return;
	}
	if (r->has_length)
		d.limit = r->content_length;
	if (known) {
		tbg_deliver_not_modified(&d);
		d.age_s = tbg_response_directives_age(&x->terms, x->w->now_ns);
		tbg_forward_fields(&lines, &x->says, x->w->date, 0);
		d.says = NULL;
		d.fields = lines.text ?: "";
		d.fields_len = lines.len;
	}
	x->stored = x->filling;
	tbg_deliver_begin(x, &d);
	x->pre.failed |= lines.failed;
	tbg_lines_free(&lines);
}

/*
 * A program's answer that is there as a whole has a length, told or not. False:
 * it is another one than it says, or a second response has come with it.
 */
static bool length_told(struct tbg_transfer *x)
{
	struct tbg_response *r = &x->r;
	uint64_t from = r->len, len = x->o->head_len - from;
	bool ended = tbg_body_decoder_ended(&x->frame);
	enum tbg_framing framing = framing_of(x);
	uint64_t whole = framing == TBG_FRAMING_LENGTH ? r->content_length : 0;

	if (!tbg_speaks_fastcgi(x))
		return framing == TBG_FRAMING_CHUNKED || framing == TBG_FRAMING_CLOSE ||
		       len <= whole || !is_second(x, x->o->head + from + whole, len - whole);
	if (x->second || framing == TBG_FRAMING_NONE)
		return !x->second;
	if (ended && !r->has_length) {
		r->has_length = true;
		r->content_length = len;
	}
	return !contradicts(x, len, ended);
}

/* A program's path for us to answer, once it has ended: see response_end(). */
static bool redirect_begin(struct tbg_transfer *x, const char *head)
{
	const struct tbg_response *r = &x->r;

	if (!r->local || !x->c)
		return false;
	x->sent_on = strndup(head + r->location.off, r->location.len);
	if (!x->sent_on)
		fetch_fail(x, 503);
	return true;
}

/* It did not answer what we made of the request: as the client has it, then. */
static void ask_plainly(struct tbg_transfer *x)
{
	if (x->plain || x->o->send.busy) {
		fetch_fail(x, 502);
		return;
	}
	x->plain = x->fresh_only = true;
	x->completes = false;
	x->tried = x->tries = 0;
	x->up_nr = 0;
	origin_end(x, false);
	try_next(x, 502);
}

/*
 * What has come for a request of the rest of a stored part: is it that, or an
 * answer for itself? What answers conditions and ranges that the client has not
 * made is neither.
 */
static bool is_rest(struct tbg_transfer *x, const char *fields, size_t len)
{
	uint64_t from, n;

	switch (x->r.status) {
	case 304: case 412: case 416:
		return false;
	case 206:
		break;
	default:
		x->completes = false;
		return true;
	}
	return tbg_part_joins(x->part, &x->terms, fields, len, &from, &n) &&
	       n == x->terms.size &&
	       (!x->r.has_length || x->r.content_length == x->terms.part_len);
}

/* What has come already, or what the head says of itself, shows that it is not to be kept. */
static bool is_amiss(const struct tbg_transfer *x)
{
	const struct tbg_response *r = &x->r;

	if (r->status == 206 && r->has_length && r->content_length != x->terms.part_len)
		return true;
	return framing_of(x) == TBG_FRAMING_LENGTH && !tbg_speaks_fastcgi(x) &&
	       x->o->head_len - r->len > r->content_length;
}

/* A final head, or the 101 of a tunnel. */
static void head_final(struct tbg_transfer *x)
{
	const struct tbg_response *r = &x->r;
	const char *head = (char *)x->o->head;
	const char *fields = head + r->fields_off;
	size_t len = r->len - r->fields_off;
	struct tbg_store *stock = x->w->s->stock;
	bool known, whole;

	if (!length_told(x)) {
		tbg_upstream_conn_apart(x->w, x->o);
		answer_bad(x, "its body is not as its head says");
		fetch_fail(x, 502);
		return;
	}
	if (x->checks) {
		tbg_fetch_stop(x);
		tbg_health_found(x, r->status);
		return;
	}
	/* whatever becomes of the rest, and when */
	tbg_backend_worked(x->o->backend, x->w->now_ns);
	x->fwd_status = r->status;
	if (x->alone && r->status == 304) {
		if (x->selected && x->selected->terms.has_validator &&
		    !of_another(x->selected, fields, len)) {
			validated(x);
			return;
		}
		ask_plainly(x);
		return;
	}
	if (hidden(x))
		return;
	tbg_response_directives_read(&x->terms, r->status, &x->says, time(NULL),
		       x->w->now_ns, x->w->now_ns - x->sent_ns);
	if (x->completes && !is_rest(x, fields, len)) {
		ask_plainly(x);
		return;
	}
	x->head_done = true;
	x->expecting = false;
	if (tbg_method_invalidates(x->m.method, r->status))
		withdraw(x, fields, len);
	head_compare(x, fields, len);
	if (!tbg_speaks_fastcgi(x))
		tbg_body_decoder_begin(&x->frame, framing_of(x), r->content_length);
	if (redirect_begin(x, head) && !x->running)
		return;
	x->filling = !x->frame.failed && !x->r.local &&
		     (x->completes ||
		      (tbg_response_directives_storable(&x->terms, &x->wish) && !is_amiss(x) &&
		       tbg_store_has_room(stock))) &&
		     (!r->has_length || r->content_length <= tbg_store_body_max(stock));
	whole = !x->filling && is_whole(x);
	x->pile = whole ? NULL : tbg_byte_chain_new();
	if (x->filling && x->pile)
		tbg_store_count(stock, x->pile);
	if (!x->filling) {
		tbg_transfer_land(x, 0, true);
		if (!x->c) {
			outdate(x);
			tbg_fetch_stop(x);
			return;
		}
	}
	if (!x->pile && !whole) {
		fetch_fail(x, 503);
		return;
	}
	/* received for the cache alone, or not at all; a program is not broken off for it */
	known = x->alone && (x->filling || !tbg_speaks_fastcgi(x)) &&
		tbg_transfer_not_modified(x, &x->terms, fields, len);
	if (!x->completes && !x->sent_on)
		answer_begin(x, known);
	if (known && !x->filling && has_body(x)) {
		outdate(x);
		tbg_fetch_stop(x);
		tbg_deliver_push(x);
		return;
	}
	body_first(x);
	if (x->running && x->tunnel)
		tbg_fetch_input(x);
}

/* 1xx: passed on where it means something to the client. */
static bool head_interim(struct tbg_transfer *x)
{
	const struct tbg_response *r = &x->r;
	struct tbg_upstream_conn *o = x->o;
	const char *head = (char *)o->head;
	struct tbg_lines lines = { 0 };

	if (++x->interims > TBG_INTERIMS_MAX)
		return false;
	tbg_forward_fields(&lines, &x->says, NULL, 0);
	if (r->status != 100 || x->expecting)
		tbg_deliver_interim(x, r->status, head + r->reason.off,
				    r->reason.len, lines.text, lines.len);
	if (r->status == 100)
		x->expecting = false;
	tbg_lines_free(&lines);
	/* each head has the room of one */
	o->head_len -= r->len;
	memmove(o->head, o->head + r->len, o->head_len);
	x->r = (struct tbg_response){ 0 };
	tbg_deliver_push(x);
	return true;
}

static enum tbg_parsed head_parse(struct tbg_transfer *x)
{
	struct tbg_upstream_conn *o = x->o;

	return tbg_speaks_fastcgi(x) ?
	       tbg_response_parse_cgi(&x->r, &x->says, o->head, o->head_len) :
	       tbg_response_parse(&x->r, &x->says, o->head, o->head_len);
}

/* Whether a 101 is to what the client has offered, all of it (RFC 9110 7.8). */
static bool is_offered(const struct tbg_transfer *x)
{
	struct tbg_elements all = {
		.b = (const char *)x->o->head + x->r.fields_off,
		.len = x->r.len - x->r.fields_off,
	};
	struct tbg_value one;
	bool any = false;

	while (tbg_elements_next(&all, TBG_VALUE("Upgrade"), &one)) {
		any = true;
		if (!tbg_fields_have(&x->asks, TBG_NAME_UPGRADE, one))
			return false;
	}
	return any;
}

/* As many heads as there are; the last is the final one. */
static void heads_eat(struct tbg_transfer *x)
{
	struct tbg_upstream_conn *o = x->o;
	enum tbg_parsed p;

	for (;;) {
		p = head_parse(x);
		if (p != TBG_PARSED_DONE || x->r.status >= 200)
			break;
		if (x->r.status == 101) {
			if (!x->tunnel || !is_offered(x))
				p = TBG_PARSED_BAD;
			break;
		}
		if (!head_interim(x)) {
			p = TBG_PARSED_BAD;
			break;
		}
		if (!x->running)
			return;
	}
	if (p == TBG_PARSED_DONE) {
		if (x->tunnel && x->r.status != 101)
			x->tunnel = x->up_body = x->hoards = false;
		head_final(x);
	} else if (p == TBG_PARSED_MORE && o->head_len < TBG_RESPONSE_HEAD_MAX &&
		   !tbg_body_decoder_ended(&x->frame)) {
		tbg_upstream_conn_recv(x->w, o, o->head + o->head_len,
				TBG_RESPONSE_HEAD_MAX - o->head_len);
	} else {
		answer_bad(x, p != TBG_PARSED_BAD ? "its head is too long, or cut off" :
			      "its head is malformed, or of too many fields");
		fetch_fail(x, 502);
	}
}

/* Bytes from before our request: the rest of what others were told, or worse. */
static bool unasked(const struct tbg_transfer *x)
{
	if (x->heard || x->body_begun || x->spool_sent)
		return false;
	return x->o->reused ? !tbg_upstream_conn_asked(x->o) : !x->o->sent;
}

/* res bytes behind those of heads that are there. */
static void heads_received(struct tbg_transfer *x, size_t res)
{
	struct tbg_upstream_conn *o = x->o;
	size_t used = res, data = res;
	enum tbg_parsed p = TBG_PARSED_MORE;

	if (tbg_speaks_fastcgi(x)) {
		p = tbg_body_decoder_eat(&x->frame, o->head + o->head_len, res, &used, &data);
		tbg_fastcgi_errors(x, false);
	}
	x->extra = used < res;
	x->second = is_second(x, o->head + o->head_len + used, res - used);
	o->head_len += data;
	if (p == TBG_PARSED_BAD) {
		x->heard = o->head_len || !x->frame.refused;
		head_died(x);
	} else {
		heads_eat(x);
	}
}

void tbg_fetch_received(struct tbg_transfer *x, int res)
{
	tbg_transfer_hold(x);
	if (x->head_done) {
		x->stamp_ms = x->w->now_ms;
		body_received(x, res);
	} else if (res <= 0 || unasked(x)) {
		/* a long head may be refused before all of it is there */
		if (res > 0 && x->up_head.len <= WHOLE_MAX)
			tbg_upstream_conn_unasked(x->w, x->o, res);
		head_died(x);
	} else {
		x->heard = true;
		heads_received(x, res);
	}
	tbg_transfer_release(x);
}

/* Time */

static void expect_check(struct tbg_transfer *x)
{
	if (!x->expecting || !x->c || !x->up_head_done ||
	    x->w->now_ms - x->stamp_ms < EXPECT_MS)
		return;
	tell_continue(x);
}

/*
 * A server that takes the request yet, out of what the kernel holds for it, is at work:
 * its time for an answer begins when it has all of it.
 */
static void taking_check(struct tbg_transfer *x)
{
	int queued;

	if (!x->o->connected || x->head_done || ioctl(x->o->fd, SIOCOUTQ, &queued))
		return;
	if (queued < x->up_queued)
		x->stamp_ms = x->w->now_ms;
	x->up_queued = queued;
}

/* For what is being waited for. */
static uint32_t limit_of(const struct tbg_transfer *x)
{
	const struct tbg_upstream_terms *terms = &x->upstream->terms;
	uint32_t limit_ms = terms->idle_ms;

	if (!x->o->connected)
		limit_ms = terms->connect_ms;
	else if (!x->head_done)
		limit_ms = terms->first_byte_ms;
	if (x->checks && limit_ms > tbg_health_limit_ms(x->upstream))
		limit_ms = tbg_health_limit_ms(x->upstream);
	return limit_ms;
}

void tbg_fetch_check(struct tbg_transfer *x)
{
	uint32_t age_ms;

	if (!x->running || !x->o)
		return;
	taking_check(x);
	age_ms = x->w->now_ms - x->stamp_ms;
	expect_check(x);
	if (!x->running || !x->o)
		return;
	if (x->begun && !x->told)	/* a body that is slow goes as it comes, then */
		tbg_deliver_push(x);
	if (tbg_speaks_fastcgi(x) && !x->heard && age_ms > STARVE_MS)
		tbg_upstream_conn_starves(x->w, x->o);
	if (age_ms >= MISSED_MS)
		tbg_upstream_conn_check(x->w, x->o);
	if (x->paused || age_ms <= limit_of(x)) {
		tbg_upstream_conn_again(x->w, x->o);
		return;
	}
	/* a client that is slow with its body has time limits of its own */
	if (x->o->connected && tbg_transfer_starves(x))
		return;
	/*
	 * A tunnel may have nothing to say, a server wait for the rest of a body, a
	 * program work on behind its whole answer.
	 */
	if (!x->head_done || (!x->tunnel && has_body(x) && (!x->up_body || x->up_nr)))
		backend_failed(x, x->head_done ? "its body does not go on" :
				  x->o->connected ? "no answer in time" : "no connection in time");
	x->tried |= 1u << x->o->backend->nr;	/* its time is over, on any connection */
	if (!x->o->connected || (!x->head_done && may_repeat(x)))
		repeat(x, 504);
	else
		fetch_fail(x, 504);
}
