// SPDX-License-Identifier: GPL-2.0
/*
 * Receives a server's response: heads one after the other, the body into its chain, the
 * end, and storage. A connection on which unexpected data arrived is not kept.
 */
#include <stdio.h>
#include <string.h>

#include "core/fresh.h"
#include "proxy/deliver.h"
#include "proxy/fetch.h"
#include "proxy/program_errors.h"
#include "upstream/pool_command.h"
#include "os/limits.h"
#include "proxy/fetch_internal.h"

#define PIECE_FIRST	(16u << 10)
#define PIECE_MORE	(64u << 10)
#define BACKLOG_HIGH	(512u << 10)	/* for the client, before receiving pauses */
#define BACKLOG_LOW	(256u << 10)	/* and resumes */
#define BACKLOG_TIGHT	(64u << 10)	/* in place of both if clients hold much memory already */
#define WHOLE_MAX	(4u << 10)	/* limit of body and head sent together */
#define UNREAD_MAX	(64u << 10)	/* limit of a body after an internal redirect */

/* Receives more of the body. */
static enum tbg_transfer_phase body_more(struct tbg_transfer *x)
{
	uint64_t want = PIECE_MORE;

	if (!tbg_transfer_fetches(x) || !x->o || x->o->recv.busy ||
	    x->phase == TBG_TRANSFER_PAUSE)
		return x->phase;
	/* a client that is answered from the store does not read this body */
	if (x->c && x->phase != TBG_TRANSFER_STORE && !x->hit &&
	    tbg_deliver_backlog(x) > (tbg_output_tight() ? BACKLOG_TIGHT : BACKLOG_HIGH))
		return TBG_TRANSFER_PAUSE;
	if (!x->resp_body->len)
		want = PIECE_FIRST;
	if (x->decoder.framing == TBG_FRAMING_LENGTH && x->decoder.left > PIECE_FIRST)
		want = x->decoder.left < PIECE_MORE ? x->decoder.left : PIECE_MORE;
	x->into = tbg_byte_chain_room(x->resp_body, want);
	if (!x->into)
		return tbg_fetch_fail(x, 503);
	x->stamp_ms = x->w->now_ms;
	tbg_upstream_conn_recv(x->w, x->o, x->into->data + x->into->len,
			x->into->room - x->into->len);
	return x->phase;
}

void tbg_fetch_resume(struct tbg_transfer *x)
{
	uint64_t low = tbg_output_tight() ? BACKLOG_TIGHT / 2 : BACKLOG_LOW;

	if (x->phase != TBG_TRANSFER_PAUSE || (x->c && tbg_deliver_backlog(x) > low))
		return;
	tbg_transfer_enter(x, TBG_TRANSFER_RECEIVE);
	tbg_transfer_go_on(x, body_more(x));
}

/*
 * Returns whether the server may have left out fields: with If-Range, it omits those
 * that the client has (RFC 9110 15.3.7).
 */
static bool is_terse(const struct tbg_transfer *x)
{
	return x->r.status == 206 && tbg_name_in(TBG_NAME_IF_RANGE, x->req_fields.has);
}

/*
 * Returns the received response, combined with the part that it joins; NULL: do not
 * store it.
 */
static struct tbg_stored *received(struct tbg_transfer *x)
{
	const struct tbg_response *r = &x->r;
	struct tbg_lines lines = { 0 };
	struct tbg_slice v = tbg_fetch_reason_of(x);
	struct tbg_response_directives directives = x->resp_directives;
	struct tbg_stored *s = NULL;
	struct tbg_byte_chain *body = NULL;
	char reason[64];

