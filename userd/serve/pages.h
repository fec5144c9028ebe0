/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Configured pages of a location: error pages, which are files, and listings of
 * folders. Neither is cached.
 */
#ifndef TBG_USERD_SERVE_PAGES_H
#define TBG_USERD_SERVE_PAGES_H

#include <stddef.h>

struct tbg_answer;
struct tbg_ask;
struct tbg_location;
struct tbg_root_ways;
struct tbg_server;

/*
 * Returns the location's page for a status, which the caller frees, and its type (NULL:
 * unknown). Returns NULL if there is none or it cannot be read.
 */
char *tbg_pages_read(const struct tbg_server *s, const struct tbg_location *l,
		    unsigned int status, size_t *ret_len, const char **ret_type);

/* Replaces the answer's body by the page. Without a page, the answer stays as it is. */
void tbg_pages_error(const struct tbg_server *s, const struct tbg_location *l,
		    struct tbg_answer *ret);

/*
 * Makes the listing of a folder below an open root; the caller frees it. path: its
 * title. Blocks, so workers must not call it. Returns 0, or the status to answer with.
 */
unsigned int tbg_pages_listing_make(int root_fd, const struct tbg_root_ways *ways,
				    const char *folder, const char *path,
				    char **ret, size_t *ret_len);

/* Answers with a listing, which remains the caller's. */
void tbg_pages_listing(const struct tbg_ask *ask, const char *text, size_t len,
		       struct tbg_answer *ret);

#endif
