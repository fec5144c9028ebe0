// SPDX-License-Identifier: GPL-2.0
/*
 * Detects changed files: inotify on every folder between a root and a cached
 * file, with a periodic stat as the fallback. Workers take leases here; a
 * thread of its own reads events, withdraws objects, and lets roots follow
 * their paths. Must never trust a file whose change could go unnoticed.
 *
 * A lease notes the cache's number of changes and looks up the folder under
 * w->lock; events are processed (folder forgotten, change logged, objects
 * withdrawn) under w->lock, too. So a lease that still found the folder watched
 * has a number from before the event that ends the watch, and its publish fails
 * (cache/objects.c). The set of watches is in watched.c.
 *
 * The watch of a folder reports changes through names in this folder. A file
 * with one link has no other name, but may get one, perhaps outside the root: to
 * notice that, each file has a watch of its own, up to FILES_MAX of them, which
 * is removed at its first event.
 *
 * Only noticed by the stat, within seconds: a file system mounted over a
 * folder; a writer that maps the file and never closes it; further hard links
 * of files beyond FILES_MAX.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/sysctl.h"
#include "os/root.h"
#include "files/watch.h"
#include "files/watch_internal.h"

#define EVENTS_REPLACE (IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE)

/*
 * A round of stat() takes 5 s, or longer with the limits per tick: the cost
 * of a large site without requests.
 */
#define ROUND_TICKS	5
#define TICK_STATS	1000
#define TICK_NS		20000000ull

/*
 * Maximum of watches of files; each costs the kernel about 1 KB (it keeps the
 * inode). At most half of the user's limit, so that folders can be watched.
 */
#define FILES_MAX	16384

#define READS_MAX	64
#define FOLLOW_MS	20	/* between checks of the roots' paths */

/* File systems that can only be changed through this kernel. */
#define FS_ZFS		0x2fc12fc1
#define FS_BCACHEFS	0xca451a4e
static const unsigned long fs_good[] = {
	EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC,
	F2FS_SUPER_MAGIC, RAMFS_MAGIC, EROFS_SUPER_MAGIC_V1, SQUASHFS_MAGIC,
	FS_ZFS, FS_BCACHEFS,
};

bool tbg_watched_is_reported(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return false;
	for (size_t i = 0; i < sizeof(fs_good) / sizeof(*fs_good); i++)
		if ((unsigned long)fs.f_type == fs_good[i])
			return true;
	return false;
}

static const char *doubt_of(int err)
{
	switch (-err) {
	case ELOOP:
		return "symbolic link on the way";
	case ENOSPC:
		return "out of inotify watches (fs.inotify.max_user_watches)";
	case EACCES:
		return "folder not readable";
	case EMLINK:
		return "several hard links, or deleted";
	case EEXIST:
		return "folder reachable under two names";
	case ENOENT:
	case ENOTDIR:
		return "not there, or /proc not mounted";
	case ENOMEM:
		return "out of memory";
	case EBADF:
		return "no inotify instance left (fs.inotify.max_user_instances)";
	default:
		return "folder cannot be watched";
	}
}

static ssize_t events_read(struct tbg_watch *w);

/* Processes pending events; whether the name's folder is watched. Called under w->lock. */
static bool folder_look(struct tbg_watch *w, const char *name, struct tbg_lease *ret)
{
	const char *slash = strrchr(name, '/');
	const struct tbg_watched *f;

	*ret = (struct tbg_lease){ 0 };
	/* or the event of the earlier write would withdraw what is published now */
	events_read(w);
	ret->seq = tbg_cache_changes(w->cache);
	f = tbg_watched_find(w, name, slash ? slash - name : 0);
	ret->no_variants = f && f->plain;
	return f;
}

/* Adds the file's own watch. Called under w->lock. */
static int file_look(struct tbg_watch *w, const char *name)
{
	int fd = tbg_root_openat(w->roots, name, O_PATH, RESOLVE_NO_SYMLINKS), err;

	if (fd < 0)
		return fd;
	err = tbg_watched_file_add(w, name, fd);
	close(fd);
	return err;
}

