/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Files too large for the cache that are asked for again: kept open for some
 * seconds, with what was found beside them, so that the next request need not
 * look their names up. One table for all workers.
 */
#ifndef TBG_USERD_OPENED_H
#define TBG_USERD_OPENED_H

#include <stdbool.h>
#include <stdint.h>

struct tbg_cache;
struct tbg_file;
struct tbg_lease;
struct tbg_open_files;

/* The cache tells which names have changed. -ENOMEM. As long as the process. */
int tbg_open_files_open(struct tbg_open_files **ret, struct tbg_cache *cache);

/*
 * The file of a rooted name as it is now, if it is kept; its descriptor is the
 * caller's, its type is NULL.
 */
bool tbg_open_files_get(struct tbg_open_files *o, const char *name, struct tbg_file *ret);

/*
 * One that had to be opened: whether it was asked for a moment ago as well, and
 * so is worth a lease.
 */
bool tbg_open_files_wants(struct tbg_open_files *o, const char *name);

/*
 * Keeps a file that was opened, and whose siblings were found, under a lease; or
 * remembers for a moment that this one cannot be kept.
 */
void tbg_open_files_keep(struct tbg_open_files *o, const char *name,
		     const struct tbg_file *f, const struct tbg_lease *lease);

/* Closes what has changed or is asked for no more. About once a second. */
void tbg_open_files_tick(struct tbg_open_files *o, uint64_t now_ns);

#endif
