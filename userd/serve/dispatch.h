/* SPDX-License-Identifier: GPL-2.0 */
/*
 * From a request to what answers it: an object of the cache, a file, or a
 * short text. Called by the worker; decides everything but transmits nothing.
 */
#ifndef TBG_USERD_SERVE_DISPATCH_H
#define TBG_USERD_SERVE_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/cache.h"
#include "files/files.h"
#include "http/request.h"
#include "http/range.h"
#include "http/reply.h"
#include "serve/aside.h"
#include "site/site.h"

struct tbg_object;
struct tbg_server;

struct tbg_ask {
	uint8_t method;			/* enum tbg_method */
	bool expect_other;
	bool missed;			/* known not to be in the cache */
	bool warms;			/* no client asks: nothing is counted */
	const struct tbg_site *site;	/* by the request's host */
	enum tbg_persist persist;
	const char *path;		/* canonical, NUL-terminated */
	size_t path_len;
	const char *query;		/* NULL: none */
	size_t query_len;
	struct tbg_conditions conditions;
	struct tbg_slice range, if_range;
	struct tbg_slice accept_encoding;
	bool may_wait;			/* for what is made aside */
	const struct tbg_made *made;	/* what has been; or NULL */
};

/*
 * What to send. object with hit: the part of its blob as it is, or with
 * partial the 206 that reply makes of it. Otherwise a head from reply. Then
 * body, or fd_len bytes of fd from fd_off on, or what parts has (which may read
 * from fd). Owned until tbg_answer_done(); the strings of reply may point into
 * it.
 */
struct tbg_answer {
	struct tbg_reply reply;
	struct tbg_object *object;
	bool hit, partial;
	enum tbg_part_id part;
	const void *body;
	size_t body_len;
	void *heap;
	int fd;
	uint64_t fd_off, fd_len;
	struct tbg_file_version fd_version;
	struct tbg_parts *parts;
	const char *reason;		/* for the log; NULL: what the cache says */
	const char *media;		/* type of what is answered, also by a 304 */
	struct tbg_want want;		/* there is no answer yet: this is to be made first */
	char etag[40], modified[32], text[64];
	char range[TBG_RANGE_TEXT], multipart[64];
	char fields[TBG_FIELDS_MAX + 1];
	char location[3 * TBG_TARGET_MAX + TBG_TARGET_MAX + 8];
};

/*
 * Whether a body is read before the answer; where not, a client that waits for
 * 100 (Continue) is told the final status at once.
 */
bool tbg_route_takes(uint8_t method);

void tbg_route(const struct tbg_server *s, const struct tbg_ask *ask,
	       struct tbg_answer *ret);
void tbg_answer_done(struct tbg_answer *a);

/*
 * Whether the location's handler answers the request, and not tbg_route(): that
 * does what files need, and refuses for all.
 */
bool tbg_route_hands_over(const struct tbg_location *location,
			  const struct tbg_message *m);

/*
 * Who answers for a folder in place of files: the first of its index files that
 * is there is a path of that location, whose handler is another one. NULL: files
 * do.
 */
const struct tbg_location *tbg_route_index(const struct tbg_server *s,
					   const struct tbg_location *l,
					   const char *path, size_t len,
					   const char **ret_index);

/* An answer that is a status and its text, and nothing else. */
void tbg_answer_error(struct tbg_answer *ret, unsigned int status,
		      enum tbg_persist persist);

/*
 * The fresh object of a key, referenced: as found, or revalidated against its
 * file. NULL: a miss; what was stale is withdrawn. warms: see struct tbg_ask.
 */
struct tbg_object *tbg_route_find(const struct tbg_server *s,
				  const struct tbg_key *key, uint32_t vhost,
				  const char *path,
				  size_t path_len, uint64_t now_ns, bool warms);

/*
 * The fresh variant of a resource whose identity, o, was found by key: o's
 * reference is taken, and one of the variant given. NULL: a miss.
 */
struct tbg_object *tbg_route_variant(const struct tbg_server *s,
				     const struct tbg_key *key,
				     struct tbg_object *o,
				     enum tbg_encoding encoding, uint64_t now_ns, bool warms);

/* Key of a canonical path; false: too long to be cached. */
bool tbg_route_key(const struct tbg_server *s, const struct tbg_site *site,
		   const char *path, size_t len, struct tbg_key *ret);

/* Which part of an object answers: GET, HEAD or 304; -412: neither. */
int tbg_route_part(const struct tbg_object *o, bool head,
		   const struct tbg_conditions *c);

#endif
