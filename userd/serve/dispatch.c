// SPDX-License-Identifier: GPL-2.0
/*
 * The order of checks: method, expectation, cache, file. Paths are canonical here;
 * openat2() in files/files.c decides which files a path may reach.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/objects.h"
#include "os/clock.h"
#include "core/encoding.h"
#include "core/fresh.h"
#include "core/key.h"
#include "http/content_coding.h"
#include "files/files.h"
#include "serve/pages.h"
#include "serve/dispatch.h"
#include "serve/server.h"
#include "serve/internal.h"

bool tbg_route_key(const struct tbg_server *s, const struct tbg_site *site,
		   const char *path, size_t len, struct tbg_key *ret)
{
	struct tbg_path words = { 0 };

	if (len > TBG_PATH_MAX)
		return false;
	memcpy(words.w, path, len);
	tbg_key_make((const __u64 *)tbg_cache_hash_key(s->files.cache), site->id,
		     &words, len, ret);
	return true;
}

struct tbg_object *tbg_route_find(const struct tbg_server *s,
				  const struct tbg_key *key, uint32_t vhost,
				  const char *path, size_t path_len,
				  uint64_t now_ns, bool warms)
{
	struct tbg_object *o = (warms ? tbg_cache_look : tbg_cache_find)(s->files.cache, key, vhost,
									 path, path_len);

	if (!o || tbg_fresh(atomic_load_explicit(&o->expires_ns, memory_order_acquire), now_ns))
		return o;
	if (tbg_file_revalidate(&s->files, o))
		return o;
	tbg_cache_withdraw(s->files.cache, o);
	tbg_object_put(o);
	return NULL;
}

struct tbg_object *tbg_route_variant(const struct tbg_server *s,
				     const struct tbg_key *key,
				     struct tbg_object *o,
				     enum tbg_encoding encoding, uint64_t now_ns, bool warms)
{
	struct tbg_key own = *key;
	struct tbg_object *ret;

	tbg_key_vary(&own, encoding);
	ret = tbg_route_find(s, &own, o->vhost, o->path, o->path_len, now_ns, warms);
	if (ret && ret->encoding != encoding) {
		tbg_object_put(ret);
		ret = NULL;
	}
	tbg_object_put(o);
	return ret;
}

/*
 * Refuses to open tunnels, and to forward TRACE, which would reveal credentials.
 * OPTIONS with Max-Forwards 0 is for this server (RFC 9110 7.6.2).
 */
bool tbg_route_hands_over(const struct tbg_location *location,
			  const struct tbg_message *m)
{
	return location->handler != TBG_HANDLER_FILES &&
	       m->method != TBG_METHOD_CONNECT &&
	       m->method != TBG_METHOD_TRACE && !m->expect_other &&
	       !(m->method == TBG_METHOD_OPTIONS && m->last_hop);
}

/* Selects the part of an object that answers: GET, HEAD or 304; -412: none. */
static int part_of(const struct tbg_object *o, bool head, const struct tbg_conditions *c)
{
	switch (tbg_conditions_eval(c, o->etag, o->etag_len, o->modified_s)) {
	case 304:
		return TBG_PART_304;
	case 412:
		return -412;
	}
	return head ? TBG_PART_HEAD : TBG_PART_GET;
}

void tbg_answer_error(struct tbg_answer *ret, unsigned int status,
		      enum tbg_persist persist)
{
	ret->object = NULL;
	ret->hit = ret->partial = false;
	ret->heap = NULL;
	ret->fd = -1;
	ret->fd_version.name = NULL;
	ret->fd_off = 0;
	ret->parts = NULL;
	ret->media = ret->reason = NULL;
	ret->body = ret->text;
	ret->body_len = tbg_error_body(status, ret->text);
	ret->reply = (struct tbg_reply){
		.status = status, .cache = TBG_CACHE_NONE, .persist = persist,
		.type = "text/plain", .length = ret->body_len,
	};
}

