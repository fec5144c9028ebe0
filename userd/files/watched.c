// SPDX-License-Identifier: GPL-2.0
/*
 * The set of watches: folders by name and by watch, files by watch alone. Called by
 * watch.c under its lock. Watches are added from the root down, each before the next
 * folder is opened, so that replacing a folder meanwhile causes an event on its parent.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/watch.h"
#include "files/watch_internal.h"

#define EVENTS (IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_MOVED_FROM | \
		IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_DELETE_SELF | \
		IN_MOVE_SELF | IN_ONLYDIR)
#define EVENTS_FILE (IN_MODIFY | IN_ATTRIB | IN_ONESHOT)
#define NAMES_MAX	4096	/* read from a folder under the lock: about 2 ms */
#define TICK_FORGETS	2000	/* watches checked per tick; removing one takes 5 us */

struct tbg_watched *tbg_watched_find(struct tbg_watch *w, const char *name,
				  size_t len)
{
	uint64_t hash = tbg_name_hash(name, len);
	struct tbg_watched *f;

	LIST_FOREACH(f, &w->by_name[hash % TBG_WATCHED_BUCKETS], by_name)
		if (f->hash == hash && f->len == len && !memcmp(f->name, name, len))
			break;
	return f;
}

static struct tbg_watched_list *bucket_of(struct tbg_watch *w, int wd)
{
	return &w->by_wd[(uint32_t)wd % TBG_WATCHED_BUCKETS];
}

struct tbg_watched *tbg_watched_by_wd(struct tbg_watch *w, int wd)
{
	struct tbg_watched *f;

	LIST_FOREACH(f, bucket_of(w, wd), by_wd)
		if (f->wd == wd)
			break;
	return f;
}

/* Whether f is the folder name[len], or below it. */
static bool is_below(const struct tbg_watched *f, const char *name, size_t len)
{
	return !len || (f->len >= len && !memcmp(f->name, name, len) &&
			(f->len == len || f->name[len] == '/'));
}

static void folder_unwatch(struct tbg_watch *w, struct tbg_watched *f)
{
	LIST_REMOVE(f, by_wd);
	inotify_rm_watch(w->fd, f->wd);
}

void tbg_watched_forget_below(struct tbg_watch *w, const char *name,
				size_t len)
{
	struct tbg_watched_list gone = LIST_HEAD_INITIALIZER(gone);
	struct tbg_watched *f, *next;

	for (int b = 0; b < TBG_WATCHED_BUCKETS; b++)
		for (f = LIST_FIRST(&w->by_name[b]); f; f = next) {
			next = LIST_NEXT(f, by_name);
			if (!is_below(f, name, len))
				continue;
			LIST_REMOVE(f, by_name);
			folder_unwatch(w, f);
			LIST_INSERT_HEAD(&gone, f, by_name);
		}
	while ((f = LIST_FIRST(&gone))) {
		LIST_REMOVE(f, by_name);
		free(f);
	}
}

/* Whether the folder's name still leads to the folder fd. */
static bool folder_is(struct tbg_watch *w, const struct tbg_watched *f, int fd)
{
	struct stat a, b;
	bool same;
	int other;

	other = tbg_root_openat(w->roots, f->name, O_PATH | O_DIRECTORY,
				RESOLVE_NO_SYMLINKS);
	if (other < 0)
		return false;
	same = !fstat(fd, &a) && !fstat(other, &b) && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
	close(other);
	return same;
}

/*
 * Adds a watch of an open folder. If the folder was moved and the event is still unread,
 * it has its old watch: that is removed with everything known under the old name.
 * -EEXIST: the folder has two names at once (a bind mount).
 */
static int folder_watch(struct tbg_watch *w, int fd)
{
	struct tbg_watched *old;
	char path[32];
	int wd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	wd = inotify_add_watch(w->fd, path, EVENTS);
	if (wd < 0)
		return -errno;
	old = tbg_watched_by_wd(w, wd);
	if (!old)
		return wd;
	if (folder_is(w, old, fd))
		return -EEXIST;
	tbg_cache_withdraw_name(w->cache, old->name);
	tbg_watched_forget_below(w, old->name, old->len);
	wd = inotify_add_watch(w->fd, path, EVENTS);
	return wd < 0 ? -errno : wd;
}

bool tbg_watched_is_variant(const char *name)
{
	const char *dot = strrchr(name, '.');

	if (!dot)
		return false;
#define X(id, coding, suffix)			\
	if (!strcmp(dot + 1, suffix))		\
		return true;
	TBG_ENCODING_LIST(X)
#undef X
	return false;
}

