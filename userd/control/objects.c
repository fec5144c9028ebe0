// SPDX-License-Identifier: GPL-2.0
/*
 * {"cmd":"objects"}: lists all objects of the cache and all stored responses, most
 * popular first. Runs in its own thread: sorting a million of them would delay inotify.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/objects.h"
#include "os/clock.h"
#include "http/content_coding.h"
#include "http/header.h"
#include "serve/server.h"
#include "site/site.h"
#include "store/responses.h"
#include "control/stream.h"
#include "control/why.h"
#include "tiers/reply_size.h"

#define CHUNK_MAX 65536		/* bytes per send */

struct row {
	uint64_t hits, expires_ns;
	uint32_t vhost, body, get, class;
	enum tbg_encoding encoding;
	bool in_kernel, file;
	char etag[40];
	char *path;
	size_t path_len;
};

struct listing {
	struct tbg_stream *stream;
	uint64_t limit;			/* rows; 0: all */
	uint32_t room;			/* longest response that wire can send */
	bool sock;			/* sock is on */
	struct row *rows;
	size_t rows_nr, rows_room;
	bool no_memory;
};

/* Adds a row with a copy of its path. Returns false without memory. */
static bool row_new(struct listing *l, const struct row *row, const char *path,
		    const char *etag, size_t etag_len)
{
	struct row *r;

	if (l->rows_nr == l->rows_room) {
		size_t room = l->rows_room ? 2 * l->rows_room : 1024;

		r = reallocarray(l->rows, room, sizeof(*r));
		if (!r)
			goto no_memory;
		l->rows = r;
		l->rows_room = room;
	}
	r = &l->rows[l->rows_nr];
	*r = *row;
	memcpy(r->etag, etag, etag_len < sizeof(r->etag) ?
	       etag_len : sizeof(r->etag) - 1);
	r->path = malloc(row->path_len + 1);
	if (!r->path)
		goto no_memory;
	memcpy(r->path, path, row->path_len);
	l->rows_nr++;
	return true;

no_memory:
	l->no_memory = true;
	return false;
}

static struct row row_of(const struct tbg_object *o)
{
	return (struct row){
		.expires_ns = o->expires_ns, .vhost = o->vhost,
		.get = o->blob->part[TBG_PART_GET].len,
		.body = o->blob->part[TBG_PART_GET].len -
			o->blob->part[TBG_PART_HEAD].len,
		.class = tbg_class_bytes(TBG_BLOB_CLASS(o->blob_id)),
		.in_kernel = o->in_kernel, .path_len = o->path_len,
		.encoding = o->encoding, .file = o->name,
	};
}

/*
 * Adds an object of a file. Responses of upstreams are listed from the store, published
 * or not.
 */
static bool row_add(struct tbg_object *o, uint64_t hits, void *arg)
{
	struct row row = row_of(o);

	row.hits = hits;
	return !o->name || row_new(arg, &row, o->path, o->etag, o->etag_len);
}

static bool stored_add(const struct tbg_store_row *stored, void *arg)
{
	const struct tbg_stored *one = stored->stored;
	struct tbg_slice tag = { "", 0 };
	struct row row = { 0 };

	for (int i = 0; i < TBG_STORED_OBJECTS && one->objects[i]; i++)
		if (tbg_object_known(one->objects[i]))
			row = row_of(one->objects[i]);
	row.hits = stored->hits;
	row.path_len = stored->uri.len;
	row.body = one->body->len;
	row.get = row.get ?: one->head_len + one->body->len;
	row.expires_ns = tbg_response_directives_expires_ns(&one->directives);
	tbg_field_find(one->head, one->head_len, "ETag", &tag);
	return row_new(arg, &row, stored->uri.text, tag.text, tag.len);
}

static int row_compare(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	size_t len = x->path_len < y->path_len ? x->path_len : y->path_len;

	if (x->hits != y->hits)
		return x->hits < y->hits ? 1 : -1;
	return memcmp(x->path, y->path, len) ?: (int)(x->path_len - y->path_len);
}

