// SPDX-License-Identifier: GPL-2.0
/*
 * The reasons of tbg_why, worked out for one URL from the daemon's side: the
 * same checks in the same order as wire makes them, each with what is to know
 * beyond the name. It asks the same grammar, but reads the daemon's cache and
 * not the index map, and knows nothing of one client's window.
 */
#include "control/why.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/why.h"
#include "cache/objects.h"
#include "os/clock.h"
#include "core/fresh.h"
#include "core/host.h"
#include "core/request.h"
#include "http/content_coding.h"
#include "http/header.h"
#include "files/files.h"
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
#include "tiers/wire.h"

#define TBG_DOUBT_LEN	96
#define HEADERS_V4	(20 + 20 + 12)	/* IPv4, TCP, timestamps */
#define HEADERS_V6	(40 + 20 + 12)
#define MTU_V6		1280	/* where it is less there is no IPv6: RFC 8200, 5 */

const char *tbg_why_name(int why)
{
	static const char *const names[] = {
#define X(name, text) #name,
		TBG_WHY_LIST(X)
#undef X
	};

	return why >= 0 && why < TBG_WHY_NR ? names[why] : "?";
}

const char *tbg_why_text(int why)
{
	static const char *const texts[] = {
#define X(name, text) text,
		TBG_WHY_LIST(X)
#undef X
	};

	return why >= 0 && why < TBG_WHY_NR ? texts[why] : "?";
}

json_t *tbg_json_text(const char *text, size_t len)
{
	json_t *ret = json_stringn(text, len);
	char *b, *to;

	if (ret)
		return ret;
	b = to = malloc(3 * len + 1);
	if (!b)
		return NULL;
	for (size_t i = 0; i < len; i++) {
		unsigned char c = text[i];

		if (c >= 0x20 && c < 0x7f)
			*to++ = c;
		else
			to += sprintf(to, "%%%02X", c);
	}
	ret = json_stringn(b, to - b);
	free(b);
	return ret;
}

/* --- from URL to path ---------------------------------------------------- */

/*
 * What follows scheme and authority (NULL: none), which may have no path; NULL:
 * neither URL nor path.
 */
static const char *path_begin(const char *url, const char **ret_host)
{
	const char *p = url;

	*ret_host = NULL;
	if (!strncasecmp(p, "http://", 7))
		p += 7;
	else if (!strncasecmp(p, "https://", 8))
		p += 8;
	else
		return *url == '/' ? url : NULL;
	*ret_host = p;
	return p + strcspn(p, "/?#");
}

/* What the fast grammar says of the plainest GET of that, and reads in it. */
static int fast_parse(struct tbg_head *head, struct tbg_req *req, const char *path,
		      size_t path_len, const char *host, size_t host_len)
{
	struct tbg_scan scan;
	int nr;

	*head = (struct tbg_head){ 0 };
	*req = (struct tbg_req){ 0 };
	nr = snprintf((char *)head->b, sizeof(head->b),
		      "GET %.*s HTTP/1.1\r\nHost: %.*s\r\n\r\n",
		      (int)path_len, path, (int)host_len, host);
	return nr > TBG_REQ_MAX ? TBG_WHY_HOST :
				  tbg_request_parse(head, &scan, nr, req);
}

/* p is followed by what ended it, which is not part of the request. */
static int fast_judge(const char *p, size_t len)
{
	struct tbg_head head;
	struct tbg_req req;

	return len > TBG_PATH_MAX ? TBG_WHY_PATH :
				    fast_parse(&head, &req, p, len, "localhost", 9);
}

/*
 * What the kernel says of the host, once the path is one that it takes: it is
 * told whole names alone, see tbg_hosts_tell().
 */
