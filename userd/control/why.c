// SPDX-License-Identifier: GPL-2.0
/*
 * Finds the tier that would answer a request: asks the kernel tiers themselves
 * (tiers/ask.h), and explains their reason from the daemon's cache and configuration.
 * Does not judge requests itself.
 */
#include "control/why.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/why.h"
#include "control/commands.h"
#include "cache/objects.h"
#include "os/clock.h"
#include "core/fresh.h"
#include "core/span.h"
#include "http/content_coding.h"
#include "http/header.h"
#include "files/files.h"
#include "tiers/address.h"
#include "tiers/maps.h"
#include "http/media_types.h"
#include "http/request.h"
#include "files/compressed.h"
#include "proxy/publish.h"
#include "os/root.h"
#include "serve/server.h"
#include "store/responses.h"
#include "upstream/upstream.h"
#include "files/watch.h"
#include "tiers/ask.h"
#include "tiers/reply_size.h"
#include "tiers/sock.h"
#include "tiers/wire.h"

#define TBG_DOUBT_LEN	96

/* --- the search ---------------------------------------------------------- */

struct search {
	const struct tbg_why_path *p;
	const char *fields;		/* field lines of the request */
	size_t fields_len;
	struct tbg_slice accept;	/* its Accept-Encoding */
	char host[TBG_URL_MAX];		/* of the stored URI; "": none */
	bool found, in_kernel, upstream;
	const char *doubt;		/* why a stored response is not published, or NULL */
	enum tbg_encoding encoding;	/* of the variant to find */
	unsigned int variants;		/* variants according to the identity */
	uint64_t expires_ns, hits;
	uint32_t len, class;
	char name[TBG_URL_MAX];
};

static bool search_visit(struct tbg_object *o, uint64_t hits, void *arg)
{
	struct search *f = arg;

	if (o->vhost != f->p->site->id || o->path_len != f->p->len ||
	    memcmp(o->path, f->p->path, f->p->len) || o->encoding != f->encoding)
		return true;
	f->found = true;
	f->variants |= o->variants;
	f->in_kernel = o->in_kernel;
	f->expires_ns = o->expires_ns;
	f->hits = hits;
	f->len = o->blob->part[TBG_PART_GET].len;
	f->class = TBG_BLOB_CLASS(o->blob_id);
	snprintf(f->name, sizeof(f->name), "%s", o->name ? o->name : "");
	return false;
}

/*
 * Returns whether a response is stored under this URL; without a host, under this path
 * of any host.
 */
static bool stored_fits(const struct tbg_why_path *p, const struct tbg_uri *u)
{
	const struct tbg_location *l = tbg_location_find(p->site, p->path, p->len);
	const char *target = p->uri + p->target_off;
	size_t len = p->uri_len - p->target_off;

	if (!l->upstream || l->upstream->id != u->upstream)
		return false;
	if (p->has_host && (u->path_off != p->target_off ||
			    memcmp(u->text, p->uri, p->target_off)))
		return false;
	return len && u->len - u->path_off == len &&
	       !memcmp(u->text + u->path_off, target, len);
}

/* Returns the object that the kernel tiers would find for it; NULL: none. */
static const struct tbg_object *stored_object(const struct search *f,
					      const struct tbg_stored *one,
					      const struct tbg_uri *u)
{
	char text[TBG_URI_MAX];
	int len = f->doubt ? -1 :
		  tbg_publish_text(one, u, f->fields, f->fields_len, text);

	for (int i = 0; i < TBG_STORED_OBJECTS && one->objects[i]; i++)
		if (tbg_object_known(one->objects[i]) &&
		    one->objects[i]->path_len == len &&
		    !memcmp(one->objects[i]->path, text, len))
			return one->objects[i];
	return NULL;
}