	if (r->status == 206 && x->resp_body->len != directives.range_len)
		return NULL;
	snprintf(reason, sizeof(reason), "%.*s", (int)v.len, v.text);
	/* a range of all bytes is the complete representation */
	if (r->status == 206 && directives.range_len == directives.size) {
		directives.status = 200;
		strcpy(reason, tbg_status_text(200));
	}
	tbg_forward_fields(&lines, &x->resp_fields, x->w->date, r->status);
	if (!lines.failed)
		s = tbg_fetch_joined(x, &lines);
	if (!s && !lines.failed && !(x->asked & TBG_SENT_REST) && !is_terse(x))
		body = tbg_byte_chain_keep(x->resp_body);
	if (body)
		s = tbg_stored_new(&directives, reason, lines.text, lines.len,
				   x->fields.text, x->fields.len, body);
	tbg_lines_free(&lines);
	return s;
}

/* Stores a complete response. */
static void store(struct tbg_transfer *x)
{
	struct tbg_stored *s = received(x);

	if (s)
		tbg_transfer_store(x, s);
}

/* The missing bytes have arrived: answers with both parts together. */
static enum tbg_transfer_phase completed(struct tbg_transfer *x, bool keep)
{
	struct tbg_stored *s = received(x);
	enum tbg_transfer_phase next;
	bool storable;

	if (!s)
		return tbg_fetch_fail(x, 502);
	storable = !x->excess &&
		   tbg_response_directives_storable(&s->directives, &x->req_directives);
	if (storable) {
		tbg_stored_get(s);
		tbg_transfer_answer_stored(x, tbg_transfer_store(x, s));
	}
	tbg_fetch_conn_end(x, keep);
	next = tbg_fetch_end(x, 0, !storable || tbg_response_directives_for_one(&s->directives,
										x->w->now_ns));
	tbg_transfer_stored(x, s, false);
	return next;
}

void tbg_fetch_outdate(struct tbg_transfer *x)
{
	const struct tbg_request_directives *w = &x->req_directives;
	unsigned int status = x->r.status;

	if (x->asked & TBG_SENT_UNCONDITIONAL && x->selected && x->phase != TBG_TRANSFER_STORE &&
	    status != 304 && status != 429 && status < 500 && w->get && !w->authorization &&
	    !w->cc.no_store &&
	    !tbg_fresh(tbg_response_directives_expires_ns(&x->selected->directives), x->w->now_ns))
		tbg_store_drop(x->w->s->store, &x->uri, x->selected);
}

/*
 * Keeps the forwarded fields of the trailer section, while the head that declares them
 * exists.
 */
static void trailer_take(struct tbg_transfer *x)
{
	if (x->decoder.trailer_len &&
	    tbg_fields_have(&x->req_fields, TBG_NAME_TE, TBG_SLICE("trailers")))
		tbg_forward_trailer(&x->trailer, x->decoder.trailer, x->decoder.trailer_len,
				    &x->resp_fields, true);
}

/* The response has ended properly. */
static enum tbg_transfer_phase response_end(struct tbg_transfer *x)
{
	bool keep = !x->r.close && !x->excess && x->sending == TBG_SENDING_SENT &&
		    !tbg_body_decoder_closes(&x->decoder);
	enum tbg_transfer_phase next;
	bool storable = x->phase == TBG_TRANSFER_STORE && !x->answer.failed && !x->excess;

	if (x->asked & TBG_SENT_REST)
		return completed(x, keep);
	if (storable)
		store(x);
	tbg_fetch_outdate(x);
	trailer_take(x);
	tbg_fetch_conn_end(x, keep);
	next = tbg_fetch_end(x, 0, !storable || tbg_response_directives_for_one(&x->resp_directives,
										x->w->now_ns));
	if (x->sent_on)
		tbg_transfer_redirect(x);
	else
		tbg_deliver_end(x);
	return next;
}

/* Stops storing if the body gets too large. */
static enum tbg_transfer_phase fill_check(struct tbg_transfer *x)
{
	struct tbg_store *s = x->w->s->store;