static int host_judge(const struct tbg_server *s, const char *host)
{
	unsigned int mode = s->maps ? __atomic_load_n(&s->maps->knob->hosts,
						      __ATOMIC_SEQ_CST) : 0;
	struct tbg_head head;
	struct tbg_path name;
	struct tbg_req req;
	int nr, why;

	if (!host)
		return 0;
	why = fast_parse(&head, &req, "/", 1, host, strcspn(host, "/?#"));
	if (why || mode % TBG_HOSTS_MODES == TBG_HOSTS_NONE)
		return why;
	nr = tbg_host_load(&head, req.host_off, req.host_len, &name);
	if (nr < 0)
		return -nr;
	return mode % TBG_HOSTS_MODES == TBG_HOSTS_ALL ||
	       tbg_site_whole(s->sites, (const char *)name.w, nr) ? 0 : TBG_WHY_HOST;
}

/* The URL as upstreams are asked for it and their answers stored (transfer.c). */
static void uri_make(struct tbg_why_path *ret, const char *host, const char *target)
{
	size_t n = host ? strcspn(host, "/?#") : 0, rest = strcspn(target, "#");
	bool slash = *target != '/';

	if (n > 3 && !memcmp(host + n - 3, ":80", 3))
		n -= 3;
	ret->target_off = ret->uri_len = 0;
	if (n + slash + rest > sizeof(ret->uri))	/* too long: none is stored */
		return;
	for (size_t i = 0; i < n; i++)
		ret->uri[i] = tbg_lower(host[i]);
	ret->uri[n] = '/';
	memcpy(ret->uri + n + slash, target, rest);
	ret->target_off = n;
	ret->uri_len = n + slash + rest;
}

/* What a request for it would get a 400 for. */
static int refuse(const char *url, char *ret_msg, size_t msg_len)
{
	snprintf(ret_msg, msg_len, "%.200s: no path that the daemon would take: a bad escape, or above the root",
		 url);
	return -EINVAL;
}

int tbg_why_path_parse(const struct tbg_server *s, struct tbg_why_path *ret,
		       const char *url, char *ret_msg, size_t msg_len)
{
	const char *host, *target = path_begin(url, &host), *p = target;
	size_t len;
	int canonical;

	if (!p) {
		snprintf(ret_msg, msg_len, "%.200s: neither a URL (http://...) nor a path (/...)",
			 url);
		return -EINVAL;
	}
	len = strcspn(p, "?#");
	if (!len) {
		p = "/";
		len = 1;
	}
	if (len >= sizeof(ret->path)) {
		snprintf(ret_msg, msg_len, "%.60s...: path of %zu bytes, the longest is %zu",
			 url, len, sizeof(ret->path) - 1);
		return -EINVAL;
	}
	canonical = tbg_path_decode((const uint8_t *)p, len, ret->path);
	if (canonical < 0)
		return refuse(url, ret_msg, msg_len);
	ret->len = canonical;
	ret->has_host = host;
	ret->accept = (struct tbg_value){ 0 };
	ret->site = tbg_site_find(s->sites, host, host ? strcspn(host, "/?#") : 0);
	ret->fast = fast_judge(p, len);
	ret->host_why = host_judge(s, host);
	uri_make(ret, host, target);
	return 0;
}

/* --- interfaces ---------------------------------------------------------- */

static unsigned int iface_mtu(const char *name)
{
	struct ifreq r = { 0 };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	unsigned int mtu = 0;

	if (fd < 0)
		return 0;
	strncpy(r.ifr_name, name, sizeof(r.ifr_name) - 1);
	if (!ioctl(fd, SIOCGIFMTU, &r))
		mtu = r.ifr_mtu;
	close(fd);
	return mtu;
}

/* Bytes of a segment of replies that wire sends by an interface. */
static unsigned int segment_room(unsigned int mtu, unsigned int headers)
{
	unsigned int seg = mtu > headers ? mtu - headers : 0;

	if (seg > TBG_SEG_BYTES)
		seg = TBG_SEG_BYTES;
	return seg & ~3u;
}

