// SPDX-License-Identifier: GPL-2.0
/*
 * Answers a request from a file: selects the version, index or listing, and publishes
 * it. Called by dispatch.c for a location with files.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/objects.h"
#include "os/clock.h"
#include "core/encoding.h"
#include "http/content_coding.h"
#include "files/files.h"
#include "files/open_files.h"
#include "serve/pages.h"
#include "os/root.h"
#include "serve/dispatch.h"
#include "serve/server.h"
#include "files/watch.h"
#include "serve/internal.h"

#define CHANGE_TRIES 10		/* for a file that changes while it is read */
#define REFUSED_NS   1000000000ull	/* before another attempt to make a variant */

bool tbg_route_range_counts(const struct tbg_ask *ask, const struct tbg_slice *tag,
			    int64_t strong_s)
{
	return ask->range.text && ask->method == TBG_METHOD_GET &&
	       tbg_if_range_eval(&ask->if_range, tag->text, tag->len, strong_s);
}

/* Makes the head of a file's answer, after evaluating its preconditions. */
static void answer_file(const struct tbg_ask *ask, const struct tbg_file *f,
			struct tbg_answer *ret)
{
	struct tbg_reply *r = &ret->reply;
	struct tbg_slice tag = { f->etag, strlen(f->etag) }, type;
	unsigned int status = tbg_conditions_eval(&ask->conditions, tag.text,
						  tag.len, f->modified_s);

	r->vary = f->variants;
	if (status == 412) {
		tbg_answer_instead(ret, 412);
		return;
	}
	memcpy(ret->etag, f->etag, sizeof(ret->etag));
	memcpy(ret->modified, f->modified, sizeof(f->modified));
	r->etag = *ret->etag ? ret->etag : NULL;
	r->modified = *ret->modified ? ret->modified : NULL;
	r->status = 200;
	r->type = f->type;
	r->encoding = f->encoding ? tbg_encoding_name(f->encoding) : f->coding;
	r->length = f->size;
	r->ranges = true;
	if (status == 304) {
		r->ranges = false;
		r->status = 304;
		r->type = r->encoding = NULL;
		r->length = -1;
		ret->body_len = ret->fd_len = 0;
	} else if (tbg_route_range_counts(ask, &tag, f->strong_s)) {
		type = (struct tbg_slice){ f->type, f->type ? strlen(f->type) : 0 };
		tbg_answer_range(ask, ret, f->size, &type, &tag);
	}
}

/* A version of a file that may answer, and the lease for its storage. */
struct version {
	struct tbg_file f;
	struct tbg_lease lease;
	bool publish;
	struct tbg_object *plain;	/* the cached identity, if f is a variant */
	char name[TBG_FILE_NAME];
};

static void version_close(struct version *v)
{
	tbg_file_close(&v->f);
	tbg_object_put(v->plain);
}

/* Takes the body from an object and takes over the reference to it. */
static void object_body(struct tbg_object *o, struct tbg_answer *ret)
{
	const struct tbg_blob *blob = o->blob;

	ret->object = o;
	ret->body = blob->data + blob->part[TBG_PART_HEAD].len;
	ret->body_len = blob->part[TBG_PART_GET].len - blob->part[TBG_PART_HEAD].len;
	ret->reply.cache = TBG_CACHE_STORED;
}

static int version_publish(const struct tbg_server *s, const struct tbg_ask *ask,
			   const struct tbg_location *location,
			   struct version *v, struct tbg_object **ret)
{
	struct tbg_key key;

	if (!v->publish || !tbg_route_key(s, ask->site, ask->path, ask->path_len, &key))
		return -ENOSPC;
	tbg_key_vary(&key, v->f.encoding);
	return tbg_file_publish(&s->files, &v->f, location, &key, ask->path,
				ask->path_len, v->name, &v->lease, ret);
}

/*
 * Caches the file, or at least reads it. Returns 0, -ESTALE, -EFBIG or another negative
 * errno.
 */
