// SPDX-License-Identifier: GPL-2.0
/*
 * What answers a request (RFC 9111 4): something stored, the fetch of another
 * request for the same, or a fetch of its own. And the end: a transfer goes
 * when nobody is answered by it, its fetch has ended, and no connection uses
 * its memory.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/clock.h"
#include "client/connection.h"
#include "core/fresh.h"
#include "proxy/deliver.h"
#include "fastcgi/client.h"
#include "proxy/fetch.h"
#include "proxy/request_body.h"
#include "store/partials.h"
#include "cache/publish.h"
#include "files/root.h"
#include "main/server.h"
#include "site/site.h"
#include "store/spool.h"
#include "http/vary.h"
#include "proxy/transfer.h"
#include "config/units.h"

#define WAITS_MAX	2		/* for others' fetches, then our own */
#define FIELDS_MAX	256		/* lines of a request: each may be compared with each */
#define GONE_MS		2000	/* of silence, from both sides */
#define LOST_MS		15000		/* since one of them was under way */
#define REFRESH_AGAIN_NS 1000000000ull	/* since the last one began */
#define AFTER_MS	2000		/* of waiting for more than is asked for */
#define SPARES_MAX	64		/* kept by a worker, */
#define SPARE_ROOM	8192		/* with heads of so many bytes at most, */
#define SPARE_FIELDS	96		/* and so many lines */
#define PARTS_MAX	(512u << 10)	/* of several ranges: what a slow client may hold */
#define LONG_NS		60000000000ull	/* a body that takes longer is for its client alone */

/* Life */

/* Empty. */
static struct tbg_transfer *transfer_alloc(struct tbg_worker *w)
{
	struct tbg_transfer *x = w->spare_transfers;

	if (!x)
		return calloc(1, sizeof(*x));
	w->spare_transfers = x->next;
	w->spare_transfers_nr--;
	x->next = NULL;
	return x;
}

static bool lines_empty(struct tbg_lines *l)
{
	l->len = 0;
	l->failed = false;
	return l->room <= SPARE_ROOM;
}

/* For the next one, with the memory of both heads: most of what an answer allocates. */
static bool transfer_spare(struct tbg_transfer *x)
{
	struct tbg_worker *w = x->w;
	struct tbg_lines text = x->text, up_head = x->up_head, pre = x->pre;
	struct tbg_fields asks = x->asks, says = x->says;

	if (!lines_empty(&text) || !lines_empty(&up_head) || !lines_empty(&pre) ||
	    asks.room > SPARE_FIELDS || says.room > SPARE_FIELDS ||
	    w->spare_transfers_nr == SPARES_MAX)
		return false;
	memset(x, 0, sizeof(*x));
	x->text = text;
	x->up_head = up_head;
	x->pre = pre;
	x->asks = asks;
	x->says = says;
	x->next = w->spare_transfers;
	w->spare_transfers = x;
	w->spare_transfers_nr++;
	return true;
}

static void transfer_free(struct tbg_transfer *x)
{
	if (x->listed) {
		*x->prev = x->next;
		if (x->next)
			x->next->prev = x->prev;
	}
	tbg_stored_put(x->selected);
	tbg_stored_put(x->part);
	tbg_stored_put(x->hit);
	tbg_byte_chain_put(x->pile);
	tbg_byte_chain_put(x->source);
	tbg_body_decoder_end(&x->frame);
	tbg_body_decoder_end(&x->up_frame);
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
	if (transfer_spare(x))
		return;
	tbg_lines_free(&x->text);
	tbg_lines_free(&x->up_head);
	tbg_lines_free(&x->pre);
	tbg_fields_free(&x->asks);
	tbg_fields_free(&x->says);
	free(x);
}

void tbg_transfer_release(struct tbg_transfer *x)
{
	if (--x->holds || x->c || x->running || x->waiting || x->origins_nr)
		return;
	transfer_free(x);
}

void tbg_transfer_pile_put(struct tbg_transfer *x)
{
	if (x->running || x->origins_nr)
		return;
	tbg_byte_chain_put(x->pile);
	x->pile = NULL;
}

void tbg_transfer_origin_gone(struct tbg_transfer *x)
{
	tbg_transfer_hold(x);
	x->origins_nr--;
	tbg_transfer_pile_put(x);
	tbg_transfer_release(x);
}

void tbg_transfer_land(struct tbg_transfer *x, unsigned int status, bool pass)
{
	struct tbg_pending_fetch *f = x->flight;

	if (!f)
		return;
	x->flight = NULL;
	tbg_store_land(x->w->s->stock, f, status, pass, x->w->now_ns);
}

void tbg_transfer_abandon(struct tbg_transfer *x)
{
	tbg_transfer_hold(x);
	x->c = NULL;
	x->gathering = false;
	if (x->waiting) {
		x->waiting = false;
		tbg_store_leave(x->w->s->stock, &x->waiter);
	}
	/* others' answer is worth finishing, if it needs nothing of the client */
	if (x->running && (x->up_body || !x->flight ||
			   !tbg_store_waiting(x->w->s->stock, x->flight)))
		tbg_fetch_stop(x);
	x->for_others = x->running;
	tbg_transfer_release(x);
}

