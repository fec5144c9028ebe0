/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Pages that a location has in place of the short texts: error pages, which are
 * files, and listings of folders. Neither is ever cached.
 */
#ifndef TBG_USERD_PAGE_H
#define TBG_USERD_PAGE_H

struct tbg_answer;
struct tbg_ask;
struct tbg_location;
struct tbg_server;

/*
 * Puts the location's page for the answer's status in place of its body; where
 * there is none, or it cannot be read, the answer stays as it is.
 */
void tbg_page_error(const struct tbg_server *s, const struct tbg_location *l,
		    struct tbg_answer *ret);

/* Lists the folder of a rooted name. 0, or the status that answers. */
unsigned int tbg_page_listing(const struct tbg_server *s,
			      const struct tbg_ask *ask, const char *name,
			      struct tbg_answer *ret);

#endif