static int small_read(const struct tbg_server *s, const struct tbg_ask *ask,
		      const struct tbg_location *location, struct version *v,
		      struct tbg_answer *ret)
{
	struct tbg_object *o = v->plain;
	int err = 0;

	if (o && !v->f.encoding)	/* it is not a variant after all */
		tbg_object_get(o);
	else
		err = version_publish(s, ask, location, v, &o);
	if (!err) {
		object_body(o, ret);
		return 0;
	}
	if (err == -ESTALE || (err == -EFBIG && !v->f.memory))
		return err;
	if (v->plain)
		atomic_store(&v->plain->refused_ns, tbg_mono_ns() + REFUSED_NS);
	ret->heap = malloc(v->f.size + 1);
	if (!ret->heap)
		return -ENOMEM;
	err = tbg_file_read(&v->f, ret->heap);
	if (err) {
		free(ret->heap);
		ret->heap = NULL;
		return err;
	}
	ret->body = ret->heap;
	ret->body_len = v->f.size;
	return 0;
}

/*
 * Finds or caches the identity of a file: a kernel tier finds variants only through its
 * entry. Sets v->plain; it stays NULL, with result 0, if the file must not be cached.
 */
static int plain_get(const struct tbg_server *s, const struct tbg_ask *ask,
		     const struct tbg_location *location, struct version *v)
{
	struct tbg_object *o;
	struct tbg_key key;
	int err;

	if (!v->publish || !tbg_route_key(s, ask->site, ask->path, ask->path_len, &key))
		return 0;
	o = tbg_route_find(s, &key, ask->site->id, ask->path, ask->path_len,
			   tbg_mono_ns(), ask->warms);
	if (o && tbg_file_same(o, &v->f.st) && o->siblings == v->f.siblings) {
		v->plain = o;
		return 0;
	}
	tbg_object_put(o);
	err = version_publish(s, ask, location, v, &v->plain);
	return err == -ESTALE ? err : 0;
}

/*
 * Compresses the file, or describes a task for it in ret->want and returns
 * -EINPROGRESS: 64 KiB of text take some 15 ms.
 */
static int coding_get(const struct tbg_ask *ask, struct version *v, enum tbg_encoding e,
		      struct tbg_answer *ret)
{
	const struct tbg_made *m = ask->made;

	if (m && m->want.kind == TBG_WANT_CODING && m->want.encoding == e &&
	    tbg_version_same(&m->want.st, &v->f.st))
		return m->err ?: tbg_file_coded(&v->f, e, m->text, m->len);
	if (!ask->may_wait)
		return tbg_file_compress(&v->f, e);
	ret->want = (struct tbg_want){
		.kind = TBG_WANT_CODING, .fd = fcntl(v->f.fd, F_DUPFD_CLOEXEC, 0),
		.st = v->f.st, .room = tbg_file_coding_room(&v->f, e), .encoding = e,
	};
	return ret->want.fd < 0 ? -ENOMEM : -EINPROGRESS;
}

/* Makes the preferred variant, unless compression does not reduce the size. */
static int version_compress(const struct tbg_ask *ask, struct version *v,
			    struct tbg_answer *ret)
{
	unsigned int have = atomic_load(&v->plain->variants);
	enum tbg_encoding e;
	int err;

	if (atomic_load(&v->plain->refused_ns) > tbg_mono_ns())
		return 0;
	while ((e = tbg_encode_choose(&ask->accept_encoding, have))) {
		err = coding_get(ask, v, e, ret);
		if (err != -E2BIG)
			return err == -ENOMEM ? 0 : err;
		have &= ~(1u << e);
		tbg_object_vary(v->plain, have);
	}
	return 0;
}

/* Uses a compressed copy of a large file if it exists; until then, the file as it is. */
static int version_compress_large(const struct tbg_server *s, const struct tbg_ask *ask,
				  struct version *v)
{
	unsigned int have = v->f.variants;
	enum tbg_encoding e;

