// SPDX-License-Identifier: GPL-2.0
/*
 * Opens files (root.c decides what a name may reach), reads them whole, and
 * makes responses of the cache from them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "cache/objects.h"
#include "os/clock.h"
#include "http/content_coding.h"
#include "files/files.h"
#include "http/media_types.h"
#include "files/compressed.h"
#include "http/reply.h"
#include "os/root.h"
#include "files/watch.h"
#include "site/site.h"

#define HEAD_ROOM (TBG_PATH_MAX * 4 + TBG_FIELDS_MAX)
#define SETTLE_NS 50000000	/* a write that began this long ago is not waited for, */
#define SETTLE_MAX (1 << 20)	/* nor one to a larger file: 2 ms for each MiB */
#define MARK_BYTES 1024		/* a rewritten file probably differs in this many */

static unsigned int status_of(int err)
{
	switch (-err) {
	case EACCES:
	case EPERM:
	case ELOOP:
	case EXDEV:
		return 403;
	case EMFILE:
	case ENFILE:
	case ENOMEM:
	case EAGAIN:
		return 503;
	case EIO:
		return 500;
	}
	return 404;
}

static int64_t ns_of(const struct timespec *t)
{
	return t->tv_sec * 1000000000ll + t->tv_nsec;
}

/*
 * RFC 9110 8.8.2.1: never later than the answer's Date. A cached answer keeps
 * the time at which it was made, which is before its Date.
 */
static int64_t modified_of(const struct stat *st)
{
	int64_t now_s = time(NULL);

	return st->st_mtim.tv_sec < now_s ? st->st_mtim.tv_sec : now_s;
}

/* Archives and package stores set 0 or 1 for "none": these are no modification times. */
static bool is_dated(const struct stat *st)
{
	return st->st_mtim.tv_sec < 0 || st->st_mtim.tv_sec > 1;
}

/* Makes the validators of the version in f->st; size: of the content that is sent. */
static void etag_set(struct tbg_file *f, uint64_t size, enum tbg_encoding encoding)
{
	struct tbg_version v = {
		.ino = f->st.st_ino, .ctime_ns = ns_of(&f->st.st_ctim),
		.mtime_ns = ns_of(&f->st.st_mtim), .size = size,
	};

	*f->etag = 0;
	if (is_dated(&f->st))
		tbg_etag_make(&v, tbg_encoding_suffix(encoding), f->etag);
}

bool tbg_version_recent(const struct stat *st)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	return ns_of(&st->st_ctim) + SETTLE_NS >= ns_of(&now);
}

/*
 * On Linux a read may see half of a write. A write under way has set the file's
 * times at its beginning and holds the inode's lock until its end, and
 * SEEK_DATA waits for this lock (ext4, btrfs, tmpfs, overlay; on XFS reads wait
 * anyway). A write that begins later is noticed by the times after reading.
 *
 * The whole worker waits, so only for files up to SETTLE_MAX, or if a larger
 * write has just begun: there is no way to test the lock without waiting.
 */
static int stat_settled(int fd, struct stat *ret)
{
	if (fstat(fd, ret))
		return -errno;
	if (!S_ISREG(ret->st_mode) || ret->st_size > SETTLE_MAX ||
	    !tbg_version_recent(ret))
		return 0;
	lseek(fd, 0, SEEK_DATA);
	return fstat(fd, ret) ? -errno : 0;
}