	/* a completed part must be answered from the store, so it is stored in any case */
	if (x->phase != TBG_TRANSFER_STORE ||
	    ((x->asked & TBG_SENT_REST || tbg_store_has_room(s)) &&
	     x->resp_body->len <= tbg_store_body_max(s)))
		return x->phase;
	if (x->asked & TBG_SENT_REST)	/* longer than its head declares */
		return tbg_fetch_fail(x, 503);
	tbg_transfer_enter(x, TBG_TRANSFER_RECEIVE);
	tbg_transfer_pending_end(x, 0, true);
	if (x->c && x->source) {
		tbg_deliver_consume(x);
		return x->phase;
	}
	tbg_deliver_push(x);		/* the client needs none of its bytes */
	return tbg_fetch_give_up(x);
}

enum tbg_framing tbg_fetch_framing_of(const struct tbg_transfer *x)
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

bool tbg_fetch_contradicts(const struct tbg_transfer *x, uint64_t len, bool ended)
{
	const struct tbg_response *r = &x->r;

	return x->decoder.framing == TBG_FRAMING_RECORDS && r->has_length &&
	       tbg_fetch_framing_of(x) != TBG_FRAMING_NONE &&
	       (len > r->content_length || (ended && len < r->content_length));
}

/*
 * Returns whether body bytes are discarded because the response must have no body. A
 * CGI program is not killed for them; its own limits end it.
 */
static bool wastes(const struct tbg_transfer *x)
{
	const struct tbg_pool_command *o = x->upstream->command;

	return o && o->kind == TBG_POOL_CGI && tbg_fetch_framing_of(x) == TBG_FRAMING_NONE;
}

/* More data than the response has arrived. */
static void excess_note(struct tbg_transfer *x, enum tbg_excess what)
{
	if (x->excess < what)
		x->excess = what;
}

/* Adds `data` bytes of content at the end of a piece. got: the decoder's result. */
static enum tbg_transfer_phase body_add(struct tbg_transfer *x, struct tbg_piece *p, size_t data,
		     enum tbg_parsed got)
{
	bool waste = wastes(x) && !x->sent_on;
	enum tbg_transfer_phase next;

	p->len += waste ? 0 : data;
	x->resp_body->len += waste ? 0 : data;
	if (got == TBG_PARSED_BAD || (x->sent_on && x->resp_body->len > UNREAD_MAX) ||
	    tbg_fetch_contradicts(x, x->resp_body->len, got == TBG_PARSED_DONE) ||
	    (x->excess == TBG_EXCESS_RESPONSE && x->delivery < TBG_DELIVERY_SENDING)) {
		tbg_fetch_answer_bad(x, "its body does not match its head");
		return tbg_fetch_fail(x, 502);
	}
	next = fill_check(x);
	if (next == TBG_TRANSFER_DONE)
		return next;
	if (data && tbg_fetch_framing_of(x) == TBG_FRAMING_NONE)
		excess_note(x, TBG_EXCESS_BYTES);
	if (got == TBG_PARSED_DONE || (x->excess && !wastes(x)))
		return response_end(x);
	tbg_deliver_push(x);
	return body_more(x);
}

/* Decodes len bytes of body at the end of a piece. */
static enum tbg_transfer_phase body_eat(struct tbg_transfer *x, struct tbg_piece *p, size_t len)
{
	size_t used = 0, data = 0;
	enum tbg_parsed got = tbg_body_decoder_eat(&x->decoder, p->data + p->len, len,
					    &used, &data);

	if (used < len)
		excess_note(x, TBG_EXCESS_BYTES);
	if (x->protocol->is_response(p->data + p->len + used, len - used)) {
		excess_note(x, TBG_EXCESS_RESPONSE);
		tbg_upstream_conn_apart(x->w, x->o);
	}
	tbg_program_errors(x, false);
	return body_add(x, p, data, got);
}