	while ((e = tbg_encode_choose(&ask->accept_encoding, have)) &&
	       tbg_file_compress_large(&s->files, &v->f, e) == -E2BIG)
		have &= ~(1u << e);
	return 0;
}

/* Replaces the file by the variant that the client prefers. Returns 0 or -ESTALE. */
static int version_choose(const struct tbg_server *s, const struct tbg_ask *ask,
			  const struct tbg_location *location, struct version *v,
			  struct tbg_answer *ret)
{
	enum tbg_encoding e = tbg_encode_choose(&ask->accept_encoding, v->f.variants);
	char plain[TBG_FILE_NAME];
	bool publishes;
	int err;

	if (e == TBG_ENCODING_IDENTITY)
		return 0;
	err = plain_get(s, ask, location, v);
	if (err)
		return err;
	publishes = v->publish;
	v->publish = v->plain;
	if (!(v->f.siblings >> e & 1)) {
		if (v->plain)
			return version_compress(ask, v, ret);
		/* files that are not cached are compressed separately */
		return publishes && tbg_file_fits(&v->f, location) ?
			       0 :
			       version_compress_large(s, ask, v);
	}
	strcpy(plain, v->name);
	tbg_sibling_name(plain, e, v->name);
	if (v->publish)
		tbg_watch_lease(s->files.watch, v->name, &v->lease);
	return tbg_file_sibling(&s->files, v->name, e, &v->f);
}

/*
 * Opens the file, with a lease if it will be cached or kept open. again: the file has
 * just changed, so a kept descriptor is not used. Returns 0 or a status.
 */
static int version_open(const struct tbg_server *s,
			const struct tbg_location *location, bool again,
			struct version *v)
{
	bool kept = !again && tbg_open_files_get(s->files.open_files, v->name, &v->f), keep = false;
	bool leased = false;
	int status = 0;

	/* again: take the lease first, so that correctness does not depend on file times */
	if (v->publish && !kept && !again)
		leased = tbg_watch_look(s->files.watch, v->name, &v->lease);
	if (kept)
		tbg_file_describe(&v->f, location, v->name);
	else
		status = tbg_file_open(&s->files, location, v->name, &v->f);
	if (status)
		return status;
	if (v->f.st.st_size > TBG_FILE_SMALL) {
		v->publish = false;
		keep = !kept && tbg_open_files_wants(s->files.open_files, v->name);
	}
	if (keep || (v->publish && (!leased || v->f.recent))) {
		/*
		 * A file must be opened under a lease to be cached. A complete lease
		 * costs several times as much as an open, and a large file needs none
		 * the first time. Therefore only files that need one are opened twice.
		 */
		tbg_file_close(&v->f);
		tbg_watch_lease(s->files.watch, v->name, &v->lease);
		status = tbg_file_open(&s->files, location, v->name, &v->f);
		if (status)
			return status;
	}
	tbg_file_vary(&s->files, location, v->name, leased && v->lease.no_variants, &v->f);
	if (keep)
		tbg_open_files_keep(s->files.open_files, v->name, &v->f, &v->lease);
	return 0;
}

/*
 * One attempt. Returns 0, a status, -EINPROGRESS, or -ESTALE if the file changed while
 * it was read.
 */