/* Reading the request */

/* Copies, and returns what is behind. */
static char *text_add(char *at, const char *b, size_t len)
{
	if (len)
		memcpy(at, b, len);
	return at + len;
}

/*
 * The URI that a response is stored under, and that is sent on: nothing else is to
 * select an answer. Host is in lower case and without the scheme's own port, an empty
 * path is "/" (RFC 9110 4.2.3). A folder's index is part of the target unless the
 * server is a program's: that one is told both.
 */
static void uri_make(struct tbg_transfer *x, struct tbg_value target)
{
	bool names = x->index && x->upstream->terms.protocol == TBG_PROTOCOL_HTTP;
	size_t index_len = names ? strlen(x->index) : 0, n = x->host.len;
	const char *mark = target.len ? memchr(target.text, '?', target.len) : NULL;
	size_t path_len = mark ? (size_t)(mark - target.text) : target.len;
	/* a folder whose name ends in a dot segment */
	bool slash = names && path_len && target.text[path_len - 1] != '/';
	const char *authority = x->host.text, *port;
	struct tbg_value named = tbg_forward_host(&x->asks);
	bool https = tbg_forward_https(&x->asks);
	char *uri, *at;

	port = https ? ":443" : ":80";
	if (n > strlen(port) && !memcmp(authority + n - strlen(port), port, strlen(port)))
		n -= strlen(port);
	uri = at = x->text.text + x->text.len;
	for (size_t i = 0; i < n; i++)
		*at++ = tbg_lower(authority[i]);
	at = text_add(at, path_len ? target.text : "/", path_len ?: 1);
	at = text_add(at, "/", slash);
	at = text_add(at, x->index, index_len);
	at = text_add(at, mark, target.len - path_len);
	x->text.len = at - x->text.text;
	x->host = (struct tbg_value){ uri, n };
	if (tbg_value_same(named, x->host))
		named.len = 0;
	x->uri = (struct tbg_uri){ uri, at - uri, n, x->upstream->id, https, named };
	x->target = (struct tbg_value){ uri + n, at - uri - n };
}

/* The target in origin form (RFC 9112 3.2.1): what follows the authority; or "*". */
static struct tbg_value origin_form(const struct tbg_message *m, struct tbg_value t)
{
	const char *at = t.text, *end = t.text + t.len;

	if (m->asterisk)
		return TBG_VALUE("*");
	if (!t.len || *at == '/')
		return t;
	at = memchr(at, ':', t.len);
	for (at = at ? at + 3 : end; at < end && *at != '/' && *at != '?'; at++)
		;
	return (struct tbg_value){ at, end > at ? end - at : 0 };
}

static struct tbg_value text_of(const struct tbg_transfer *x, struct tbg_text t)
{
	return (struct tbg_value){ x->req + t.off, t.off ? t.len : 0 };
}

/* Whether the client offers to go on in another protocol. */
static bool upgrades(const struct tbg_fields *fields)
{
	return tbg_fields_have(fields, TBG_NAME_CONNECTION, TBG_VALUE("Upgrade")) &&
	       tbg_name_in(TBG_NAME_UPGRADE, fields->has) &&
	       /* an offer that may be ignored */
	       !tbg_fields_have(fields, TBG_NAME_UPGRADE, TBG_VALUE("h2c"));
}

static bool trusts(const struct tbg_location *l, const char *peer)
{
	struct tbg_prefix one;

	if (!l->proxies_nr || !tbg_value_prefix(peer, &one))
		return false;
	for (unsigned int i = 0; i < l->proxies_nr; i++)
		if (tbg_prefix_has(&l->proxies[i], &one))
			return true;
	return false;
}

/*
 * What only a proxy before us may say of a request is emptied in anybody else's: no
 * upstream and no program is to believe it, nor a Vary to choose by it.
 */
static void claims_empty(struct tbg_transfer *x)
{
	const uint64_t claims = TBG_NAME_BIT(X_FORWARDED_PROTO) | TBG_NAME_BIT(X_FORWARDED_HOST);

	for (uint32_t i = 0; x->asks.has & claims && i < x->asks.nr; i++) {
		struct tbg_field_line *f = &x->asks.all[i];

		if (!tbg_name_in(f->id, claims))
			continue;
		memset(x->req + (f->value.text - x->req), ' ', f->value.len);
		f->value.len = 0;
	}
}

static void odd_names_drop(struct tbg_fields *f)
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < f->nr; i++)
		if (f->all[i].id || !tbg_forward_odd(f->all[i].name))
			f->all[nr++] = f->all[i];
	f->nr = nr;
}

