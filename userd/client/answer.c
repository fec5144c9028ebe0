// SPDX-License-Identifier: GPL-2.0
/*
 * Selects the answer to a request: a hit, a file, an error, a task to wait for, or an
 * answerer. Called by input.c for each complete head.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cache/objects.h"
#include "client/connection.h"
#include "core/conditional.h"
#include "core/encoding.h"
#include "core/key.h"
#include "serve/pages.h"
#include "http/header.h"
#include "http/reply.h"
#include "client/internal.h"

#define REDIRECTS_MAX	10		/* internal redirects by programs, per request */
#define ASIDES_MAX	8		/* tasks per request whose file changes meanwhile */

/* Fields of the request head at b. Those of several lines are joined in memory of their own. */
struct fields {
	const uint8_t *b;
	const struct tbg_message *m;
	char *joined[3];
	unsigned int joined_nr;
};

/*
 * Returns the value t of a field. If the field has several lines, returns the joined
 * list ("" without memory), or nothing if the field is not a list.
 */
static struct tbg_slice field_of(struct fields *f, struct tbg_text t, enum tbg_name id)
{
	uint32_t len = f->m->len - f->m->head_off;
	bool repeated = tbg_name_in(id, f->m->repeated);
	char *joined;

	if (!t.off || (repeated && !tbg_name_in(id, tbg_names_with(TBG_LIST))))
		return (struct tbg_slice){ 0 };
	if (!repeated)
		return (struct tbg_slice){ (const char *)f->b + t.off, t.len };
	joined = malloc(len);
	if (!joined)
		return (struct tbg_slice){ "", 0 };
	f->joined[f->joined_nr++] = joined;
	return (struct tbg_slice){ joined, tbg_message_list(f->b + f->m->head_off,
							    len, tbg_name_text(id), joined, len) };
}

static void fields_take(struct fields *f, struct tbg_ask *ask)
{
	const struct tbg_message *m = f->m;

	ask->conditions = (struct tbg_conditions){
		.if_match = field_of(f, m->im, TBG_NAME_IF_MATCH),
		.if_unmodified_since = field_of(f, m->ius, TBG_NAME_IF_UNMODIFIED_SINCE),
		.if_none_match = field_of(f, m->inm, TBG_NAME_IF_NONE_MATCH),
		.if_modified_since = field_of(f, m->ims, TBG_NAME_IF_MODIFIED_SINCE),
	};
	ask->accept_encoding = field_of(f, m->ae, TBG_NAME_ACCEPT_ENCODING);
	ask->range = field_of(f, m->range, TBG_NAME_RANGE);
	ask->if_range = field_of(f, m->if_range, TBG_NAME_IF_RANGE);
	if (tbg_name_in(TBG_NAME_IF_RANGE, m->repeated))	/* "" matches nothing */
		ask->if_range = (struct tbg_slice){ "", 0 };
}

enum tbg_persist tbg_conn_persist(const struct tbg_worker *w, const struct tbg_message *m)
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

	w->site = ret;
	return ret;
}

bool tbg_conn_head_hold(struct tbg_conn_active *t, const struct tbg_message *m, const uint8_t *b)
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

static void on_made(void *worker, void *conn);

/*
 * Starts the task that w->answer needs; on_made() continues. Returns false without
 * memory.
 */
