/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Keeps files too large for the cache open for some seconds, with their
 * siblings, if they are requested again: then the next request need not look
 * up their names. One table for all workers.
 */
#ifndef TBG_USERD_FILES_OPEN_FILES_H
#define TBG_USERD_FILES_OPEN_FILES_H

#include <stdbool.h>
#include <stdint.h>

struct tbg_cache;
struct tbg_file;
struct tbg_lease;
struct tbg_open_files;

/* The cache knows which names have changed. 0 or -ENOMEM. Lives as long as the process. */
int tbg_open_files_open(struct tbg_open_files **ret, struct tbg_cache *cache);

/*
 * The file with this rooted name, if it is kept and current; the caller closes
 * its descriptor, and its type is NULL.
 */
bool tbg_open_files_get(struct tbg_open_files *o, const char *name, struct tbg_file *ret);

/*
 * For a file that had to be opened: whether it was also requested a moment ago,
 * and so is worth a lease.
 */
bool tbg_open_files_wants(struct tbg_open_files *o, const char *name);

/*
 * Keeps a file that was opened under a lease, with its siblings; or remembers
 * for a moment that it cannot be kept.
 */
void tbg_open_files_keep(struct tbg_open_files *o, const char *name,
		     const struct tbg_file *f, const struct tbg_lease *lease);

/* Closes files that have changed or are no longer requested. About once a second. */
void tbg_open_files_tick(struct tbg_open_files *o, uint64_t now_ns);

#endif