/* What varies by it is stored by this form: nothing else is to select an answer. */
static void encodings_join(struct tbg_transfer *x)
{
	size_t from = x->text.len;
	struct tbg_value one;
	uint32_t nr = 0;

	if (!tbg_name_in(TBG_NAME_ACCEPT_ENCODING, x->asks.has))
		return;
	if (!tbg_vary_encoding(&x->text, x->fields.text, x->fields.len)) {
		x->text.len = from;
		return;
	}
	one = (struct tbg_value){ x->text.text + from, x->text.len - from };
	for (uint32_t i = 0; i < x->asks.nr; i++) {
		if (x->asks.all[i].id == TBG_NAME_ACCEPT_ENCODING) {
			if (!one.len)
				continue;
			x->asks.all[i].value = one;
			one.len = 0;
		}
		x->asks.all[nr++] = x->asks.all[i];
	}
	x->asks.nr = nr;
}

static bool request_read(struct tbg_transfer *x)
{
	const char *line = x->req + x->m.head_off;
	const char *end = x->req + x->m.len;
	const char *lf = memchr(line, '\n', end - line);
	const char *space = memchr(line, ' ', end - line);

	x->method = (struct tbg_value){ line, space - line };
	x->host = text_of(x, x->m.host);
	x->fields = (struct tbg_value){ lf + 1, end - lf - 1 };
	if (tbg_fields_read(&x->asks, x->fields.text, x->fields.len) < 0)
		return false;
	if (!x->reading.believed)
		claims_empty(x);
	if (!x->reading.odd_names)
		odd_names_drop(&x->asks);
	encodings_join(x);
	tbg_request_directives_read(&x->wish, x->m.method, &x->asks);
	x->wish.client_stale = x->reading.client_stale;
	x->wish.store_cookies = x->reading.store_cookies;
	x->wish.content = x->m.chunked || x->m.content_length;
	x->tunnel = x->upstream->terms.protocol == TBG_PROTOCOL_HTTP &&
		    x->m.method == TBG_METHOD_GET && x->m.minor &&
		    !x->m.chunked && !x->m.content_length &&
		    upgrades(&x->asks);
	uri_make(x, origin_form(&x->m, text_of(x, x->m.target)));
	return true;
}

/* What programs are told of the location. False: no memory. */
static bool script_read(struct tbg_transfer *x, const struct tbg_location *l)
{
	if (!tbg_protocol_needs_root(x->upstream->terms.protocol) || l->root < 0)
		return true;
	x->root = strdup(tbg_root_path(x->w->s->roots, l->root));
	return x->root;
}

static void on_waited(struct tbg_worker *w, struct tbg_mail *mail);

static struct tbg_transfer *transfer_new(struct tbg_worker *w, const void *req,
					 const struct tbg_message *m,
					 struct tbg_upstream *upstream,
					 const char *index,
					 const struct tbg_reading *reading)
{
	struct tbg_transfer *x = transfer_alloc(w);
	size_t room;

	if (!x)
		return NULL;
	x->w = w;
	x->m = *m;
	x->reading = *reading;
	x->upstream = tbg_upstream_get(upstream);
	x->index = index ? strdup(index) : NULL;
	/* once, so that it stays where it is: encodings, and a URI with an index and slashes */
	room = 3 * m->len + 2 + (index ? strlen(index) : 0);
	x->holds = 1;
	x->start_ns = w->now_ns;
	x->stamp_ms = w->now_ms;
	x->waiter.w = w;
	x->waiter.mail.fn = on_waited;
	x->limit = UINT64_MAX;
	x->taken = m->len;
	if (tbg_lines_room(&x->text, room) && (x->index || !index)) {
		tbg_lines_put(&x->text, req, m->len);
		x->req = x->text.text;
		if (request_read(x)) {
			x->next = w->transfers;
			x->prev = &w->transfers;
			if (x->next)
				x->next->prev = &x->next;
			w->transfers = x;
			x->listed = true;
			return x;
		}
	}
	transfer_free(x);
	return NULL;
}

/* Answering with what is stored */

static struct tbg_value stored_field(const struct tbg_stored *s, const char *name)
{
	struct tbg_value v = { NULL, 0 };

	tbg_field_find(s->head, s->head_len, name, &v);
	return v;
}

bool tbg_transfer_not_modified(const struct tbg_transfer *x,
			       const struct tbg_response_directives *t, const char *fields,
			       size_t len)
{
	struct tbg_value etag = { 0 }, lm = { 0 };
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
	while ((f = tbg_fields_next(&x->asks, f, TBG_NAME_IF_NONE_MATCH))) {
		c.if_none_match = f->value;	/* of a list on several lines, each */
		if (tbg_conditions_eval(&c, etag.text ?: "", etag.len, 0) == 304)
			return true;
	}
	f = tbg_fields_next(&x->asks, NULL, TBG_NAME_IF_MODIFIED_SINCE);
	if (c.if_none_match.text || !f)
		return false;
	c.if_modified_since = f->value;
	if (lm.len)
		tbg_date_parse(lm.text, lm.len, &modified_s);
	return tbg_conditions_eval(&c, "", 0, modified_s) == 304;
}