static void lease_end(struct tbg_lease *ret, int err)
{
	ret->trusted = !err;
	ret->folders_only = false;
	if (err)
		snprintf(ret->why, sizeof(ret->why), "%s", doubt_of(err));
}

void tbg_watch_lease(struct tbg_watch *w, const char *name,
		     struct tbg_lease *ret)
{
	int err = 0;

	pthread_mutex_lock(&w->lock);
	if (!folder_look(w, name, ret)) {
		err = tbg_watched_folders_add(w, name);
		/* That may have withdrawn objects, but none of this file. */
		ret->seq = tbg_cache_changes(w->cache);
	}
	err = err ?: file_look(w, name);
	pthread_mutex_unlock(&w->lock);
	lease_end(ret, err);
}

bool tbg_watch_look(struct tbg_watch *w, const char *name, struct tbg_lease *ret)
{
	pthread_mutex_lock(&w->lock);
	ret->folders_only = folder_look(w, name, ret);
	pthread_mutex_unlock(&w->lock);
	return ret->folders_only;
}

void tbg_watch_file(struct tbg_watch *w, const char *name, struct tbg_lease *lease)
{
	int err;

	pthread_mutex_lock(&w->lock);
	err = file_look(w, name);
	pthread_mutex_unlock(&w->lock);
	lease_end(lease, err);
}

const char *tbg_watch_doubt(const struct tbg_lease *lease,
			    const struct stat *st, int fd)
{
	if (!lease->trusted)
		return lease->why;
	if (!S_ISREG(st->st_mode))
		return "not a regular file";
	if (st->st_nlink != 1)
		return doubt_of(-EMLINK);
	return tbg_watched_is_reported(fd) ? NULL :
	       "file system that may change without inotify seeing it";
}

uint64_t tbg_watch_expiry(struct tbg_watch *w, const struct tbg_lease *lease,
			  const struct stat *st, int fd, uint64_t now_ns)
{
	if (!tbg_watch_doubt(lease, st, fd))
		return TBG_FRESH_ALWAYS;
	return now_ns + TBG_STAT_MS * 1000000ull;
}

/* Events */

/* The full name of an event in folder f; NULL: too long to be a file of ours. */
static const char *event_name(const struct tbg_watched *f,
			      const struct inotify_event *e, char *buf,
			      size_t size)
{
	int len;

	if (!e->len)
		return f->name;
	len = snprintf(buf, size, "%s/%s", f->name, e->name);
	return len < (int)size ? buf : NULL;
}

static int inode_order(const void *one, const void *other)
{
	const struct tbg_inode *a = one, *b = other;

	if (a->ino != b->ino)
		return a->ino < b->ino ? -1 : 1;
	return a->dev < b->dev ? -1 : a->dev > b->dev;
}

static bool withdraw_linked(struct tbg_object *o, uint64_t hits, void *arg)
{
	struct tbg_inode one = { .dev = o->file.dev, .ino = o->file.ino };
	struct tbg_watch *w = arg;

	if (o->name && bsearch(&one, w->links, w->links_nr, sizeof(one), inode_order))
		tbg_cache_withdraw_name(w->cache, o->name);
	return true;
}

/* Collects many, since each call looks at all objects. */
static void links_apply(struct tbg_watch *w)
{
	if (!w->links_nr)
		return;
	qsort(w->links, w->links_nr, sizeof(*w->links), inode_order);
	/* A draft may have the old link count, under any name. */
	tbg_cache_break_leases(w->cache);
	tbg_cache_each(w->cache, withdraw_linked, w);
	w->links_nr = 0;
}

/*
 * A new name of a file with other names: writes through it are reported only
 * with this name. A file with its own watch is noticed by that.
 */
