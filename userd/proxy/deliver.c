// SPDX-License-Identifier: GPL-2.0
/*
 * Sends heads, chunks and pieces to the client's socket. Called by transfer.c and
 * fetch.c. Sends through client/connection.c, which maintains the counts of the idle
 * equation.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/connection.h"
#include "proxy/deliver.h"
#include "proxy/fetch.h"
#include "serve/pages.h"
#include "proxy/site_fields.h"

#define IOV_NR	   24
#define SEND_BYTES (512 << 10)	/* per call */
#define DUE_BYTES  (16 << 10)	/* more is sent at once */
#define HELD_BYTES (64 << 10)	/* an answer of at most this size is sent only when complete, */
#define HELD_MS	   250		/* unless that takes longer */

/*
 * Makes Cache-Status (RFC 9211). A fresh hit has Age but no ttl: wire could not update
 * a second number.
 */
static void cache_status(struct tbg_transfer *x, struct tbg_lines *ret)
{
	static const char *const fwd[] = {
		[TBG_FWD_NOT] = "",
#define X(name, text) [TBG_FWD_##name] = "; fwd=" text,
		TBG_FWD_LIST(X)
#undef X
	};
	bool hit = tbg_transfer_is_hit(x);
	const struct tbg_response_directives *directives = x->hit ? &x->hit->directives :
								    &x->resp_directives;
	int64_t ttl_s = tbg_response_directives_ttl(directives, x->w->now_ns);

	tbg_lines_text(ret, TBG_CACHE_STATUS);
	tbg_lines_text(ret, hit ? "; hit" : fwd[x->fwd]);
	if (!hit && x->fwd_status) {
		tbg_lines_text(ret, "; fwd-status=");
		tbg_lines_number(ret, x->fwd_status);
	}
	if (hit ? ttl_s <= 0 : x->hit || x->answer_from == TBG_ANSWER_STORED)
		tbg_lines_add(ret, "; ttl=%lld", (long long)ttl_s);
	tbg_lines_text(ret, x->answer_from == TBG_ANSWER_STORED ? "; stored" : "");
	tbg_lines_text(ret, x->answer_from == TBG_ANSWER_COLLAPSED ? "; collapsed" : "");
	tbg_lines_text(ret, hit ? "; detail=user\r\n" : "\r\n");
}

/* The fields that a 304 repeats (RFC 9110 15.4.5). */
#define NOT_MODIFIED_HAS \
	(TBG_NAME_BIT(DATE) | TBG_NAME_BIT(ETAG) | TBG_NAME_BIT(LAST_MODIFIED) | \
	 TBG_NAME_BIT(CACHE_CONTROL) | TBG_NAME_BIT(EXPIRES) | TBG_NAME_BIT(VARY) | \
	 TBG_NAME_BIT(CONTENT_LOCATION))

/* The lifetime fields, which a 416 omits: it does not answer other requests. */
#define OF_LIFETIME \
	(TBG_NAME_BIT(CACHE_CONTROL) | TBG_NAME_BIT(CDN_CACHE_CONTROL) | TBG_NAME_BIT(EXPIRES))

/* The fields that describe a representation, which a 416 does not have. */
#define OF_REPRESENTATION \
	(TBG_NAME_BIT(CONTENT_ENCODING) | TBG_NAME_BIT(CONTENT_LOCATION) | \
	 TBG_NAME_BIT(CONTENT_TYPE) | TBG_NAME_BIT(DIGEST) | TBG_NAME_BIT(REPR_DIGEST))

/* Returns whether an answer with that status repeats a stored field. */
static bool repeats(unsigned int status, struct tbg_slice name)
{
	enum tbg_name id = tbg_name_of(name);
	uint64_t content = tbg_names_with(TBG_CONTENT);

	if (status == 304)
		return tbg_name_in(id, NOT_MODIFIED_HAS);
	if (status == 416)
		return !tbg_name_in(id, OF_LIFETIME | content | OF_REPRESENTATION |
					TBG_NAME_BIT(AGE));
	return id != TBG_NAME_AGE && !(status == 206 && tbg_name_in(id, content));
}

void tbg_deliver_not_modified(struct tbg_response_plan *d)
{
	d->status = 304;
	d->reason = tbg_status_text(304);
	d->reason_len = strlen(d->reason);
	d->length = -1;
}

static void status_line(struct tbg_lines *l, unsigned int status,
			const char *reason, size_t reason_len)
{
	tbg_lines_text(l, "HTTP/1.1 ");
	tbg_lines_number(l, status);
	tbg_lines_text(l, " ");
	tbg_lines_put(l, reason, reason_len);
	tbg_lines_text(l, "\r\n");
}