/* Whether an open folder contains no variant, and few enough names to check all. */
static bool is_plain(int fd)
{
	int own = tbg_watched_is_reported(fd) ?
		  openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	DIR *d = own < 0 ? NULL : fdopendir(own);
	unsigned int left = NAMES_MAX;
	const struct dirent *e = NULL;
	bool ret;

	if (!d) {
		if (own >= 0)
			close(own);
		return false;
	}
	errno = 0;
	while (left && (e = readdir(d)) && !tbg_watched_is_variant(e->d_name))
		left--;
	ret = left && !e && !errno;
	closedir(d);
	return ret;
}

/* Watches the folder named by the first len bytes of name; its parents are watched already. */
static int folder_add(struct tbg_watch *w, const char *name, size_t len)
{
	struct tbg_watched *f = calloc(1, sizeof(*f) + len + 1);
	int fd, wd;

	if (!f)
		return -ENOMEM;
	memcpy(f->name, name, len);
	f->len = len;
	f->hash = tbg_name_hash(name, len);
	fd = tbg_root_openat(w->roots, f->name, O_PATH | O_DIRECTORY,
				RESOLVE_NO_SYMLINKS);
	if (fd < 0) {
		free(f);
		return fd;
	}
	wd = folder_watch(w, fd);
	/* after its watch was added: later changes cause events */
	f->plain = wd >= 0 && is_plain(fd);
	close(fd);
	if (wd < 0) {
		free(f);
		return wd;
	}
	f->wd = wd;
	LIST_INSERT_HEAD(&w->by_name[f->hash % TBG_WATCHED_BUCKETS], f, by_name);
	LIST_INSERT_HEAD(bucket_of(w, wd), f, by_wd);
	return 0;
}

int tbg_watched_folders_add(struct tbg_watch *w, const char *name)
{
	const char *slash = strchr(name, '/');
	int err;

	for (; slash; slash = strchr(slash + 1, '/')) {
		size_t len = slash - name;

		if (tbg_watched_find(w, name, len))
			continue;
		err = folder_add(w, name, len);
		if (err)
			return err;
	}
	return 0;
}

void tbg_watched_file_forget(struct tbg_watch *w, struct tbg_watched *f)
{
	folder_unwatch(w, f);
	w->files_nr--;
	free(f);
}

void tbg_watched_files_forget(struct tbg_watch *w, bool all)
{
	unsigned int left = all ? ~0u : TICK_FORGETS;

	for (int i = 0; i < TBG_WATCHED_BUCKETS && w->files_nr && left; i++) {
		struct tbg_watched *f = LIST_FIRST(&w->by_wd[w->forget++ % TBG_WATCHED_BUCKETS]);

		for (struct tbg_watched *next; f; f = next) {
			next = LIST_NEXT(f, by_wd);
			if (!f->is_file)
				continue;
			left -= !!left;
			if (!all) {
				if (tbg_cache_has_name(w->cache, f->name))
					continue;
				tbg_cache_withdraw_name(w->cache, f->name);
			}
			tbg_watched_file_forget(w, f);
		}
	}
}

static bool file_watch(struct tbg_watch *w, const char *name, int fd)
{
	size_t len = strlen(name);
	struct tbg_watched *f;
	char path[32];
	int wd;

	if (w->files_nr >= w->files_max)
		return false;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	wd = inotify_add_watch(w->fd, path, EVENTS_FILE);
	if (wd < 0)
		return false;
	f = tbg_watched_by_wd(w, wd);
	if (f) {
		if (f->len == len && !memcmp(f->name, name, len))
			return true;
		/* The file was moved here; the folders' watches withdraw the old name. */
		tbg_watched_file_forget(w, f);
		wd = inotify_add_watch(w->fd, path, EVENTS_FILE);
		if (wd < 0)
			return false;
	}
	f = calloc(1, sizeof(*f) + len + 1);
	if (!f) {
		inotify_rm_watch(w->fd, wd);
		return false;
	}
	memcpy(f->name, name, len);
	f->len = len;
	f->is_file = true;
	f->wd = wd;
	LIST_INSERT_HEAD(bucket_of(w, wd), f, by_wd);
	w->files_nr++;
	return true;
}

int tbg_watched_file_add(struct tbg_watch *w, const char *name, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return 0;		/* not cached */
	if (st.st_nlink != 1)
		return -EMLINK;
	w->unwatched |= !file_watch(w, name, fd);
	/* a link made meanwhile caused no event */
	return fstat(fd, &st) || st.st_nlink != 1 ? -EMLINK : 0;
}