/* Last-Modified of an answer that was made in the same second is weak (8.8.2.2). */
static bool date_strong(const struct tbg_stored *s, struct tbg_value modified)
{
	int64_t second;

	return !tbg_date_parse(modified.text, modified.len, &second) &&
	       s->terms.date_s > second;
}

/* RFC 9110 13.1.5: the range counts only for the representation it is of. */
static bool if_range_holds(const struct tbg_transfer *x, const struct tbg_stored *s)
{
	const struct tbg_field_line *f = tbg_fields_next(&x->asks, NULL, TBG_NAME_IF_RANGE);
	struct tbg_value v, ours;
	bool tag;

	if (!f)
		return true;
	v = f->value;
	tag = v.len && *v.text == '"';
	ours = stored_field(s, tag ? "ETag" : "Last-Modified");
	return ours.len == v.len && v.len && !memcmp(ours.text, v.text, v.len) &&
	       (tag || date_strong(s, v));
}

/* What is asked for of a stored response, whole or in part: see tbg_ranges_open(). */
static unsigned int ranges_of(const struct tbg_transfer *x, const struct tbg_stored *s,
			      struct tbg_ranges *ret)
{
	struct tbg_value v = text_of(x, x->m.range);
	unsigned int status;

	if (!v.len || x->m.range_many || !x->wish.get || !if_range_holds(x, s) ||
	    (s->terms.status != 200 && s->terms.status != 206))
		return 200;
	status = tbg_ranges_open(ret, v.text, v.len, tbg_part_size(s));
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
	tbg_range_text(one, tbg_part_size(s), range);
	d->range = range;
	if (!one) {
		delivery_status(d, 416);
		d->source = NULL;
		d->length = d->limit = 0;
		return;
	}
	delivery_status(d, 206);
	d->from = one->first - tbg_part_from(s);
	d->limit = d->from + one->len;
	d->length = one->len;
}

/* The fields of s, but that of its type, which stands in each part. */
static void parts_fields(struct tbg_lines *ret, const struct tbg_stored *s,
			 const struct tbg_parts *p)
{
	struct tbg_value name, v;
	size_t at = 0;

	while (tbg_field_next(s->head, s->head_len, &at, &name, &v))
		if (!tbg_value_is(name, "Content-Type"))
			tbg_lines_field(ret, name, v);
	tbg_lines_add(ret, "Content-Type: multipart/byteranges; boundary=%s\r\n",
		      p->boundary);
}

/*
 * Several ranges, in a copy that is this client's alone; its reference is returned.
 * NULL: they are more than it may hold, or there is no memory: it gets the whole.
 */
static struct tbg_byte_chain *deliver_parts(const struct tbg_stored *s, const struct tbg_ranges *r,
				      struct tbg_response_plan *d, struct tbg_lines *fields)
{
	struct tbg_value type = stored_field(s, "Content-Type"), tag = stored_field(s, "ETag");
	struct tbg_parts *p = tbg_parts_new(r, type.text ?: "", type.len, tag.text ?: "", tag.len);
	struct tbg_byte_chain *ret = NULL;

	if (p)
		parts_fields(fields, s, p);
	if (p && p->len <= PARTS_MAX && !fields->failed)
		ret = tbg_part_several(s->body, p);
	if (ret) {
		delivery_status(d, 206);
		d->fields = fields->text;
		d->fields_len = fields->len;
		d->source = ret;
		d->length = d->limit = ret->len;
		d->consumes = true;
	}
	tbg_parts_free(p);
	return ret;
}

/* What the kernel tiers may answer with of what answers here. */
static void publish(struct tbg_transfer *x, struct tbg_stored *s)
{
	const struct tbg_worker *w = x->w;

	tbg_publish(w->s, tbg_site_find(w->sites, x->host.text, x->host.len), &x->uri,
		    s, x->fields.text, x->fields.len, w->now_ns);
}

bool tbg_transfer_store(struct tbg_transfer *x, struct tbg_stored *s)
{
	bool stored;

	s->refresh_ns = tbg_response_directives_refresh_ns(&s->terms, x->refreshes);
	s->authorized = x->wish.authorization;
	s->made_here = tbg_speaks_fastcgi(x);
	s->older = !x->r.minor;
	tbg_stored_get(s);
	stored = tbg_store_put(x->w->s->stock, &x->uri, s, x->seq,
			       x->selected ?: x->part);
	if (stored && x->o && !s->made_here)
		tbg_upstream_conn_stored(x->o, &x->uri);
	/* what is due for a refresh at once: a hit that we see begins it */
	if (stored && x->w->now_ns < s->refresh_ns)
		publish(x, s);
	tbg_stored_put(s);
	return stored;
}