static bool stored_visit(const struct tbg_store_row *row, void *arg)
{
	const struct tbg_stored *one = row->stored;
	const struct tbg_object *o;
	struct search *f = arg;

	if (!stored_fits(f->p, &row->uri) ||
	    (one->by_encoding && !tbg_stored_selects(one, f->fields, f->fields_len)))
		return true;
	f->doubt = tbg_publish_doubt(one, &row->uri);
	snprintf(f->host, sizeof(f->host), "%.*s", (int)row->uri.path_off, row->uri.text);
	o = stored_object(f, one, &row->uri);
	f->found = f->upstream = true;
	f->in_kernel = o && o->in_kernel;
	f->expires_ns = tbg_response_directives_expires_ns(&one->directives);
	f->hits = row->hits;
	f->len = one->head_len + one->body->len;
	if (o) {
		f->len = o->blob->part[TBG_PART_GET].len;
		f->class = TBG_BLOB_CLASS(o->blob_id);
	}
	return false;
}

struct verdict {
	int why;		/* TBG_WHY_HIT_*: that tier answers */
	char detail[600];
};

#define VERDICT(v_, why_, ...)						\
	do {								\
		(v_)->why = TBG_WHY_##why_;				\
		snprintf((v_)->detail, sizeof((v_)->detail), __VA_ARGS__); \
	} while (0)

/* Finds the cached variant that the client would get. */
static void search_run(const struct tbg_server *s, struct search *f)
{
	tbg_cache_each(s->files.cache, search_visit, f);
	f->encoding = tbg_encode_choose(&f->accept, f->variants);
	if (f->encoding == TBG_ENCODING_IDENTITY)
		return;
	f->found = false;
	tbg_cache_each(s->files.cache, search_visit, f);
}

/*
 * Returns the status that a GET gets in place of the file, or 0. too_large: for any
 * blob, with its heads.
 */
static unsigned int open_status(const struct tbg_server *s, const struct tbg_location *l,
				const char *name, bool *too_large)
{
	struct tbg_file f;
	unsigned int status = tbg_file_open(&s->files, l, name, &f);

	if (status)
		return status;
	tbg_file_vary(&s->files, l, name, false, &f);
	*too_large = !tbg_file_fits(&f, l);
	tbg_file_close(&f);
	return 0;
}

/* Explains from the file why there is no object. */
static void judge_missing(const struct tbg_server *s,
			  const struct tbg_why_path *p,
			  struct verdict *ret)
{
	const struct tbg_location *l = tbg_location_find(p->site, p->path, p->len);
	char name[TBG_ROOT_TEXT + TBG_URL_MAX];
	unsigned int status;
	bool too_large = false;
	struct stat st;
	int fd;

	strcpy(name + tbg_root_text(l->root, name), p->path + 1);
	fd = tbg_root_openat(s->files.roots, name, O_PATH, 0);
	if (fd < 0 || fstat(fd, &st)) {
		VERDICT(ret, MISS, "no file of that name under the root (%s): errors are answered by the daemon",
			strerror(fd < 0 ? -fd : errno));
	} else if (S_ISDIR(st.st_mode)) {
		VERDICT(ret, MISS, "a folder: cached, if it has an index file, once it was asked for with a slash at the end");
	} else if (!S_ISREG(st.st_mode)) {
		VERDICT(ret, MISS, "not a regular file: never cached");
	} else if ((status = open_status(s, l, name, &too_large))) {
		VERDICT(ret, MISS, "a file that the daemon cannot open: it answers %u, and errors are never cached",
			status);
	} else if (too_large) {
		bool text = tbg_encode_type(tbg_mime_type(l->site->sites->mime, name));

		VERDICT(ret, MISS, "a file of %lld bytes: cached is what has %d at most, and with its heads %u%s",
			(long long)st.st_size, TBG_FILE_SMALL, tbg_class_room(TBG_CLASS_NR - 1),
			text && l->compress && st.st_size <= TBG_COMPRESSED_MAX ?
			"; the daemon keeps what it compresses it to for itself" : "");
	} else {
		VERDICT(ret, MISS, "a file that was not requested since it last changed, or was evicted for more popular ones; the next GET stores it");
	}
	if (fd >= 0)
		close(fd);
}

