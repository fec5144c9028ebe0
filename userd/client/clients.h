/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What each client has at once: connections, and heads that are unfinished. Counted
 * where there is a limit; one entry for each client that has a connection. Any worker.
 */
#ifndef TBG_USERD_CLIENT_CLIENTS_H
#define TBG_USERD_CLIENT_CLIENTS_H

#include <stdbool.h>

struct tbg_client;
struct tbg_clients;
struct tbg_prefix;

struct tbg_clients *tbg_clients_make(void);	/* NULL: no memory */
/* tell(arg, client, number of its connections) whenever that changes; before any has one. */
void tbg_clients_tell(struct tbg_clients *all,
		      void (*tell)(void *arg, const struct tbg_prefix *client, unsigned int nr),
		      void *arg);
void tbg_clients_free(struct tbg_clients *all);	/* NULL too */

/* One more connection of a client; *ret_nr: how many it has. NULL: no memory, not counted. */
struct tbg_client *tbg_client_join(struct tbg_clients *all, const struct tbg_prefix *prefix,
				   unsigned int *ret_nr);
void tbg_client_leave(struct tbg_clients *all, struct tbg_client *c);

/* One more unfinished head; false: it has `most` already, and this does not count. */
bool tbg_client_head_begin(struct tbg_clients *all, struct tbg_client *c, unsigned int most);
void tbg_client_head_end(struct tbg_clients *all, struct tbg_client *c);

#endif
