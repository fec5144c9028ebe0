/* SPDX-License-Identifier: GPL-2.0 */
/*
 * SIGHUP: the configuration read again, while everything goes on. Control
 * thread alone.
 *
 * A bad file changes nothing. A good one is exchanged in one step; no
 * connection and no listener is touched, and an answer under way is finished as
 * it began. Once every worker has begun a round with the new sites, what the old
 * ones published is gone, and `reloaded` is said.
 */
#ifndef TBG_USERD_RELOAD_H
#define TBG_USERD_RELOAD_H

#include <stdint.h>

struct tbg_options;
struct tbg_reload;
struct tbg_server;

/* argv: of the start, read again as well, since it wins over the file. */
int tbg_reload_open(struct tbg_reload **ret, struct tbg_server *s, char **argv);

/* Lists and limits of clients, as the start has them. 0 or negative errno, told. */
int tbg_clients_open(struct tbg_server *s, const uint64_t key[2]);
void tbg_clients_close(struct tbg_server *s);

void tbg_reload(struct tbg_reload *r);
void tbg_reload_tick(struct tbg_reload *r);	/* often: says when it is done */
void tbg_reload_close(struct tbg_reload *r);	/* workers have ended: writes old logs' rest */

#endif