/* Explains why the kernel's cache does not have it. */
static void detail_missing(const struct tbg_server *s, const struct tbg_why_path *p,
			   const struct search *f, struct verdict *ret)
{
	if (f->doubt)
		VERDICT(ret, MISS, "what the upstream answered is stored, for the daemon alone: %s",
			f->doubt);
	else if (f->found && f->upstream)
		VERDICT(ret, MISS, "in the daemon's cache alone, until the next GET, or because it was evicted for more popular ones");
	else if (f->found)
		VERDICT(ret, MISS, "in the daemon's cache alone: no room in the kernel's index");
	else if (tbg_location_find(p->site, p->path, p->len)->handler != TBG_HANDLER_FILES)
		VERDICT(ret, MISS, "an upstream answers, and no response of it is stored; the next GET stores one, if it may");
	else if (f->encoding)
		VERDICT(ret, MISS, "the %s variant was not asked for since the file last changed; the next GET makes it",
			tbg_encoding_name(f->encoding));
	else
		judge_missing(s, p, ret);
}

/* Returns why the kernel tiers are off or pass everything up; "": unknown. */
static const char *off_text(const struct tbg_server *s)
{
	if (!s->wire && !s->sock)
		return s->opt.tier_sock && !s->opt.tier_wire ? s->sock_off : s->wire_off;
	if (atomic_load(&s->draining))
		return "the daemon is draining";
	return s->wire ? tbg_wire_held(s->wire) : "";
}

/* Adds an explanation to the reason. */
static void detail(const struct tbg_server *s, const struct tbg_why_path *p,
		   const struct search *f, struct verdict *ret)
{
	unsigned int room = tbg_reply_size_longest(s->wire, s->opt.wire_size);

	switch (ret->why) {
	case TBG_WHY_OFF:
		if (!ret->detail[0])
			VERDICT(ret, OFF, "%s", off_text(s));
		break;
	case TBG_WHY_PATH:
		if (p->len > TBG_PATH_MAX)
			VERDICT(ret, PATH, "path of %zu bytes, wire takes %d", p->len,
				TBG_PATH_MAX);
		else
			VERDICT(ret, PATH, "left to the daemon: escapes, dot files, empty and dot segments, rare characters; the canonical path is %.200s",
				p->path);
		break;
	case TBG_WHY_HOST:
		VERDICT(ret, HOST, "left to the daemon: a name that is not in the configuration, since others there have a star, or one of more than %d bytes",
			TBG_PATH_MAX);
		break;
	case TBG_WHY_MISS:
		detail_missing(s, p, f, ret);
		break;
	case TBG_WHY_EXPIRED:
		if (f->found && f->expires_ns != TBG_FRESH_ALWAYS)
			VERDICT(ret, EXPIRED, "no longer fresh since %.3f s; the next GET makes sure of it",
				(int64_t)(tbg_mono_ns() - f->expires_ns) / 1e9);
		break;
	case TBG_WHY_SIZE:
		VERDICT(ret, SIZE, s->opt.wire_size ?
			"response of %u bytes with its head: more than wire-size, or than ten segments hold: at most %u" :
			"response of %u bytes with its head; above %u, what wire sends at once (ten segments at most), the daemon answers (wire-size)",
			f->len, room);
		break;
	case TBG_WHY_IFACE:
		VERDICT(ret, IFACE, "the route to this client leads out of no interface that wire is attached to");
		break;
	default:
		break;
	}
}

/* Adds why sock, which might answer in place of wire, is off. */
static void detail_sock(const struct tbg_server *s, struct verdict *ret)
{
	size_t len = strlen(ret->detail);

	if (s->opt.tier_wire && s->opt.tier_sock && !s->sock &&
	    (ret->why == TBG_WHY_OFF || ret->why == TBG_WHY_SIZE))
		snprintf(ret->detail + len, sizeof(ret->detail) - len,
			 "; sock is off: %s", s->sock_off);
}

/* --- asking the kernel tiers --------------------------------------------- */

/* Their answers, by interface and family; -1: not asked. */
struct asked {
	struct tbg_wire_iface ifaces[TBG_IFACES_MAX];
	unsigned int nr, mtu[TBG_IFACES_MAX];
	int why[TBG_IFACES_MAX][2];	/* IPv4, IPv6 */
	const char *by;			/* the tier that gave the verdict; NULL: none */
};

/* A client without an address may use either family. */
static bool comes_by(const struct tbg_why_request *r, bool v6)
{
	return !r->has_client || tbg_is_v4(r->client) != v6;
}

