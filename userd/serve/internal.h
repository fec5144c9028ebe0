/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions that dispatch.c and the answers from files share. Not to be included
 * elsewhere.
 */
#ifndef TBG_USERD_SERVE_INTERNAL_H
#define TBG_USERD_SERVE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/dispatch.h"

/* The path of a folder with the name of an index file appended. */
struct candidate {
	const struct tbg_location *location;	/* of that path */
	char path[TBG_TARGET_MAX + TBG_INDEX_ROOM];
	size_t len;
};

/* dispatch.c */
/* Makes a response that reports a miss of the cache. */
void tbg_answer_looked(const struct tbg_ask *ask, struct tbg_answer *ret, unsigned int status);
void tbg_answer_redirect(const struct tbg_ask *ask, struct tbg_answer *ret);
/* Replaces the prepared response by a status and its text. */
void tbg_answer_instead(struct tbg_answer *ret, unsigned int status);
/* Applies Range (RFC 9110 14.2) to a 200 whose complete body is at ret->body or in ret->fd. */
void tbg_answer_range(const struct tbg_ask *ask, struct tbg_answer *ret, uint64_t size,
		      const struct tbg_slice *type, const struct tbg_slice *tag);

/* file.c */
/* Returns whether Range applies: only for GET, and if If-Range matches. */
bool tbg_route_range_counts(const struct tbg_ask *ask, const struct tbg_slice *tag,
			    int64_t strong_s);
void tbg_candidate_make(struct candidate *c, const struct tbg_site *site, const char *folder,
			size_t len, const char *index);
void tbg_route_file(const struct tbg_server *s, const struct tbg_ask *ask,
		    const struct tbg_location **answering, struct tbg_answer *ret);

#endif
