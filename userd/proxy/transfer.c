// SPDX-License-Identifier: GPL-2.0
/*
 * The life of a transfer. It answers from the store, by another request's fetch, or by
 * its own (RFC 9111 4). It is freed when no client waits for it, its fetch has ended,
 * and no connection uses its memory.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/connection.h"
#include "os/clock.h"
#include "os/timers.h"
#include "proxy/deliver.h"
#include "proxy/fetch.h"
#include "proxy/request_body.h"
#include "site/site.h"
#include "store/spool.h"
#include "proxy/transfer.h"
#include "proxy/transfer_internal.h"

#define FIELDS_MAX	256		/* field lines of a request: compared pairwise */
#define GONE_MS		2000	/* of silence in both directions */
#define AFTER_MS	2000		/* limit of a wait for more than was requested */
#define SPARES_MAX	64		/* kept per worker, if */
#define SPARE_ROOM	8192		/* their heads have at most this many bytes */
#define SPARE_FIELDS	96		/* and this many lines */
#define LONG_NS		60000000000ull	/* a body that takes longer is for its client alone */
/* Fields that belong to the body or to the connection. */
#define STAYS_BEHIND \
	(TBG_NAME_BIT(DIGEST) | TBG_NAME_BIT(REPR_DIGEST) | TBG_NAME_BIT(EXPECT) | \
	 TBG_NAME_BIT(HOST) | TBG_NAME_BIT(TRAILER) | TBG_NAME_BIT(TRANSFER_ENCODING))

static struct tbg_transfer *transfer_of(struct tbg_answerer *a)
{
	return (struct tbg_transfer *)((char *)a - offsetof(struct tbg_transfer, answerer));
}

/* Returns a zeroed transfer, except for reusable memory. */
static struct tbg_transfer *transfer_alloc(struct tbg_worker *w)
{
	struct tbg_transfer *x = LIST_FIRST(&w->spare_transfers);

	if (!x)
		return calloc(1, sizeof(*x));
	LIST_REMOVE(x, link);
	w->spare_transfers_nr--;
	return x;
}

/* The transfer is in no list. */
static void memory_free(struct tbg_transfer *x)
{
	tbg_lines_free(&x->text);
	tbg_lines_free(&x->up_head);
	tbg_lines_free(&x->pre);
	tbg_fields_free(&x->req_fields);
	tbg_fields_free(&x->resp_fields);
	free(x);
}

static bool lines_empty(struct tbg_lines *l)
{
	l->len = 0;
	l->failed = false;
	return l->room <= SPARE_ROOM;
}

/*
 * Keeps it for the next request, with the memory of both heads, which is most of what
 * an answer allocates.
 */
static bool transfer_spare(struct tbg_transfer *x)
{
	struct tbg_worker *w = x->w;
	struct tbg_lines text = x->text, up_head = x->up_head, pre = x->pre;
	struct tbg_fields req_fields = x->req_fields, resp_fields = x->resp_fields;

	if (!lines_empty(&text) || !lines_empty(&up_head) || !lines_empty(&pre) ||
	    req_fields.room > SPARE_FIELDS || resp_fields.room > SPARE_FIELDS ||
	    w->spare_transfers_nr == SPARES_MAX)
		return false;
	memset(x, 0, sizeof(*x));
	x->text = text;
	x->up_head = up_head;
	x->pre = pre;
	x->req_fields = req_fields;
	x->resp_fields = resp_fields;
	LIST_INSERT_HEAD(&w->spare_transfers, x, link);
	w->spare_transfers_nr++;
	return true;
}

static void transfer_free(struct tbg_transfer *x)
{
	LIST_REMOVE(x, link);
	tbg_stored_put(x->selected);
	tbg_stored_put(x->partial);
	tbg_stored_put(x->hit);
	tbg_byte_chain_put(x->resp_body);
	tbg_byte_chain_put(x->source);
	tbg_body_decoder_end(&x->decoder);
	tbg_fcgi_answer_end(&x->answer);
	tbg_body_decoder_end(&x->up_decoder);
	tbg_lines_free(&x->up_pre);
	tbg_lines_free(&x->up_post);
	tbg_lines_free(&x->post);
	tbg_lines_free(&x->trailer);
	tbg_upstream_put(x->upstream);
	tbg_spool_free(x->spool);
	free(x->up_data);
	free(x->root);
	free(x->index);
	free(x->sent_on);
	if (!transfer_spare(x))
		memory_free(x);
}