void tbg_transfer_stored(struct tbg_transfer *x, struct tbg_stored *s, bool hit)
{
	struct tbg_response_plan d = {
		.status = s->terms.status, .reason = s->reason,
		.reason_len = strlen(s->reason), .fields = s->head,
		.fields_len = s->head_len, .length = s->body->len,
		.age_s = tbg_response_directives_age(&s->terms, x->w->now_ns),
		.source = s->body, .limit = s->body->len, .ended = true,
		.made_here = tbg_speaks_fastcgi(x), .older = s->older,
	};
	struct tbg_lines fields = { 0 };
	struct tbg_byte_chain *parts = NULL;
	char range[TBG_RANGE_TEXT];
	struct tbg_ranges ranges;
	unsigned int status;

	x->hit = s;
	if (!x->c)
		return;
	if (hit)
		tbg_stat_add(&x->w->stats.hits, 1);
	status = ranges_of(x, s, &ranges);
	if (tbg_transfer_not_modified(x, &s->terms, s->head, s->head_len))
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
	return s->terms.cc.must_revalidate || s->terms.cc.proxy_revalidate ||
	       s->terms.cc.s_maxage >= 0;
}

/* Answers with what is stale in place of an error, where that is right. */
static bool hide(struct tbg_transfer *x, bool told)
{
	struct tbg_stored *s = x->selected;

	if (!s || !tbg_response_directives_error_stale(&s->terms, &x->wish, told, x->w->now_ns))
		return false;
	x->selected = NULL;
	x->in_vain = true;
	tbg_transfer_stored(x, s, false);
	return true;
}

void tbg_transfer_failed(struct tbg_transfer *x, unsigned int status)
{
	const struct tbg_stored *s = x->selected;

	if (!x->c || x->begun || (status != 503 && hide(x, false)))
		return;
	if (s && status == 502 && must_not_hide(s))
		status = 504;		/* RFC 9111 5.2.2.2 */
	tbg_deliver_error(x, status);
	tbg_deliver_push(x);
}

/* Deciding */

/*
 * Validates behind an answer that has been given (RFC 5861 3): as a GET of the
 * whole, whatever was asked for. What selects leaves a range out, see head_make().
 */
static void refresh(struct tbg_transfer *of, struct tbg_stored *s)
{
	struct tbg_transfer *x = transfer_new(of->w, of->req, &of->m,
					      of->upstream, of->index, &of->reading);

	if (!x)
		return;
	/* one that brings nothing to store is not to come again with every hit */
	s->refresh_ns = x->w->now_ns + REFRESH_AGAIN_NS;
	x->ends = of->ends;
	x->root = of->root ? strdup(of->root) : NULL;
	x->m.method = TBG_METHOD_GET;
	x->method = TBG_VALUE("GET");
	x->wish.get = x->refreshes = true;
	x->wish.head = x->wish.range = false;
	tbg_stored_get(s);
	x->selected = s;
	if (tbg_store_enter(x->w->s->stock, &x->uri, x->fields.text, x->fields.len,
			    TBG_JOIN, &x->waiter, &x->flight) == TBG_TURN_LEAD)
		tbg_fetch_begin(x);
	else
		tbg_store_leave(x->w->s->stock, &x->waiter);
	tbg_transfer_release(x);
}

/* Whether a fresh response is about to be stale: no request for it shall wait. */
static bool ends_soon(const struct tbg_stored *s, uint64_t now_ns)
{
	return now_ns >= s->refresh_ns &&
	       tbg_fresh(tbg_response_directives_expires_ns(&s->terms), now_ns);
}

/*
 * What a wait has brought was made for this request too, however short-lived; but
 * not what is for one request alone, or is stored for the time of an error.
 */
static bool made_for(const struct tbg_transfer *x, const struct tbg_stored *s)
{
	const struct tbg_response_directives *t = &s->terms;

	return x->waits && t->received_ns >= x->start_ns &&
	       !tbg_response_directives_for_one(t, x->w->now_ns);
}

/* Whether a stored part has all that is asked for. */
static bool part_answers(const struct tbg_transfer *x, const struct tbg_stored *s)
{
	const struct tbg_response_directives *t = &s->terms;
	struct tbg_ranges r;

	return !(x->asks.has & (TBG_NAME_BIT(IF_NONE_MATCH) | TBG_NAME_BIT(IF_MODIFIED_SINCE))) &&
	       ranges_of(x, s, &r) == 206 && r.nr == 1 && r.one.first >= t->part_from &&
	       r.one.first + r.one.len <= t->part_from + t->part_len;
}

/* The same of a stored part: x->part is set in place of x->selected. */
static bool decide_part(struct tbg_transfer *x, struct tbg_stored *s,
			enum tbg_reuse reuse)
{
	if (reuse == TBG_REUSE && part_answers(x, s)) {
		tbg_transfer_stored(x, s, true);
		return true;
	}
	if (reuse == TBG_REUSE)
		x->fwd = TBG_FWD_PARTIAL;
	x->part = s;
	x->completes = reuse == TBG_REUSE && x->wish.get && !x->wish.range &&
		       !x->wish.conditional && !tbg_speaks_fastcgi(x) &&
		       s->terms.size <= tbg_store_body_max(x->w->s->stock);
	return false;
}

/*
 * True: what is stored answers; to one that has waited, with the x->fwd that it
 * waited for. Otherwise x->selected and x->fwd are set.
 */
