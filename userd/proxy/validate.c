// SPDX-License-Identifier: GPL-2.0
/*
 * Changes of stored responses by a new one: a 304 renews it, another version replaces
 * it, an unsafe request withdraws it (RFC 9111 4.3.4 and 4.4).
 */
#include <string.h>
#include <time.h>

#include "store/partials.h"
#include "http/uri_reference.h"
#include "serve/dispatch.h"
#include "proxy/fetch_internal.h"

#define PARTIAL_JOINED_MAX	(4u << 20)	/* limit of bytes that are copied to join parts */

/*
 * Reads the directives of a stored response combined with a new one. Returns false
 * without memory.
 */
static bool updated_directives(const struct tbg_transfer *x, const struct tbg_lines *lines,
			       unsigned int status, struct tbg_response_directives *ret)
{
	struct tbg_fields fields = { 0 };
	bool ok = !lines->failed &&
		  tbg_fields_read(&fields, lines->text ?: "", lines->len) >= 0;

	if (ok) {
		tbg_response_directives_read(ret, status, &fields, time(NULL), x->w->now_ns,
			       x->w->now_ns - x->sent_ns);
		tbg_response_directives_of(ret, &x->req_directives);
	}
	tbg_fields_free(&fields);
	return ok;
}

struct tbg_stored *tbg_fetch_joined(struct tbg_transfer *x, const struct tbg_lines *news)
{
	const struct tbg_stored *partial = x->partial;
	struct tbg_lines lines = { 0 };
	struct tbg_stored *s = NULL;
	struct tbg_response_directives directives;
	struct tbg_byte_chain *body;
	uint64_t from, n;

	if (!partial ||
	    !tbg_partial_joins(partial, &x->resp_directives, news->text, news->len, &from, &n) ||
	    (!(x->asked & TBG_SENT_REST) &&
	     (n > PARTIAL_JOINED_MAX || n > tbg_store_body_max(x->w->s->store))))
		return NULL;
	body = tbg_partial_join(partial, &x->resp_directives, x->resp_body);
	tbg_forward_update(&lines, partial->head, partial->head_len, news->text, news->len);
	if (body &&
	    updated_directives(x, &lines, n == x->resp_directives.size ? 200 : 206, &directives)) {
		directives.range_from = from;
		directives.range_len = n;
		directives.size = x->resp_directives.size;
		s = tbg_stored_new(&directives, tbg_status_text(directives.status), lines.text,
				   lines.len, x->fields.text, x->fields.len, body);
		body = NULL;
	}
	tbg_byte_chain_put(body);
	tbg_lines_free(&lines);
	return s;
}

/* Returns the upstream of a path: its location's, or, for a folder, that of its index. */
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

/* Withdraws a URI of the same authority. An index is part of it, as in request_copy.c. */
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
	if (index && u->settings.protocol == TBG_PROTOCOL_HTTP) {
		tbg_lines_text(&own, path[len - 1] == '/' ? "" : "/");
		tbg_lines_text(&own, index);
	}
	tbg_lines_put(&own, path + len, uri->len - path_off - len);
	if (!own.failed)
		tbg_store_withdraw(x->w->s->store, &(struct tbg_uri){
			.text = own.text, .len = own.len, .path_off = path_off,
			.upstream = u->id });
	tbg_lines_free(&own);
}

/* Resolves the URI in a field. Returns false if it has another authority. */
static bool reference_of(const struct tbg_transfer *x, const char *name,
			 const char *fields, size_t len, struct tbg_lines *ret)
{
	struct tbg_slice base = { x->uri.text, x->uri.len }, v;

	return tbg_field_find(fields, len, name, &v) && v.len &&
	       tbg_uri_reference_resolve(ret, base, x->uri.https, x->uri.path_off, v);
}

/*
 * Withdraws the target of Location or Content-Location of a successful unsafe request
 * (RFC 9111 4.4). Returns true if that is the request's own URI, which the caller
 * withdraws.
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

void tbg_fetch_withdraw(struct tbg_transfer *x, const char *fields, size_t len)
{
	bool own;

	withdraw_reference(x, "Location", fields, len);
	own = withdraw_reference(x, "Content-Location", fields, len);
	if (tbg_store_withdraw_own(x->w->s->store, &x->uri, &x->seq))
		x->req_directives.represents = own && x->m.method == TBG_METHOD_POST;
}

/* Returns whether a field is present and differs from the stored one. */
static bool differs(const struct tbg_stored *s, const char *name,
		    const char *fields, size_t len)
{
	struct tbg_slice ours, theirs;

	return tbg_field_find(fields, len, name, &theirs) &&
	       (!tbg_field_find(s->head, s->head_len, name, &ours) ||
		ours.len != theirs.len || memcmp(ours.text, theirs.text, ours.len));
}