void tbg_transfer_release(struct tbg_transfer *x)
{
	assert(x->holds);
	if (--x->holds || x->c || x->phase == TBG_TRANSFER_WAIT ||
	    tbg_transfer_fetches(x) || x->upstream_conns_nr)
		return;
	transfer_free(x);
}

/* Releases the received body when no operation receives into it: the client may be slow. */
static void resp_body_put(struct tbg_transfer *x)
{
	if (tbg_transfer_fetches(x) || x->upstream_conns_nr)
		return;
	tbg_byte_chain_put(x->resp_body);
	x->resp_body = NULL;
}

void tbg_transfer_conn_gone(struct tbg_transfer *x)
{
	tbg_transfer_hold(x);
	x->upstream_conns_nr--;
	resp_body_put(x);
	tbg_transfer_release(x);
}

void tbg_transfer_pending_end(struct tbg_transfer *x, unsigned int status, bool pass)
{
	struct tbg_pending_fetch *f = x->pending;

	if (!f)
		return;
	x->pending = NULL;
	tbg_store_pending_end(x->w->s->store, f, status, pass, x->w->now_ns);
}

struct tbg_transfer *tbg_transfer_new(struct tbg_worker *w, const void *req,
				      const struct tbg_message *m,
				      struct tbg_upstream *upstream, const char *index,
				      const struct tbg_reading *reading)
{
	struct tbg_transfer *x = transfer_alloc(w);
	size_t room;

	if (!x)
		return NULL;
	LIST_INSERT_HEAD(&w->transfers, x, link);
	x->w = w;
	x->m = *m;
	x->reading = *reading;
	x->upstream = tbg_upstream_get(upstream);
	x->protocol = tbg_protocol_ops_of(upstream->settings.protocol);
	x->index = index ? strdup(index) : NULL;
	/*
	 * allocated once, since pointers refer to it: head, encodings, and a URI with
	 * index and slashes
	 */
	room = 3 * m->len + 2 + (index ? strlen(index) : 0);
	x->holds = 1;
	x->start_ns = w->now_ns;
	x->stamp_ms = w->now_ms;
	x->waiter.mailbox = &w->mailbox;
	x->waiter.mail.fn = tbg_transfer_on_waited;
	x->limit = UINT64_MAX;
	x->answerer = (struct tbg_answerer){ .ops = &tbg_transfer_answers, .taken = m->len };
	if (tbg_lines_room(&x->text, room) && (x->index || !index)) {
		tbg_lines_put(&x->text, req, m->len);
		x->req = x->text.text;
		if (tbg_transfer_request_read(x))
			return x;
	}
	transfer_free(x);
	return NULL;
}

void tbg_transfer_go_on(struct tbg_transfer *x, enum tbg_transfer_phase next)
{
	while (next != x->phase) {
		switch (next) {
		case TBG_TRANSFER_CONNECT:
			next = tbg_fetch_begin(x);
			break;
		case TBG_TRANSFER_ASK:
			next = tbg_fetch_ask(x);
			break;
		case TBG_TRANSFER_RECEIVE:
			next = tbg_fetch_receive(x);
			break;
		default:
			tbg_transfer_enter(x, next);
		}
	}
	if (next == TBG_TRANSFER_DONE)
		resp_body_put(x);
}

/* In HTTP/1.0 a body may end with the connection; an abort by the client looks the same. */
static bool without_length(const struct tbg_message *m)
{
	return !m->minor && !m->has_length && !m->chunked &&
	       (m->method == TBG_METHOD_POST || m->method == TBG_METHOD_PUT ||
		m->method == TBG_METHOD_PATCH);
}

/* Returns a status to answer with at once; 0: none. */
static unsigned int refusal(struct tbg_transfer *x,
			    const struct tbg_location *location)
{
	if (x->m.fields_nr > FIELDS_MAX)
		return 431;
	if (tbg_forward_names_many(&x->req_fields))
		return 400;
	if (without_length(&x->m) || tbg_request_body_lacks_length(x, location))
		return 411;
	if (x->m.content_length > x->body_max ||
	    x->m.content_length > INT64_MAX)
		return 413;
	return tbg_transfer_bypasses(x) && tbg_transfer_loops(x) ? 508 : 0;
}