unsigned int tbg_file_open(const struct tbg_files *files,
			   const struct tbg_location *location,
			   const char *name, struct tbg_file *ret)
{
	struct tbg_file f = { 0 };
	unsigned int status = 0;

	f.fd = tbg_root_openat(files->roots, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	if (f.fd < 0)
		return status_of(f.fd);
	if (stat_settled(f.fd, &f.st))
		status = 500;
	else if (S_ISDIR(f.st.st_mode))
		status = 301;
	else if (!S_ISREG(f.st.st_mode))
		status = 404;
	if (status) {
		close(f.fd);
		return status;
	}
	f.recent = tbg_version_recent(&f.st);
	f.size = f.st.st_size;
	etag_set(&f, f.size, TBG_ENCODING_IDENTITY);
	f.modified_s = TBG_NO_DATE;
	if (is_dated(&f.st)) {
		f.modified_s = modified_of(&f.st);
		tbg_date_format(f.modified_s, f.modified);
	}
	f.strong_s = tbg_file_strong_s(f.modified_s, ns_of(&f.st.st_mtim),
				       ns_of(&f.st.st_ctim));
	if (location)
		tbg_file_describe(&f, location, name);
	*ret = f;
	return 0;
}

/*
 * The coding that the location assigns to the suffix of a name; *ret_len: length of the
 * name before it.
 */
static const char *coding_of(const struct tbg_location *l, const char *name, size_t *ret_len)
{
	const char *slash = strrchr(name, '/'), *dot = strrchr(name, '.');

	if (!dot || dot < slash)
		return NULL;
	for (unsigned int i = 0; i < l->codings_nr; i++) {
		if (strcasecmp(dot + 1, l->codings[i].suffix))
			continue;
		*ret_len = dot - name;
		return l->codings[i].coding;
	}
	return NULL;
}

/* "a.js.gz" has the type of "a.js"; "a.svgz" has a type of its own. */
void tbg_file_describe(struct tbg_file *f, const struct tbg_location *location,
		       const char *name)
{
	const struct tbg_mime *mime = location->site->sites->mime;
	char plain[TBG_FILE_NAME];
	size_t len;

	f->type = tbg_mime_type(mime, name);
	f->coding = coding_of(location, name, &len);
	if (!f->coding || len >= sizeof(plain))
		return;
	memcpy(plain, name, len);
	plain[len] = 0;
	if (strcmp(tbg_mime_type(mime, plain), TBG_MIME_DEFAULT))
		f->type = tbg_mime_type(mime, plain);
}

void tbg_file_close(struct tbg_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
	free(f->memory);
	f->memory = NULL;
}

void tbg_sibling_name(const char *name, enum tbg_encoding encoding,
		      char ret[TBG_FILE_NAME])
{
	snprintf(ret, TBG_FILE_NAME, "%s.%s", name, tbg_encoding_suffix(encoding));
}

/*
 * Whether a sibling was made from another version of its file. Some tools copy the
 * mtime only to the second.
 */
static bool is_outdated(const struct stat *sibling, const struct stat *of)
{
	const struct timespec *a = &sibling->st_mtim, *b = &of->st_mtim;

	return a->tv_sec < b->tv_sec ||
	       (a->tv_sec == b->tv_sec && a->tv_nsec && a->tv_nsec < b->tv_nsec);
}

/* The variants beside a file that are not empty, readable, and up to date. */
static unsigned int siblings_find(const struct tbg_files *files, const char *name,
				  const struct stat *of, bool old)
{
	unsigned int ret = TBG_SIBLINGS | (old ? TBG_SIBLINGS_OLD : 0);
	char sibling[TBG_FILE_NAME];
	struct stat st;

	for (int e = TBG_ENCODING_IDENTITY + 1; e < TBG_ENCODING_NR; e++) {
		int fd;

		tbg_sibling_name(name, e, sibling);
		fd = tbg_root_openat(files->roots, sibling,
				     O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
		if (fd < 0)
			continue;
		if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size &&
		    (old || !is_outdated(&st, of)))
			ret |= 1u << e;
		close(fd);
	}
	return ret;
}

void tbg_file_vary(const struct tbg_files *files, const struct tbg_location *location,
		   const char *name, bool none, struct tbg_file *f)
{
	bool old = location->precompressed_old;

	if (!location->precompressed || f->coding)
		f->siblings = 0;
	else if (!f->siblings || !(f->siblings & TBG_SIBLINGS_OLD) == old)
		f->siblings = none ? TBG_SIBLINGS | (old ? TBG_SIBLINGS_OLD : 0) :
			      siblings_find(files, name, &f->st, old);
	f->variants = f->siblings & ~(TBG_SIBLINGS | TBG_SIBLINGS_OLD);
	if (!f->variants && !f->coding && f->size >= location->compress_min &&
	    f->size <= TBG_COMPRESSED_MAX && tbg_encode_type(f->type))
		f->variants = location->compress;
}

int tbg_file_sibling(const struct tbg_files *files, const char *name,
		     enum tbg_encoding encoding, struct tbg_file *f)
{
	struct tbg_file own = *f;

	if (tbg_file_open(files, NULL, name, f)) {
		*f = own;
		return -ESTALE;
	}
	f->type = own.type;
	f->encoding = encoding;
	f->variants = own.variants;
	etag_set(f, f->size, encoding);
	tbg_file_close(&own);
	return 0;
}

size_t tbg_file_coding_room(const struct tbg_file *f, enum tbg_encoding encoding)
{
	/* it must save more than the Content-Encoding line */
	size_t line = strlen("Content-Encoding: \r\n") +
		      strlen(tbg_encoding_name(encoding));

	return f->size > line ? f->size - line - 1 : 0;
}

int tbg_file_coded(struct tbg_file *f, enum tbg_encoding encoding, const char *text, size_t len)
{
	f->memory = malloc(len + 1);
	if (!f->memory)
		return -ENOMEM;
	memcpy(f->memory, text, len);
	f->size = len;
	f->encoding = encoding;
	etag_set(f, f->size, encoding);
	return 0;
}

int tbg_file_compress(struct tbg_file *f, enum tbg_encoding encoding)
{
	size_t room = tbg_file_coding_room(f, encoding);
	char *plain = malloc(f->size + room + 1), *coded;
	int n;

	if (!plain)
		return -ENOMEM;
	coded = plain + f->size;
	n = tbg_file_read(f, plain);
	if (!n)
		n = tbg_encode(encoding, plain, f->size, coded, room);
	if (n >= 0)
		n = tbg_file_coded(f, encoding, coded, n);
	free(plain);
	return n;
}

int tbg_file_compress_large(const struct tbg_files *files, struct tbg_file *f,
			    enum tbg_encoding encoding)
{
	struct stat st;
	int fd;

	/* the same times may come to mean other bytes, while the compressed content stays */
	if (tbg_version_recent(&f->st))
		return -EAGAIN;
	fd = tbg_compressed_get(files->compressed, f->fd, &f->st, encoding);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st)) {
		close(fd);
		return -errno;
	}
	etag_set(f, st.st_size, encoding);
	close(f->fd);
	f->fd = fd;
	f->st = st;
	f->size = st.st_size;
	f->encoding = encoding;
	return 0;
}

