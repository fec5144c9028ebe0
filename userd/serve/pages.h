/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Pages that a location has in place of the short texts: error pages, which are
 * files, and listings of folders. Neither is ever cached.
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
 * The location's page for a status, to be freed, and its type (NULL: unknown). NULL:
 * there is none, or it cannot be read.
 */
char *tbg_pages_read(const struct tbg_server *s, const struct tbg_location *l,
		    unsigned int status, size_t *ret_len, const char **ret_type);

/* Puts it in place of the answer's body; without one, the answer stays as it is. */
void tbg_pages_error(const struct tbg_server *s, const struct tbg_location *l,
		    struct tbg_answer *ret);

/*
 * The page of a folder below an open root, to be freed; path is its title. Reads the
 * folder, so no worker calls it. 0, or the status that answers.
 */
unsigned int tbg_pages_listing_make(int root_fd, const struct tbg_root_ways *ways,
				    const char *folder, const char *path,
				    char **ret, size_t *ret_len);

/* Answers with such a page, which stays the caller's. */
void tbg_pages_listing(const struct tbg_ask *ask, const char *text, size_t len,
		       struct tbg_answer *ret);

#endif