static int file_try(const struct tbg_server *s, const struct tbg_ask *ask,
		    const struct tbg_location *location, const char *name,
		    bool publish, bool again, struct tbg_answer *ret)
{
	struct version v;	/* not zeroed: its name is large */
	int err, status;

	v.publish = publish;
	v.plain = NULL;
	strcpy(v.name, name);
	status = version_open(s, location, again, &v);
	if (status)
		return status;
	tbg_answer_looked(ask, ret, 200);
	ret->body_len = 0;
	ret->fd_len = 0;
	err = version_choose(s, ask, location, &v, ret);
	if (!err)
		err = v.f.size <= TBG_FILE_SMALL ?
		      small_read(s, ask, location, &v, ret) : -EFBIG;
	if (err == -EFBIG) {
		ret->fd = v.f.fd;
		ret->fd_len = v.f.size;
		ret->fd_version = tbg_file_version(&v.f, v.name);
		v.f.fd = -1;
		err = 0;
	}
	if (!err)
		answer_file(ask, &v.f, ret);
	ret->media = v.f.type;
	version_close(&v);
	if (err && err != -ESTALE && err != -EINPROGRESS)
		return err == -ENOMEM ? 503 : 500;
	return err;
}

/* Returns true even without permission to read it. */
static bool folder_exists(const struct tbg_server *s, const char *name)
{
	int fd = tbg_root_openat(s->files.roots, name, O_PATH | O_DIRECTORY, 0);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Answers with the file of a rooted name. Returns 0, a status, or -ESTALE. */
static int file_answer(const struct tbg_server *s, const struct tbg_ask *ask,
		       const struct tbg_location *location, const char *name,
		       bool publish, struct tbg_answer *ret)
{
	int status = -ESTALE;

	for (int i = 0; i < CHANGE_TRIES && status == -ESTALE; i++)
		status = file_try(s, ask, location, name,
				  publish && i < CHANGE_TRIES - 1, i, ret);
	return status;
}

void tbg_candidate_make(struct candidate *c, const struct tbg_site *site, const char *folder,
			size_t len, const char *index)
{
	memcpy(c->path, folder, len);
	strcpy(c->path + len, index);
	c->len = len + strlen(index);
	c->location = tbg_location_find(site, c->path, c->len);
}

static void name_make(int root, const char *path, size_t len,
		      char ret[TBG_ROOT_TEXT + TBG_TARGET_MAX + TBG_INDEX_ROOM])
{
	size_t at = tbg_root_text(root, ret);

	memcpy(ret + at, path + 1, len - 1);
	ret[at + len - 1] = 0;
}

/* Returns whether it is a regular file, even without permission to read it. */
static bool candidate_exists(const struct tbg_server *s, int root,
			     const struct candidate *c)
{
	char name[TBG_ROOT_TEXT + TBG_TARGET_MAX + TBG_INDEX_ROOM];
	struct stat st;
	bool ret;
	int fd;

	name_make(root, c->path, c->len, name);
	fd = tbg_root_openat(s->files.roots, name, O_PATH, 0);
	if (fd < 0)
		return false;
	ret = !fstat(fd, &st) && S_ISREG(st.st_mode);
	close(fd);
	return ret;
}

const struct tbg_location *tbg_route_index(const struct tbg_server *s,
					   const struct tbg_location *l,
					   const char *path, size_t len,
					   const char **ret_index)
{
	struct candidate c;
	bool others = false;

	if (!len || path[len - 1] != '/' || l->handler != TBG_HANDLER_FILES)
		return NULL;
	for (unsigned int i = 0; i < l->index_nr && !others; i++) {
		tbg_candidate_make(&c, l->site, path, len, l->index[i]);
		others = c.location->handler != TBG_HANDLER_FILES;
	}
	for (unsigned int i = 0; i < l->index_nr && others; i++) {
		tbg_candidate_make(&c, l->site, path, len, l->index[i]);
		if (!candidate_exists(s, l->root, &c))
			continue;
		*ret_index = l->index[i];
		return c.location->handler != TBG_HANDLER_FILES ? c.location : NULL;
	}
	return NULL;
}

/*
 * Answers with the first existing index file, by the settings of its own location. Only
 * the first candidate may be cached, and only in the same root: if a preferred one
 * appeared later, or the file disappeared, no event would invalidate the cached answer.
 * An index that a program answers is not read as a file.
 */
static int index_answer(const struct tbg_server *s, const struct tbg_ask *ask,
			const struct tbg_location **location,
			struct tbg_answer *ret)
{
	char name[TBG_ROOT_TEXT + TBG_TARGET_MAX + TBG_INDEX_ROOM];
	const struct tbg_location *l = *location;
	struct candidate c;
	int status = 404;
	bool ours;

	for (unsigned int i = 0; i < l->index_nr && status == 404; i++) {
		tbg_candidate_make(&c, ask->site, ask->path, ask->path_len, l->index[i]);
		ours = c.location->handler == TBG_HANDLER_FILES;
		if ((!ours || c.location->root != l->root) &&
		    !candidate_exists(s, l->root, &c))
			continue;
		if (!ours)
			return 503;	/* it has just appeared */
		name_make(c.location->root, c.path, c.len, name);
		*location = c.location;
		status = file_answer(s, ask, c.location, name,
				     !i && c.location->root == l->root, ret);
		if (status == 301)	/* a folder has that name */
			status = 404;
	}
	if (status == 404)
		*location = l;
	return status;
}

/* Evaluates preconditions for a listing, which has neither an entity tag nor a date. */
static void listing_judge(const struct tbg_ask *ask, struct tbg_answer *ret)
{
	struct tbg_conditions c = ask->conditions;
	unsigned int status;

	c.if_modified_since.text = c.if_unmodified_since.text = NULL;
	status = tbg_conditions_eval(&c, "", 0, 0);
	if (status)
		tbg_answer_instead(ret, status);
	if (status == 304) {
		ret->body_len = 0;
		ret->reply.type = NULL;
		ret->reply.length = -1;
	}
}

/*
 * Makes a folder's listing in a task. Returns a status, or -EINPROGRESS with ret->want.
 * The task gets the open root, so that a reload in between does not change the folder.
 */
static int listing_get(const struct tbg_server *s, const struct tbg_ask *ask,
		       const char *name, struct tbg_answer *ret)
{
	const struct tbg_made *m = ask->made;
	struct tbg_want w = { .kind = TBG_WANT_LISTING };
	const char *below;

	if (m && m->want.kind == TBG_WANT_LISTING) {
		if (!m->err)
			tbg_pages_listing(ask, m->text, m->len, ret);
		return m->err;
	}
	if (!ask->may_wait)		/* warm-ups do not list folders */
		return 503;
	w.fd = fcntl(tbg_root_fd(s->files.roots, name, &below), F_DUPFD_CLOEXEC, 0);
	w.name = strdup(below);
	w.title = strdup(ask->path);
	if (w.fd < 0 || !w.name || !w.title || !tbg_root_ways(s->files.roots, name, &w.ways) ||
	    fstat(w.fd, &w.st)) {
		tbg_want_free(&w);
		return 503;
	}
	ret->want = w;
	return -EINPROGRESS;
}

void tbg_route_file(const struct tbg_server *s, const struct tbg_ask *ask,
		    const struct tbg_location **answering, struct tbg_answer *ret)
{
	char name[TBG_ROOT_TEXT + TBG_TARGET_MAX + TBG_INDEX_ROOM];
	const struct tbg_location *location = *answering;
	bool folder = ask->path[ask->path_len - 1] == '/';
	int status;

	name_make(location->root, ask->path, ask->path_len, name);
	if (folder)
		status = index_answer(s, ask, answering, ret);
	else
		status = file_answer(s, ask, location, name, true, ret);
	if (!status || status == -EINPROGRESS)
		return;
	if (status == 301) {
		tbg_answer_redirect(ask, ret);
		return;
	}
	if (status == 404 && folder && location->autoindex) {
		status = listing_get(s, ask, name, ret);
		if (!status)
			listing_judge(ask, ret);
	} else if (status == 404 && folder) {
		status = folder_exists(s, name) ? 403 : 404;
	}
	if (!status || status == -EINPROGRESS)
		return;
	tbg_answer_looked(ask, ret, status == -ESTALE ? 503 : status);
}