bool tbg_fetch_is_whole(const struct tbg_transfer *x)
{
	const struct tbg_response *r = &x->r;

	return tbg_fetch_framing_of(x) == TBG_FRAMING_LENGTH && r->content_length &&
	       r->content_length <= WHOLE_MAX && x->o->head_len - r->len == r->content_length &&
	       (x->decoder.framing != TBG_FRAMING_RECORDS || tbg_body_decoder_ended(&x->decoder)) &&
	       !x->excess && !r->local;
}

bool tbg_fetch_has_body(const struct tbg_transfer *x)
{
	return tbg_fetch_framing_of(x) != TBG_FRAMING_NONE &&
	       (!x->r.has_length || x->r.content_length);
}

enum tbg_transfer_phase tbg_fetch_body_first(struct tbg_transfer *x)
{
	struct tbg_upstream_conn *o = x->o;
	uint32_t from = x->r.len, len = o->head_len - from;
	bool records = x->decoder.framing == TBG_FRAMING_RECORDS;
	bool ended = records && tbg_body_decoder_ended(&x->decoder);
	bool whole = records ? ended : x->r.has_length && len >= x->r.content_length;
	struct tbg_piece *p;

	if (!x->resp_body) {		/* tbg_fetch_is_whole() */
		tbg_deliver_whole(x, o->head + from, len);
		return response_end(x);
	}
	/*
	 * A program that answers without a body may still be running: wait for its end,
	 * unless it will never receive the rest of its input.
	 */
	if (!tbg_fetch_has_body(x) && (!records || ended || (len && !wastes(x)) ||
				       tbg_transfer_uploads(x))) {
		if (len || (records && !ended))
			excess_note(x, TBG_EXCESS_BYTES);
		return response_end(x);
	}
	if (!len && !ended) {
		tbg_deliver_push(x);
		return body_more(x);
	}
	p = tbg_byte_chain_room(x->resp_body, whole || len > PIECE_FIRST ? len : PIECE_FIRST);
	if (!p)
		return tbg_fetch_fail(x, 503);
	memcpy(p->data, o->head + from, len);
	return records ? body_add(x, p, len, ended ? TBG_PARSED_DONE : TBG_PARSED_MORE) :
			 body_eat(x, p, len);
}

static enum tbg_transfer_phase body_received(struct tbg_transfer *x, int res)
{
	struct tbg_piece *p = x->into;

	x->into = NULL;
	if (res > 0)
		return body_eat(x, p, res);
	if (!res && tbg_body_decoder_closes(&x->decoder))
		return response_end(x);
	return tbg_fetch_fail(x, 502);
}

/* Forwards a 1xx if it is useful to the client. Returns false if there are too many. */
static bool head_interim(struct tbg_transfer *x)
{
	const struct tbg_response *r = &x->r;
	struct tbg_upstream_conn *o = x->o;
	const char *head = (char *)o->head;
	struct tbg_lines lines = { 0 };

	if (++x->interims > TBG_INTERIMS_MAX)
		return false;
	tbg_forward_fields(&lines, &x->resp_fields, NULL, 0);
	if (r->status != 100 || x->m.expect_continue)
		tbg_deliver_interim(x, r->status, head + r->reason.off,
				    r->reason.len, lines.text, lines.len);
	if (r->status == 100)
		x->m.expect_continue = false;
	tbg_lines_free(&lines);
	/* each head may fill the whole buffer */
	o->head_len -= r->len;
	memmove(o->head, o->head + r->len, o->head_len);
	x->r = (struct tbg_response){ 0 };
	tbg_deliver_push(x);
	return true;
}

/* Returns whether a 101 selects only protocols that the client offered (RFC 9110 7.8). */
static bool is_offered(const struct tbg_transfer *x)
{
	struct tbg_elements all = {
		.b = (const char *)x->o->head + x->r.fields_off,
		.len = x->r.len - x->r.fields_off,
	};
	struct tbg_slice one;
	bool any = false;

	while (tbg_elements_next(&all, TBG_SLICE("Upgrade"), &one)) {
		any = true;
		if (!tbg_fields_have(&x->req_fields, TBG_NAME_UPGRADE, one))
			return false;
	}
	return any;
}

