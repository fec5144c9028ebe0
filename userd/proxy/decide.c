// SPDX-License-Identifier: GPL-2.0
/*
 * Decides how to answer a transfer's request: from a stored response or a part of one,
 * by another request's fetch, by its own fetch, or with an error. Called at its begin
 * and when a wait has ended.
 */
#include <string.h>

#include "os/clock.h"
#include "core/fresh.h"
#include "proxy/deliver.h"
#include "proxy/fetch.h"
#include "store/partials.h"
#include "proxy/publish.h"
#include "site/site.h"
#include "proxy/transfer.h"
#include "proxy/transfer_internal.h"

#define REFRESH_AGAIN_NS 1000000000ull	/* between two starts of a refresh */
#define PARTS_MAX	(512u << 10)	/* limit of a multipart body held for a client */

static struct tbg_slice stored_field(const struct tbg_stored *s, const char *name)
{
	struct tbg_slice v = { NULL, 0 };

	tbg_field_find(s->head, s->head_len, name, &v);
	return v;
}

bool tbg_transfer_not_modified(const struct tbg_transfer *x,
			       const struct tbg_response_directives *t, const char *fields,
			       size_t len)
{
	struct tbg_slice etag = { 0 }, lm = { 0 };
	const struct tbg_field_line *f = NULL;
	struct tbg_conditions c = { 0 };
	int64_t modified_s = t->date_s;

	if (t->status != 200)
		return false;
	tbg_field_find(fields, len, "ETag", &etag);
	tbg_field_find(fields, len, "Last-Modified", &lm);
	if (etag.len > 2 && !memcmp(etag.text, "W/", 2)) {	/* weak comparison */
		etag.text += 2;
		etag.len -= 2;
	}
	while ((f = tbg_fields_next(&x->req_fields, f, TBG_NAME_IF_NONE_MATCH))) {
		c.if_none_match = f->value;	/* evaluate each line of the list */
		if (tbg_conditions_eval(&c, etag.text ?: "", etag.len, 0) == 304)
			return true;
	}
	f = tbg_fields_next(&x->req_fields, NULL, TBG_NAME_IF_MODIFIED_SINCE);
	if (c.if_none_match.text || !f)
		return false;
	c.if_modified_since = f->value;
	if (lm.len)
		tbg_date_parse(lm.text, lm.len, &modified_s);
	return tbg_conditions_eval(&c, "", 0, modified_s) == 304;
}

/* A Last-Modified in the same second as Date is weak (RFC 9110 8.8.2.2). */
static bool date_strong(const struct tbg_stored *s, struct tbg_slice modified)
{
	int64_t second;

	return !tbg_date_parse(modified.text, modified.len, &second) &&
	       s->directives.date_s > second;
}

/* Evaluates If-Range (RFC 9110 13.1.5). */
static bool if_range_holds(const struct tbg_transfer *x, const struct tbg_stored *s)
{
	const struct tbg_field_line *f = tbg_fields_next(&x->req_fields, NULL, TBG_NAME_IF_RANGE);
	struct tbg_slice v, ours;
	bool tag;

	if (!f)
		return true;
	v = f->value;
	tag = v.len && *v.text == '"';
	ours = stored_field(s, tag ? "ETag" : "Last-Modified");
	return ours.len == v.len && v.len && !memcmp(ours.text, v.text, v.len) &&
	       (tag || date_strong(s, v));
}

/* Evaluates Range for a stored response, complete or partial: see tbg_ranges_open(). */
static unsigned int ranges_of(const struct tbg_transfer *x, const struct tbg_stored *s,
			      struct tbg_ranges *ret)
{
	struct tbg_slice v = tbg_transfer_text_of(x, x->m.range);
	unsigned int status;

	if (!v.len || tbg_name_in(TBG_NAME_RANGE, x->m.repeated) || !x->req_directives.get ||
	    !if_range_holds(x, s) ||
	    (s->directives.status != 200 && s->directives.status != 206))
		return 200;
	status = tbg_ranges_open(ret, v.text, v.len, tbg_partial_size(s));
	return status == 416 && ret->malformed ? 200 : status;
}

static void delivery_status(struct tbg_response_plan *d, unsigned int status)
{
	d->status = status;
	d->reason = tbg_status_text(status);
	d->reason_len = strlen(d->reason);
}