/* And of the longest reply. */
static unsigned int reply_room(const struct tbg_server *s, unsigned int mtu,
			       unsigned int headers)
{
	unsigned int size = s->opt.wire_size ? s->opt.wire_size : TBG_WIRE_MAX;
	unsigned int room = segment_room(mtu, headers) *
			    (s->opt.wire_size ? TBG_SEG_MAX : TBG_SEG_PAYS);

	if (size > TBG_WIRE_MAX)
		size = TBG_WIRE_MAX;
	return room < size ? room : size;
}

unsigned int tbg_why_room(const struct tbg_server *s)
{
	struct tbg_wire_iface ifaces[TBG_IFACES_MAX];
	unsigned int nr = tbg_wire_ifaces(s->wire, ifaces), most = 0;

	for (unsigned int i = 0; i < nr; i++) {
		unsigned int room = reply_room(s, iface_mtu(ifaces[i].name),
					       HEADERS_V4);

		if (strcmp(ifaces[i].how, "off") && room > most)
			most = room;
	}
	return most;
}

/* --- the answer ---------------------------------------------------------- */

struct search {
	const struct tbg_why_path *p;
	bool found, in_kernel, upstream;
	const char *doubt;		/* of what an upstream answered, or NULL */
	enum tbg_encoding encoding;	/* the variant looked for */
	unsigned int variants;		/* that identity says there may be */
	uint64_t expires_ns, hits;
	uint32_t len, class;
	char name[TBG_URL_MAX];
	char fields[TBG_URL_MAX];	/* of the request, as far as they are told */
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

/* Is it stored under this URL? Without a host, under that path of any. */
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

/* What the kernel tiers would find of it; NULL: nothing. */
static const struct tbg_object *stored_object(const struct search *f,
					      const struct tbg_stored *one,
					      const struct tbg_uri *u)
{
	char text[TBG_URI_MAX];
	int len = f->doubt ? -1 :
		  tbg_publish_text(one, u, f->fields, strlen(f->fields), text);

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
	    (one->by_encoding && !tbg_stored_selects(one, f->fields, strlen(f->fields))))
		return true;
	f->doubt = tbg_publish_doubt(one, &row->uri);
	o = stored_object(f, one, &row->uri);
	f->found = f->upstream = true;
	f->in_kernel = o && o->in_kernel;
	f->expires_ns = tbg_response_directives_expires_ns(&one->terms);
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

/* Of what is cached, the variant that the client would get. */
static void search_run(const struct tbg_server *s, struct search *f)
{
	tbg_cache_each(s->files.cache, search_visit, f);
	f->encoding = tbg_encode_choose(&f->p->accept, f->variants);
	if (f->encoding == TBG_ENCODING_IDENTITY)
		return;
	f->found = false;
	tbg_cache_each(s->files.cache, search_visit, f);
}

/* What a GET has in place of the file, or 0; too_large: for any blob, heads and all. */
static unsigned int open_status(const struct tbg_server *s, const struct tbg_location *l,
				const char *name, bool *too_large)
{
	struct tbg_file f;
	unsigned int status = tbg_file_open(&s->files, l, name, &f);

	if (status)
		return status;
	tbg_file_vary(&s->files, l, name, &f);
	*too_large = !tbg_file_fits(&f, l);
	tbg_file_close(&f);
	return 0;
}

/* Why there is no object: what the file says, as far as one can see it. */
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
		VERDICT(ret, MISS, "a file that was not asked for since it last changed, or that gave way to more popular ones; the next GET stores it");
	}
	if (fd >= 0)
		close(fd);
}