void tbg_answer_done(struct tbg_answer *a)
{
	if (a->object)
		tbg_object_put(a->object);
	free(a->heap);
	if (a->fd >= 0)
		close(a->fd);
	tbg_file_version_end(&a->fd_version);
	tbg_parts_free(a->parts);
	a->parts = NULL;
	a->object = NULL;
	a->heap = NULL;
	a->fd = -1;
}

static char *escape_put(char *at, unsigned char c)
{
	static const char hex[] = "0123456789ABCDEF";

	*at++ = '%';
	*at++ = hex[c >> 4];
	*at++ = hex[c & 15];
	return at;
}

/*
 * Makes a Location for the same path with a final slash. It has no scheme and no host,
 * and begins with exactly one slash, so it never names another host.
 */
static void location_make(const struct tbg_ask *ask, char *ret)
{
	char *at = ret;

	for (size_t i = 0; i < ask->path_len; i++) {
		unsigned char c = ask->path[i];

		if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
		    (c >= 'A' && c <= 'Z') || (c && strchr("-._~!$&'()*+,;=:@/", c)))
			*at++ = c;
		else
			at = escape_put(at, c);
	}
	*at++ = '/';
	if (ask->query)
		*at++ = '?';
	for (size_t i = 0; ask->query && i < ask->query_len; i++) {
		unsigned char c = ask->query[i];

		if (c < 0x80)
			*at++ = c;
		else			/* UTF-8 in the client's request */
			at = escape_put(at, c);
	}
	*at = 0;
}

void tbg_answer_looked(const struct tbg_ask *ask, struct tbg_answer *ret, unsigned int status)
{
	tbg_answer_error(ret, status, ask->persist);
	ret->reply.cache = TBG_CACHE_MISS;
}

void tbg_answer_redirect(const struct tbg_ask *ask, struct tbg_answer *ret)
{
	tbg_answer_looked(ask, ret, 301);
	location_make(ask, ret->location);
	ret->reply.location = ret->location;
}

void tbg_answer_instead(struct tbg_answer *ret, unsigned int status)
{
	struct tbg_reply *r = &ret->reply;

	if (ret->hit)
		r->cache = TBG_CACHE_HIT;
	ret->hit = false;
	ret->body = ret->text;
	ret->body_len = tbg_error_body(status, ret->text);
	ret->fd_len = 0;
	*r = (struct tbg_reply){
		.status = status, .cache = r->cache, .persist = r->persist,
		.vary = r->vary,
		.type = "text/plain", .length = ret->body_len,
	};
}

static void object_release(void *object)
{
	tbg_object_put(object);
}

/* Makes the parts own their source, so that it outlives the answer. fd remains the sender's. */
static void parts_own(struct tbg_answer *ret, struct tbg_parts *p)
{
	p->fd = ret->fd;
	p->memory = ret->fd < 0 ? ret->body : NULL;
	p->owner = ret->heap;
	p->release = free;
	ret->heap = NULL;
	if (!ret->object)
		return;
	tbg_object_get(ret->object);	/* ret keeps its own reference, to make the head */
	p->owner = ret->object;
	p->release = object_release;
}

/* Prepares several parts of a representation with this tag. Returns false without memory. */
static bool answer_parts(struct tbg_answer *ret, const struct tbg_ranges *ranges,
			 const struct tbg_slice *type, const struct tbg_slice *tag)
{
	struct tbg_parts *p = tbg_parts_new(ranges, type->text, type->len,
					    tag->text, tag->len);

	if (!p)
		return false;
	parts_own(ret, p);
	ret->parts = p;
	ret->reply.length = p->len;
	snprintf(ret->multipart, sizeof(ret->multipart),
		 "multipart/byteranges; boundary=%s", p->boundary);
	ret->reply.type = ret->multipart;
	ret->body_len = ret->fd_len = 0;
	return true;
}