static bool decide_stored(struct tbg_transfer *x)
{
	/* it waits: behind its answer no credentials are used, and no-store keeps nothing */
	bool alone = x->wish.authorization || x->wish.cc.no_store;
	enum tbg_reuse reuse;
	struct tbg_stored *s;
	bool others, soon;

	s = tbg_store_find(x->w->s->stock, &x->uri, x->fields.text,
			   x->fields.len, &others);
	tbg_stored_put(x->selected);
	tbg_stored_put(x->part);
	x->selected = x->part = NULL;
	x->completes = false;
	if (!s) {
		x->fwd = others ? TBG_FWD_VARY_MISS : TBG_FWD_URI_MISS;
		return false;
	}
	reuse = made_for(x, s) ? TBG_REUSE
			       : tbg_response_directives_reuse(&s->terms, &x->wish, x->w->now_ns);
	if (reuse != TBG_REUSE)
		x->fwd = tbg_fresh(tbg_response_directives_expires_ns(&s->terms), x->w->now_ns) ?
			 TBG_FWD_REQUEST : TBG_FWD_STALE;
	if (s->terms.status == 206)
		return decide_part(x, s, reuse);
	if (reuse == TBG_REUSE_VALIDATE || (reuse == TBG_REUSE_REFRESH && alone)) {
		x->selected = s;
		return false;
	}
	soon = reuse == TBG_REUSE_REFRESH || ends_soon(s, x->w->now_ns);
	if (soon && !alone && x->w->now_ns >= s->refresh_ns)
		refresh(x, s);
	/* once the kernel tiers answer, no request comes here that would begin that */
	if (!soon || !alone)
		publish(x, s);
	tbg_transfer_stored(x, s, true);
	return true;
}

/*
 * A module's fetch, which a module answers: what it would wait for may be waiting
 * for it. It counts how deep it is instead, and so comes to an end.
 */
static bool fetched_by_module(const struct tbg_transfer *x)
{
	const struct tbg_field_line *f = tbg_fields_next(&x->asks, NULL, TBG_NAME_DEPTH);
	const char *mark = x->w->s->mark;

	return tbg_upstream_module(x->upstream) && f && f->value.len > strlen(mark) &&
	       !memcmp(f->value.text, mark, strlen(mark));
}

/* What no other can be answered with, while another's fetch may answer it. */
static bool asks_less(const struct tbg_request_directives *w)
{
	return w->head || w->range;
}

/*
 * May others wait for this one's fetch, and this one for theirs? What has conditions
 * and selects nothing has to go without them then: a 304 is of no use to the others,
 * nor to the cache. Where nothing is stored all the same, it had better keep them.
 */
static enum tbg_join join_of(const struct tbg_transfer *x)
{
	const struct tbg_request_directives *w = &x->wish;

	if (w->cc.no_store || w->authorization || w->no_cache ||
	    x->waits >= WAITS_MAX || fetched_by_module(x))
		return TBG_JOIN_NOT;
	if (asks_less(w))
		return TBG_JOIN_AFTER;
	if (!w->conditional || x->selected)
		return TBG_JOIN;
	return x->fwd == TBG_FWD_URI_MISS ? TBG_JOIN_HOPING : TBG_JOIN_NOT;
}

static void go(struct tbg_transfer *x)
{
	switch (tbg_store_enter(x->w->s->stock, &x->uri, x->fields.text,
				x->fields.len, join_of(x), &x->waiter,
				&x->flight)) {
	case TBG_TURN_WAIT:
		x->waiting = true;
		/* once, for who asks for less: it may take longer than that is worth */
		x->waits = asks_less(&x->wish) ? WAITS_MAX : x->waits + 1;
		x->stamp_ms = x->w->now_ms;
		break;
	case TBG_TURN_LEAD:
	case TBG_TURN_ALONE:
		tbg_fetch_begin(x);
		break;
	}
}

/* Has the request come through this very daemon (RFC 9110 7.6.3)? */
static bool loops(const struct tbg_transfer *x)
{
	const char *via = x->w->s->via;
	const struct tbg_field_line *f = NULL;

	while ((f = tbg_fields_next(&x->asks, f, TBG_NAME_VIA)))
		if (memmem(f->value.text, f->value.len, via, strlen(via)))
			return true;
	return false;
}

static void refuse(struct tbg_transfer *x, unsigned int status)
{
	/* a body is never read */
	x->up_body = x->m.chunked || x->m.content_length || status == 411;
	x->fwd = TBG_FWD_NOT;
	tbg_deliver_error(x, status);
	tbg_deliver_push(x);
}

/* Whether the cache has no part in it; x->fwd is set. */
static bool bypasses(struct tbg_transfer *x)
{
	x->fwd = x->wish.get || x->wish.head ? TBG_FWD_BYPASS : TBG_FWD_METHOD;
	return (!x->wish.get && !x->wish.head) || x->wish.content || x->tunnel ||
	       x->wish.origin_condition;
}