/* Copies the fields of the response and those of the location. */
static void both_put(struct tbg_lines *l, const struct tbg_response_plan *d,
		     const char *fields, size_t fields_len)
{
	struct tbg_site_fields added;
	struct tbg_slice name, v;
	size_t at = 0;

	tbg_site_fields_make(&added, d->location, d->status, fields, fields_len);
	while (tbg_field_next(fields, fields_len, &at, &name, &v))
		if ((d->received || repeats(d->status, name)) &&
		    !tbg_site_fields_replace(&added, name))
			tbg_lines_field(l, name, v);
	tbg_lines_put(l, added.lines, added.len);
}

/* Copies the fields of a response that is forwarded as it arrives. */
static void received_put(struct tbg_lines *l, const struct tbg_response_plan *d)
{
	struct tbg_lines text = { 0 };
	size_t len;

	if (d->location) {
		tbg_forward_fields(&text, d->received, d->date, 0);
		both_put(l, d, text.text ?: "", text.len);
		l->failed |= text.failed;
		tbg_lines_free(&text);
	} else {
		tbg_forward_fields(l, d->received, d->date, 0);
	}
	if (d->status != 101 && d->status != 426)
		return;
	len = l->len;
	tbg_lines_copy(l, d->received, TBG_NAME_UPGRADE);
	if (d->status == 426 && l->len > len)
		tbg_lines_text(l, "Connection: upgrade\r\n");
}

void tbg_deliver_head(struct tbg_lines *l, const struct tbg_response_plan *d,
		      uint32_t *ret_age_off)
{
	status_line(l, d->status, d->reason, d->reason_len);
	if (d->received)
		received_put(l, d);
	else
		both_put(l, d, d->fields, d->fields_len);
	*ret_age_off = l->len + strlen("Age: ");
	if (d->age_s >= 0)
		tbg_lines_add(l, "Age: %lld\r\n", (long long)d->age_s);
	if (d->range)
		tbg_lines_add(l, "Content-Range: %s\r\n", d->range);
	if (!d->made_here)
		tbg_lines_text(l, d->older ? "Via: 1.0 toboggan\r\n" :
					     "Via: 1.1 toboggan\r\n");
	if (d->length >= 0 && d->status >= 200 && d->status != 204) {
		tbg_lines_text(l, "Content-Length: ");
		tbg_lines_number(l, d->length);
		tbg_lines_text(l, "\r\n");
	}
}

/*
 * Adds the fields that depend on the answer's length, and decides whether the
 * connection persists.
 */
static void framing_lines(struct tbg_transfer *x, const struct tbg_response_plan *d)
{
	struct tbg_lines *l = &x->pre;

	if (d->status == 101) {
		tbg_lines_text(l, "Connection: upgrade\r\n");
		x->persist = TBG_PERSIST_NOT;
		return;
	}
	if (x->out_framing == TBG_FRAMING_CHUNKED)
		tbg_lines_text(l, "Transfer-Encoding: chunked\r\n");
	/* the rest of the request's body is never read */
	if (x->out_framing == TBG_FRAMING_CLOSE || tbg_transfer_uploads(x) || x->w->draining)
		x->persist = TBG_PERSIST_NOT;
	tbg_lines_text(l, tbg_persist_line(x->persist));
}

static enum tbg_framing framing_of(const struct tbg_transfer *x,
				   const struct tbg_response_plan *d)
{
	if (d->status == 101)
		return TBG_FRAMING_CLOSE;
	if (tbg_response_bodiless(d->status, x->m.method))
		return TBG_FRAMING_NONE;
	if (d->length >= 0)
		return TBG_FRAMING_LENGTH;
	return x->m.minor ? TBG_FRAMING_CHUNKED : TBG_FRAMING_CLOSE;
}

static void seek(struct tbg_transfer *x, uint64_t from)
{
	x->at = x->source ? TAILQ_FIRST(&x->source->pieces) : NULL;
	x->at_off = 0;
	x->read = from;
	while (x->at && from >= x->at->len && TAILQ_NEXT(x->at, link)) {
		from -= x->at->len;
		x->at = TAILQ_NEXT(x->at, link);
	}
	x->at_off = from;
}

/*
 * Returns the location of errors and added fields. It is looked up again: a reload may
 * have freed the one that the request had.
 */
static const struct tbg_location *location_of(const struct tbg_transfer *x)
{
	char path[TBG_TARGET_MAX + TBG_INDEX_ROOM];
	int n = tbg_target_path(x->target.text, x->target.len, path);

	if (n > 0 && path[n - 1] == '/' && x->index)
		n += strlen(strcpy(path + n, x->index));
	return tbg_location_find(tbg_site_find(x->w->sites, x->host.text, x->host.len),
				 path, n > 0 ? n : 0);
}