void tbg_answer_range(const struct tbg_ask *ask, struct tbg_answer *ret, uint64_t size,
		      const struct tbg_slice *type, const struct tbg_slice *tag)
{
	struct tbg_ranges ranges;
	unsigned int status = tbg_ranges_open(&ranges, ask->range.text,
					      ask->range.len, size);

	if (status == 416) {
		tbg_answer_instead(ret, 416);
		tbg_range_text(NULL, size, ret->range);
		ret->reply.range = ret->range;
	}
	if (status != 206)
		return;
	if (ranges.nr > 1) {
		if (!answer_parts(ret, &ranges, type, tag))
			return;
	} else {
		tbg_range_text(&ranges.one, size, ret->range);
		ret->reply.range = ret->range;
		ret->reply.length = ranges.one.len;
		if (ret->fd < 0) {
			ret->body = (const char *)ret->body + ranges.one.first;
			ret->body_len = ranges.one.len;
		} else {
			ret->fd_off = ranges.one.first;
			ret->fd_len = ranges.one.len;
		}
	}
	ret->reply.status = 206;
	ret->partial = true;
}

/* Applies Range to a cached object. The new head is made from the cached one. */
static void object_range(const struct tbg_ask *ask, struct tbg_object *o,
			 struct tbg_answer *ret)
{
	const struct tbg_blob *blob = o->blob;
	size_t head_len = blob->part[TBG_PART_HEAD].len;
	const char *head = (const char *)blob->data;
	struct tbg_slice tag = { o->etag, o->etag_len }, type = { "", 0 };

	if (blob->part[TBG_PART_GET].status != 200 ||
	    !tbg_route_range_counts(ask, &tag, tbg_file_strong_s(o->modified_s, o->file.mtime_ns,
						       o->file.ctime_ns)))
		return;
	ret->reply.type = NULL;
	ret->body = head + head_len;
	type.len = tbg_reply_field(head, head_len, "Content-Type: ", &type.text);
	tbg_answer_range(ask, ret, blob->part[TBG_PART_GET].len - head_len, &type, &tag);
}

/*
 * Returns the object that answers, with a reference. If the resource has variants: the
 * one that the client prefers, or identity while it cannot be made.
 */
static struct tbg_object *object_wanted(const struct tbg_server *s,
					const struct tbg_ask *ask,
					const struct tbg_key *key)
{
	uint64_t now_ns = tbg_mono_ns();
	enum tbg_encoding e;
	struct tbg_object *o;

	o = tbg_route_find(s, key, ask->site->id, ask->path, ask->path_len, now_ns, ask->warms);
	if (!o)
		return NULL;
	e = tbg_encode_choose(&ask->accept_encoding, atomic_load(&o->variants));
	if (!e || atomic_load(&o->refused_ns) > now_ns)
		return o;
	return tbg_route_variant(s, key, o, e, now_ns, ask->warms);
}

/*
 * Returns the location of a cached answer: for a folder, that of its first index file
 * (see index_answer()).
 */
static const struct tbg_location *location_cached(const struct tbg_ask *ask,
						  const struct tbg_location *l)
{
	struct candidate c;

	if (ask->path[ask->path_len - 1] != '/' || !l->index_nr)
		return l;
	tbg_candidate_make(&c, ask->site, ask->path, ask->path_len, l->index[0]);
	return c.location;
}

static bool route_cached(const struct tbg_server *s, const struct tbg_ask *ask,
			 struct tbg_answer *ret)
{
	struct tbg_object *o;
	struct tbg_key key;
	int part;

	if (ask->missed || !tbg_route_key(s, ask->site, ask->path, ask->path_len, &key))
		return false;
	o = object_wanted(s, ask, &key);
	if (!o)
		return false;
	tbg_answer_error(ret, 200, ask->persist);
	ret->reply.vary = o->encoding || atomic_load(&o->variants);
	ret->body_len = 0;
	ret->object = o;
	ret->hit = true;
	part = part_of(o, ask->method == TBG_METHOD_HEAD, &ask->conditions);
	if (part < 0) {
		tbg_answer_instead(ret, -part);
		return true;
	}
	ret->part = part;
	ret->reply.status = o->blob->part[part].status;
	if (part == TBG_PART_GET)
		object_range(ask, o, ret);
	return true;
}