static void link_check(struct tbg_watch *w, const char *name)
{
	struct stat st;
	int root_fd;

	if (!w->unwatched)
		return;
	root_fd = tbg_root_fd(w->roots, name, &name);
	if (fstatat(root_fd, name, &st, AT_SYMLINK_NOFOLLOW) ||
	    !S_ISREG(st.st_mode) || st.st_nlink < 2)
		return;
	w->links[w->links_nr++] = (struct tbg_inode){ .dev = st.st_dev, .ino = st.st_ino };
	if (w->links_nr == TBG_WATCH_LINKS_MAX)
		links_apply(w);
}

static void event_apply(struct tbg_watch *w, const struct inotify_event *e)
{
	char buf[8192];
	const char *name;
	struct tbg_watched *f;

	if (e->mask & IN_Q_OVERFLOW) {
		/* Lost events may include moved folders. */
		tbg_watched_forget_below(w, "", 0);
		tbg_watched_files_forget(w, true);
		tbg_cache_withdraw_all(w->cache);
		return;
	}
	f = tbg_watched_by_wd(w, e->wd);
	if (!f)
		return;
	if (f->is_file) {
		if (!(e->mask & IN_IGNORED))
			tbg_cache_withdraw_name(w->cache, f->name);
		tbg_watched_file_forget(w, f);
		return;
	}
	name = event_name(f, e, buf, sizeof(buf));
	if (!name) {
		tbg_watched_forget_below(w, "", 0);
		tbg_cache_withdraw_all(w->cache);
		return;
	}
	tbg_cache_withdraw_name(w->cache, name);
	if (!e->len) {
		if (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT |
			       IN_IGNORED))
			tbg_watched_forget_below(w, name, strlen(name));
		return;
	}
	if (e->mask & EVENTS_REPLACE && tbg_watched_find(w, name, strlen(name)))
		tbg_watched_forget_below(w, name, strlen(name));
	if (e->mask & (IN_CREATE | IN_MOVED_TO) && tbg_watched_is_variant(e->name))
		f->plain = false;
	if (e->mask & (IN_CREATE | IN_MOVED_TO) && !(e->mask & IN_ISDIR))
		link_check(w, name);
}

static void events_apply(struct tbg_watch *w, size_t len)
{
	const struct inotify_event *e;

	for (size_t at = 0; at < len; at += sizeof(*e) + e->len) {
		e = (const void *)(w->buf + at);
		event_apply(w, e);
	}
	links_apply(w);
}

/* Processes the events of one read(). Called under w->lock. */
static ssize_t events_read(struct tbg_watch *w)
{
	ssize_t len = read(w->fd, w->buf, sizeof(w->buf));

	if (len > 0)
		events_apply(w, len);
	return len;
}

void tbg_watch_ready(struct tbg_watch *w)
{
	ssize_t len = 1;

	/* A flood must not occupy the thread: the caller polls again. */
	for (int i = 0; i < READS_MAX && len > 0; i++) {
		pthread_mutex_lock(&w->lock);
		len = events_read(w);
		pthread_mutex_unlock(&w->lock);
	}
}

static void root_moved(void *arg, int root)
{
	tbg_watch_forget(arg, root);
}

static void *thread_run(void *arg)
{
	struct tbg_watch *w = arg;
	struct pollfd p[] = {
		{ .fd = w->fd, .events = POLLIN }, { .fd = w->stop_fd, .events = POLLIN },
	};
	uint64_t follow_ns = 0;

	w->begin();
	atomic_store(&w->begun, true);
	while (!p[1].revents) {
		if (poll(p, 2, FOLLOW_MS) > 0 && p[0].revents)
			tbg_watch_ready(w);
		if (tbg_mono_ns() < follow_ns)
			continue;
		tbg_roots_follow(w->roots, root_moved, w->hidden, w);
		follow_ns = tbg_mono_ns() + FOLLOW_MS * 1000000ull;
	}
	return NULL;
}

int tbg_watch_start(struct tbg_watch *w, int (*begin)(void), void (*hidden)(const char *path))
{
	sigset_t all, old;
	int err;

	w->begin = begin;
	w->hidden = hidden;
	w->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (w->stop_fd < 0)
		return -errno;
	sigfillset(&all);		/* the control thread handles signals */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&w->thread, NULL, thread_run, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	w->running = !err;
	if (err)
		return -err;
	pthread_setname_np(w->thread, "tbg-watch");
	while (!atomic_load(&w->begun))
		usleep(100);
	return 0;
}

