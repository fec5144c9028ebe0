// SPDX-License-Identifier: GPL-2.0
/*
 * Handles a response's final head: begins an answer, ends a validation, follows a
 * redirect, or asks the next server.
 */
#include <string.h>
#include <time.h>

#include "proxy/deliver.h"
#include "proxy/fetch.h"
#include "proxy/health.h"
#include "store/partials.h"
#include "proxy/fetch_internal.h"

struct tbg_slice tbg_fetch_reason_of(const struct tbg_transfer *x)
{
	const struct tbg_response *r = &x->r;
	const char *usual;

	if (r->reason.len || !x->protocol->runs_programs)
		return (struct tbg_slice){
			(char *)x->o->head + r->reason.off, r->reason.len };
	usual = tbg_status_text(r->status);
	return (struct tbg_slice){ usual, strlen(usual) };
}

/* Returns whether the gateway answered in place of a program that failed. */
static bool is_gateways(const struct tbg_transfer *x)
{
	return x->upstream->command && x->answer.marked;
}

/* Returns whether a stale response may replace this error (RFC 5861 4). */
static bool hides(struct tbg_transfer *x, bool *ret_answered)
{
	unsigned int status = x->r.status;
	struct tbg_stored *s = x->selected;

	*ret_answered = !is_gateways(x) || status == 503;
	return s && (status == 500 || status == 502 || status == 503 || status == 504) &&
	       tbg_response_directives_error_stale(&s->directives, &x->req_directives,
						   *ret_answered, x->w->now_ns);
}

/* answered: the server itself answered with that status, not the gateway for it. */
static enum tbg_transfer_phase hidden(struct tbg_transfer *x, bool answered)
{
	struct tbg_stored *s = x->selected;
	enum tbg_transfer_phase next;

	tbg_fetch_conn_end(x, false);
	next = tbg_fetch_end(x, answered ? TBG_PENDING_ERROR : x->r.status, false);
	x->selected = NULL;
	tbg_transfer_stored(x, s, false);
	return next;
}

/* known: the client already has the representation. */
static void answer_begin(struct tbg_transfer *x, bool known)
{
	const struct tbg_response *r = &x->r;
	struct tbg_slice reason = tbg_fetch_reason_of(x);
	struct tbg_lines lines = { 0 };
	struct tbg_response_plan d = {
		.status = r->status, .reason = reason.text,
		.reason_len = reason.len, .age_s = -1,
		.length = r->has_length ? (int64_t)r->content_length : -1,
		.source = x->resp_body, .limit = UINT64_MAX,
		.made_here = x->protocol->runs_programs,
		.older = !r->minor, .received = &x->resp_fields, .date = x->w->date,
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
		d.age_s = tbg_response_directives_age(&x->resp_directives, x->w->now_ns);
		tbg_forward_fields(&lines, &x->resp_fields, x->w->date, 0);
		d.received = NULL;
		d.fields = lines.text ?: "";
		d.fields_len = lines.len;
	}
	tbg_transfer_answer_stored(x, x->phase == TBG_TRANSFER_STORE);
	if (x->resp_body)
		x->resp_body->read_once = x->phase != TBG_TRANSFER_STORE;
	tbg_deliver_begin(x, &d);
	x->pre.failed |= lines.failed;
	tbg_lines_free(&lines);
}

/* Keeps a program's internal redirect until the program has ended: see response_end(). */
static bool redirect_begin(struct tbg_transfer *x, const char *head)
{
	const struct tbg_response *r = &x->r;

	if (!r->local || !x->c)
		return true;
	x->sent_on = strndup(head + r->location.off, r->location.len);
	return x->sent_on;
}

/*
 * The server did not answer the modified request properly: sends it with the client's
 * own conditions only.
 */
static enum tbg_transfer_phase ask_plainly(struct tbg_transfer *x)
{
	if (x->asked & TBG_SENT_PLAIN || x->o->send.busy)
		return tbg_fetch_fail(x, 502);
	x->asked = TBG_SENT_PLAIN | TBG_SENT_NEW;
	x->tried = x->tries = 0;
	x->up_nr = 0;
	tbg_fetch_conn_end(x, false);
	return tbg_fetch_try_next(x, 502);
}

/*
 * Returns whether the response to a request for the missing bytes of a stored part is
 * usable: as those bytes, or as an answer of its own. A response to conditions and
 * ranges that the client did not send is neither.
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
		x->asked &= ~TBG_SENT_REST;
		return true;
	}
	return tbg_partial_joins(x->partial, &x->resp_directives, fields, len, &from, &n) &&
	       n == x->resp_directives.size &&
	       (!x->r.has_length || x->r.content_length == x->resp_directives.range_len);
}

/*
 * Returns whether received data, or the head itself, contradicts the declared length,
 * so that the response must not be stored.
 */