bool tbg_fetch_of_another(const struct tbg_stored *s, const char *fields, size_t len)
{
	struct tbg_slice v;

	if (tbg_field_find(fields, len, "ETag", &v))
		return differs(s, "ETag", fields, len);
	return tbg_field_find(s->head, s->head_len, "Last-Modified", &v) &&
	       differs(s, "Last-Modified", fields, len);
}

/* Returns the stored response updated with the fields of its 304 (RFC 9111 4.3.4). */
static struct tbg_stored *freshened(struct tbg_transfer *x)
{
	const struct tbg_stored *old = x->selected;
	struct tbg_lines news = { 0 }, lines = { 0 };
	struct tbg_response_directives directives;
	struct tbg_stored *s = NULL;

	tbg_forward_fields(&news, &x->resp_fields, x->w->date, old->directives.status);
	tbg_forward_update(&lines, old->head, old->head_len, news.text ?: "", news.len);
	if (!news.failed && updated_directives(x, &lines, old->directives.status, &directives)) {
		atomic_fetch_add(&old->body->refs, 1);
		s = tbg_stored_new(&directives, old->reason, lines.text, lines.len,
				   x->fields.text, x->fields.len, old->body);
	}
	if (s)
		s->older = !x->r.minor;
	tbg_lines_free(&news);
	tbg_lines_free(&lines);
	return s;
}

/* Returns whether data followed a response that has no body. */
static bool more_behind(const struct tbg_transfer *x)
{
	return x->excess || x->o->head_len > x->r.len;
}

/*
 * Stores the result s of a 304 or a HEAD. If no request may store it, or if s is NULL,
 * withdraws the old response; a request that forbids storing (no-store) does so only
 * for itself.
 */
static bool replaced(struct tbg_transfer *x, struct tbg_stored *s)
{
	struct tbg_request_directives get = x->req_directives, any;

	get.get = true;
	tbg_request_directives_read(&any, TBG_METHOD_GET, &(struct tbg_fields){ 0 });
	any.store_cookies = x->req_directives.store_cookies;
	if (s && tbg_response_directives_storable(&s->directives, &get)) {
		tbg_stored_get(s);
		tbg_transfer_answer_stored(x, tbg_transfer_store(x, s));
		return true;
	}
	if (!s || !tbg_response_directives_storable(&s->directives, &any))
		tbg_store_withdraw(x->w->s->store, &x->uri);
	return false;
}

enum tbg_transfer_phase tbg_fetch_validated(struct tbg_transfer *x)
{
	struct tbg_stored *s = freshened(x);
	bool storable = replaced(x, more_behind(x) ? NULL : s);

	x->resp_body = s ? tbg_byte_chain_new() : NULL;
	if (!x->resp_body) {
		tbg_stored_put(s);
		return tbg_fetch_fail(x, 503);
	}
	tbg_transfer_pending_end(x, 0, !storable ||
				  tbg_response_directives_for_one(&s->directives, x->w->now_ns));
	tbg_transfer_enter(x, TBG_TRANSFER_RECEIVE);
	x->protocol->body_begin(x, TBG_FRAMING_NONE, 0);
	tbg_transfer_stored(x, s, false);
	return tbg_transfer_fetches(x) ? tbg_fetch_body_first(x) : x->phase;
}

/*
 * Returns whether the response to a HEAD describes the stored response. If that must be
 * validated for each request, only an entity tag shows it: the stored one may be for
 * another client.
 */
static bool head_is_of(const struct tbg_transfer *x, const struct tbg_stored *s,
		       const char *fields, size_t len)
{
	struct tbg_slice tag;

	return !differs(s, "ETag", fields, len) && !differs(s, "Last-Modified", fields, len) &&
	       (!x->r.has_length || x->r.content_length == s->body->len) &&
	       (!tbg_response_directives_for_one(&s->directives, x->w->now_ns) ||
		tbg_field_find(fields, len, "ETag", &tag));
}

void tbg_fetch_head_compare(struct tbg_transfer *x, const char *fields, size_t len)
{
	const struct tbg_stored *old = x->selected;
	struct tbg_stored *s = NULL;

	if (!x->req_directives.head || x->r.status != 200 || !old ||
	    old->directives.status != 200 || (!x->protocol->runs_programs && more_behind(x)))
		return;
	if (head_is_of(x, old, fields, len))
		s = freshened(x);
	replaced(x, s);
	tbg_stored_put(s);
}