bool tbg_transfer_is_hit(const struct tbg_transfer *x)
{
	return x->answer_from == TBG_ANSWER_HIT;
}

/* Returns the origin of its answer, as logged. */
static const char *reason_of(const struct tbg_transfer *x)
{
	if (tbg_transfer_is_hit(x))
		return tbg_cache_word(TBG_CACHE_HIT);
	if (x->fwd == TBG_FWD_NOT)
		return tbg_cache_word(TBG_CACHE_NONE);
	return tbg_cache_word(x->answer_from == TBG_ANSWER_STORED ? TBG_CACHE_STORED :
								    TBG_CACHE_MISS);
}

static enum tbg_transfer_phase begin(struct tbg_transfer *x, const struct tbg_location *location,
				     bool whole)
{
	unsigned int status = tbg_transfer_script_read(x, location) ? refusal(x, location) : 503;

	if (status)
		return tbg_transfer_refuse(x, status);
	return whole ? tbg_request_body_begin(x, location) : tbg_transfer_decide(x);
}

static bool transfer_start(struct tbg_worker *w, struct tbg_conn *c, const struct tbg_message *m,
			   const void *b, const struct tbg_answerer_request *e)
{
	const struct tbg_location *location = e->location;
	const struct tbg_endpoints *endpoints = tbg_conn_endpoints(c);
	struct tbg_reading reading = {
		.believed = tbg_trusts(location, endpoints->peer),
		.odd_names = location->odd_names,
		.client_stale = location->client_stale,
		.store_cookies = location->store_cookies,
		.heuristic = location->heuristic,
	};
	struct tbg_transfer *x = tbg_transfer_new(w, b, m, location->upstream, e->index, &reading);
	bool whole;

	if (!x)
		return false;
	tbg_trace_note(&w->trace, w->now_ns, TBG_TRACE_TRANSFER, x, c->fd);
	x->c = c;
	x->persist = e->persist;
	x->answerer.taken = e->taken;
	x->body_max = location->body_max;
	x->endpoints = *endpoints;
	c->active->answerer = &x->answerer;
	whole = tbg_request_body_wanted(x, location);
	if (c->sock >= 0 && !whole && tbg_transfer_uploads(x))
		x->spool = tbg_spool_new(TBG_SPOOL_USUAL, location->body_folder);
	x->answerer.starting = true;
	tbg_transfer_go_on(x, begin(x, location, whole));
	x->answerer.starting = false;
	tbg_transfer_release(x);
	return true;
}

static bool stays_behind(const struct tbg_field_line *f)
{
	static const struct tbg_slice content = TBG_SLICE("Content-");

	return tbg_name_in(f->id, STAYS_BEHIND) ||
	       (f->name.len > content.len &&
		tbg_slice_same((struct tbg_slice){ f->name.text, content.len }, content));
}

/*
 * Makes the request of an internal redirect: the client's, with the new path, without
 * the body.
 */
static void redirect_make(const struct tbg_transfer *x, struct tbg_lines *ret)
{
	tbg_lines_add(ret, "%s ", x->m.method == TBG_METHOD_HEAD ? "HEAD" : "GET");
	tbg_lines_put(ret, x->sent_on, strlen(x->sent_on));
	tbg_lines_add(ret, " HTTP/1.%u\r\n", x->m.minor);
	if (x->m.host.off)
		tbg_lines_field(ret, TBG_SLICE("Host"), x->host);
	for (uint32_t i = 0; i < x->req_fields.nr; i++)
		if (!stays_behind(&x->req_fields.all[i]))
			tbg_lines_field(ret, x->req_fields.all[i].name, x->req_fields.all[i].value);
	if (tbg_transfer_uploads(x))	/* the rest of the body is never read */
		tbg_lines_add(ret, "Connection: close\r\n");
	tbg_lines_put(ret, "\r\n", 2);
}

void tbg_transfer_redirect(struct tbg_transfer *x)
{
	struct tbg_lines head = { 0 };
	unsigned int status;

	if (!x->c)
		return;
	redirect_make(x, &head);
	status = head.failed ? 503 : tbg_conn_redirect(x->w, x->c, &x->answerer, &head);
	tbg_lines_free(&head);
	if (!status)
		return;
	tbg_deliver_error(x, status);
	tbg_deliver_push(x);
}

