/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Selects the response to a request: an object of the cache, a file, or a short text.
 * Called by the worker. Decides everything, sends nothing.
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
	bool warms;			/* a warm-up, not a client's request: it is not counted */
	const struct tbg_site *site;	/* of the request's host */
	enum tbg_persist persist;
	const char *path;		/* canonical, NUL-terminated */
	size_t path_len;
	const char *query;		/* NULL: none */
	size_t query_len;
	struct tbg_conditions conditions;
	struct tbg_slice range, if_range;
	struct tbg_slice accept_encoding;
	bool may_wait;			/* a task may be started first */
	const struct tbg_made *made;	/* result of such a task, or NULL */
};

/*
 * The response. With hit: the part of the object's blob as it is; with hit and partial:
 * a 206 with the head of `reply` made from the object. Otherwise a head made from
 * `reply`. Then body, or fd_len bytes of fd from fd_off on, or `parts` (which may read
 * from fd). Valid until tbg_answer_done(); the strings of reply may point into this
 * struct.
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
	const char *reason;		/* for the log; NULL: the cache status */
	const char *media;		/* media type of the representation, also of a 304 */
	struct tbg_want want;		/* if set, this task must end before there is a response */
	char etag[40], modified[32], text[64];
	char range[TBG_RANGE_TEXT], multipart[64];
	char fields[TBG_FIELDS_MAX + 1];
	char location[3 * TBG_TARGET_MAX + TBG_TARGET_MAX + 8];
};

/*
 * Returns whether the daemon answers this method, so that a body is read before the
 * answer. For other methods, a client that waits for 100 (Continue) gets the final
 * status at once.
 */
bool tbg_route_takes(uint8_t method);

void tbg_route(const struct tbg_server *s, const struct tbg_ask *ask,
	       struct tbg_answer *ret);
void tbg_answer_done(struct tbg_answer *a);

/*
 * Returns whether the location's handler answers the request, rather than tbg_route(),
 * which answers from files and refuses requests for all handlers.
 */
bool tbg_route_hands_over(const struct tbg_location *location,
			  const struct tbg_message *m);

/*
 * Returns the location that answers for a folder in place of files: its first existing
 * index file has a path of that location, whose handler is not files. NULL: files
 * answer.
 */
const struct tbg_location *tbg_route_index(const struct tbg_server *s,
					   const struct tbg_location *l,
					   const char *path, size_t len,
					   const char **ret_index);

/* Makes a response that consists of a status and its text. */
void tbg_answer_error(struct tbg_answer *ret, unsigned int status,
		      enum tbg_persist persist);

/*
 * Returns the fresh object of a key with a reference: as found, or revalidated against
 * its file. NULL: a miss; a stale object is withdrawn. warms: see struct tbg_ask.
 */
struct tbg_object *tbg_route_find(const struct tbg_server *s,
				  const struct tbg_key *key, uint32_t vhost,
				  const char *path,
				  size_t path_len, uint64_t now_ns, bool warms);

/*
 * Returns the fresh variant of a resource with a reference. o: the identity object,
 * found by key, whose reference is released. NULL: a miss.
 */
struct tbg_object *tbg_route_variant(const struct tbg_server *s,
				     const struct tbg_key *key,
				     struct tbg_object *o,
				     enum tbg_encoding encoding, uint64_t now_ns, bool warms);

/* Makes the key of a canonical path. Returns false if it is too long to be cached. */
bool tbg_route_key(const struct tbg_server *s, const struct tbg_site *site,
		   const char *path, size_t len, struct tbg_key *ret);

#endif
