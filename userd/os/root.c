// SPDX-License-Identifier: GPL-2.0
/*
 * A table of open folders. The control thread takes and releases numbers, and the
 * watch's thread switches them to other folders, both under r->lock. Workers read the
 * descriptors of roots that their current configuration references.
 * openat2(RESOLVE_BENEATH) is the only way to open a file: the kernel refuses to leave
 * the root, whatever the encoding or the symbolic links.
 */
#include "os/root.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RACE_TRIES 8	/* openat2() returns EAGAIN if a rename races with ".." */
#define LINKS_MAX  40	/* per path, the kernel's own limit */

struct root {
	_Atomic int fd;		/* -1: free */
	unsigned int refs;
	bool hidden;		/* hidden() was called for it */
	dev_t dev;
	ino_t ino;
	_Atomic(char *) path;	/* resolved */
	char *asked;		/* as configured, without slashes at its end */
};

struct tbg_roots {
	struct root root[TBG_ROOTS_MAX];
	char **past;		/* former paths, which other threads may still read */
	size_t past_nr;
	pthread_mutex_t lock;	/* taken before the watch's lock */
};

int tbg_roots_open(struct tbg_roots **ret)
{
	struct tbg_roots *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	for (int i = 0; i < TBG_ROOTS_MAX; i++)
		atomic_init(&r->root[i].fd, -1);
	pthread_mutex_init(&r->lock, NULL);
	*ret = r;
	return 0;
}

void tbg_roots_close(struct tbg_roots *r)
{
	for (int i = 0; r && i < TBG_ROOTS_MAX; i++) {
		r->root[i].refs = r->root[i].refs ? 1 : 0;
		if (r->root[i].refs)
			tbg_root_put(r, i);
	}
	while (r && r->past_nr)
		free(r->past[--r->past_nr]);
	free(r ? r->past : NULL);
	free(r);
}

/*
 * Returns the number of the root for this path and folder, else the first free one; -1:
 * none.
 */
static int number_for(const struct tbg_roots *r, const char *path,
		      const struct stat *st)
{
	int room = -1;

	for (int i = 0; i < TBG_ROOTS_MAX; i++) {
		const struct root *one = &r->root[i];

		if (!one->refs && room < 0)
			room = i;
		if (one->refs && one->dev == st->st_dev &&
		    one->ino == st->st_ino && !strcmp(one->asked, path))
			return i;
	}
	return room;
}

/* Takes over asked and fd on success. Called with r->lock held. */
static int root_open(struct tbg_roots *r, char *asked, int fd)
{
	struct stat st;
	char *real;
	int nr;

	if (fstat(fd, &st))
		return -errno;
	nr = number_for(r, asked, &st);
	if (nr < 0)
		return -E2BIG;
	if (r->root[nr].refs) {
		close(fd);
		free(asked);
		r->root[nr].refs++;
		return nr;
	}
	real = realpath(asked, NULL);
	if (!real)
		return -errno;
	r->root[nr].refs = 1;
	r->root[nr].hidden = false;
	r->root[nr].asked = asked;
	r->root[nr].dev = st.st_dev;
	r->root[nr].ino = st.st_ino;
	r->root[nr].path = real;
	atomic_store(&r->root[nr].fd, fd);
	return nr;
}

int tbg_root_get(struct tbg_roots *r, const char *path)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC), nr;
	size_t len = strlen(path);
	char *asked;

	if (fd < 0)
		return -errno;
	while (len > 1 && path[len - 1] == '/')
		len--;
	asked = strndup(path, len);
	pthread_mutex_lock(&r->lock);
	nr = asked ? root_open(r, asked, fd) : -ENOMEM;
	pthread_mutex_unlock(&r->lock);
	if (nr < 0) {
		free(asked);
		close(fd);
	}
	return nr;
}

void tbg_root_put(struct tbg_roots *r, int nr)
{
	struct root *one = &r->root[nr];

	pthread_mutex_lock(&r->lock);
	if (!--one->refs) {
		close(atomic_exchange(&one->fd, -1));
		free(atomic_exchange(&one->path, NULL));
		free(one->asked);
		one->asked = NULL;
	}
	pthread_mutex_unlock(&r->lock);
}