struct tbg_transfer *tbg_transfer_check(struct tbg_worker *w,
					const struct tbg_message *m,
					const char *head, struct tbg_backend *b)
{
	struct tbg_transfer *x = tbg_transfer_new(w, head, m, b->upstream, NULL,
					      &(struct tbg_reading){ 0 });

	if (!x)
		return NULL;
	strcpy(x->endpoints.peer, "unknown");
	strcpy(x->endpoints.local, "unknown");
	x->serves = TBG_SERVES_HEALTH;
	x->checks = b;
	x->asked = TBG_SENT_NEW;
	return x;
}

bool tbg_transfer_exceeds(const struct tbg_transfer *x)
{
	return x->upload == TBG_UPLOAD_BODY &&
	       tbg_body_exceeds(x->body_len, tbg_body_decoder_comes(&x->up_decoder), x->body_max);
}

bool tbg_transfer_starves(const struct tbg_transfer *x)
{
	/* a tunnel's bytes are held back until the 101 */
	return tbg_transfer_asks(x) && x->upload == TBG_UPLOAD_BODY && !x->up_nr &&
	       x->sending == TBG_SENDING_BODY;
}

/*
 * Returns whether to assume that the client has closed the connection. After a
 * half-close it may still read; but without a limit, nothing would end its request
 * while it waits. While an answer is sent, failed sends show it; a program is ended
 * with its client nevertheless.
 */
static bool client_gone(const struct tbg_transfer *x)
{
	bool waits = x->phase == TBG_TRANSFER_WAIT ||
		     (tbg_transfer_fetches(x) && (x->upstream->command || !x->delivery));

	return waits && x->c && x->c->eof && x->w->now_ms - x->c->stamp_ms > GONE_MS;
}

static void check(struct tbg_transfer *x)
{
	bool less = tbg_transfer_asks_less(&x->req_directives);

	if (client_gone(x)) {
		tbg_conn_kill(x->w, x->c);
		return;
	}
	if (x->serves == TBG_SERVES_OTHERS &&
	    !(x->pending && tbg_store_waiting(x->w->s->store, x->pending)))
		tbg_fetch_stop(x);	/* the waiting requests have left, too */
	if (tbg_transfer_fetches(x))
		tbg_fetch_check(x);
	if (x->pending && (!tbg_transfer_receives(x) || x->w->now_ns - x->sent_ns < LONG_NS))
		tbg_store_pending_alive(x->pending, x->w->now_ns);
	if (x->phase != TBG_TRANSFER_WAIT ||
	    x->w->now_ms - x->stamp_ms < (less ? AFTER_MS : tbg_timer_ms(TBG_TIMER_FETCH_LOST)))
		return;
	/* the awaited fetch has its own time limits until its answer begins */
	x->stamp_ms = x->w->now_ms;
	if (!less && !tbg_store_lost(x->w->s->store, &x->waiter,
				     x->w->now_ns - tbg_timer_ns(TBG_TIMER_FETCH_LOST)))
		return;
	tbg_store_leave(x->w->s->store, &x->waiter);
	x->waits = WAITS_MAX;
	tbg_transfer_go_on(x, tbg_transfer_ask(x));
}

static void each(struct tbg_worker *w, void (*fn)(struct tbg_transfer *x))
{
	struct tbg_transfer *x = LIST_FIRST(&w->transfers), *next;

	if (x)
		tbg_transfer_hold(x);
	for (; x; x = next) {
		fn(x);
		next = LIST_NEXT(x, link);	/* fn inserts new ones before it */
		if (next)
			tbg_transfer_hold(next);
		tbg_transfer_release(x);
	}
}

void tbg_transfers_check(struct tbg_worker *w)
{
	each(w, check);
}

void tbg_transfers_end(struct tbg_worker *w)
{
	each(w, tbg_fetch_stop);
}

void tbg_transfers_free(struct tbg_worker *w)
{
	struct tbg_transfer *x;

	while ((x = LIST_FIRST(&w->spare_transfers))) {
		LIST_REMOVE(x, link);
		memory_free(x);
	}
	w->spare_transfers_nr = 0;
}

