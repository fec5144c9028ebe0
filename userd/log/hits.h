/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Requests that kernel tiers have answered, from the ring of bpf/log.bpf.h. The ring has
 * one reader, so there is one of this in the process; it is on while somebody wants it.
 */
#ifndef TBG_USERD_LOG_HITS_H
#define TBG_USERD_LOG_HITS_H

#include <stdint.h>

#include "log/access.h"

struct tbg_loop;
struct tbg_maps;

/* record: valid until it returns. */
typedef void tbg_hit_fn(void *arg, struct tbg_log_record *record);

/*
 * fn is called by the control thread for each hit, once the loop runs. maps NULL: there
 * are no kernel tiers, and nothing happens. 0 or negative errno.
 */
int tbg_hits_open(const struct tbg_maps *maps, struct tbg_loop *loop, tbg_hit_fn *fn, void *arg);
void tbg_hits_close(void);		/* what is in the ring is lost */

/* One more, or one fewer, who wants to be told. Any thread. */
void tbg_hits_want(void);
void tbg_hits_unwant(void);

/* Reads what there is, up to a bound that leaves the control thread its other work. */
void tbg_hits_read(void);
/* The same, of all hits until now: before what they are written to changes. */
void tbg_hits_read_all(void);

/* Hits that found no room in the ring, since the daemon's start. Any thread. */
uint64_t tbg_hits_lost(void);

#endif
