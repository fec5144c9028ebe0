// SPDX-License-Identifier: GPL-2.0
/*
 * Sends the request to a server: its head, then its body as it arrives, with the
 * protocol's framing. Called when the connection is established, and when the client or
 * the socket is ready. Must not read more of the body than can be buffered.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "client/connection.h"
#include "proxy/deliver.h"
#include "proxy/fetch.h"
#include "proxy/request_body.h"
#include "store/partials.h"
#include "store/spool.h"
#include "proxy/fetch_internal.h"

#define TUNNEL_AHEAD	(16u << 20)	/* limit of bytes that wait for a tunnel's server */
#define SPOOL_PIECE	(32u << 10)	/* of a body, per send */

static enum tbg_transfer_phase next_send(struct tbg_transfer *x);

static void head_make(struct tbg_transfer *x)
{
	const struct tbg_message *m = &x->m;
	const struct tbg_stored *s = x->selected;
	struct tbg_forward f = {
		.method = x->method, .target = x->target, .host = x->host,
		.fields = &x->req_fields,
		.peer = x->endpoints.peer, .authority = x->o->backend->authority,
		.framing = m->chunked ? TBG_FRAMING_CHUNKED :
			   m->content_length ? TBG_FRAMING_LENGTH : TBG_FRAMING_NONE,
		.length = m->content_length, .has_length = m->has_length,
		.minor = m->minor, .via = x->w->s->via, .id = x->request_id,
		.upgrade = x->upload == TBG_UPLOAD_OFFER,
		.expect = m->expect_continue, .refreshes = x->serves == TBG_SERVES_CACHE,
		.depth = tbg_upstream_module(x->upstream),
	};
	char range[64];

	f.unconditional = !(x->asked & TBG_SENT_PLAIN) &&
			  (s || (x->pending && x->req_directives.conditional));
	x->asked &= ~TBG_SENT_UNCONDITIONAL;
	if (f.unconditional)
		x->asked |= TBG_SENT_UNCONDITIONAL;
	if (f.unconditional && s && s->directives.has_validator) {
		tbg_field_find(s->head, s->head_len, "ETag", &f.etag);
		tbg_field_find(s->head, s->head_len, "Last-Modified", &f.modified);
	}
	if (x->asked & TBG_SENT_REST && tbg_partial_rest(x->partial, range, &f.if_range))
		f.range = (struct tbg_slice){ range, strlen(range) };
	else
		x->asked &= ~TBG_SENT_REST;
	x->up_head.len = 0;
	x->protocol->head(x, &f);
}

enum tbg_transfer_phase tbg_fetch_ask(struct tbg_transfer *x)
{
	tbg_trace_note(&x->w->trace, x->w->now_ns, TBG_TRACE_SEND, x, x->tries);
	head_make(x);
	if (x->up_head.failed)
		return tbg_fetch_fail(x, 503);
	tbg_transfer_enter(x, TBG_TRANSFER_ASK);
	if (x->sending != TBG_SENDING_HEAD)
		tbg_sending_enter(x, TBG_SENDING_HEAD);
	x->r = (struct tbg_response){ 0 };
	x->excess = TBG_EXCESS_NONE;
	x->protocol->response_begin(x);
	x->sent_ns = x->w->now_ns;
	x->stamp_ms = x->w->now_ms;
	x->seq = tbg_store_seq(x->w->s->store);
	x->spool_sent = 0;
	if (!x->o->recv.busy)
		tbg_upstream_conn_listen(x->w, x->o);
	return next_send(x);
}

