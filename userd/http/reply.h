/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Heads of what the daemon answers by itself, and the rules on conditional
 * requests. Whichever tier answers with a file, tbg_reply_head() has made the
 * head: that is why a client cannot tell the tiers apart but by Date and
 * Cache-Status. Those of what upstreams answer are deliver.c's and publish.c's.
 */
#ifndef TBG_USERD_RESPOND_H
#define TBG_USERD_RESPOND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/persist.h"
#include "http/status.h"

#define TBG_HEAD_MAX	(40 << 10)	/* room that holds any head we make */
#define TBG_ALLOW_FILES	"GET, HEAD, OPTIONS"
#define TBG_ALLOW_ALL	"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"	/* that handlers may know */

enum tbg_cache_status {
	TBG_CACHE_HIT,		/* hit; detail=wire, as blobs hold it */
	TBG_CACHE_STORED,	/* fwd=uri-miss; stored */
	TBG_CACHE_MISS,		/* fwd=uri-miss */
	TBG_CACHE_NONE,		/* nobody was asked: the server's own answer */
};

/* One word for it, for the log. */
const char *tbg_cache_word(enum tbg_cache_status cache);

struct tbg_reply {
	unsigned int status;
	enum tbg_cache_status cache;
	enum tbg_persist persist;
	const char *type;		/* Content-Type, NULL: none */
	const char *encoding;		/* Content-Encoding, NULL: none */
	bool vary;			/* Vary: Accept-Encoding */
	int64_t length;			/* Content-Length, -1: none */
	const char *modified;		/* IMF-fixdate, or NULL */
	const char *etag;		/* with quotes, or NULL */
	const char *location;		/* or NULL */
	const char *allow;		/* or NULL */
	unsigned int retry_s;		/* Retry-After; 0: none */
	const char *range;		/* Content-Range, or NULL */
	bool ranges;			/* Accept-Ranges: bytes */
	const char *fields;		/* more lines, each with its CRLF, or NULL */
};

struct tbg_head_at {			/* where in the head */
	uint16_t date_off;
	uint16_t tier_off;		/* 0 unless TBG_CACHE_HIT */
};

/* Bytes written to ret[size], or -EMSGSIZE. date: TBG_DATE_LEN bytes. */
int tbg_reply_head(const struct tbg_reply *r, const char *date, char *ret,
		   size_t size, struct tbg_head_at *ret_at);

/*
 * The same for a 206 of which the 200 is at hand, as a blob holds it: what r
 * has (status, length, persist; type and range unless NULL) is put in place of
 * whole's, the rest stays.
 */
int tbg_reply_partial(const char *whole, size_t len, const struct tbg_reply *r,
		      const char *date, char *ret, size_t size);

/* The value of a field of such a head; length 0: none. name: "Name: " */
size_t tbg_reply_field(const char *head, size_t len, const char *name,
		       const char **ret_value);

/* The Connection line of a head, with its CRLF; "" for TBG_PERSIST. */
const char *tbg_persist_line(enum tbg_persist persist);

/*
 * A version of a file. Size and mtime are not enough: builds that set all mtimes
 * alike make other bytes of the same size. The inode and its ctime, which nobody can
 * set, tell such files apart.
 */
struct tbg_version {
	uint64_t ino;
	int64_t ctime_ns, mtime_ns;
	uint64_t size;			/* of what is sent */
};

/*
 * Strong entity tag of a version, with quotes; its length. suffix: of the variant, ""
 * for identity.
 */
int tbg_etag_make(const struct tbg_version *v, const char *suffix, char ret[40]);

/* In place of a second: there is no Last-Modified, and conditions on it do not hold. */
#define TBG_NO_DATE	INT64_MAX

/* Fields of a conditional request; text NULL: absent. */
struct tbg_slice {
	const char *text;
	size_t len;
};

struct tbg_conditions {
	struct tbg_slice if_match, if_unmodified_since;
	struct tbg_slice if_none_match, if_modified_since;
};

/*
 * RFC 9110 13.2.2 for GET and HEAD on a representation with this tag: 0 (go
 * on), 304 or 412.
 */
unsigned int tbg_conditions_eval(const struct tbg_conditions *c,
				 const char *etag, size_t etag_len,
				 int64_t modified_s);

/*
 * RFC 9110 13.1.5: whether Range counts. Strong comparison of a tag; a date
 * must be the very Last-Modified, and modified_s TBG_NO_DATE where that is weak.
 * f->text NULL: no If-Range.
 */
bool tbg_if_range_eval(const struct tbg_slice *f, const char *etag,
		       size_t etag_len, int64_t modified_s);

#endif
