/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Files below a root: opening without leaving the root, reading whole or
 * not at all, comparison with the cached version, publishing.
 */
#ifndef TBG_USERD_FILES_FILES_H
#define TBG_USERD_FILES_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "abi/cache.h"
#include "http/request.h"
#include "os/root.h"

struct tbg_key;
struct tbg_lease;
struct tbg_location;
struct tbg_object;
struct tbg_roots;
struct tbg_watch;
struct tbg_open_files;
struct tbg_compressed;
struct tbg_cache;

/* Bytes of the largest file that is cached: it fits with a usual head. */
#define TBG_FILE_SMALL	(64 << 10)

/* What answers from files need; shared by all workers. */
struct tbg_files {
	struct tbg_roots *roots;
	struct tbg_cache *cache;	/* of objects, for all tiers */
	struct tbg_watch *watch;
	struct tbg_open_files *open_files;	/* large files */
	struct tbg_compressed *compressed;	/* large texts */
};

struct tbg_file {
	int fd;
	struct stat st;
	bool recent;			/* changed just now: other bytes may get the same st */
	char etag[40];			/* "": its mtime means nothing, so it has no validators */
	char modified[30];		/* "" too */
	int64_t modified_s;		/* the same, seconds since 1970; TBG_NO_DATE */
	int64_t strong_s;		/* for If-Range: tbg_file_strong_s() */
	const char *type;
	const char *coding;		/* of the file itself, by its suffix; NULL: none */
	uint64_t size;			/* bytes of the representation */
	void *memory;			/* compressed content; NULL: the content is that of fd */
	uint8_t encoding;		/* enum tbg_encoding */
	uint8_t variants;		/* of the resource, a bit each */
	uint8_t siblings;		/* those of them that are files, and how they were found */
};

/* In siblings, beside a bit for each encoding: they were looked for, whatever their age. */
#define TBG_SIBLINGS	 0x01
#define TBG_SIBLINGS_OLD 0x80

/*
 * Bytes of a rooted name of a file, also of an index file, and with the suffix of a
 * variant.
 */
#define TBG_FILE_NAME (TBG_ROOT_TEXT + TBG_TARGET_MAX + 256)

/*
 * Opens a regular file; name is rooted (root.h). The location determines type and coding;
 * NULL: not needed. Returns 0, or the status of the answer: 403, 404, 503, or 301 for a
 * folder.
 */
unsigned int tbg_file_open(const struct tbg_files *files,
			   const struct tbg_location *location,
			   const char *name, struct tbg_file *ret);
void tbg_file_close(struct tbg_file *f);

/* Type and coding of a file of that name. */
void tbg_file_describe(struct tbg_file *f, const struct tbg_location *location,
		       const char *name);

/*
 * Sets f->variants to the variants that the location allows: files beside it, such as
 * name.gz, or those that it can be compressed to. none: it is known that there are no
 * such files.
 */
void tbg_file_vary(const struct tbg_files *files, const struct tbg_location *location,
		   const char *name, bool none, struct tbg_file *f);

void tbg_sibling_name(const char *name, enum tbg_encoding encoding,
		      char ret[TBG_FILE_NAME]);

/*
 * Turn f, whose variants are known, into one of them: into the sibling file, or
 * into its own content compressed. -E2BIG: not smaller; -ESTALE: something
 * changed meanwhile. On error f is unchanged.
 */
int tbg_file_sibling(const struct tbg_files *files, const char *name,
		     enum tbg_encoding encoding, struct tbg_file *f);
int tbg_file_compress(struct tbg_file *f, enum tbg_encoding encoding);
/*
 * The same in two steps: the maximum size, then the content that another thread has
 * compressed.
 */
size_t tbg_file_coding_room(const struct tbg_file *f, enum tbg_encoding encoding);
int tbg_file_coded(struct tbg_file *f, enum tbg_encoding encoding, const char *text, size_t len);
/* The same for a file too large for the cache; -EAGAIN: not ready yet. */
int tbg_file_compress_large(const struct tbg_files *files, struct tbg_file *f,
			    enum tbg_encoding encoding);

/* Whether a write that changed it may be under way yet. */
bool tbg_version_recent(const struct stat *st);

/* Whether a file is unchanged between two fstat() calls. */
bool tbg_version_same(const struct stat *a, const struct stat *b);

/* Reads a whole file; -ESTALE: it does not match st, or changed meanwhile. */
int tbg_version_read(int fd, const struct stat *st, void *ret);

/* Identifies the version of a file that is being sent. */
struct tbg_file_version {
	struct stat st;
	char *name;			/* rooted name; NULL: no memory */
	uint64_t mark;			/* hash of its last bytes; 0: not in the page cache */
};

/*
 * Whether bytes of a file that is being sent have been overwritten, as far as its times
 * show. A file that has grown and has the same bytes at the mark, or no mark, was
 * appended to. A new ctime with the old mtime is either a visible change of links, mode,
 * owner or name, or a writer that has reset the mtime. The mark is set before the first
 * byte is sent.
 */
struct tbg_file_version tbg_file_version(const struct tbg_file *f, const char *name);
void tbg_file_version_end(struct tbg_file_version *v);
void tbg_file_mark(int fd, struct tbg_file_version *v);
bool tbg_file_rewritten(const struct tbg_roots *roots, int fd,
			const struct tbg_file_version *v);

/*
 * The time that If-Range may name: Last-Modified, or TBG_NO_DATE if the mtime was set
 * explicitly and so may belong to other bytes, too.
 */
int64_t tbg_file_strong_s(int64_t modified_s, int64_t mtime_ns, int64_t ctime_ns);

/* Whether st is still the version that the object was made from. */
bool tbg_file_same(const struct tbg_object *o, const struct stat *st);

/*
 * Reads the whole content of the answer into ret[size]. -ESTALE: it
 * changed meanwhile.
 */
int tbg_file_read(const struct tbg_file *f, void *ret);

/* Whether the file, whose variants are known, fits into a blob with its heads. */
bool tbg_file_fits(const struct tbg_file *f, const struct tbg_location *location);

/*
 * Publishes the file under key, with the fields that the location adds.
 * Returns 0 and a reference to the object; -ENOSPC, -EFBIG: not published;
 * -ESTALE: it changed meanwhile.
 */
int tbg_file_publish(const struct tbg_files *files, const struct tbg_file *f,
		     const struct tbg_location *location,
		     const struct tbg_key *key, const char *path,
		     size_t path_len, const char *name,
		     struct tbg_lease *lease, struct tbg_object **ret);

/* Checks an expired object: true, with a new expiry, if its file is unchanged. */
bool tbg_file_revalidate(const struct tbg_files *files, struct tbg_object *o);

#endif