struct tbg_file_version tbg_file_version(const struct tbg_file *f, const char *name)
{
	return (struct tbg_file_version){ .st = f->st, .name = strdup(name) };
}

void tbg_file_version_end(struct tbg_file_version *v)
{
	free(v->name);
	v->name = NULL;
}

/* Reads without waiting for a disk, if the file system supports that. */
static ssize_t read_cached(int fd, void *b, size_t len, off_t off)
{
	struct iovec iov = { .iov_base = b, .iov_len = len };
	ssize_t n = preadv2(fd, &iov, 1, off, RWF_NOWAIT);

	return n < 0 && errno == EOPNOTSUPP ? pread(fd, b, len, off) : n;
}

/* A hash of the last MARK_BYTES before size; 0: not all are in the page cache. */
static uint64_t mark_of(int fd, uint64_t size,
			ssize_t (*read_at)(int fd, void *b, size_t len, off_t off))
{
	uint64_t words[MARK_BYTES / 8] = { 0 };
	uint64_t len = size < MARK_BYTES ? size : MARK_BYTES, h = len;

	if (read_at(fd, words, len, size - len) != (ssize_t)len)
		return 0;
	for (size_t i = 0; i < MARK_BYTES / 8; i++) {
		h = (h ^ words[i]) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 32;
	}
	return h ?: 1;
}

void tbg_file_mark(int fd, struct tbg_file_version *v)
{
	v->mark = mark_of(fd, v->st.st_size, read_cached);
}

/* Whether its name now leads to another file, or to none. */
static bool is_elsewhere(const struct tbg_roots *roots, const struct tbg_file_version *v)
{
	int fd = v->name ? tbg_root_openat(roots, v->name, O_PATH, 0) : -1;
	struct stat st;
	bool ret;

	if (fd < 0)
		return v->name;
	ret = fstat(fd, &st) || st.st_ino != v->st.st_ino || st.st_dev != v->st.st_dev;
	close(fd);
	return ret;
}