/* Switches a root to the folder that its path leads to now. Returns whether it succeeded. */
static bool root_move(struct tbg_roots *r, struct root *one)
{
	int fd = open(one->asked, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char *real = fd < 0 ? NULL : realpath(one->asked, NULL);
	char **past = reallocarray(r->past, r->past_nr + 1, sizeof(*past));
	struct stat st;
	bool moved;

	if (past)
		r->past = past;
	/* dup3() replaces it atomically: other threads open in the old or in the new folder. */
	moved = past && real && !fstat(fd, &st) &&
		dup3(fd, atomic_load(&one->fd), O_CLOEXEC) >= 0;
	if (moved) {
		one->dev = st.st_dev;
		one->ino = st.st_ino;
		r->past[r->past_nr++] = atomic_exchange(&one->path, real);
		real = NULL;
	}
	free(real);
	if (fd >= 0)
		close(fd);
	return moved;
}

/* Returns whether its path leads to another folder. */
static bool root_moves(struct root *one, void (*hidden)(const char *path))
{
	struct stat st;

	if (!stat(one->asked, &st))
		return st.st_dev != one->dev || st.st_ino != one->ino;
	if (errno == EACCES && !one->hidden) {
		one->hidden = true;
		hidden(one->asked);
	}
	return false;
}

void tbg_roots_follow(struct tbg_roots *r, void (*moved)(void *arg, int nr),
		      void (*hidden)(const char *path), void *arg)
{
	for (int i = 0; i < TBG_ROOTS_MAX; i++) {
		struct root *one = &r->root[i];

		pthread_mutex_lock(&r->lock);
		if (one->refs && root_moves(one, hidden) && root_move(r, one))
			moved(arg, i);
		pthread_mutex_unlock(&r->lock);
	}
}

bool tbg_root_last(const struct tbg_roots *r, int nr)
{
	return r->root[nr].refs == 1;
}

const char *tbg_root_path(const struct tbg_roots *r, int nr)
{
	return nr < 0 ? "" : atomic_load(&((struct tbg_roots *)r)->root[nr].path);
}

int tbg_root_fd(const struct tbg_roots *r, const char *name,
		const char **ret_below)
{
	unsigned int nr = 0, digits = 0;

	for (; *name >= '0' && *name <= '9' && digits < 4; name++, digits++)
		nr = nr * 10 + (*name - '0');
	if (!digits || nr >= TBG_ROOTS_MAX || (*name && *name != '/'))
		return -1;
	*ret_below = *name && name[1] ? name + 1 : ".";
	return atomic_load_explicit(&((struct tbg_roots *)r)->root[nr].fd,
				    memory_order_acquire);
}

static int open_beneath(int root_fd, const char *below, uint64_t flags, uint64_t resolve)
{
	struct open_how how = {
		.flags = flags | O_CLOEXEC,
		.resolve = resolve | RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	long fd = -1;

	for (int i = 0; i < RACE_TRIES; i++) {
		fd = syscall(SYS_openat2, root_fd, below, &how, sizeof(how));
		if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
	}
	return fd < 0 ? -errno : (int)fd;
}

/* Returns the part of an absolute path below a root; NULL: it is not below. */
static const char *path_below(const char *path, const char *root)
{
	size_t len = strlen(root);

	while (len && root[len - 1] == '/')
		len--;
	if (strncmp(path, root, len) || (path[len] && path[len] != '/'))
		return NULL;
	path += len + strspn(path + len, "/");
	return *path ? path : ".";
}

/*
 * Reads the symbolic link at the end of a path. Returns its length, 0: not a link, or a
 * negative errno.
 */
static int link_read(int root_fd, const char *below, char ret[PATH_MAX])
{
	int fd = open_beneath(root_fd, below, O_PATH | O_NOFOLLOW, 0);
	ssize_t n;

	if (fd < 0)
		return fd;
	n = readlinkat(fd, "", ret, PATH_MAX - 1);
	close(fd);
	ret[n > 0 ? n : 0] = 0;
	return n > 0 ? n : 0;
}

/*
 * Replaces the first symbolic link in a path by its target. An absolute target must
 * begin with the root's path. Returns 0 or -EXDEV. The result is only ever opened
 * beneath the root.
 */
static int link_follow(const struct tbg_root_ways *ways, int root_fd, char way[PATH_MAX])
{
	char text[PATH_MAX], rest[PATH_MAX];
	const char *to = text;
	int n = 0;

	for (size_t at = 0; !n; at++) {
		size_t end = at + strcspn(way + at, "/");
		char c = way[end];

		if (end == at && !c)
			return -EXDEV;
		way[end] = 0;
		n = link_read(root_fd, way, text);
		way[end] = c;
		if (n < 0 || (!n && !c))
			return -EXDEV;
		strcpy(rest, way + end);
		if (n && *text != '/')
			way[at] = 0;	/* relative to the link's own folder */
		else if (n)
			*way = 0;
		at = end;
	}
	if (*text == '/') {
		to = path_below(text, ways->resolved);
		to = to ?: path_below(text, ways->asked);
	}
	if (!to || strlen(way) + strlen(to) + strlen(rest) >= PATH_MAX)
		return -EXDEV;
	strcat(strcat(way, to), rest);
	return 0;
}

/*
 * Resolves a path that the kernel refused because of an absolute link, which may stay
 * below the root.
 */
static int open_by_links(const struct tbg_root_ways *ways, int root_fd, const char *below,
			 uint64_t flags, uint64_t resolve)
{
	char way[PATH_MAX];
	int fd = -EXDEV;

	if (strlen(below) >= sizeof(way))
		return -EXDEV;
	strcpy(way, below);
	for (int i = 0; i < LINKS_MAX && fd == -EXDEV; i++) {
		if (link_follow(ways, root_fd, way))
			return -EXDEV;
		fd = open_beneath(root_fd, way, flags, resolve);
	}
	return fd;
}

int tbg_root_open_below(int root_fd, const struct tbg_root_ways *ways, const char *name,
			uint64_t flags, uint64_t resolve)
{
	int fd = open_beneath(root_fd, name, flags, resolve);

	return fd == -EXDEV && ways ? open_by_links(ways, root_fd, name, flags, resolve) : fd;
}

/* Returns the paths of an open root, which remain its own. */
static struct tbg_root_ways ways_of(const struct root *one)
{
	return (struct tbg_root_ways){ atomic_load(&((struct root *)one)->path), one->asked };
}

bool tbg_root_ways(const struct tbg_roots *r, const char *name, struct tbg_root_ways *ret)
{
	unsigned int nr = strtoul(name, NULL, 10);
	struct tbg_root_ways ways;

	*ret = (struct tbg_root_ways){ 0 };
	if (tbg_root_fd(r, name, &name) < 0)
		return false;
	ways = ways_of(&r->root[nr]);
	ret->resolved = strdup(ways.resolved);
	ret->asked = strdup(ways.asked);
	return ret->resolved && ret->asked;
}

void tbg_root_ways_free(struct tbg_root_ways *w)
{
	free(w->resolved);
	free(w->asked);
}

int tbg_root_openat(const struct tbg_roots *r, const char *name,
		    uint64_t flags, uint64_t resolve)
{
	unsigned int nr = strtoul(name, NULL, 10);
	int root_fd = tbg_root_fd(r, name, &name);
	struct tbg_root_ways ways;

	if (root_fd < 0)
		return -ENOENT;
	ways = ways_of(&r->root[nr]);
	return tbg_root_open_below(root_fd, &ways, name, flags, resolve);
}

size_t tbg_root_text(int nr, char ret[TBG_ROOT_TEXT])
{
	return snprintf(ret, TBG_ROOT_TEXT, "%d/", nr & (TBG_ROOTS_MAX - 1));
}