static void deliver_range(const struct tbg_stored *s, const struct tbg_range *one,
			  struct tbg_response_plan *d, char range[TBG_RANGE_TEXT])
{
	tbg_range_text(one, tbg_partial_size(s), range);
	d->range = range;
	if (!one) {
		delivery_status(d, 416);
		d->source = NULL;
		d->length = d->limit = 0;
		return;
	}
	delivery_status(d, 206);
	d->from = one->first - tbg_partial_from(s);
	d->limit = d->from + one->len;
	d->length = one->len;
}

/* Copies the fields of s, except for its type, which each part contains. */
static void parts_fields(struct tbg_lines *ret, const struct tbg_stored *s,
			 const struct tbg_parts *p)
{
	struct tbg_slice name, v;
	size_t at = 0;

	while (tbg_field_next(s->head, s->head_len, &at, &name, &v))
		if (!tbg_slice_is(name, "Content-Type"))
			tbg_lines_field(ret, name, v);
	tbg_lines_add(ret, "Content-Type: multipart/byteranges; boundary=%s\r\n",
		      p->boundary);
}

/*
 * Makes a multipart body that this client alone uses, and returns the reference to it.
 * NULL: it is too large, or there is no memory; the client gets the complete response.
 */
static struct tbg_byte_chain *deliver_parts(const struct tbg_stored *s, const struct tbg_ranges *r,
				      struct tbg_response_plan *d, struct tbg_lines *fields)
{
	struct tbg_slice type = stored_field(s, "Content-Type"), tag = stored_field(s, "ETag");
	struct tbg_parts *p = tbg_parts_new(r, type.text ?: "", type.len, tag.text ?: "", tag.len);
	struct tbg_byte_chain *ret = NULL;

	if (p)
		parts_fields(fields, s, p);
	if (p && p->len <= PARTS_MAX && !fields->failed)
		ret = tbg_partial_several(s->body, p);
	if (ret) {
		delivery_status(d, 206);
		d->fields = fields->text;
		d->fields_len = fields->len;
		d->source = ret;
		d->length = d->limit = ret->len;
		ret->read_once = true;
	}
	tbg_parts_free(p);
	return ret;
}

/* Publishes a stored response to the kernel tiers. */
static void publish(struct tbg_transfer *x, struct tbg_stored *s)
{
	const struct tbg_worker *w = x->w;

	if (w->s->maps)
		tbg_publish(w->s->files.cache, w->s->store,
			    tbg_site_find(w->sites, x->host.text, x->host.len), &x->uri,
			    s, x->fields.text, x->fields.len, w->now_ns);
}

bool tbg_transfer_store(struct tbg_transfer *x, struct tbg_stored *s)
{
	bool stored;

	s->refresh_ns = tbg_response_directives_refresh_ns(&s->directives,
							   x->serves == TBG_SERVES_CACHE);
	s->authorized = x->req_directives.authorization;
	s->made_here = x->protocol->runs_programs;
	s->older = !x->r.minor;
	tbg_stored_get(s);
	stored = tbg_store_put(x->w->s->store, &x->uri, s, x->seq,
			       x->selected ?: x->partial);
	if (stored && x->o && !s->made_here)
		tbg_upstream_conn_stored(x->o, &x->uri);
	/* if it is due for a refresh, leave it to a hit in the daemon, which starts that */
	if (stored && x->w->now_ns < s->refresh_ns)
		publish(x, s);
	tbg_stored_put(s);
	return stored;
}

void tbg_transfer_stored(struct tbg_transfer *x, struct tbg_stored *s, bool hit)
{
	struct tbg_response_plan d = {
		.status = s->directives.status, .reason = s->reason,
		.reason_len = strlen(s->reason), .fields = s->head,
		.fields_len = s->head_len, .length = s->body->len,
		.age_s = tbg_response_directives_age(&s->directives, x->w->now_ns),
		.source = s->body, .limit = s->body->len, .ended = true,
		.made_here = x->protocol->runs_programs, .older = s->older,
	};
	struct tbg_lines fields = { 0 };
	struct tbg_byte_chain *parts = NULL;
	char range[TBG_RANGE_TEXT];
	struct tbg_ranges ranges;
	unsigned int status;

	x->hit = s;
	if (hit && x->answer_from != TBG_ANSWER_COLLAPSED)
		x->answer_from = TBG_ANSWER_HIT;
	if (!x->c)
		return;
	if (hit)
		tbg_stat_add(&x->w->stats.hits, 1);
	status = ranges_of(x, s, &ranges);
	if (tbg_transfer_not_modified(x, &s->directives, s->head, s->head_len))
		tbg_deliver_not_modified(&d);
	else if (status == 206 && ranges.nr > 1)
		parts = deliver_parts(s, &ranges, &d, &fields);
	else if (status != 200)
		deliver_range(s, status == 206 ? &ranges.one : NULL, &d, range);
	tbg_deliver_begin(x, &d);
	tbg_byte_chain_put(parts);
	tbg_lines_free(&fields);
	tbg_deliver_push(x);
}

