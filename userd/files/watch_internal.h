/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the two parts of the watch share: leases, events and the periodic stat
 * (watch.c), and what is watched (watched.c). For this folder alone.
 */
#ifndef TBG_USERD_WATCH_INTERNAL_H
#define TBG_USERD_WATCH_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/inotify.h>

#include "cache/objects.h"
#include "os/root.h"

#define TBG_WATCHED_BUCKETS	4096	/* power of two */
#define TBG_WATCH_READ_BYTES	65536
#define TBG_WATCH_LINKS_MAX	256	/* looked for at once */

/* A watched folder, or (by wd alone) a watched file. */
struct tbg_watched {
	struct tbg_watched *by_name, *by_wd;	/* next in the bucket */
	uint64_t hash;
	int wd;
	uint32_t len;
	bool is_file;
	bool plain;			/* of a folder: none of its files is a variant of another */
	char name[];			/* rooted; "0" is a root itself */
};

struct tbg_inode {
	dev_t dev;
	ino_t ino;
};

struct tbg_watch {
	struct tbg_cache *cache;
	struct tbg_roots *roots;
	int fd;				/* inotify; -1: there is none left for us */
	int stop_fd;
	pthread_t thread;
	bool running;
	atomic_bool begun;
	int (*begin)(void);		/* what the thread does first */
	void (*hidden)(const char *path);	/* see tbg_roots_follow() */
	unsigned int shard;		/* next of the periodic stat */
	unsigned int files_nr, files_max;	/* watches of files */
	unsigned int forget;		/* next bucket, of tbg_watched_files_forget() */
	bool unwatched;			/* some file may be cached without a watch */
	struct tbg_inode links[TBG_WATCH_LINKS_MAX];	/* of new names, not looked for yet */
	unsigned int links_nr;
	pthread_mutex_t lock;		/* the folders; before the cache's */
	struct tbg_watched *by_name[TBG_WATCHED_BUCKETS];
	struct tbg_watched *by_wd[TBG_WATCHED_BUCKETS];
	char buf[TBG_WATCH_READ_BYTES]
		__attribute__((aligned(__alignof__(struct inotify_event))));
};

/* All of these under w->lock. */

/* A watched folder by the first len bytes of a name; NULL: it is none. */
struct tbg_watched *tbg_watched_find(struct tbg_watch *w, const char *name, size_t len);
struct tbg_watched *tbg_watched_by_wd(struct tbg_watch *w, int wd);
/* Whether f is the folder name[len], or below it. */
bool tbg_watched_is_below(const struct tbg_watched *f, const char *name, size_t len);
/*
 * The folder and all below it: their watches follow folders, not names. name may be that
 * of a folder which goes.
 */
void tbg_watched_forget_below(struct tbg_watch *w, const char *name, size_t len);
/*
 * The watch of an open folder. A folder that was moved, the event of it still unread,
 * has its old watch: that goes, with all that was known under the old name. -EEXIST: the
 * folder has two names at once (a bind mount).
 */
int tbg_watched_wd(struct tbg_watch *w, int fd);
/* Every folder on the way to name, its root first. Negative errno. */
int tbg_watched_folders_add(struct tbg_watch *w, const char *name);

/* Whether inotify is told of all that changes on the file system of fd. */
bool tbg_watched_is_told(int fd);
/* Whether a name is that of a file's variant, such as name.gz. */
bool tbg_watched_is_variant(const char *name);

void tbg_watched_file_forget(struct tbg_watch *w, struct tbg_watched *f);
/*
 * Files' watches: all, or, of as many as a tick looks at, those of files that are not in
 * the cache. Whoever is about to publish one of them must take a new lease.
 */
void tbg_watched_files_forget(struct tbg_watch *w, bool all);
/*
 * The file that fd is, named name. Negative errno: it cannot be trusted. Without its
 * watch, a file's second link is found where it is made in a folder of ours, or by the
 * stat.
 */
int tbg_watched_file_add(struct tbg_watch *w, const char *name, int fd);

#endif