static int ask_iface(const struct tbg_server *s, const struct tbg_why_request *r,
		     int ifindex, bool v6)
{
	struct tbg_question q = { .b = r->b, .len = r->len, .v6 = v6, .ifindex = ifindex };

	memcpy(q.client, r->client, sizeof(q.client));
	return tbg_ask_wire(s->wire, &q);
}

/*
 * Asks wire for each of its interfaces. Returns the first answer that is a hit, or else
 * the first one of an interface by which the client comes, or the first; negative: none.
 */
static int ask_wire(const struct tbg_server *s, const struct tbg_why_request *r,
		    struct asked *ret)
{
	int first = -ENODEV, one;

	ret->nr = tbg_wire_ifaces(s->wire, ret->ifaces);
	for (unsigned int i = 0; i < ret->nr; i++) {
		const struct tbg_wire_iface *f = &ret->ifaces[i];

		ret->mtu[i] = tbg_reply_size_mtu(f->name);
		for (int v6 = 0; v6 < 2; v6++) {
			ret->why[i][v6] = -1;
			if (!strcmp(f->how, "off") || !comes_by(r, v6) ||
			    !tbg_reply_size_segment(ret->mtu[i], v6))
				continue;
			one = ask_iface(s, r, f->ifindex, v6);
			ret->why[i][v6] = one;
			if (first < 0 || !one || (one > 0 && first == TBG_WHY_IFACE))
				first = one;
		}
	}
	return first;
}

static int ask_sock(const struct tbg_server *s, const struct tbg_why_request *r)
{
	struct tbg_question q = { .b = r->b, .len = r->len };

	memcpy(q.client, r->client, sizeof(q.client));
	return s->sock ? tbg_ask_sock(s->sock, s->wire, &q) : -ENODEV;
}

/* Asks sock if wire does not answer. If neither does, wire's reason counts. */
static void ask(const struct tbg_server *s, const struct tbg_why_request *r,
		struct asked *a, struct verdict *ret)
{
	int wire = s->wire ? ask_wire(s, r, a) : -ENODEV;
	int sock = wire ? ask_sock(s, r) : -ENODEV;

	if (!wire || !sock) {
		a->by = wire ? "sock" : "wire";
		ret->why = wire ? TBG_WHY_HIT_SOCK : TBG_WHY_HIT_WIRE;
	} else if (wire > 0 || sock > 0) {
		a->by = wire > 0 ? "wire" : "sock";
		ret->why = wire > 0 ? wire : sock;
	} else if (s->wire && wire == -ENODEV) {
		VERDICT(ret, OFF, "wire is not attached to any interface, see toboggan status");
	} else if (s->wire || s->sock) {
		VERDICT(ret, OFF, "the kernel does not run the lookup: %s", strerror(-wire));
	} else {
		VERDICT(ret, OFF, "%s", off_text(s));
	}
}

static json_t *why_json(int why)
{
	return why < 0 ? json_null() :
	       json_string(tbg_why_name(why ? why : TBG_WHY_HIT_WIRE));
}

static json_t *ifaces_json(const struct tbg_server *s, const struct search *f,
			   const struct asked *a)
{
	unsigned int size = s->opt.wire_size;
	json_t *ret = json_array();

	for (unsigned int i = 0; i < a->nr; i++) {
		const struct tbg_wire_iface *of = &a->ifaces[i];
		unsigned int mtu = a->mtu[i];
		json_t *one = json_pack(
			"{s:s, s:s, s:i, s:i, s:i, s:b, s:b, s:o, s:o}",
			"name", of->name, "how", of->how,
			"mtu", mtu, "reply_ipv4", tbg_reply_size_max(size, mtu, false),
			"reply_ipv6", tbg_reply_size_max(size, mtu, true),
			"fits_ipv4", !a->why[i][0], "fits_ipv6", !a->why[i][1],
			"why_ipv4", why_json(a->why[i][0]),
			"why_ipv6", why_json(a->why[i][1]));

		if (!strcmp(of->how, "off"))
			json_object_set_new(one, "why", json_string(of->why));
		/* XDP sends one segment; assume the larger headers */
		if (of->xdp[0])
			json_object_update_new(one, json_pack("{s:s, s:b}",
				"xdp", of->xdp, "xdp_may",
				f->found && f->len <= tbg_reply_size_segment(mtu, true)));
		json_array_append_new(ret, one);
	}
	return ret;
}