void tbg_fetch_send_continue(struct tbg_transfer *x)
{
	x->m.expect_continue = false;
	tbg_deliver_interim(x, 100, "Continue", 8, "", 0);
	tbg_deliver_push(x);
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

/* A malformed or truncated body: the upstream must not take it for complete. */
static enum tbg_transfer_phase body_bad(struct tbg_transfer *x, unsigned int status)
{
	enum tbg_transfer_phase next;

	tbg_fetch_conn_end(x, false);
	next = tbg_fetch_end(x, 502, false);
	if (!x->c)
		return next;
	if (x->delivery) {
		tbg_deliver_break(x);
	} else {
		tbg_deliver_error(x, status);
		tbg_deliver_push(x);
	}
	return next;
}

/*
 * Frames decoded body bytes for the upstream in up_iov. Returns false without memory: a
 * part of the frame would be a different message.
 */
static bool body_frame(struct tbg_transfer *x, const void *b, size_t data,
		       bool done)
{
	x->up_pre.len = x->up_post.len = 0;
	x->protocol->body(x, data, done);
	if (x->up_pre.failed || x->up_post.failed)
		return false;
	up_add(x, x->up_pre.text, x->up_pre.len);
	up_add(x, b, data);
	up_add(x, x->up_post.text, x->up_post.len);
	return true;
}

static enum tbg_sending_phase head_send(struct tbg_transfer *x)
{
	up_add(x, x->up_head.text, x->up_head.len);
	up_submit(x);
	return tbg_transfer_uploads(x) || x->spool ? TBG_SENDING_BODY : TBG_SENDING_LAST;
}

/* Forwards received bytes of the body. */
static enum tbg_sending_phase body_send(struct tbg_transfer *x)
{
	size_t used = 0, data = 0, take;
	enum tbg_parsed p;
	uint8_t *from;

	/* a tunnel's bytes wait for the 101 */
	if (!tbg_transfer_uploads(x) || !x->c || x->upload == TBG_UPLOAD_OFFER)
		return TBG_SENDING_BODY;
	if (!x->up_left) {
		free(x->up_data);
		x->up_data = x->up_at = tbg_conn_input_take(x->c, &x->up_left);
		if (!x->up_data)
			return TBG_SENDING_BODY;
	}
	from = x->up_at;
	take = x->up_left < x->protocol->body_piece_max ? x->up_left : x->protocol->body_piece_max;
	p = tbg_body_decoder_eat(&x->up_decoder, from, take, &used, &data);
	x->answerer.taken += used;
	x->body_len += data;
	x->up_at += used;
	x->up_left -= used;
	if (p == TBG_PARSED_DONE || !used) {
		p = tbg_conn_input_back(x->c, x->up_at, x->up_left) ? p : TBG_PARSED_BAD;
		x->up_left = 0;
	}
	if (p == TBG_PARSED_BAD || tbg_transfer_exceeds(x)) {
		body_bad(x, p == TBG_PARSED_BAD ? 400 : 413);
		return TBG_SENDING_FAILED;
	}
	if (p == TBG_PARSED_DONE)
		tbg_upload_enter(x, TBG_UPLOAD_END);
	if (!body_frame(x, from, data, p == TBG_PARSED_DONE)) {
		tbg_fetch_fail(x, 503);
		return TBG_SENDING_FAILED;
	}
	if (x->up_nr) {
		x->body_gone += used;
		up_submit(x);
		if (!x->up_left)
			tbg_conn_input_more(x->w, x->c);
	}
	return p == TBG_PARSED_DONE ? TBG_SENDING_LAST : TBG_SENDING_BODY;
}

static bool spool_left(const struct tbg_transfer *x)
{
	return x->spool && x->spool_sent < x->spool->len;
}

/*
 * With sock, the TCP window does not slow a client down. There, body bytes that are
 * forwarded as they arrive pass through the spool, which is restarted whenever it is
 * empty. A tunnel has no end, so its input waits for the server. Returns false if the
 * fetch has ended.
 */
static bool hoard(struct tbg_transfer *x)
{
	enum tbg_parsed p;
	unsigned int status;

	if (!tbg_transfer_uploads(x) || !x->c || x->upload == TBG_UPLOAD_OFFER ||
	    (x->upload == TBG_UPLOAD_TUNNEL && x->spool->len - x->spool_sent > TUNNEL_AHEAD))
		return true;
	status = tbg_request_body_eat(x, &p);
	if (status) {
		body_bad(x, status);
		return false;
	}
	if (p == TBG_PARSED_DONE)
		tbg_upload_enter(x, TBG_UPLOAD_END);
	else
		tbg_conn_input_more(x->w, x->c);
	return true;
}

/* Sends more of the spool. */
static enum tbg_sending_phase spool_send(struct tbg_transfer *x)
{
	ssize_t n;
	bool last;

	if (tbg_transfer_uploads(x) && x->spool_sent && !spool_left(x)) {
		x->body_gone += x->spool_sent;
		tbg_spool_empty(x->spool);
		x->spool_sent = 0;
	}
	if (tbg_transfer_uploads(x) && !spool_left(x))
		return TBG_SENDING_BODY;
	if (!x->up_data)
		x->up_data = malloc(SPOOL_PIECE);
	n = x->up_data ? tbg_spool_read(x->spool, x->spool_sent, x->up_data, SPOOL_PIECE) : -ENOMEM;
	if (n < 0)
		goto fail;
	x->spool_sent += n;
	last = !tbg_transfer_uploads(x) && !spool_left(x);
	if (!body_frame(x, x->up_data, n, last))
		goto fail;
	if (x->up_nr)
		up_submit(x);
	return last ? TBG_SENDING_LAST : TBG_SENDING_BODY;

fail:
	tbg_fetch_fail(x, 503);
	return TBG_SENDING_FAILED;
}

/* Nothing is being sent: starts the next send. Returns the next phase. */
static enum tbg_sending_phase send_more(struct tbg_transfer *x)
{
	switch ((enum tbg_sending_phase)x->sending) {
	case TBG_SENDING_HEAD:
		return head_send(x);
	case TBG_SENDING_BODY:
		return x->spool ? spool_send(x) : body_send(x);
	case TBG_SENDING_LAST:
		return TBG_SENDING_SENT;
	case TBG_SENDING_SENT:
	case TBG_SENDING_CUT:
	case TBG_SENDING_FAILED:
		break;
	}
	return x->sending;
}

/* Starts the next send, unless one is in progress. */
static enum tbg_transfer_phase next_send(struct tbg_transfer *x)
{
	enum tbg_sending_phase next;

	if (!tbg_transfer_fetches(x))
		return x->phase;
	if (x->spool && !hoard(x))
		return TBG_TRANSFER_DONE;
	if (!x->o || !x->o->connected || x->o->send.busy || x->sending == TBG_SENDING_CUT)
		return x->phase;
	if (x->up_nr) {
		up_submit(x);
		return x->phase;
	}
	next = send_more(x);
	if (!tbg_transfer_fetches(x) || next == x->sending)
		return x->phase;
	tbg_sending_enter(x, next);
	if (next == TBG_SENDING_FAILED)
		return TBG_TRANSFER_DONE;
	if (next == TBG_SENDING_LAST && !x->up_nr)	/* no bytes were needed to end it */
		tbg_sending_enter(x, TBG_SENDING_SENT);
	return x->phase;
}

void tbg_fetch_request_close(struct tbg_transfer *x)
{
	tbg_upload_enter(x, TBG_UPLOAD_END);
	if (x->sending != TBG_SENDING_BODY)
		return;
	tbg_sending_enter(x, TBG_SENDING_LAST);
	if (!x->up_nr)
		tbg_sending_enter(x, TBG_SENDING_SENT);
}

enum tbg_transfer_phase tbg_fetch_send_on(struct tbg_transfer *x)
{
	enum tbg_transfer_phase next = next_send(x);

	/*
	 * the end of a tunnel waits for the 101, like its bytes; without 101 there is
	 * no tunnel
	 */
	if (next == TBG_TRANSFER_DONE || !x->c || !tbg_transfer_uploads(x) || !x->c->eof ||
	    x->upload == TBG_UPLOAD_OFFER)
		return next;
	if (x->sending != TBG_SENDING_HEAD && !x->up_nr && !x->o->send.busy && !spool_left(x)) {
		if (x->upload == TBG_UPLOAD_TUNNEL) {	/* close one direction */
			tbg_fetch_request_close(x);
			shutdown(x->o->fd, SHUT_WR);
			return next;
		}
		/* the client has shut down within its body */
		next = tbg_fetch_give_up(x);
		tbg_conn_kill(x->w, x->c);
	}
	return next;
}

void tbg_fetch_input(struct tbg_transfer *x)
{
	tbg_transfer_go_on(x, tbg_fetch_send_on(x));
}

void tbg_fetch_sent(struct tbg_transfer *x, int res)
{
	size_t n = res > 0 ? res : 0;
	unsigned int from = 0;

	tbg_transfer_hold(x);
	x->stamp_ms = x->w->now_ms;
	if (res <= 0)			/* an answer may have arrived nevertheless */
		tbg_sending_enter(x, TBG_SENDING_CUT);
	while (from < x->up_nr && n >= x->up_iov[from].iov_len)
		n -= x->up_iov[from++].iov_len;
	x->up_nr -= from;
	memmove(x->up_iov, x->up_iov + from, x->up_nr * sizeof(*x->up_iov));
	if (x->up_nr) {
		x->up_iov[0].iov_base = (char *)x->up_iov[0].iov_base + n;
		x->up_iov[0].iov_len -= n;
	}
	tbg_transfer_go_on(x, next_send(x));
	if (x->c)
		tbg_fetch_input(x);
	tbg_transfer_release(x);
}