/* Returns the name of a file's site, or null. The path of a response includes its host. */
static json_t *site_name(const struct listing *l, const struct row *r)
{
	const struct tbg_sites *sites = l->stream->sites;

	for (unsigned int i = 0; r->file && i < sites->nr; i++)
		if (sites->site[i].id == r->vhost && *sites->site[i].name)
			return json_string(sites->site[i].name);
	return json_null();
}

static char *row_text(const struct listing *l, const struct row *r, uint64_t now)
{
	bool always = r->expires_ns == TBG_FRESH_ALWAYS;
	const char *kernel = !r->in_kernel ? NULL : r->get <= l->room ? "wire" :
			     l->sock ? "sock" : NULL;
	json_t *o = json_pack("{s:o, s:o, s:s, s:i, s:I, s:I, s:o, s:b, s:I, s:I, s:o, s:o}",
		"path", tbg_json_text(r->path, r->path_len),
		"site", site_name(l, r),
		"encoding", tbg_encoding_name(r->encoding),
		"vhost", (int)r->vhost,
		"size", (json_int_t)r->body,
		"response_bytes", (json_int_t)r->get,
		"tiers", kernel ? json_pack("[s, s]", kernel, "user") :
				  json_pack("[s]", "user"),
		"in_kernel", r->in_kernel,
		"hits", (json_int_t)r->hits,
		"class", (json_int_t)r->class,
		"expires_s", always ? json_null() :
			     json_real((int64_t)(r->expires_ns - now) / 1e9),
		"etag", tbg_json_text(r->etag, strlen(r->etag)));
	char *ret = o ? json_dumps(o, JSON_COMPACT) : NULL;

	json_decref(o);
	return ret;
}

static int listing_put(struct listing *l, char *chunk)
{
	size_t nr = l->limit && l->limit < l->rows_nr ? l->limit : l->rows_nr;
	uint64_t now = tbg_mono_ns();
	size_t len;
	int err = 0;

	len = sprintf(chunk, "{\"ok\":true,\"total\":%zu,\"objects\":[",
		      l->rows_nr);
	for (size_t i = 0; i < nr && !err; i++) {
		char *text = row_text(l, &l->rows[i], now);

		/* a row's length is bounded by its path, 4 bytes per byte */
		if (!text || strlen(text) > CHUNK_MAX / 2) {
			free(text);
			return -ENOMEM;
		}
		if (len + strlen(text) + 8 > CHUNK_MAX) {
			err = tbg_stream_send(l->stream, chunk, len);
			len = 0;
		}
		len += sprintf(chunk + len, "%s%s", i ? "," : "", text);
		free(text);
	}
	len += sprintf(chunk + len, "]}\n");
	return err ?: tbg_stream_send(l->stream, chunk, len);
}

int tbg_listing_run(struct tbg_stream *st)
{
	static const char no_memory[] =
		"{\"ok\":false,\"error\":\"objects: out of memory\"}\n";
	struct listing l = {
		.stream = st,
		.limit = json_integer_value(json_object_get(st->req, "limit")),
	};
	char *chunk = malloc(CHUNK_MAX + 16);
	int err;

	l.room = tbg_reply_size_longest(st->s->wire, st->s->opt.wire_size);
	l.sock = st->s->sock;
	tbg_cache_each(st->s->files.cache, row_add, &l);
	tbg_store_each(st->s->store, stored_add, &l);
	if (chunk && !l.no_memory) {
		if (l.rows_nr)
			qsort(l.rows, l.rows_nr, sizeof(*l.rows), row_compare);
		err = listing_put(&l, chunk);
	} else {
		err = tbg_stream_send(st, no_memory, sizeof(no_memory) - 1);
	}
	for (size_t i = 0; i < l.rows_nr; i++)
		free(l.rows[i].path);
	free(l.rows);
	free(chunk);
	return err;
}