void tbg_transfer_decide(struct tbg_transfer *x)
{
	bool bypass = bypasses(x);

	if (!bypass && decide_stored(x))
		return;
	if (x->wish.cc.only_if_cached && x->fwd != TBG_FWD_METHOD)
		refuse(x, 504);		/* RFC 9111 5.2.1.7 */
	else if (bypass)
		tbg_fetch_begin(x);
	else if (loops(x))
		refuse(x, 508);
	else
		go(x);
}

/* The fetch that this one waited for is over. */
static void waited(struct tbg_transfer *x)
{
	unsigned int status = x->waiter.status;

	x->waiting = false;
	if (!x->c)
		return;
	x->collapsed = true;
	if (status && status != TBG_LANDED_ERROR && asks_less(&x->wish))
		status = 0;		/* its own fetch need not fail as the whole did */
	if (status && status != TBG_LANDED_ERROR) {
		tbg_transfer_failed(x, status);
		return;
	}
	if (decide_stored(x) || (status && hide(x, true)))
		return;
	x->collapsed = false;
	go(x);
}

static void on_waited(struct tbg_worker *w, struct tbg_mail *mail)
{
	struct tbg_waiter *waiter = (void *)((char *)mail -
					     offsetof(struct tbg_waiter, mail));
	struct tbg_transfer *x = (void *)((char *)waiter -
					  offsetof(struct tbg_transfer, waiter));

	tbg_transfer_hold(x);
	waited(x);
	tbg_transfer_release(x);
}

/* From client/connection.c */

/* HTTP/1.0 has bodies that end with the connection, which is no end at all. */
static bool without_length(const struct tbg_message *m)
{
	return !m->minor && !m->has_length && !m->chunked &&
	       (m->method == TBG_METHOD_POST || m->method == TBG_METHOD_PUT ||
		m->method == TBG_METHOD_PATCH);
}

/* A status that answers at once; 0: none. */
static unsigned int refusal(struct tbg_transfer *x,
			    const struct tbg_location *location)
{
	if (x->m.fields_nr > FIELDS_MAX)
		return 431;
	if (without_length(&x->m) || tbg_request_body_lacks_length(x, location))
		return 411;
	if (x->m.content_length > x->body_max ||
	    x->m.content_length > INT64_MAX)
		return 413;
	return bypasses(x) && loops(x) ? 508 : 0;
}

bool tbg_transfer_is_hit(const struct tbg_transfer *x)
{
	return x->hit && !x->fwd_status && !x->collapsed && !x->in_vain;
}

const char *tbg_transfer_reason(const struct tbg_transfer *x)
{
	if (tbg_transfer_is_hit(x))
		return tbg_cache_word(TBG_CACHE_HIT);
	if (x->fwd == TBG_FWD_NOT)
		return tbg_cache_word(TBG_CACHE_NONE);
	return tbg_cache_word(x->stored ? TBG_CACHE_STORED : TBG_CACHE_MISS);
}

bool tbg_transfer_start(struct tbg_worker *w, struct tbg_conn *c,
			const struct tbg_message *m, const void *b,
			const struct tbg_transfer_request *e)
{
	const struct tbg_location *location = e->location;
	const struct tbg_endpoints *ends = tbg_conn_ends(c);
	struct tbg_reading reading = {
		.believed = trusts(location, ends->peer),
		.odd_names = location->odd_names,
		.client_stale = location->client_stale,
		.store_cookies = location->store_cookies,
	};
	struct tbg_transfer *x = transfer_new(w, b, m, location->upstream, e->index, &reading);
	unsigned int status;
	bool whole;

	if (!x)
		return false;
	x->c = c;
	x->persist = e->persist;
	x->taken = e->taken;
	x->body_max = location->body_max;
	x->ends = *ends;
	c->traffic->transfer = x;
	whole = tbg_request_body_wanted(x, location);
	if (c->sock >= 0 && !whole && (x->wish.content || x->tunnel)) {
		x->spool = tbg_spool_new(TBG_SPOOL_USUAL, location->body_folder);
		x->hoards = x->spool;
	}
	x->starting = true;
	status = script_read(x, location) ? refusal(x, location) : 503;
	if (status)
		refuse(x, status);
	else if (whole)
		tbg_request_body_begin(x, location);
	else
		tbg_transfer_decide(x);
	x->starting = false;
	tbg_transfer_release(x);
	return true;
}

/* Of a body, or of the one connection. */
#define STAYS_BEHIND \
	(TBG_NAME_BIT(DIGEST) | TBG_NAME_BIT(REPR_DIGEST) | TBG_NAME_BIT(EXPECT) | \
	 TBG_NAME_BIT(HOST) | TBG_NAME_BIT(TRAILER) | TBG_NAME_BIT(TRANSFER_ENCODING))

static bool stays_behind(const struct tbg_field_line *f)
{
	static const struct tbg_value content = TBG_VALUE("Content-");

	return tbg_name_in(f->id, STAYS_BEHIND) ||
	       (f->name.len > content.len &&
		tbg_value_same((struct tbg_value){ f->name.text, content.len }, content));
}