/* Returns NULL if the location adds nothing. */
static const struct tbg_location *adding_location(const struct tbg_transfer *x)
{
	const struct tbg_location *l = x->w->sites->adds ? location_of(x) : NULL;

	return l && l->adds ? l : NULL;
}

void tbg_deliver_begin(struct tbg_transfer *x, const struct tbg_response_plan *plan)
{
	struct tbg_response_plan with = *plan, *d = &with;
	uint32_t age_off;

	with.location = adding_location(x);

	tbg_trace_note(&x->w->trace, x->w->now_ns, TBG_TRACE_DELIVER, x, plan->status);
	tbg_delivery_enter(x, TBG_DELIVERY_MADE);
	x->begun_ms = x->w->now_ms;
	x->head_at = x->pre.len;
	x->status = d->status;
	x->out_framing = framing_of(x, d);
	x->source_end = d->ended ? TBG_SOURCE_WHOLE : TBG_SOURCE_GROWS;
	x->limit = d->limit;
	if (d->source && x->out_framing != TBG_FRAMING_NONE) {
		atomic_fetch_add(&d->source->refs, 1);
		x->source = d->source;
		seek(x, d->from);
	}
	tbg_deliver_head(&x->pre, d, &age_off);
	cache_status(x, &x->pre);
	framing_lines(x, d);
	tbg_lines_put(&x->pre, "\r\n", 2);
	if (x->persist == TBG_PERSIST_NOT && x->c)
		x->c->active->close_after = true;
}

void tbg_deliver_whole(struct tbg_transfer *x, const void *b, size_t len)
{
	if (x->out_framing == TBG_FRAMING_NONE)
		return;
	x->out_framing = TBG_FRAMING_NONE;	/* the body is in pre */
	x->body_sent = len;
	tbg_lines_put(&x->pre, b, len);
}

void tbg_deliver_error(struct tbg_transfer *x, unsigned int status)
{
	const struct tbg_location *location = location_of(x);
	struct tbg_site_fields added;
	char text[64], *page;
	const char *type = "text/plain";
	size_t len = tbg_error_body(status, text);

	tbg_delivery_enter(x, TBG_DELIVERY_MADE);
	x->head_at = x->pre.len;
	x->status = status;
	x->out_framing = TBG_FRAMING_NONE;	/* the body is in pre */
	if (tbg_transfer_uploads(x) || x->w->draining)
		x->persist = TBG_PERSIST_NOT;
	page = tbg_pages_read(x->w->s, location, status, &len, &type);
	tbg_lines_add(&x->pre, "HTTP/1.1 %u %s\r\nServer: toboggan\r\nDate: %.*s\r\n",
		      status, tbg_status_text(status), TBG_DATE_LEN, x->w->date);
	if (type)
		tbg_lines_add(&x->pre, "Content-Type: %s\r\n", type);
	tbg_lines_add(&x->pre, "Content-Length: %zu\r\n", len);
	tbg_site_fields_error(&added, location, status, type);
	tbg_lines_put(&x->pre, added.lines, added.len);
	cache_status(x, &x->pre);
	tbg_lines_add(&x->pre, "%s\r\n", tbg_persist_line(x->persist));
	x->body_sent = x->m.method == TBG_METHOD_HEAD ? 0 : len;
	tbg_lines_put(&x->pre, page ?: text, x->body_sent);
	free(page);
	if (x->persist == TBG_PERSIST_NOT && x->c)
		x->c->active->close_after = true;
}

void tbg_deliver_interim(struct tbg_transfer *x, unsigned int status,
			 const char *reason, size_t reason_len,
			 const char *fields, size_t len)
{
	if (!x->c || x->delivery || !x->m.minor)
		return;
	status_line(&x->pre, status, reason, reason_len);
	tbg_lines_put(&x->pre, fields, len);
	tbg_lines_put(&x->pre, "\r\n", 2);
}

/* Returns the unsent bytes of the source. */
static uint64_t available(const struct tbg_transfer *x)
{
	uint64_t end;

	if (!x->source)
		return 0;
	end = x->source->len < x->limit ? x->source->len : x->limit;
	return end > x->read ? end - x->read : 0;
}

bool tbg_deliver_blocked(const struct tbg_transfer *x)
{
	return x->c && x->c->polling;
}

uint64_t tbg_deliver_backlog(const struct tbg_transfer *x)
{
	return available(x);
}

