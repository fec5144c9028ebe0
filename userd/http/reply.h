/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Heads of the daemon's own answers, and the rules for conditional requests.
 * tbg_reply_head() makes the head of a file for every tier: a client can
 * distinguish the tiers only by Date and Cache-Status. The heads of upstreams'
 * responses are made by deliver.c and publish.c.
 */
#ifndef TBG_USERD_HTTP_REPLY_H
#define TBG_USERD_HTTP_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/persist.h"
#include "http/status.h"

#define TBG_HEAD_MAX	(40 << 10)	/* bytes that hold any head made here */
#define TBG_ALLOW_FILES	"GET, HEAD, OPTIONS"
#define TBG_ALLOW_ALL	"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"	/* methods that handlers may accept */

enum tbg_cache_status {
	TBG_CACHE_HIT,		/* hit; detail=wire, as in blobs */
	TBG_CACHE_STORED,	/* fwd=uri-miss; stored */
	TBG_CACHE_MISS,		/* fwd=uri-miss */
	TBG_CACHE_NONE,		/* the server's own answer */
};

/* One word for the log. */
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

struct tbg_head_at {			/* offsets in the head */
	uint16_t date_off;
	uint16_t tier_off;		/* 0 unless TBG_CACHE_HIT */
};

/* Writes a head to ret[size]. Returns its length, or -EMSGSIZE. date: TBG_DATE_LEN bytes. */
int tbg_reply_head(const struct tbg_reply *r, const char *date, char *ret,
		   size_t size, struct tbg_head_at *ret_at);

/*
 * The same for a 206, made from the head of the 200 in a blob: members of r
 * (status, length, persist; type and range unless NULL) replace those of
 * whole.
 */
int tbg_reply_partial(const char *whole, size_t len, const struct tbg_reply *r,
		      const char *date, char *ret, size_t size);

/* The value of a field in such a head; length 0: none. name: "Name: " */
size_t tbg_reply_field(const char *head, size_t len, const char *name,
		       const char **ret_value);

/* The Connection line of a head, with its CRLF; "" for TBG_PERSIST. */
const char *tbg_persist_line(enum tbg_persist persist);

/*
 * A version of a file. Size and mtime do not suffice: builds that set all mtimes
 * alike may produce other bytes of the same size. Inode and ctime, which cannot be
 * set, distinguish such files.
 */
struct tbg_version {
	uint64_t ino;
	int64_t ctime_ns, mtime_ns;
	uint64_t size;			/* of the content that is sent */
};

/*
 * Writes the strong entity tag of a version, with quotes; returns its length. suffix:
 * of the variant, "" for identity.
 */
int tbg_etag_make(const struct tbg_version *v, const char *suffix, char ret[40]);

/* In place of a time: there is no Last-Modified, and conditions on it are false. */
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
 * Evaluates RFC 9110 13.2.2 for GET and HEAD on a representation with this
 * tag: 0 (proceed), 304 or 412.
 */
unsigned int tbg_conditions_eval(const struct tbg_conditions *c,
				 const char *etag, size_t etag_len,
				 int64_t modified_s);

/*
 * RFC 9110 13.1.5: whether Range is to be evaluated. Tags are compared strongly;
 * a date must equal Last-Modified (modified_s is TBG_NO_DATE if that is weak).
 * f->text NULL: no If-Range.
 */
bool tbg_if_range_eval(const struct tbg_slice *f, const char *etag,
		       size_t etag_len, int64_t modified_s);

#endif