bool tbg_route_takes(uint8_t method)
{
	return method == TBG_METHOD_GET || method == TBG_METHOD_HEAD ||
	       method == TBG_METHOD_OPTIONS;
}

/* allow: NULL if the methods are not known here. */
static void answer_options(const struct tbg_ask *ask, const char *allow, struct tbg_answer *ret)
{
	tbg_answer_error(ret, 204, ask->persist);
	ret->body_len = 0;
	ret->reply.type = NULL;
	ret->reply.length = -1;
	ret->reply.allow = allow;
}

/* Answers requests that the method alone decides. Returns false for all others. */
static bool answer_method(const struct tbg_ask *ask, struct tbg_answer *ret)
{
	if (ask->method == TBG_METHOD_OTHER) {
		tbg_answer_error(ret, 501, ask->persist);
		return true;
	}
	if (!tbg_route_takes(ask->method)) {
		tbg_answer_error(ret, 405, ask->persist);
		ret->reply.allow = TBG_ALLOW_FILES;
		return true;
	}
	if (ask->expect_other) {
		tbg_answer_error(ret, 417, ask->persist);
		return true;
	}
	if (ask->method != TBG_METHOD_OPTIONS)
		return false;
	answer_options(ask, TBG_ALLOW_FILES, ret);
	return true;
}

/* Adds the location's fields or error page to an answer that differs from the cached one. */
static void location_apply(const struct tbg_server *s,
			   const struct tbg_location *location,
			   struct tbg_answer *ret)
{
	struct tbg_reply *r = &ret->reply;

	if (r->status >= 400) {
		tbg_pages_error(s, location, ret);
		return;
	}
	tbg_location_fields(location, r->status, ret->media, ret->fields);
	r->fields = ret->fields;
}

/*
 * Refuses requests that handlers do not get. Also reached if a reload has changed the
 * handler meanwhile: 503.
 */
static void answer_refusal(const struct tbg_ask *ask, struct tbg_answer *ret)
{
	unsigned int status = 503;

	if (ask->method == TBG_METHOD_OPTIONS && !ask->expect_other) {
		answer_options(ask, NULL, ret);
		return;
	}
	if (ask->method == TBG_METHOD_CONNECT || ask->method == TBG_METHOD_TRACE)
		status = 405;
	else if (ask->expect_other)
		status = 417;
	tbg_answer_error(ret, status, ask->persist);
	if (status == 405)
		ret->reply.allow = TBG_ALLOW_ALL;
}

/* *location: that of the path; changed to that of the index file that answers. */
static void route(const struct tbg_server *s, const struct tbg_ask *ask,
		  const struct tbg_location **location, struct tbg_answer *ret)
{
	if ((*location)->handler != TBG_HANDLER_FILES)
		answer_refusal(ask, ret);
	else if (answer_method(ask, ret))
		return;
	else if (!route_cached(s, ask, ret))
		tbg_route_file(s, ask, location, ret);
	else if (!ret->hit)		/* an error replaces the cached response */
		*location = location_cached(ask, *location);
}

void tbg_route(const struct tbg_server *s, const struct tbg_ask *ask,
	       struct tbg_answer *ret)
{
	const struct tbg_location *location;

	location = tbg_location_find(ask->site, ask->path, ask->path_len);
	ret->want.kind = TBG_WANT_NOTHING;
	route(s, ask, &location, ret);
	if (ret->want.kind != TBG_WANT_NOTHING)
		return;
	if (!ret->hit)
		location_apply(s, location, ret);
	if (ask->method == TBG_METHOD_HEAD && !ret->hit)
		ret->body_len = ret->fd_len = 0;
}