static bool must_not_hide(const struct tbg_stored *s)
{
	return s->directives.cc.must_revalidate || s->directives.cc.proxy_revalidate ||
	       s->directives.cc.s_maxage >= 0;
}

/* Answers with a stale response in place of an error, if allowed. */
static bool hide(struct tbg_transfer *x, bool answered)
{
	struct tbg_stored *s = x->selected;

	if (!s || !tbg_response_directives_error_stale(&s->directives, &x->req_directives,
						       answered, x->w->now_ns))
		return false;
	x->selected = NULL;
	tbg_transfer_stored(x, s, false);
	return true;
}

void tbg_transfer_failed(struct tbg_transfer *x, unsigned int status)
{
	const struct tbg_stored *s = x->selected;

	if (!x->c || x->delivery || (status != 503 && hide(x, false)))
		return;
	if (s && status == 502 && must_not_hide(s))
		status = 504;		/* RFC 9111 5.2.2.2 */
	tbg_deliver_error(x, status);
	tbg_deliver_push(x);
}

/*
 * Validates a stored response after it has answered (RFC 5861 3), with a GET for the
 * complete representation. The request's Range and conditions are left out, see
 * head_make().
 */
static void refresh(struct tbg_transfer *of, struct tbg_stored *s)
{
	struct tbg_transfer *x = tbg_transfer_new(of->w, of->req, &of->m,
					      of->upstream, of->index, &of->reading);

	if (!x)
		return;
	/* if it brings nothing to store, the next hit must not repeat it at once */
	s->refresh_ns = x->w->now_ns + REFRESH_AGAIN_NS;
	x->endpoints = of->endpoints;
	x->root = of->root ? strdup(of->root) : NULL;
	x->m.method = TBG_METHOD_GET;
	x->method = TBG_SLICE("GET");
	x->req_directives.get = true;
	x->serves = TBG_SERVES_CACHE;
	x->req_directives.head = x->req_directives.range = false;
	tbg_stored_get(s);
	x->selected = s;
	if (tbg_store_enter(x->w->s->store, &x->uri, x->fields.text, x->fields.len,
			    TBG_JOIN, &x->waiter, x->w->now_ns, &x->pending) == TBG_TURN_LEAD)
		tbg_transfer_go_on(x, TBG_TRANSFER_CONNECT);
	else
		tbg_store_leave(x->w->s->store, &x->waiter);
	tbg_transfer_release(x);
}

/*
 * Returns whether a fresh response becomes stale soon: it is refreshed early, so that
 * no request has to wait.
 */
static bool ends_soon(const struct tbg_stored *s, uint64_t now_ns)
{
	return now_ns >= s->refresh_ns &&
	       tbg_fresh(tbg_response_directives_expires_ns(&s->directives), now_ns);
}

/*
 * Returns whether a response that was fetched while x waited may answer it although it
 * is already stale. Not if it is for one request only, or stored for the duration of an
 * error.
 */
static bool made_for(const struct tbg_transfer *x, const struct tbg_stored *s)
{
	const struct tbg_response_directives *t = &s->directives;

	return x->waits && t->received_ns >= x->start_ns &&
	       !tbg_response_directives_for_one(t, x->w->now_ns);
}

/* Returns whether a stored part has all bytes that the request wants. */
static bool partial_answers(const struct tbg_transfer *x, const struct tbg_stored *s)
{
	const struct tbg_response_directives *t = &s->directives;
	struct tbg_ranges r;

	return !(x->req_fields.has &
		 (TBG_NAME_BIT(IF_NONE_MATCH) | TBG_NAME_BIT(IF_MODIFIED_SINCE))) &&
	       ranges_of(x, s, &r) == 206 && r.nr == 1 && r.one.first >= t->range_from &&
	       r.one.first + r.one.len <= t->range_from + t->range_len;
}

