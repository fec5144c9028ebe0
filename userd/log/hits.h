/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Requests answered by kernel tiers, read from the ring buffer of bpf/log.bpf.h. A ring
 * buffer has one reader, so this exists once per process. The kernel tiers write to it
 * only while there are users of it.
 */
#ifndef TBG_USERD_LOG_HITS_H
#define TBG_USERD_LOG_HITS_H

#include <stdint.h>

#include "log/access.h"

struct tbg_loop;
struct tbg_maps;

/* record: valid during the call. */
typedef void tbg_hit_fn(void *arg, struct tbg_log_record *record);

/*
 * Lets the control thread call fn for each hit, once the loop runs. maps NULL: there
 * are no kernel tiers, does nothing. Returns 0 or a negative errno.
 */
int tbg_hits_open(const struct tbg_maps *maps, struct tbg_loop *loop, tbg_hit_fn *fn, void *arg);
void tbg_hits_close(void);		/* discards unread hits */

/* Counts users of hits. Any thread. */
void tbg_hits_want(void);
void tbg_hits_unwant(void);

/* Reads hits, up to a limit that leaves the control thread time for other work. */
void tbg_hits_read(void);
/* Reads all hits so far. Call it before their destination changes. */
void tbg_hits_read_all(void);

/*
 * Returns the number of hits that did not fit into the ring buffer since the start. Any
 * thread.
 */
uint64_t tbg_hits_lost(void);

#endif