bool tbg_file_rewritten(const struct tbg_roots *roots, int fd,
			const struct tbg_file_version *v)
{
	struct stat st;

	if (fstat(fd, &st))
		return true;
	if (tbg_version_same(&st, &v->st))
		return false;
	if (ns_of(&st.st_mtim) != ns_of(&v->st.st_mtim)) {
		if (st.st_size <= v->st.st_size)
			return true;
	} else if (st.st_size != v->st.st_size ||
		   (st.st_nlink == v->st.st_nlink && st.st_mode == v->st.st_mode &&
		    st.st_uid == v->st.st_uid && st.st_gid == v->st.st_gid &&
		    !is_elsewhere(roots, v))) {
		return true;
	}
	return v->mark && mark_of(fd, v->st.st_size, pread) != v->mark;
}

int64_t tbg_file_strong_s(int64_t modified_s, int64_t mtime_ns, int64_t ctime_ns)
{
	bool set = ctime_ns / 1000000000 != mtime_ns / 1000000000;

	return set ? TBG_NO_DATE : modified_s;
}

bool tbg_file_same(const struct tbg_object *o, const struct stat *st)
{
	return o->file.dev == st->st_dev && o->file.ino == st->st_ino &&
	       o->file.size == (uint64_t)st->st_size &&
	       o->file.mtime_ns == ns_of(&st->st_mtim) &&
	       o->file.ctime_ns == ns_of(&st->st_ctim) &&
	       o->file.mode == st->st_mode && o->file.uid == st->st_uid &&
	       o->file.gid == st->st_gid;
}

bool tbg_version_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
	       a->st_size == b->st_size && a->st_mode == b->st_mode &&
	       ns_of(&a->st_mtim) == ns_of(&b->st_mtim) &&
	       ns_of(&a->st_ctim) == ns_of(&b->st_ctim);
}