static bool aside_begin(struct tbg_worker *w, struct tbg_conn *c, const struct tbg_message *m,
			const uint8_t *b, uint32_t taken)
{
	struct tbg_conn_active *t = tbg_conn_active_get(c);
	struct tbg_aside_task *task = NULL;

	if (tbg_conn_head_hold(t, m, b))
		task = tbg_aside_begin(w->s->aside, &w->answer.want, &w->mailbox, on_made, c);
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

bool tbg_conn_request_answer(struct tbg_worker *w, struct tbg_conn *c,
			     const struct tbg_message *m, const uint8_t *b, uint32_t taken,
			     bool missed)
{
	struct tbg_conn_active *t = c->active;
	struct tbg_ask ask = {
		.may_wait = !t || t->asides < ASIDES_MAX,
		.made = t && t->aside ? tbg_aside_made(t->aside) : NULL,
		.method = m->method,
		.expect_other = m->expect_other, .missed = missed,
		.persist = tbg_conn_persist(w, m),
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
	ok = tbg_conn_answer_put(w, c, taken, b + m->head_off, m->len - m->head_off);
	tbg_answer_done(&w->answer);
	return ok;
}

/* Returns whether the request, as far as received, is a HEAD (RFC 9110 9.3.2). */
static bool head_wanted(const uint8_t *b, size_t len)
{
	static const char method[] = "HEAD ";
	size_t at = 0;

	while (at < len && (b[at] == '\r' || b[at] == '\n'))	/* RFC 9112 2.2 */
		at++;
	return len - at >= strlen(method) && !memcmp(b + at, method, strlen(method));
}

bool tbg_conn_refused_put(struct tbg_worker *w, struct tbg_conn *c, const struct tbg_refused *r,
			  const struct tbg_location *location, const uint8_t *b, size_t len)
{
	bool ok;

	location = location ?: tbg_location_find(w->sites->fallback, "/", 1);
	w->site = location->site;
	tbg_answer_error(&w->answer, r->status, TBG_PERSIST_NOT);
	w->answer.reason = r->reason;
	w->answer.reply.retry_s = r->retry_s;
	tbg_pages_error(w->s, location, &w->answer);
	if (head_wanted(b, len))
		w->answer.body_len = 0;
	ok = tbg_conn_answer_put(w, c, 0, b, len);
	tbg_answer_done(&w->answer);
	return ok;
}

bool tbg_conn_error_put(struct tbg_worker *w, struct tbg_conn *c, unsigned int status,
			const struct tbg_location *location, const uint8_t *b, size_t len)
{
	struct tbg_refused r = { .status = status, .reason = "refused" };

	return tbg_conn_refused_put(w, c, &r, location, b, len);
}

bool tbg_conn_request_refuse(struct tbg_worker *w, struct tbg_conn *c, unsigned int status,
			     const struct tbg_location *location, const uint8_t *b, size_t len)
{
	tbg_stat_add(&w->stats.bad, 1);
	return tbg_conn_error_put(w, c, status, location, b, len);
}

const struct tbg_location *tbg_conn_location(struct tbg_worker *w, const struct tbg_message *m,
					     const uint8_t *b)
{
	return tbg_location_find(site_of(w, m, b), w->path, m->path_len);
}

const struct tbg_location *tbg_conn_location_held(struct tbg_worker *w,
						  const struct tbg_conn_active *t)
{
	struct tbg_message m = { 0 };

	return tbg_message_parse(&m, t->held, t->held_len, t->held_len + 1,
				 w->path) == TBG_PARSED_DONE ?
	       tbg_conn_location(w, &m, t->held) : NULL;
}

/*
 * Finds the object for a request in the fast grammar, in the variant that the client
 * prefers. NULL: not cached (*ret_missed), or a case for the full parser.
 */
static struct tbg_object *fast_find(struct tbg_worker *w, const uint8_t *b,
				    const struct tbg_req *req, const struct tbg_path *path,
				    bool *ret_missed)
{
	const struct tbg_server *s = w->s;
	struct tbg_object *o;
	struct tbg_key key;
	unsigned int have;
	int encoding = TBG_ENCODING_IDENTITY;

	tbg_key_make((const __u64 *)tbg_cache_hash_key(s->files.cache), w->site->id,
		     path, req->path_len, &key);
	o = tbg_route_find(s, &key, w->site->id, (const char *)b + req->path_off,
			   req->path_len, w->now_ns, false);
	if (!o) {
		*ret_missed = true;
		return NULL;
	}
	if (o->flags & TBG_ENTRY_LISTED) {
		tbg_object_put(o);
		return NULL;
	}
	have = atomic_load_explicit(&o->variants, memory_order_relaxed);
	if (have && req->ae_len)
		encoding = tbg_encoding_choose((const struct tbg_head *)b, req->ae_off,
					       req->ae_len, have);
	return encoding ? tbg_route_variant(s, &key, o, encoding, w->now_ns, false) : o;
}

/* Returns the part of the object that answers; negative: a case for the full parser. */
static int fast_part(const struct tbg_object *o, const struct tbg_head *h,
		     const struct tbg_req *req)
{
	int status = 200;

	if (req->inm_len || req->ims_len)
		status = tbg_condition(h, req, (const __u8 *)o->etag, o->etag_len, o->modified_s);
	if (status < 0)
		return status;
	return status == 304 ? TBG_PART_304 :
	       req->flags & TBG_REQ_HEAD ? TBG_PART_HEAD : TBG_PART_GET;
}

bool tbg_conn_fast_answer(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *b,
			  size_t len, bool *ret_missed)
{
	const struct tbg_head *h = (const struct tbg_head *)b;
	struct tbg_req req = { 0 };
	struct tbg_object *o;
	struct tbg_path path;
	struct tbg_scan scan;
	int part;

	if (!w->sites->files || tbg_request_parse(h, &scan, len, &req) ||
	    tbg_path_load(h, req.path_off, req.path_len, &path))
		return false;
	w->site = tbg_site_find(w->sites, (const char *)b + req.host_off, req.host_len);
	o = fast_find(w, b, &req, &path, ret_missed);
	if (!o)
		return false;
	part = fast_part(o, h, &req);
	if (part < 0 || tbg_conn_rate_take(w, c)) {
		tbg_object_put(o);
		return false;
	}
	c->taken += len;	/* before tbg_conn_object_put(), which may publish it */
	if (tbg_conn_object_put(w, c, o, part, TBG_PERSIST)) {
		tbg_conn_answer_count(w, c, o->blob->part[part].status);
		tbg_conn_log_answer(w, c, b, len, o->blob->part[part].status,
				    part == TBG_PART_GET ? o->blob->part[part].len -
				    o->blob->part[TBG_PART_HEAD].len : 0,
				    tbg_cache_word(TBG_CACHE_HIT), NULL);
	}
	tbg_object_put(o);
	return true;
}

/* Routes the request again, now with the result of the task. */
static void on_made(void *worker, void *conn)
{
	struct tbg_worker *w = worker;
	struct tbg_conn *c = conn;
	struct tbg_conn_active *t = c->active;
	struct tbg_aside_task *task = t->aside;
	struct tbg_message m = { 0 };
	uint8_t *held = t->held;
	uint32_t len = t->held_len;

	t->held = NULL;
	if (tbg_message_parse(&m, held, len, len + 1, w->path) == TBG_PARSED_DONE)
		tbg_conn_request_answer(w, c, &m, held, t->aside_taken, true);
	else				/* a reload has lowered the limits of requests */
		tbg_conn_request_refuse(w, c, 400, NULL, held, len);
	free(held);
	t = c->active;
	if (t && t->aside == task) {
		t->aside = NULL;
		t->asides = 0;
		tbg_aside_leave(task);
	}
	if (c->state != TBG_CONN_OPEN)
		return;
	c->stamp_ms = w->now_ms;
	tbg_conn_go_on(w, c);
}

void tbg_conn_answered(struct tbg_worker *w, struct tbg_conn *c, struct tbg_answerer *a)
{
	c->active->answerer = NULL;
	c->taken += a->taken;
	c->stamp_ms = w->now_ms;
	tbg_conn_answerer_note(w, c, a);
	tbg_conn_original_end(c);
	if (a->starting)
		return;			/* conn_eat() continues */
	tbg_conn_go_on(w, c);
}

static bool original_keep(struct tbg_conn_active *t, const struct tbg_answerer *a)
{
	struct tbg_answerer_record r;

	if (t->redirects++)
		return true;
	a->ops->record(a, &r);
	t->original_len = r.request.len;
	t->original = malloc(t->original_len);
	if (!t->original)
		return false;
	memcpy(t->original, r.request.text, t->original_len);
	return true;
}

unsigned int tbg_conn_redirect(struct tbg_worker *w, struct tbg_conn *c,
			       struct tbg_answerer *a, const struct tbg_lines *head)
{
	const uint8_t *b = (const uint8_t *)head->text;
	struct tbg_conn_active *t = c->active;
	struct tbg_message m = { 0 };
	struct tbg_answerer_request e;

	if (t->redirects == REDIRECTS_MAX)
		return 500;
	if (tbg_message_parse(&m, b, head->len, head->len + 1, w->path) != TBG_PARSED_DONE)
		return 502;
	if (!original_keep(t, a))
		return 503;
	t->answerer = NULL;
	a->ops->abandon(a);
	e = (struct tbg_answerer_request){ .location = tbg_conn_location(w, &m, b),
				 .persist = tbg_conn_persist(w, &m), .taken = a->taken };
	if (!tbg_conn_handed_over(w, &m, &e))
		tbg_conn_request_answer(w, c, &m, b, a->taken, false);
	else if (m.raw_target)
		tbg_conn_request_refuse(w, c, 502, e.location, b, m.len);
	else
		tbg_conn_answerer_begin(w, c, &m, b, &e);
	tbg_conn_go_on(w, c);
	return 0;
}