/* Begins the next chunk after the previous one was sent, and the last chunk. */
static void chunk_begin(struct tbg_transfer *x)
{
	uint64_t len = available(x);

	if (x->out_framing != TBG_FRAMING_CHUNKED || x->chunk_left || x->post.len ||
	    x->source_end == TBG_SOURCE_ENDED)
		return;
	if (len) {
		tbg_lines_add(&x->pre, "%llx\r\n", (unsigned long long)len);
		x->chunk_left = len;
		tbg_lines_put(&x->post, "\r\n", 2);
	}
	if (x->source_end == TBG_SOURCE_WHOLE) {
		struct tbg_lines *l = len ? &x->post : &x->pre;

		tbg_lines_put(l, "0\r\n", 3);
		tbg_lines_put(l, x->trailer.text, x->trailer.len);
		tbg_lines_put(l, "\r\n", 2);
		l->failed |= x->trailer.failed;
		x->source_end = TBG_SOURCE_ENDED;
	}
}

static int iov_text(struct iovec *iov, const struct tbg_lines *l, uint32_t off)
{
	if (off >= l->len)
		return 0;
	*iov = (struct iovec){ l->text + off, l->len - off };
	return 1;
}

/* Fills at most max pieces, with limit bytes together. */
static int iov_pieces(const struct tbg_transfer *x, struct iovec *iov, int max,
		      uint64_t limit)
{
	struct tbg_piece *p = x->at;
	uint32_t off = x->at_off;
	int nr = 0;

	for (; p && nr < max && limit; p = TAILQ_NEXT(p, link), off = 0) {
		uint64_t n = p->len - off < limit ? p->len - off : limit;

		if (!n)
			continue;
		iov[nr++] = (struct iovec){ p->data + off, n };
		limit -= n;
	}
	return nr;
}

static size_t iov_sum(const struct iovec *iov, int nr)
{
	size_t sum = 0;

	while (nr--)
		sum += iov[nr].iov_len;
	return sum;
}

static size_t text_advance(struct tbg_lines *l, uint32_t *off, size_t n)
{
	size_t rest = l->len - *off, used = n < rest ? n : rest;

	*off += used;
	if (*off == l->len)
		*off = l->len = 0;
	return n - used;
}

/* Advances by n bytes of the source. */
static void source_advance(struct tbg_transfer *x, size_t n)
{
	x->read += n;
	x->body_sent += n;
	if (x->out_framing == TBG_FRAMING_CHUNKED)
		x->chunk_left -= n;
	while (n) {
		size_t rest = x->at->len - x->at_off;

		if (n < rest) {
			x->at_off += n;
			return;
		}
		n -= rest;
		x->at_off = x->at->len;
		if (!TAILQ_NEXT(x->at, link))
			return;
		x->at = TAILQ_NEXT(x->at, link);
		x->at_off = 0;
	}
}

void tbg_deliver_consume(struct tbg_transfer *x)
{
	x->source->read_once = true;
	if (!x->at)
		x->at = TAILQ_FIRST(&x->source->pieces);
	tbg_byte_chain_cut(x->source, x->at);
}

static void advance(struct tbg_transfer *x, size_t n, size_t body)
{
	if (x->delivery == TBG_DELIVERY_MADE && x->pre_off + n > x->head_at)
		tbg_delivery_enter(x, TBG_DELIVERY_SENDING);
	n = text_advance(&x->pre, &x->pre_off, n);
	if (!n)
		return;
	if (body) {
		size_t used = n < body ? n : body;

		source_advance(x, used);
		n -= used;
		/* the last piece may still grow, so it is kept */
		if (x->source->read_once)
			tbg_deliver_consume(x);
	}
	text_advance(&x->post, &x->post_off, n);
}

/* Returns whether the body ends with the next len bytes of its source. */
static bool body_ends(const struct tbg_transfer *x, uint64_t len)
{
	switch (x->out_framing) {
	case TBG_FRAMING_NONE:
		return true;
	case TBG_FRAMING_CHUNKED:
		return x->source_end == TBG_SOURCE_ENDED;
	case TBG_FRAMING_LENGTH:
		return x->read + len >= x->limit;
	default:
		return x->source_end && available(x) <= len;
	}
}

/* Returns whether the complete answer was sent. */
static bool finished(const struct tbg_transfer *x)
{
	return x->delivery && !x->pre.len && !x->post.len && !x->chunk_left && body_ends(x, 0);
}

/* Returns the number of source bytes that may be sent now. */
static uint64_t body_due(const struct tbg_transfer *x)
{
	if (!x->delivery || x->out_framing == TBG_FRAMING_NONE)
		return 0;
	return x->out_framing == TBG_FRAMING_CHUNKED ? x->chunk_left : available(x);
}

