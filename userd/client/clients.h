/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counts the connections and the unfinished heads of each client, if they are limited.
 * A client has an entry while it has a connection. Any worker may call these functions.
 */
#ifndef TBG_USERD_CLIENT_CLIENTS_H
#define TBG_USERD_CLIENT_CLIENTS_H

#include <stdbool.h>

struct tbg_client;
struct tbg_clients;
struct tbg_prefix;

struct tbg_clients *tbg_clients_make(void);	/* NULL: no memory */
/*
 * Sets a function to call whenever the number of a client's connections changes. Call
 * it before the first tbg_client_join().
 */
void tbg_clients_watch(struct tbg_clients *all,
		       void (*changed)(void *arg, const struct tbg_prefix *client,
				       unsigned int nr),
		       void *arg);
void tbg_clients_free(struct tbg_clients *all);	/* accepts NULL */

/*
 * Counts one more connection of a client; *ret_nr is then their number. NULL: no
 * memory, not counted.
 */
struct tbg_client *tbg_client_join(struct tbg_clients *all, const struct tbg_prefix *prefix,
				   unsigned int *ret_nr);
void tbg_client_leave(struct tbg_clients *all, struct tbg_client *c);

/*
 * Counts one more unfinished head. Returns false, and does not count it, if there are
 * already `most`.
 */
bool tbg_client_head_begin(struct tbg_clients *all, struct tbg_client *c, unsigned int most);
void tbg_client_head_end(struct tbg_clients *all, struct tbg_client *c);

#endif
