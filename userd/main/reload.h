/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reload (SIGHUP): reads the configuration again while everything
 * continues. Control thread alone.
 *
 * A bad file changes nothing. A good one takes effect in one step; connections
 * and listeners stay, and an answer under way ends as it began. Once every
 * worker has begun a round with the new sites, objects published by the old ones
 * are withdrawn, and `reloaded` is logged.
 */
#ifndef TBG_USERD_MAIN_RELOAD_H
#define TBG_USERD_MAIN_RELOAD_H

#include <stdbool.h>
#include <stdint.h>

struct tbg_options;
struct tbg_reload;
struct tbg_server;

/* argv: the command line, which overrides the file and is read again. */
int tbg_reload_open(struct tbg_reload **ret, struct tbg_server *s, char **argv);

/*
 * Sets lists and limits of clients, also at the start. 0, or negative errno after a
 * message.
 */
int tbg_clients_open(struct tbg_server *s, const uint64_t key[2]);
/* Has the loop admit clients again when their time is over. 0 or -ENOMEM. */
int tbg_clients_follow(struct tbg_server *s);
void tbg_clients_close(struct tbg_server *s);

void tbg_reload(struct tbg_reload *r);
bool tbg_reload_runs(const struct tbg_reload *r);	/* it has not ended */
void tbg_reload_tick(struct tbg_reload *r);	/* each second, often while it runs; logs its end */
void tbg_reload_close(struct tbg_reload *r);	/* after the workers: flushes old logs */

#endif