/* Sends once. Returns false if nothing (more) can be sent now. */
static bool send_some(struct tbg_transfer *x)
{
	uint64_t body_max;
	struct iovec iov[IOV_NR];
	size_t sum, body;
	bool all;
	ssize_t n;
	int nr;

	if (x->source && !x->at)
		x->at = TAILQ_FIRST(&x->source->pieces);
	chunk_begin(x);
	body_max = body_due(x);
	nr = iov_text(iov, &x->pre, x->pre_off);
	body = iov_pieces(x, iov + nr, IOV_NR - 2,
			  body_max < SEND_BYTES ? body_max : SEND_BYTES);
	nr += body;
	body = iov_sum(iov + nr - body, body);
	if (body == body_max)
		nr += iov_text(iov + nr, &x->post, x->post_off);
	sum = iov_sum(iov, nr);
	if (!sum)
		return false;
	all = x->delivery && body == body_max && body_ends(x, body);
	n = tbg_conn_write(x->w, x->c, iov, nr, sum, all, x->answerer.taken);
	if (n == -EAGAIN)
		return false;
	if (n < 0) {
		if (x->c)	/* not yet closed by a failed earlier send */
			tbg_conn_kill(x->w, x->c);
		return false;
	}
	advance(x, n, body);
	return true;
}

/*
 * Returns whether to wait for the rest of a short body: if it is cut off, the client
 * can still get an error or a stale response. Not while the client is sending, because
 * it may be waiting for the answer.
 */
static bool held(const struct tbg_transfer *x)
{
	return x->delivery == TBG_DELIVERY_MADE && !tbg_transfer_uploads(x) && x->source &&
	       x->limit <= HELD_BYTES && x->source->len < x->limit &&
	       x->w->now_ms - x->begun_ms < HELD_MS;
}

static void push(struct tbg_transfer *x)
{
	if (!x->c || tbg_deliver_blocked(x) || held(x))
		return;
	if (x->pre.failed || x->post.failed) {
		tbg_conn_kill(x->w, x->c);
		return;
	}
	while (x->c && !finished(x) && send_some(x))
		;
	if (x->c && finished(x)) {
		struct tbg_conn *c = x->c;

		tbg_delivery_enter(x, TBG_DELIVERY_ANSWERED);
		x->c = NULL;
		tbg_conn_answered(x->w, c, &x->answerer);
	}
}

void tbg_deliver_push(struct tbg_transfer *x)
{
	struct tbg_worker *w = x->w;

	if (!x->c || x->due)
		return;
	if (available(x) > DUE_BYTES) {
		push(x);
		return;
	}
	tbg_transfer_hold(x);
	x->due = true;
	STAILQ_INSERT_TAIL(&w->due, x, due_link);
	w->due_nr++;
}

void tbg_deliver_due(struct tbg_worker *w)
{
	struct tbg_transfer *x;

	while ((x = STAILQ_FIRST(&w->due))) {
		STAILQ_REMOVE_HEAD(&w->due, due_link);
		w->due_nr--;
		x->due = false;
		push(x);
		/* even if the client needs no more of the response */
		if (tbg_transfer_fetches(x))
			tbg_fetch_resume(x);
		tbg_transfer_release(x);
	}
}

void tbg_deliver_end(struct tbg_transfer *x)
{
	if (x->source_end == TBG_SOURCE_GROWS)
		x->source_end = TBG_SOURCE_WHOLE;
	tbg_deliver_push(x);
}

bool tbg_deliver_retract(struct tbg_transfer *x)
{
	if (x->delivery >= TBG_DELIVERY_SENDING || x->status == 101)
		return false;
	tbg_byte_chain_put(x->source);
	x->source = NULL;
	x->at = NULL;
	x->at_off = 0;
	x->read = x->chunk_left = x->body_sent = 0;
	x->limit = UINT64_MAX;
	x->pre.len = x->head_at;
	x->post.len = x->post_off = 0;
	tbg_delivery_enter(x, TBG_DELIVERY_NONE);
	x->out_framing = TBG_FRAMING_NONE;
	x->source_end = TBG_SOURCE_GROWS;
	x->answer_from = TBG_ANSWER_FETCHED;
	return true;
}

void tbg_deliver_break(struct tbg_transfer *x)
{
	struct linger reset = { .l_onoff = 1 };

	if (x->due)
		push(x);
	if (!x->c)
		return;
	/* for a body without length, a FIN would mean success */
	if (x->out_framing == TBG_FRAMING_CLOSE)
		setsockopt(x->c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	tbg_conn_kill(x->w, x->c);
}