int tbg_version_read(int fd, const struct stat *st, void *ret)
{
	size_t size = st->st_size, got = 0;
	struct stat after;
	ssize_t n;

	while (got < size) {
		n = pread(fd, (char *)ret + got, size - got, got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			return -ESTALE;
		got += n;
	}
	if (fstat(fd, &after))
		return -errno;
	return tbg_version_same(st, &after) ? 0 : -ESTALE;
}

int tbg_file_read(const struct tbg_file *f, void *ret)
{
	struct stat now;

	if (!f->memory)
		return tbg_version_read(f->fd, &f->st, ret);
	memcpy(ret, f->memory, f->size);
	return fstat(f->fd, &now) || !tbg_version_same(&f->st, &now) ? -ESTALE : 0;
}

/* Makes the heads of a cached file: for GET, and for its 304. */
static int heads_make(const struct tbg_file *f,
		      const struct tbg_location *location, char get[HEAD_ROOM],
		      char not[HEAD_ROOM], struct tbg_blob_part part[TBG_PART_NR])
{
	static const char date[TBG_DATE_LEN + 1] = "Thu, 01 Jan 1970 00:00:00 GMT";
	struct tbg_reply r = {
		.status = 200, .cache = TBG_CACHE_HIT, .type = f->type,
		.length = f->size, .modified = *f->modified ? f->modified : NULL,
		.etag = *f->etag ? f->etag : NULL, .ranges = true,
		.vary = f->variants, .encoding = f->coding,
	};
	char fields[TBG_FIELDS_MAX + 1];
	struct tbg_head_at at;
	int n, m;

	if (f->encoding)
		r.encoding = tbg_encoding_name(f->encoding);
	tbg_location_fields(location, 200, f->type, fields);
	r.fields = fields;
	n = tbg_reply_head(&r, date, get, HEAD_ROOM, &at);
	if (n < 0)
		return n;
	part[TBG_PART_GET] = (struct tbg_blob_part){
		.len = n + f->size, .status = 200,
		.date_off = at.date_off, .tier_off = at.tier_off,
	};
	part[TBG_PART_HEAD] = part[TBG_PART_GET];
	part[TBG_PART_HEAD].len = n;
	r.status = 304;
	r.type = r.encoding = NULL;
	r.length = -1;
	r.ranges = false;
	tbg_location_fields(location, 304, f->type, fields);
	m = tbg_reply_head(&r, date, not, HEAD_ROOM, &at);
	if (m < 0)
		return m;
	if (m > TBG_304_ROOM)
		return -EFBIG;
	part[TBG_PART_304] = (struct tbg_blob_part){
		.off = (n + f->size + 7) & ~7u, .len = m, .status = 304,
		.date_off = at.date_off, .tier_off = at.tier_off,
	};
	return 0;
}

bool tbg_file_fits(const struct tbg_file *f, const struct tbg_location *location)
{
	char get[HEAD_ROOM], not[HEAD_ROOM];
	struct tbg_blob_part part[TBG_PART_NR];

	return f->size <= TBG_FILE_SMALL && !heads_make(f, location, get, not, part) &&
	       part[TBG_PART_304].off + TBG_304_ROOM <= tbg_class_room(TBG_CLASS_NR - 1);
}

static void identity_set(struct tbg_object *o, const struct tbg_file *f)
{
	const struct stat *st = &f->st;

	o->file.dev = st->st_dev;
	o->file.ino = st->st_ino;
	o->file.size = st->st_size;
	o->file.mtime_ns = ns_of(&st->st_mtim);
	o->file.ctime_ns = ns_of(&st->st_ctim);
	o->file.mode = st->st_mode;
	o->file.uid = st->st_uid;
	o->file.gid = st->st_gid;
	o->etag_len = strlen(f->etag);
	memset(o->etag, 0, sizeof(o->etag));
	memcpy(o->etag, f->etag, o->etag_len);
	o->modified_s = f->modified_s;
	o->encoding = f->encoding;
	o->siblings = f->siblings;
	o->variants = f->encoding ? 0 : f->variants;
}

int tbg_file_publish(const struct tbg_files *files, const struct tbg_file *f,
		     const struct tbg_location *location,
		     const struct tbg_key *key, const char *path,
		     size_t path_len, const char *name,
		     struct tbg_lease *lease, struct tbg_object **ret)
{
	char get[HEAD_ROOM], not[HEAD_ROOM];
	struct tbg_blob_part part[TBG_PART_NR];
	const struct tbg_blob_part *last = &part[TBG_PART_304];
	struct tbg_draft d;
	uint32_t head_len;
	int err;

	if (f->size > TBG_FILE_SMALL)
		return -EFBIG;
	err = heads_make(f, location, get, not, part);
	if (err)
		return -EFBIG;
	err = tbg_draft_open(files->cache, key, location->site->id, path, path_len, name,
			     last->off + TBG_304_ROOM, &d);
	if (err)
		return err;
	head_len = part[TBG_PART_HEAD].len;
	/* before reading, which checks that the file is still the version that was opened */
	if (lease->folders_only)
		tbg_watch_file(files->watch, name, lease);
	memcpy(d.blob->data, get, head_len);
	err = tbg_file_read(f, d.blob->data + head_len);
	if (err) {
		tbg_draft_abandon(&d);
		return err;
	}
	memset(d.blob->data + head_len + f->size, 0,
	       last->off - head_len - f->size);
	memcpy(d.blob->data + last->off, not, last->len);
	memcpy(d.blob->part, part, sizeof(part));
	identity_set(d.object, f);
	d.object->flags = (location->cookies_pass ? TBG_ENTRY_COOKIES : 0) |
			  (location->clients.nr ? TBG_ENTRY_LISTED : 0);
	d.object->expires_ns = tbg_watch_expiry(files->watch, lease, &f->st, f->fd,
						tbg_mono_ns());
	/* the times do not show a write within the same clock tick: read it again later */
	if (f->recent && d.object->expires_ns != TBG_FRESH_ALWAYS)
		d.object->file.ctime_ns = INT64_MIN;
	d.lease = lease;
	return tbg_draft_publish(&d, ret);
}

bool tbg_file_revalidate(const struct tbg_files *files, struct tbg_object *o)
{
	uint64_t now_ns = tbg_mono_ns();
	struct tbg_lease lease;
	struct tbg_file f;
	bool same;

	tbg_watch_lease(files->watch, o->name, &lease);
	if (tbg_file_open(files, NULL, o->name, &f))
		return false;
	same = tbg_file_same(o, &f.st) &&
	       (!o->siblings || o->siblings == siblings_find(files, o->name, &f.st,
							     o->siblings & TBG_SIBLINGS_OLD));
	if (same)
		tbg_object_renew(o, tbg_watch_expiry(files->watch, &lease, &f.st,
						     f.fd, now_ns));
	tbg_file_close(&f);
	return same;
}