/* Parses all received heads; the last one is the final one. */
static enum tbg_transfer_phase heads_eat(struct tbg_transfer *x)
{
	struct tbg_upstream_conn *o = x->o;
	enum tbg_parsed p;

	for (;;) {
		p = x->protocol->head_parse(x);
		if (p != TBG_PARSED_DONE || x->r.status >= 200)
			break;
		if (x->r.status == 101) {
			if (x->upload != TBG_UPLOAD_OFFER || !is_offered(x))
				p = TBG_PARSED_BAD;
			break;
		}
		if (!head_interim(x)) {
			p = TBG_PARSED_BAD;
			break;
		}
		if (!tbg_transfer_fetches(x))
			return x->phase;
	}
	if (p == TBG_PARSED_DONE) {
		if (x->upload == TBG_UPLOAD_OFFER && x->r.status != 101)
			tbg_fetch_request_close(x);
		return tbg_fetch_head_final(x);
	}
	if (p == TBG_PARSED_MORE && o->head_len < TBG_RESPONSE_HEAD_MAX &&
		   !tbg_body_decoder_ended(&x->decoder)) {
		tbg_upstream_conn_recv(x->w, o, o->head + o->head_len,
				TBG_RESPONSE_HEAD_MAX - o->head_len);
		return x->phase;
	}
	tbg_fetch_answer_bad(x, p != TBG_PARSED_BAD ? "its head is too long, or cut off" :
						      "its head is malformed, or of too many fields");
	return tbg_fetch_fail(x, 502);
}

/*
 * Returns whether the bytes were sent before our request: the rest of another response,
 * or an attack.
 */
static bool unasked(const struct tbg_transfer *x)
{
	if (x->phase == TBG_TRANSFER_HEAD || x->body_gone || x->spool_sent)
		return false;
	return x->o->reused ? !tbg_upstream_conn_acknowledged(x->o) : !x->o->sent;
}

/* Handles res bytes after those already in the head buffer. */
static enum tbg_transfer_phase heads_received(struct tbg_transfer *x, size_t res)
{
	struct tbg_upstream_conn *o = x->o;
	size_t used, data;
	enum tbg_parsed p = x->protocol->head_receive(x, res, &used, &data);
	enum tbg_transfer_phase next;

	tbg_program_errors(x, false);
	x->excess = used < res ? TBG_EXCESS_BYTES : TBG_EXCESS_NONE;
	if (x->protocol->is_response(o->head + o->head_len + used, res - used))
		x->excess = TBG_EXCESS_RESPONSE;
	o->head_len += data;
	/* a refusal (FCGI_OVERLOADED) is no response: another server may give one */
	next = p == TBG_PARSED_BAD && !o->head_len && x->answer.refused ? TBG_TRANSFER_ASK :
									 TBG_TRANSFER_HEAD;
	if (next != x->phase)
		tbg_transfer_enter(x, next);
	return p == TBG_PARSED_BAD ? tbg_fetch_head_died(x) : heads_eat(x);
}

/* Handles received bytes by phase. Returns the next phase. */
static enum tbg_transfer_phase came(struct tbg_transfer *x, int res)
{
	if (tbg_transfer_receives(x)) {
		x->stamp_ms = x->w->now_ms;
		return body_received(x, res);
	}
	if (res > 0 && !unasked(x))
		return heads_received(x, res);
	/* a server may refuse a long head before it has received all of it */
	if (res > 0 && x->up_head.len <= WHOLE_MAX)
		tbg_upstream_conn_unsolicited(x->w, x->o, res);
	return tbg_fetch_head_died(x);
}

void tbg_fetch_received(struct tbg_transfer *x, int res)
{
	tbg_transfer_hold(x);
	tbg_transfer_go_on(x, came(x, res));
	tbg_transfer_release(x);
}