/* Explains why inotify does not suffice for a file; "" if it does. */
static void doubt_get(const struct tbg_server *s, const char *name,
		      char ret[TBG_DOUBT_LEN])
{
	struct tbg_lease lease = { 0 };
	const char *doubt = "not to be opened";
	struct stat st;
	int fd;

	tbg_watch_lease(s->files.watch, name, &lease);
	fd = tbg_root_openat(s->files.roots, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	if (fd >= 0 && !fstat(fd, &st))
		doubt = tbg_watch_doubt(&lease, &st, fd);
	snprintf(ret, TBG_DOUBT_LEN, "%s", doubt ?: "");
	if (fd >= 0)
		close(fd);
}

/* Explains what keeps the object fresh: inotify, or the stat interval and the reason for it. */
static void freshness_json(const struct tbg_server *s, const struct search *f,
			   json_t *ret)
{
	char doubt[TBG_DOUBT_LEN] = "";

	if (f->expires_ns == TBG_FRESH_ALWAYS) {
		json_object_set_new(ret, "fresh", json_string("until the file changes (inotify)"));
		return;
	}
	json_object_set_new(ret, "expires_s", json_real(
		((int64_t)(f->expires_ns - tbg_mono_ns())) / 1e9));
	if (f->upstream)
		json_object_set_new(ret, "fresh", json_string("as long as the upstream allows (RFC 9111)"));
	if (!s->files.watch || !f->name[0])
		return;
	doubt_get(s, f->name, doubt);
	json_object_set_new(ret, "stat_ms", json_integer(TBG_STAT_MS));
	json_object_set_new(ret, "fresh", json_sprintf(
		"within the stat interval: looked at again after %d ms%s%s", TBG_STAT_MS,
		doubt[0] ? ", since inotify cannot be trusted here: " : "", doubt));
}

static json_t *variants_json(unsigned int variants)
{
	json_t *ret = json_array();

	for (int e = 0; e < TBG_ENCODING_NR; e++)
		if (variants >> e & 1)
			json_array_append_new(ret, json_string(tbg_encoding_name(e)));
	return ret;
}

/* Returns the path of a rooted name. */
static json_t *file_json(const struct tbg_server *s, const char *name)
{
	char path[TBG_URL_MAX + TBG_URL_MAX];
	int len = 0;

	if (strchr(name, '/'))
		len = snprintf(path, sizeof(path), "%s%s",
			       tbg_root_path(s->files.roots, atoi(name)) ?: "",
			       strchr(name, '/'));
	return tbg_json_text(path, len < (int)sizeof(path) ? len : 0);
}

/* Adds its site and location. */
static void place_json(const struct tbg_why_path *p, json_t *ret)
{
	const struct tbg_location *l = tbg_location_find(p->site, p->path, p->len);

	json_object_set_new(ret, "site", json_string(p->site->name));
	json_object_set_new(ret, "location", tbg_json_text(l->title, strlen(l->title)));
}

/* --- the request --------------------------------------------------------- */

/*
 * Returns the host for a request that has only a path: that of the stored response, or
 * a name of the default site that the kernel knows.
 */
static const char *host_of(const struct tbg_why_path *p, const struct search *f)
{
	const struct tbg_sites *all = p->site->sites;

	if (f->host[0])
		return f->host;
	for (unsigned int i = 0; i < all->hosts_nr; i++)
		if (all->hosts[i].site == p->site && !all->hosts[i].wild &&
		    all->hosts[i].len < TBG_PATH_MAX)
			return all->hosts[i].name;
	return "localhost";
}

/* Makes a minimal GET for the URL with these fields; cut if it is too long for any tier. */
static void request_make(const struct tbg_why_path *p, const struct search *f,
			 struct tbg_why_request *ret)
{
	const char *target = p->uri + p->target_off;
	int target_len = p->uri_len - p->target_off, nr;

	nr = snprintf((char *)ret->b, sizeof(ret->b), "GET %.*s HTTP/1.1\r\nHost: %.*s\r\n%.*s\r\n",
		      target_len, target,
		      p->has_host ? (int)p->host_len : (int)strlen(host_of(p, f)),
		      p->has_host ? p->host : host_of(p, f), (int)f->fields_len, f->fields);
	ret->len = (size_t)nr < sizeof(ret->b) ? (size_t)nr : sizeof(ret->b) - 1;
}

/* Finds the field lines of a complete request. */
static void fields_of(const struct tbg_why_request *r, struct search *ret)
{
	const char *b = (const char *)r->b, *end = b + r->message.len;
	const char *at = memchr(b + r->message.head_off, '\n', r->message.len);

	ret->fields = at ? at + 1 : end;
	ret->fields_len = end - ret->fields;
	if (r->message.ae.off)
		ret->accept = (struct tbg_slice){ b + r->message.ae.off, r->message.ae.len };
}

static const char *tier_name(int why)
{
	return why == TBG_WHY_HIT_WIRE ? "wire" : why == TBG_WHY_HIT_SOCK ? "sock" : "user";
}

static void verdict_json(const struct verdict *v, const struct asked *a, json_t *ret)
{
	json_object_set_new(ret, "tier", json_string(tier_name(v->why)));
	json_object_set_new(ret, "why", json_string(tbg_why_name(v->why)));
	json_object_set_new(ret, "text", json_string(tbg_why_text(v->why)));
	json_object_set_new(ret, "asked", a->by ? json_string(a->by) : json_null());
	if (v->detail[0])
		json_object_set_new(ret, "detail",
				    tbg_json_text(v->detail, strlen(v->detail)));
}

/* Adds the contents of the daemon's cache. */
static void cached_json(const struct tbg_server *s, const struct search *f, json_t *ret)
{
	json_object_set_new(ret, "cached", json_boolean(f->found));
	json_object_set_new(ret, "encoding", json_string(tbg_encoding_name(f->encoding)));
	json_object_set_new(ret, "variants", variants_json(f->variants));
	if (!f->found)
		return;
	json_object_set_new(ret, "in_kernel", json_boolean(f->in_kernel));
	json_object_set_new(ret, "response_bytes", json_integer(f->len));
	json_object_set_new(ret, "class", json_integer(tbg_class_bytes(f->class)));
	json_object_set_new(ret, "hits", json_integer(f->hits));
	if (!f->upstream)
		json_object_set_new(ret, "file", file_json(s, f->name));
	freshness_json(s, f, ret);
}

json_t *tbg_why_answer(struct tbg_server *s, const struct tbg_why_path *p,
		       struct tbg_why_request *r)
{
	char unfollowed[TBG_UNFOLLOWED_LEN] = "", fields[TBG_URL_MAX] = "";
	struct search f = { .p = p, .fields = fields };
	struct asked a = { 0 };
	struct verdict v = { 0 };
	json_t *ret = json_object();

	if (r->len && p) {
		fields_of(r, &f);
	} else if (r->accept.len) {
		f.accept = r->accept;
		snprintf(fields, sizeof(fields), "Accept-Encoding: %.*s\r\n",
					(int)r->accept.len, r->accept.text);
		f.fields_len = strlen(fields);
	}
	if (p) {
		search_run(s, &f);
		tbg_store_each(s->store, stored_visit, &f);
		json_object_set_new(ret, "path", tbg_json_text(p->path, p->len));
		place_json(p, ret);
	}
	if (!r->len)
		request_make(p, &f, r);
	ask(s, r, &a, &v);
	if (p)
		detail(s, p, &f, &v);
	detail_sock(s, &v);
	verdict_json(&v, &a, ret);
	if (s->wire)
		tbg_wire_unfollowed(s->wire, unfollowed);
	if (unfollowed[0])
		json_object_set_new(ret, "note", json_string(unfollowed));
	json_object_set_new(ret, "listeners_left", tbg_command_left(s));
	json_object_set_new(ret, "interfaces", ifaces_json(s, &f, &a));
	cached_json(s, &f, ret);
	return ret;
}
