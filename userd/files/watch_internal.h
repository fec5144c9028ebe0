/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shared by the two parts of the watch: leases, events and the periodic stat
 * (watch.c), and the set of watches (watched.c). For this folder alone.
 */
#ifndef TBG_USERD_FILES_WATCH_INTERNAL_H
#define TBG_USERD_FILES_WATCH_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/inotify.h>
#include <sys/queue.h>

#include "cache/objects.h"
#include "os/root.h"

#define TBG_WATCHED_BUCKETS	4096	/* power of two */
#define TBG_WATCH_READ_BYTES	65536
#define TBG_WATCH_LINKS_MAX	256	/* at a time */

/* A watched folder, or (by wd alone) a watched file. */
struct tbg_watched {
	LIST_ENTRY(tbg_watched) by_name;	/* in the bucket of its name: a folder */
	LIST_ENTRY(tbg_watched) by_wd;	/* in that of its watch */
	uint64_t hash;
	int wd;
	uint32_t len;
	bool is_file;
	bool plain;			/* a folder in which no file is a variant of another */
	char name[];			/* rooted; "0" is a root itself */
};

LIST_HEAD(tbg_watched_list, tbg_watched);

struct tbg_inode {
	dev_t dev;
	ino_t ino;
};

struct tbg_watch {
	struct tbg_cache *cache;
	struct tbg_roots *roots;
	int fd;				/* inotify; -1: not available */
	int stop_fd;
	pthread_t thread;
	bool running;
	atomic_bool begun;
	int (*begin)(void);		/* what the thread does first */
	void (*hidden)(const char *path);	/* see tbg_roots_follow() */
	unsigned int shard;		/* next of the periodic stat */
	unsigned int files_nr, files_max;	/* watches of files */
	unsigned int forget;		/* next bucket, of tbg_watched_files_forget() */
	bool unwatched;			/* a file may be cached without a watch */
	struct tbg_inode links[TBG_WATCH_LINKS_MAX];	/* of new names, not processed yet */
	unsigned int links_nr;
	pthread_mutex_t lock;		/* the folders; before the cache's */
	struct tbg_watched_list by_name[TBG_WATCHED_BUCKETS];
	struct tbg_watched_list by_wd[TBG_WATCHED_BUCKETS];
	char buf[TBG_WATCH_READ_BYTES]
		__attribute__((aligned(__alignof__(struct inotify_event))));
};

/* To be called with w->lock held. */

/* The watched folder with the first len bytes of a name; NULL: none. */
struct tbg_watched *tbg_watched_find(struct tbg_watch *w, const char *name, size_t len);
struct tbg_watched *tbg_watched_by_wd(struct tbg_watch *w, int wd);
/*
 * Forgets the folder and all below it: watches follow folders, not names. name may
 * belong to a folder that is freed.
 */
void tbg_watched_forget_below(struct tbg_watch *w, const char *name, size_t len);
/* Watches every folder on the path to name, from its root on. 0 or negative errno. */
int tbg_watched_folders_add(struct tbg_watch *w, const char *name);

/* Whether inotify reports all changes on the file system of fd. */
bool tbg_watched_is_reported(int fd);
/* Whether a name is that of a variant, such as name.gz. */
bool tbg_watched_is_variant(const char *name);

void tbg_watched_file_forget(struct tbg_watch *w, struct tbg_watched *f);
/*
 * Removes watches of files: all; or, in a bounded part of the table, those of files that
 * are not in the cache. To publish such a file afterwards, a new lease must be taken.
 */
void tbg_watched_files_forget(struct tbg_watch *w, bool all);
/*
 * Watches the open file fd with this name. Negative errno: it cannot be watched
 * reliably. Without this watch, a second link of the file is noticed if it is made in
 * a watched folder, or by the periodic stat.
 */
int tbg_watched_file_add(struct tbg_watch *w, const char *name, int fd);

#endif