void tbg_watch_stop(struct tbg_watch *w)
{
	uint64_t one = 1;

	if (!w || !w->running || write(w->stop_fd, &one, sizeof(one)) < 0)
		return;
	pthread_join(w->thread, NULL);
	w->running = false;
	close(w->stop_fd);
}

bool tbg_watch_works(const struct tbg_watch *w)
{
	return w->fd >= 0;
}

/* The periodic stat */

struct round {
	struct tbg_watch *w;
	uint64_t until_ns;
	unsigned int left;
};

static int64_t ns_of(const struct timespec *ts)
{
	return ts->tv_sec * 1000000000ll + ts->tv_nsec;
}

bool tbg_watch_unchanged(struct tbg_watch *w, const struct tbg_object *o)
{
	struct stat st;
	int fd, err;

	fd = tbg_root_openat(w->roots, o->name, O_PATH, 0);
	if (fd < 0)
		return false;
	err = fstat(fd, &st);
	close(fd);
	return !err && st.st_dev == o->file.dev && st.st_ino == o->file.ino &&
	       (uint64_t)st.st_size == o->file.size &&
	       ns_of(&st.st_mtim) == o->file.mtime_ns &&
	       ns_of(&st.st_ctim) == o->file.ctime_ns &&
	       st.st_mode == o->file.mode && st.st_uid == o->file.uid &&
	       st.st_gid == o->file.gid;
}

static bool stat_one(struct tbg_object *o, uint64_t hits, void *arg)
{
	struct round *r = arg;

	/* Objects with an expiry are checked when they are requested. */
	if (!o->name || atomic_load(&o->expires_ns) != TBG_FRESH_ALWAYS)
		return true;
	if (!tbg_watch_unchanged(r->w, o))
		tbg_cache_withdraw_name(r->w->cache, o->name);
	if (r->left)
		r->left--;
	return true;
}

void tbg_watch_tick(struct tbg_watch *w, uint64_t now_ns)
{
	struct round r = { w, tbg_mono_ns() + TICK_NS, TICK_STATS };

	pthread_mutex_lock(&w->lock);
	if (w->files_nr > w->files_max / 4 * 3)
		tbg_watched_files_forget(w, false);
	pthread_mutex_unlock(&w->lock);
	for (unsigned int i = 0; i * ROUND_TICKS < TBG_CACHE_SHARDS; i++) {
		tbg_cache_shard(w->cache, w->shard++, stat_one, &r);
		if (!r.left || tbg_mono_ns() > r.until_ns)
			break;
	}
}

/* Half of the user's limit of watches, or 0 if it is unknown. */
static unsigned int files_max(void)
{
	unsigned int max = tbg_sysctl("/proc/sys/fs/inotify/max_user_watches", 0);

	return max / 2 < FILES_MAX ? max / 2 : FILES_MAX;
}

int tbg_watch_open(struct tbg_watch **ret, struct tbg_roots *roots,
		   struct tbg_cache *cache)
{
	struct tbg_watch *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->cache = cache;
	w->roots = roots;
	w->files_max = files_max();
	pthread_mutex_init(&w->lock, NULL);
	w->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	*ret = w;
	return 0;
}

void tbg_watch_forget(struct tbg_watch *w, int root)
{
	char name[TBG_ROOT_TEXT];
	size_t len = tbg_root_text(root, name) - 1;	/* without the slash */

	name[len] = 0;
	pthread_mutex_lock(&w->lock);
	tbg_watched_forget_below(w, name, len);
	tbg_cache_withdraw_name(w->cache, name);
	pthread_mutex_unlock(&w->lock);
}

void tbg_watch_close(struct tbg_watch *w)
{
	if (!w)
		return;
	tbg_watch_stop(w);
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
	tbg_watched_forget_below(w, "", 0);
	tbg_watched_files_forget(w, true);
	free(w);
}