/* The request that the program's path stands for: ours, without the body. */
static void redirect_make(const struct tbg_transfer *x, struct tbg_lines *ret)
{
	tbg_lines_add(ret, "%s ", x->m.method == TBG_METHOD_HEAD ? "HEAD" : "GET");
	tbg_lines_put(ret, x->sent_on, strlen(x->sent_on));
	tbg_lines_add(ret, " HTTP/1.%u\r\n", x->m.minor);
	if (x->m.host.off)
		tbg_lines_field(ret, TBG_VALUE("Host"), x->host);
	for (uint32_t i = 0; i < x->asks.nr; i++)
		if (!stays_behind(&x->asks.all[i]))
			tbg_lines_field(ret, x->asks.all[i].name, x->asks.all[i].value);
	if (x->up_body)			/* what is left of it is never read */
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
	status = head.failed ? 503 : tbg_conn_redirect(x->w, x->c, x, &head);
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
	struct tbg_transfer *x = transfer_new(w, head, m, b->upstream, NULL,
					      &(struct tbg_reading){ 0 });

	if (!x)
		return NULL;
	strcpy(x->ends.peer, "unknown");
	strcpy(x->ends.local, "unknown");
	x->checks = b;
	x->fresh_only = true;
	return x;
}

void tbg_transfer_input(struct tbg_transfer *x)
{
	tbg_transfer_hold(x);
	if (x->gathering)
		tbg_request_body_input(x);
	else if (x->running)
		tbg_fetch_input(x);
	tbg_transfer_release(x);
}

void tbg_transfer_writable(struct tbg_transfer *x)
{
	tbg_transfer_hold(x);
	x->blocked = false;
	tbg_deliver_push(x);
	if (x->running)			/* also once the client has all it gets */
		tbg_fetch_resume(x);
	tbg_transfer_release(x);
}

bool tbg_transfer_exceeds(const struct tbg_transfer *x)
{
	return !x->tunnel && tbg_body_exceeds(x->body_len, tbg_body_decoder_comes(&x->up_frame),
					      x->body_max);
}

bool tbg_transfer_starves(const struct tbg_transfer *x)
{
	/* a tunnel's bytes are held back until it is one */
	return x->up_body && !x->tunnel && !x->up_nr && x->up_head_done && !x->head_done;
}

bool tbg_transfer_waits_client(const struct tbg_transfer *x)
{
	return x->blocked || x->gathering || tbg_transfer_starves(x);
}

bool tbg_transfer_late(struct tbg_transfer *x)
{
	if (x->begun || !x->up_body || x->tunnel)
		return false;
	tbg_transfer_hold(x);
	x->gathering = false;
	tbg_fetch_stop(x);
	tbg_deliver_error(x, 408);
	tbg_deliver_push(x);
	tbg_transfer_release(x);
	return true;
}

/*
 * A client that has ended its stream may still read. One that hears nothing for
 * a while is taken for gone, or nothing would end what it has asked for; one that
 * is being answered would be heard to be, but programs end with who asked for them.
 */
static bool client_gone(const struct tbg_transfer *x)
{
	bool waits = x->waiting || (x->running && (x->upstream->order || !x->begun));

	return waits && x->c && x->c->eof && x->w->now_ms - x->c->stamp_ms > GONE_MS;
}

static void check(struct tbg_transfer *x)
{
	bool less = asks_less(&x->wish);

	if (client_gone(x)) {
		tbg_conn_kill(x->w, x->c);
		return;
	}
	if (x->for_others && !(x->flight && tbg_store_waiting(x->w->s->stock, x->flight)))
		tbg_fetch_stop(x);	/* they have left too */
	if (x->running)
		tbg_fetch_check(x);
	if (x->flight && (!x->head_done || x->w->now_ns - x->sent_ns < LONG_NS))
		tbg_store_flies(x->flight, x->w->now_ns);
	if (!x->waiting || x->w->now_ms - x->stamp_ms < (less ? AFTER_MS : LOST_MS))
		return;
	/* until its answer begins it has time limits of its own, however long they are */
	x->stamp_ms = x->w->now_ms;
	if (!less && !tbg_store_lost(x->w->s->stock, &x->waiter,
				     x->w->now_ns - LOST_MS * 1000000ull))
		return;
	tbg_store_leave(x->w->s->stock, &x->waiter);
	x->waiting = false;
	x->waits = WAITS_MAX;
	go(x);
}

static void each(struct tbg_worker *w, void (*fn)(struct tbg_transfer *x))
{
	struct tbg_transfer *x = w->transfers, *next;

	if (x)
		tbg_transfer_hold(x);
	for (; x; x = next) {
		fn(x);
		next = x->next;		/* what fn made stands before it */
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

bool tbg_transfers_awaited(const struct tbg_worker *w)
{
	for (const struct tbg_transfer *x = w->transfers; x; x = x->next)
		if ((x->flight && tbg_store_waiting(w->s->stock, x->flight)) ||
		    (x->running && x->begun && !x->c))
			return true;
	return false;
}