static bool is_amiss(const struct tbg_transfer *x)
{
	const struct tbg_response *r = &x->r;

	if (r->status == 206 && r->has_length && r->content_length != x->resp_directives.range_len)
		return true;
	return tbg_fetch_framing_of(x) == TBG_FRAMING_LENGTH &&
	       x->o->head_len - r->len > r->content_length;
}

enum tbg_transfer_phase tbg_fetch_head_final(struct tbg_transfer *x)
{
	const struct tbg_response *r = &x->r;
	const char *fields = (char *)x->o->head + r->fields_off;
	size_t len = r->len - r->fields_off;
	bool answered;

	tbg_trace_note(&x->w->trace, x->w->now_ns, TBG_TRACE_HEAD, x, r->status);
	if (!x->protocol->length_agrees(x)) {
		tbg_upstream_conn_apart(x->w, x->o);
		tbg_fetch_answer_bad(x, "its body does not match its head");
		return tbg_fetch_fail(x, 502);
	}
	if (x->checks) {
		tbg_health_found(x, r->status);
		return tbg_fetch_give_up(x);
	}
	/* even if the rest fails later */
	tbg_backend_worked(x->o->backend, x->w->now_ns);
	x->fwd_status = r->status;
	if (x->asked & TBG_SENT_UNCONDITIONAL && r->status == 304) {
		if (x->selected && x->selected->directives.has_validator &&
		    !tbg_fetch_of_another(x->selected, fields, len))
			return tbg_fetch_validated(x);
		return ask_plainly(x);
	}
	if (hides(x, &answered))
		return hidden(x, answered);
	tbg_response_directives_read(&x->resp_directives, r->status, &x->resp_fields, time(NULL),
		       x->w->now_ns, x->w->now_ns - x->sent_ns);
	tbg_response_directives_of(&x->resp_directives, &x->req_directives);
	if (x->asked & TBG_SENT_REST && !is_rest(x, fields, len))
		return ask_plainly(x);
	return TBG_TRANSFER_RECEIVE;
}

enum tbg_transfer_phase tbg_fetch_receive(struct tbg_transfer *x)
{
	const struct tbg_response *r = &x->r;
	const char *head = (char *)x->o->head;
	const char *fields = head + r->fields_off;
	size_t len = r->len - r->fields_off;
	struct tbg_store *store = x->w->s->store;
	enum tbg_transfer_phase next;
	bool keep, known, whole;

	tbg_transfer_enter(x, TBG_TRANSFER_RECEIVE);
	x->m.expect_continue = false;
	if (r->status == 101)
		tbg_upload_enter(x, TBG_UPLOAD_TUNNEL);
	if (tbg_method_invalidates(x->m.method, r->status))
		tbg_fetch_withdraw(x, fields, len);
	tbg_fetch_head_compare(x, fields, len);
	x->protocol->body_begin(x, tbg_fetch_framing_of(x), r->content_length);
	if (!redirect_begin(x, head))
		return tbg_fetch_fail(x, 503);
	keep = !x->answer.failed && !x->r.local &&
	       (x->asked & TBG_SENT_REST ||
		(tbg_response_directives_storable(&x->resp_directives, &x->req_directives) &&
		 !is_amiss(x) && tbg_store_has_room(store))) &&
	       (!r->has_length || r->content_length <= tbg_store_body_max(store));
	if (keep)
		tbg_transfer_enter(x, TBG_TRANSFER_STORE);
	whole = !keep && tbg_fetch_is_whole(x);
	x->resp_body = whole ? NULL : tbg_byte_chain_new();
	if (keep && x->resp_body)
		tbg_store_count(store, x->resp_body);
	if (!keep) {
		tbg_transfer_pending_end(x, 0, true);
		if (!x->c) {
			tbg_fetch_outdate(x);
			return tbg_fetch_give_up(x);
		}
	}
	if (!x->resp_body && !whole)
		return tbg_fetch_fail(x, 503);
	/*
	 * known: received only for the cache, or not at all; a program is not
	 * interrupted for it
	 */
	known = x->asked & TBG_SENT_UNCONDITIONAL && (keep || !x->protocol->runs_programs) &&
		tbg_transfer_not_modified(x, &x->resp_directives, fields, len);
	if (!(x->asked & TBG_SENT_REST) && !x->sent_on)
		answer_begin(x, known);
	if (known && !keep && tbg_fetch_has_body(x)) {
		tbg_fetch_outdate(x);
		tbg_deliver_push(x);
		return tbg_fetch_give_up(x);
	}
	next = tbg_fetch_body_first(x);
	if (x->upload != TBG_UPLOAD_TUNNEL || next == TBG_TRANSFER_DONE)
		return next;
	tbg_transfer_go_on(x, next);
	return tbg_fetch_send_on(x);
}