/* As decide_stored(), for a stored part: sets x->partial instead of x->selected. */
static bool decide_partial(struct tbg_transfer *x, struct tbg_stored *s,
			   enum tbg_reuse reuse)
{
	if (reuse == TBG_REUSE && partial_answers(x, s)) {
		tbg_transfer_stored(x, s, true);
		return true;
	}
	if (reuse == TBG_REUSE)
		x->fwd = TBG_FWD_PARTIAL;
	x->partial = s;
	if (reuse == TBG_REUSE && x->req_directives.get && !x->req_directives.range &&
	    !x->req_directives.conditional && !x->protocol->runs_programs &&
	    s->directives.size <= tbg_store_body_max(x->w->s->store))
		x->asked |= TBG_SENT_REST;
	return false;
}

/*
 * Answers from the store and returns true. Otherwise sets x->selected and x->fwd. If x
 * has waited, x->fwd keeps the reason of the wait.
 */
static bool decide_stored(struct tbg_transfer *x)
{
	/*
	 * a refresh would use its credentials, or store in spite of no-store: fetch now
	 * instead
	 */
	bool waits = x->req_directives.authorization || x->req_directives.cc.no_store;
	enum tbg_reuse reuse;
	struct tbg_stored *s;
	bool others, soon;

	s = tbg_store_find(x->w->s->store, &x->uri, x->fields.text,
			   x->fields.len, &others);
	tbg_stored_put(x->selected);
	tbg_stored_put(x->partial);
	x->selected = x->partial = NULL;
	x->asked &= ~TBG_SENT_REST;
	if (!s) {
		x->fwd = others ? TBG_FWD_VARY_MISS : TBG_FWD_URI_MISS;
		return false;
	}
	reuse = made_for(x, s) ? TBG_REUSE :
				 tbg_response_directives_reuse(&s->directives, &x->req_directives,
							       x->w->now_ns);
	if (reuse != TBG_REUSE)
		x->fwd = tbg_fresh(tbg_response_directives_expires_ns(&s->directives),
				   x->w->now_ns) ?
				 TBG_FWD_REQUEST :
				 TBG_FWD_STALE;
	if (s->directives.status == 206)
		return decide_partial(x, s, reuse);
	if (reuse == TBG_REUSE_VALIDATE || (reuse == TBG_REUSE_REFRESH && waits)) {
		x->selected = s;
		return false;
	}
	soon = reuse == TBG_REUSE_REFRESH || ends_soon(s, x->w->now_ns);
	if (soon && !waits && x->w->now_ns >= s->refresh_ns)
		refresh(x, s);
	/*
	 * a published object keeps hits away from the daemon, so that none would start
	 * a refresh
	 */
	if (!soon || !waits)
		publish(x, s);
	tbg_transfer_stored(x, s, true);
	return true;
}

/*
 * Returns whether a module's own fetch leads to a module. It must not wait for another
 * fetch, which may wait for it. TBG_NAME_DEPTH limits the nesting.
 */
static bool fetched_by_module(const struct tbg_transfer *x)
{
	const struct tbg_field_line *f = tbg_fields_next(&x->req_fields, NULL, TBG_NAME_DEPTH);
	const char *mark = x->w->s->mark;

	return tbg_upstream_module(x->upstream) && f && f->value.len > strlen(mark) &&
	       !memcmp(f->value.text, mark, strlen(mark));
}

bool tbg_transfer_asks_less(const struct tbg_request_directives *w)
{
	return w->head || w->range;
}

/*
 * Returns whether this request may wait for other fetches, and others for this one. If
 * others wait, a conditional request without a stored response is sent without its
 * conditions, since a 304 is useless to them and to the cache. If nothing is stored for
 * the URI, it had better keep them.
 */
static enum tbg_join join_of(const struct tbg_transfer *x)
{
	const struct tbg_request_directives *w = &x->req_directives;

