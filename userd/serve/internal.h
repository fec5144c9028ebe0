/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What dispatch.c and the answers from files call of each other. For this folder alone.
 */
#ifndef TBG_USERD_SERVE_INTERNAL_H
#define TBG_USERD_SERVE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/dispatch.h"

/* A path with an index file's name behind it, below a location's root. */
struct candidate {
	const struct tbg_location *location;	/* whose the path is */
	char path[TBG_TARGET_MAX + TBG_INDEX_ROOM];
	size_t len;
};

/* dispatch.c */
/* What the files answer. */
void tbg_answer_looked(const struct tbg_ask *ask, struct tbg_answer *ret, unsigned int status);
void tbg_answer_redirect(const struct tbg_ask *ask, struct tbg_answer *ret);
/* In place of what was going to be answered: a status and its text. */
void tbg_answer_instead(struct tbg_answer *ret, unsigned int status);
/*
 * What a Range field makes of a 200 (RFC 9110 14.2) whose body is at ret->body
 * or ret->fd, whole.
 */
void tbg_answer_range(const struct tbg_ask *ask, struct tbg_answer *ret, uint64_t size,
		      const struct tbg_slice *type, const struct tbg_slice *tag);

/* file.c */
/* Whether Range is to be looked at: of GET alone, and with If-Range's leave. */
bool tbg_route_range_counts(const struct tbg_ask *ask, const struct tbg_slice *tag,
			    int64_t strong_s);
void tbg_candidate_make(struct candidate *c, const struct tbg_site *site, const char *folder,
			size_t len, const char *index);
void tbg_route_file(const struct tbg_server *s, const struct tbg_ask *ask,
		    const struct tbg_location **answering, struct tbg_answer *ret);

#endif