static void judge(const struct tbg_server *s, const struct tbg_why_path *p,
		  const struct search *f, struct verdict *ret)
{
	unsigned int room = tbg_why_room(s);
	uint64_t now = tbg_mono_ns();

	if (!s->wire && !s->sock)
		VERDICT(ret, OFF, "%s", s->opt.tier_sock && !s->opt.tier_wire ?
			s->sock_off : s->wire_off);
	else if (atomic_load(&s->draining))
		VERDICT(ret, OFF, "the daemon is draining");
	else if (s->wire && *tbg_wire_held(s->wire) && !s->sock)
		VERDICT(ret, OFF, "%s", tbg_wire_held(s->wire));
	else if (!room && !s->sock)
		VERDICT(ret, OFF, "wire is not attached to any interface, see toboggan status");
	else if (p->fast == TBG_WHY_PATH && p->len > TBG_PATH_MAX)
		VERDICT(ret, PATH, "path of %zu bytes, wire takes %d", p->len,
			TBG_PATH_MAX);
	else if (p->fast) {
		ret->why = p->fast;
		snprintf(ret->detail, sizeof(ret->detail),
			 "left to the daemon: escapes, dot files, empty and dot segments, rare characters; the canonical path is %.200s",
			 p->path);
	} else if (p->host_why) {
		ret->why = p->host_why;
		snprintf(ret->detail, sizeof(ret->detail), p->host_why == TBG_WHY_HOST ?
			 "left to the daemon: a name that is not in the configuration, since others there have a star, or one of more than %d bytes" :
			 "left to the daemon: the host is none, or has rare characters",
			 TBG_PATH_MAX);
	} else if (!f->found &&
		   tbg_location_find(p->site, p->path, p->len)->handler != TBG_HANDLER_FILES)
		VERDICT(ret, MISS, "an upstream answers, and nothing is stored of it; the next GET stores it, if it may be");
	else if (!f->found && f->encoding)
		VERDICT(ret, MISS, "the %s variant was not asked for since the file last changed; the next GET makes it",
			tbg_encoding_name(f->encoding));
	else if (!f->found)
		judge_missing(s, p, ret);
	else if (f->doubt)
		VERDICT(ret, MISS, "what the upstream answered is stored, for the daemon alone: %s",
			f->doubt);
	else if (f->upstream && !f->in_kernel && tbg_fresh(f->expires_ns, now))
		VERDICT(ret, MISS, "in the daemon's cache alone, until the next GET, or it gave way to more popular ones");
	else if (!f->in_kernel && !f->upstream)
		VERDICT(ret, MISS, "in the daemon's cache alone: no room in the kernel's index");
	else if (!tbg_fresh(f->expires_ns, now))
		VERDICT(ret, EXPIRED, "no longer fresh since %.3f s; the next GET makes sure of it",
			(now - f->expires_ns) / 1e9);
	else if (f->len > room && s->sock)
		ret->why = TBG_WHY_HIT_SOCK;
	else if (f->len > room)
		VERDICT(ret, SIZE, s->opt.wire_size ?
			"response of %u bytes with its head: more than wire-size, or than ten segments hold: at most %u" :
			"response of %u bytes with its head; above %u, seven segments, the daemon answers at less cost (wire-size)",
			f->len, room);
	else
		ret->why = TBG_WHY_HIT_WIRE;
}

/* Where wire is not the one to answer, sock might, had it not been off. */
static void judge_sock(const struct tbg_server *s, struct verdict *ret)
{
	size_t len = strlen(ret->detail);

	if (s->opt.tier_wire && s->opt.tier_sock && !s->sock &&
	    (ret->why == TBG_WHY_OFF || ret->why == TBG_WHY_SIZE))
		snprintf(ret->detail + len, sizeof(ret->detail) - len,
			 "; sock is off: %s", s->sock_off);
}