	if (w->cc.no_store || w->authorization || w->no_cache ||
	    x->waits >= WAITS_MAX || fetched_by_module(x))
		return TBG_JOIN_NOT;
	if (tbg_transfer_asks_less(w))
		return TBG_JOIN_AFTER;
	if (!w->conditional || x->selected)
		return TBG_JOIN;
	return x->fwd == TBG_FWD_URI_MISS ? TBG_JOIN_HOPING : TBG_JOIN_NOT;
}

enum tbg_transfer_phase tbg_transfer_ask(struct tbg_transfer *x)
{
	switch (tbg_store_enter(x->w->s->store, &x->uri, x->fields.text,
				x->fields.len, join_of(x), &x->waiter,
				x->w->now_ns, &x->pending)) {
	case TBG_TURN_WAIT:
		/* a HEAD or a range waits once: the complete response may take much longer */
		x->waits = tbg_transfer_asks_less(&x->req_directives) ? WAITS_MAX : x->waits + 1;
		x->stamp_ms = x->w->now_ms;
		return TBG_TRANSFER_WAIT;
	case TBG_TURN_LEAD:
	case TBG_TURN_ALONE:
		break;
	}
	return TBG_TRANSFER_CONNECT;
}

bool tbg_transfer_loops(const struct tbg_transfer *x)
{
	const char *via = x->w->s->via;
	const struct tbg_field_line *f = NULL;

	while ((f = tbg_fields_next(&x->req_fields, f, TBG_NAME_VIA)))
		if (memmem(f->value.text, f->value.len, via, strlen(via)))
			return true;
	return false;
}

enum tbg_transfer_phase tbg_transfer_refuse(struct tbg_transfer *x, unsigned int status)
{
	if (x->upload == TBG_UPLOAD_OFFER)
		tbg_upload_enter(x, TBG_UPLOAD_END);
	if (status == 411)		/* a body may follow, which is never read */
		x->persist = TBG_PERSIST_NOT;
	x->fwd = TBG_FWD_NOT;
	tbg_deliver_error(x, status);
	tbg_deliver_push(x);
	return TBG_TRANSFER_DONE;
}

bool tbg_transfer_bypasses(struct tbg_transfer *x)
{
	x->fwd = x->req_directives.get || x->req_directives.head ? TBG_FWD_BYPASS : TBG_FWD_METHOD;
	return (!x->req_directives.get && !x->req_directives.head) || x->req_directives.content ||
	       x->upload == TBG_UPLOAD_OFFER ||
	       x->req_directives.origin_condition;
}

enum tbg_transfer_phase tbg_transfer_decide(struct tbg_transfer *x)
{
	bool bypass = tbg_transfer_bypasses(x);

	if (!bypass && decide_stored(x))
		return TBG_TRANSFER_DONE;
	if (x->req_directives.cc.only_if_cached && x->fwd != TBG_FWD_METHOD)
		return tbg_transfer_refuse(x, 504);	/* RFC 9111 5.2.1.7 */
	if (bypass)
		return TBG_TRANSFER_CONNECT;
	if (tbg_transfer_loops(x))
		return tbg_transfer_refuse(x, 508);
	return tbg_transfer_ask(x);
}

/* The fetch that this transfer waited for has ended. */
static enum tbg_transfer_phase waited(struct tbg_transfer *x)
{
	unsigned int status = x->waiter.status;

	if (!x->c)
		return x->phase;
	x->answer_from = TBG_ANSWER_COLLAPSED;
	if (status && status != TBG_PENDING_ERROR && tbg_transfer_asks_less(&x->req_directives))
		/* its own fetch may succeed where the complete one failed */
		status = 0;
	if (status && status != TBG_PENDING_ERROR) {
		tbg_transfer_failed(x, status);
		return TBG_TRANSFER_DONE;
	}
	if (decide_stored(x) || (status && hide(x, true)))
		return TBG_TRANSFER_DONE;
	x->answer_from = TBG_ANSWER_FETCHED;
	return tbg_transfer_ask(x);
}

void tbg_transfer_on_waited(void *worker, struct tbg_mail *mail)
{
	struct tbg_waiter *waiter = (void *)((char *)mail -
					     offsetof(struct tbg_waiter, mail));
	struct tbg_transfer *x = (void *)((char *)waiter -
					  offsetof(struct tbg_transfer, waiter));

	tbg_transfer_hold(x);
	tbg_transfer_go_on(x, waited(x));
	tbg_transfer_release(x);
}
