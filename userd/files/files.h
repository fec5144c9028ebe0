/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Files below the root: opened so that nothing leaves it, read whole or not
 * at all, compared with what the cache holds, published.
 */
#ifndef TBG_USERD_FILE_H
#define TBG_USERD_FILE_H

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

/* Bytes of the largest file that is cached: with a usual head it finds room there. */
#define TBG_FILE_SMALL	(64 << 10)

/* What answers from files need; all workers share it. */
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
	bool recent;			/* st may yet come to stand for other bytes */
	char etag[40];			/* "": its mtime is nobody's, it has no validators */
	char modified[30];		/* "" too */
	int64_t modified_s;		/* the same, seconds since 1970; TBG_NO_DATE */
	int64_t strong_s;		/* of it, for If-Range: see tbg_file_strong_s() */
	const char *type;
	const char *coding;		/* of the file itself, by its suffix; NULL: none */
	uint64_t size;			/* bytes of the representation */
	void *memory;			/* where it is compressed; NULL: as fd has it */
	uint8_t encoding;		/* enum tbg_encoding */
	uint8_t variants;		/* of the resource, a bit each */
	uint8_t siblings;		/* those of them that are files, and how they were found */
};

/* In siblings, beside a bit for each encoding: they were looked for, of any age. */
#define TBG_SIBLINGS	 0x01
#define TBG_SIBLINGS_OLD 0x80

/* Rooted name of a file: an index file's, and with the suffix of a variant. */
#define TBG_FILE_NAME (TBG_ROOT_TEXT + TBG_TARGET_MAX + 256)

/*
 * Opens a regular file; name is rooted (root.h). Its type and coding are by the
 * location's configuration; NULL: not asked for. 0, or the status that answers: 403, 404,
 * 503, or 301 for a folder.
 */
unsigned int tbg_file_open(const struct tbg_files *files,
			   const struct tbg_location *location,
			   const char *name, struct tbg_file *ret);
void tbg_file_close(struct tbg_file *f);

/* Type and coding of a file of that name. */
void tbg_file_describe(struct tbg_file *f, const struct tbg_location *location,
		       const char *name);

/*
 * Which variants location lets the file have, into f->variants: those that stand
 * beside it, as name.gz and so on, or those that it can be compressed to. none: it is known
 * that none stands there.
 */
void tbg_file_vary(const struct tbg_files *files, const struct tbg_location *location,
		   const char *name, bool none, struct tbg_file *f);

void tbg_sibling_name(const char *name, enum tbg_encoding encoding,
		      char ret[TBG_FILE_NAME]);

/*
 * The file, whose variants are known, becomes one of them: the other file of this
 * name, or its own content compressed. -E2BIG: not smaller; -ESTALE: something
 * changed meanwhile. On error it stays what it was.
 */
int tbg_file_sibling(const struct tbg_files *files, const char *name,
		     enum tbg_encoding encoding, struct tbg_file *f);
int tbg_file_compress(struct tbg_file *f, enum tbg_encoding encoding);
/* The same in two: how many bytes it may take, and the result of somebody else's work. */
size_t tbg_file_coding_room(const struct tbg_file *f, enum tbg_encoding encoding);
int tbg_file_coded(struct tbg_file *f, enum tbg_encoding encoding, const char *text, size_t len);
/* The same for one too large to be stored; -EAGAIN: it is not ready yet. */
int tbg_file_compress_large(const struct tbg_files *files, struct tbg_file *f,
			    enum tbg_encoding encoding);

/* Whether a write that changed it may be under way yet. */
bool tbg_version_recent(const struct stat *st);

/* Whether nothing has changed between two looks at a file. */
bool tbg_version_same(const struct stat *a, const struct stat *b);

/* All of a file; -ESTALE: it is not, or does not stay, what st says. */
int tbg_version_read(int fd, const struct stat *st, void *ret);

/* What a file's bytes are sent of. */
struct tbg_file_version {
	struct stat st;
	char *name;			/* rooted, where it was found; NULL: no memory */
	uint64_t mark;			/* a hash of its last bytes; 0: they were not in memory */
};

/*
 * Whether a file that is being sent has other bytes by now where it had some, as
 * far as its times tell. One that grew and has the same bytes at the mark, or no mark,
 * was appended to. A new ctime beside the old mtime is a change of links, mode, owner or
 * name that shows, or else a writer that has set the mtime back. The mark is set
 * before the first byte is sent.
 */
struct tbg_file_version tbg_file_version(const struct tbg_file *f, const char *name);
void tbg_file_version_end(struct tbg_file_version *v);
void tbg_file_mark(int fd, struct tbg_file_version *v);
bool tbg_file_rewritten(const struct tbg_roots *roots, int fd,
			const struct tbg_file_version *v);

/*
 * The second that If-Range may name: Last-Modified, or TBG_NO_DATE where the mtime was
 * set to another time than that of the change, and so may be that of other bytes, too.
 */
int64_t tbg_file_strong_s(int64_t modified_s, int64_t mtime_ns, int64_t ctime_ns);

/* Whether st is still the version that the object was made of. */
bool tbg_file_same(const struct tbg_object *o, const struct stat *st);

/*
 * Reads what it is answered with whole into ret[size]. -ESTALE: it changed
 * meanwhile.
 */
int tbg_file_read(const struct tbg_file *f, void *ret);

/* Whether any blob has room for the file, whose variants are known, and its heads. */
bool tbg_file_fits(const struct tbg_file *f, const struct tbg_location *location);

/*
 * Publishes the file under key, with what location adds to its head. 0 and the
 * referenced object; -ENOSPC, -EFBIG:
 * not stored; -ESTALE: it changed meanwhile.
 */
int tbg_file_publish(const struct tbg_files *files, const struct tbg_file *f,
		     const struct tbg_location *location,
		     const struct tbg_key *key, const char *path,
		     size_t path_len, const char *name,
		     struct tbg_lease *lease, struct tbg_object **ret);

/* An expired object: true and a new expiry if its file is unchanged. */
bool tbg_file_revalidate(const struct tbg_files *files, struct tbg_object *o);

#endif