bool tbg_transfers_awaited(const struct tbg_worker *w)
{
	const struct tbg_transfer *x;

	LIST_FOREACH(x, &w->transfers, link)
		if ((x->pending && tbg_store_waiting(w->s->store, x->pending)) ||
		    (tbg_transfer_fetches(x) && x->delivery && !x->c))
			return true;
	return false;
}

static void transfer_abandon(struct tbg_answerer *a)
{
	struct tbg_transfer *x = transfer_of(a);

	tbg_transfer_hold(x);
	x->c = NULL;
	if (x->phase == TBG_TRANSFER_WAIT)
		tbg_store_leave(x->w->s->store, &x->waiter);
	if (x->phase == TBG_TRANSFER_WAIT || x->phase == TBG_TRANSFER_BODY)
		tbg_transfer_go_on(x, TBG_TRANSFER_DONE);
	/* finish a fetch that others wait for, if it does not need the client */
	if (tbg_transfer_fetches(x) && (tbg_transfer_uploads(x) || !x->pending ||
					!tbg_store_waiting(x->w->s->store, x->pending)))
		tbg_fetch_stop(x);
	if (tbg_transfer_fetches(x))
		x->serves = TBG_SERVES_OTHERS;
	tbg_transfer_release(x);
}

static void transfer_input(struct tbg_answerer *a)
{
	struct tbg_transfer *x = transfer_of(a);

	tbg_transfer_hold(x);
	if (x->phase == TBG_TRANSFER_BODY)
		tbg_transfer_go_on(x, tbg_request_body_input(x));
	else if (tbg_transfer_fetches(x))
		tbg_fetch_input(x);
	tbg_transfer_release(x);
}

static void transfer_writable(struct tbg_answerer *a)
{
	struct tbg_transfer *x = transfer_of(a);

	tbg_transfer_hold(x);
	tbg_deliver_push(x);
	if (tbg_transfer_fetches(x))	/* even if the client needs no more of the response */
		tbg_fetch_resume(x);
	tbg_transfer_release(x);
}

static bool transfer_waits_client(const struct tbg_answerer *a)
{
	const struct tbg_transfer *x = transfer_of((struct tbg_answerer *)a);

	return tbg_deliver_blocked(x) || x->phase == TBG_TRANSFER_BODY || tbg_transfer_starves(x);
}

static bool transfer_late(struct tbg_answerer *a)
{
	struct tbg_transfer *x = transfer_of(a);

	if (x->delivery || x->upload != TBG_UPLOAD_BODY)
		return false;
	tbg_transfer_hold(x);
	if (x->phase == TBG_TRANSFER_BODY)
		tbg_transfer_go_on(x, TBG_TRANSFER_DONE);
	tbg_fetch_stop(x);
	tbg_deliver_error(x, 408);
	tbg_deliver_push(x);
	tbg_transfer_release(x);
	return true;
}

static void transfer_record(const struct tbg_answerer *a, struct tbg_answerer_record *ret)
{
	const struct tbg_transfer *x = transfer_of((struct tbg_answerer *)a);

	*ret = (struct tbg_answerer_record){
		.request = { x->req + x->m.head_off, x->m.len - x->m.head_off },
		.host = x->host, .request_id = x->request_id,
		.status = x->delivery >= TBG_DELIVERY_SENDING ? x->status : 0,
		.body = x->body_sent, .reason = reason_of(x),
	};
	if (x->sent_ns && !x->hit) {
		ret->upstream = x->upstream->name;
		ret->upstream_ns = tbg_mono_ns() - x->sent_ns;
	}
}

static void transfer_phases(const struct tbg_answerer *a, struct tbg_answerer_phases *ret)
{
	const struct tbg_transfer *x = transfer_of((struct tbg_answerer *)a);

	*ret = (struct tbg_answerer_phases){
		.phase = tbg_transfer_phase_text(x->phase),
		.upload = tbg_upload_phase_text(x->upload),
		.sending = tbg_transfer_fetches(x) ? tbg_sending_phase_text(x->sending) : NULL,
		.answer = tbg_delivery_phase_text(x->delivery),
	};
}

const struct tbg_answerer_ops tbg_transfer_answers = {
	.begin = transfer_start,
	.input = transfer_input,
	.writable = transfer_writable,
	.abandon = transfer_abandon,
	.late = transfer_late,
	.waits_client = transfer_waits_client,
	.record = transfer_record,
	.phases = transfer_phases,
};
