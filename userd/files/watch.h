/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Freshness of cached files: a file is fresh until inotify reports a change;
 * a periodic stat() is the fallback. Where inotify is not reliable (a
 * symbolic link in the path, several hard links, a filesystem without
 * reports, no watches left) a file is fresh for TBG_STAT_MS at a time,
 * renewed by the daemon.
 */
#ifndef TBG_USERD_FILES_WATCH_H
#define TBG_USERD_FILES_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "cache/objects.h"

#define TBG_STAT_MS 50

struct tbg_roots;
struct tbg_watch;

/* Names are rooted, see root.h. */
int tbg_watch_open(struct tbg_watch **ret, struct tbg_roots *roots,
		   struct tbg_cache *cache);
void tbg_watch_close(struct tbg_watch *w);

/*
 * A root is about to be closed, or is another folder now: withdraws its objects
 * and removes its watches.
 */
void tbg_watch_forget(struct tbg_watch *w, int root);

/* Any thread. */
void tbg_watch_lease(struct tbg_watch *w, const char *name,
		     struct tbg_lease *ret);

/*
 * The same without a watch of the file itself, for a file that may turn out not to be
 * stored. False: its folder is not watched, and tbg_watch_lease() is needed. If the file
 * is stored, the caller calls tbg_watch_file() and then checks that the file is still the
 * version that was opened. This does not work if its times cannot show that
 * (tbg_version_recent()).
 */
bool tbg_watch_look(struct tbg_watch *w, const char *name, struct tbg_lease *ret);
void tbg_watch_file(struct tbg_watch *w, const char *name, struct tbg_lease *lease);

/*
 * How long a file that was just read stays fresh, given the lease and fstat() of
 * the open file: TBG_FRESH_ALWAYS or now + TBG_STAT_MS.
 */
uint64_t tbg_watch_expiry(struct tbg_watch *w, const struct tbg_lease *lease,
			  const struct stat *st, int fd, uint64_t now_ns);

/* Why inotify is not trusted for a file just read; NULL: it is. */
const char *tbg_watch_doubt(const struct tbg_lease *lease,
			    const struct stat *st, int fd);

/*
 * Any thread: checks by three system calls whether the file of an object is still the one
 * that was read.
 */
bool tbg_watch_unchanged(struct tbg_watch *w, const struct tbg_object *o);

/* Any thread: processes pending events. */
void tbg_watch_ready(struct tbg_watch *w);

/*
 * Starts and ends the thread that processes events at once, and lets roots follow their
 * paths (hidden: see tbg_roots_follow()). A thread of its own, because the control
 * thread may be busy (a reload takes a second with a thousand hosts). It calls begin
 * before this function returns. 0 or negative errno.
 */
int tbg_watch_start(struct tbg_watch *w, int (*begin)(void), void (*hidden)(const char *path));
void tbg_watch_stop(struct tbg_watch *w);

/* Whether inotify is available; without it each file is checked after TBG_STAT_MS. */
bool tbg_watch_works(const struct tbg_watch *w);

/* About once a second: the periodic stat of some shards of the cache. */
void tbg_watch_tick(struct tbg_watch *w, uint64_t now_ns);

#endif
