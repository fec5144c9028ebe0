/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How long a cached file stays fresh: until inotify says otherwise, with a
 * periodic stat as the net beneath; where inotify cannot be trusted (symbolic
 * link on the way, several hard links, a filesystem that does not report,
 * watches exhausted) for TBG_STAT_MS at a time, renewed by the daemon.
 */
#ifndef TBG_USERD_WATCH_H
#define TBG_USERD_WATCH_H

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
 * A root is about to be closed, or is another folder now: withdraws its objects,
 * ends its watches.
 */
void tbg_watch_forget(struct tbg_watch *w, int root);

/* Any thread. */
void tbg_watch_lease(struct tbg_watch *w, const char *name,
		     struct tbg_lease *ret);

/*
 * The same without the file's own watch, for what may yet turn out not to be stored; false:
 * its folder is not watched, and tbg_watch_lease() would do that. Then, of what is stored,
 * tbg_watch_file() makes up for it, and whoever calls that looks afterwards whether the file
 * is the version yet that was opened: not the way where its times cannot tell
 * (tbg_version_recent()).
 */
bool tbg_watch_look(struct tbg_watch *w, const char *name, struct tbg_lease *ret);
void tbg_watch_file(struct tbg_watch *w, const char *name, struct tbg_lease *lease);

/*
 * How long a file that was just read is valid, given the lease and fstat() of the
 * open file: TBG_FRESH_ALWAYS or now + TBG_STAT_MS.
 */
uint64_t tbg_watch_expiry(struct tbg_watch *w, const struct tbg_lease *lease,
			  const struct stat *st, int fd, uint64_t now_ns);

/* Why a file just read is not trusted; NULL: it is. */
const char *tbg_watch_doubt(const struct tbg_lease *lease,
			    const struct stat *st, int fd);

/* Any thread: is the file of an object still what was read? Three calls. */
bool tbg_watch_unchanged(struct tbg_watch *w, const struct tbg_object *o);

/* Any thread: applies what has happened. */
void tbg_watch_ready(struct tbg_watch *w);

/*
 * Starts and ends the thread that does so as it happens, and has roots follow their
 * paths (hidden: see tbg_roots_follow()), whatever the control thread is busy with (a
 * reload takes a second where there are a thousand hosts). It calls begin first, before
 * this returns. 0 or negative errno.
 */
int tbg_watch_start(struct tbg_watch *w, int (*begin)(void), void (*hidden)(const char *path));
void tbg_watch_stop(struct tbg_watch *w);

/* Whether there is inotify at all; without it each file is looked at after TBG_STAT_MS. */
bool tbg_watch_works(const struct tbg_watch *w);

/* About once a second: the periodic stat of some shards of the cache. */
void tbg_watch_tick(struct tbg_watch *w, uint64_t now_ns);

#endif