static json_t *ifaces_json(const struct tbg_server *s, const struct search *f)
{
	struct tbg_wire_iface ifaces[TBG_IFACES_MAX];
	unsigned int nr = tbg_wire_ifaces(s->wire, ifaces);
	json_t *ret = json_array();

	for (unsigned int i = 0; i < nr; i++) {
		unsigned int mtu = iface_mtu(ifaces[i].name);
		unsigned int v4 = reply_room(s, mtu, HEADERS_V4);
		unsigned int v6 = mtu < MTU_V6 ? 0 : reply_room(s, mtu, HEADERS_V6);
		bool on = strcmp(ifaces[i].how, "off");
		json_t *one = json_pack(
			"{s:s, s:s, s:i, s:i, s:i, s:b, s:b}",
			"name", ifaces[i].name, "how", ifaces[i].how,
			"mtu", mtu, "reply_ipv4", v4, "reply_ipv6", v6,
			"fits_ipv4", on && f->found && f->len <= v4,
			"fits_ipv6", on && f->found && f->len <= v6);

		if (!on)
			json_object_set_new(one, "why", json_string(ifaces[i].why));
		/* one segment, of the larger headers */
		if (ifaces[i].xdp[0])
			json_object_update_new(one, json_pack("{s:s, s:b}",
				"xdp", ifaces[i].xdp,
				"xdp_may", f->found && f->len <= segment_room(mtu, HEADERS_V6)));
		json_array_append_new(ret, one);
	}
	return ret;
}

/* Why inotify is not enough for a file; "" if it is. */
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

/* How the object is kept fresh: by inotify, or by the stat interval and why. */
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
		json_object_set_new(ret, "fresh", json_string("as long as the upstream said (RFC 9111)"));
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

/* Where the file of a rooted name lies. */
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

/* Which site and location it is about. */
static void place_json(const struct tbg_why_path *p, json_t *ret)
{
	const struct tbg_location *l = tbg_location_find(p->site, p->path, p->len);

	json_object_set_new(ret, "site", json_string(p->site->name));
	json_object_set_new(ret, "location", tbg_json_text(l->title, strlen(l->title)));
}

json_t *tbg_why_url(struct tbg_server *s, const struct tbg_why_path *p)
{
	struct search f = { .p = p };
	struct verdict v = { 0 };
	char unfollowed[TBG_UNFOLLOWED_LEN] = "";
	json_t *ret = json_object();

	if (p->accept.len)
		snprintf(f.fields, sizeof(f.fields), "Accept-Encoding: %.*s\r\n",
			 (int)p->accept.len, p->accept.text);
	search_run(s, &f);
	tbg_store_each(s->stock, stored_visit, &f);
	judge(s, p, &f, &v);
	judge_sock(s, &v);
	json_object_set_new(ret, "path", tbg_json_text(p->path, p->len));
	place_json(p, ret);
	json_object_set_new(ret, "tier", json_string(
		v.why == TBG_WHY_HIT_WIRE ? "wire" :
		v.why == TBG_WHY_HIT_SOCK ? "sock" : "user"));
	json_object_set_new(ret, "why", json_string(tbg_why_name(v.why)));
	json_object_set_new(ret, "text", json_string(tbg_why_text(v.why)));
	if (v.detail[0])
		json_object_set_new(ret, "detail",
				    tbg_json_text(v.detail, strlen(v.detail)));
	if (s->wire)
		tbg_wire_unfollowed(s->wire, unfollowed);
	if (unfollowed[0])
		json_object_set_new(ret, "note", json_string(unfollowed));
	json_object_set_new(ret, "cached", json_boolean(f.found));
	json_object_set_new(ret, "encoding", json_string(tbg_encoding_name(f.encoding)));
	json_object_set_new(ret, "variants", variants_json(f.variants));
	json_object_set_new(ret, "interfaces", ifaces_json(s, &f));
	if (!f.found)
		return ret;
	json_object_set_new(ret, "in_kernel", json_boolean(f.in_kernel));
	json_object_set_new(ret, "response_bytes", json_integer(f.len));
	json_object_set_new(ret, "class", json_integer(tbg_class_bytes(f.class)));
	json_object_set_new(ret, "hits", json_integer(f.hits));
	if (!f.upstream)
		json_object_set_new(ret, "file", file_json(s, f.name));
	freshness_json(s, &f, ret);
	return ret;
}
