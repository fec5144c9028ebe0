// SPDX-License-Identifier: GPL-2.0
/*
 * Walks a path one component at a time, each relative to the descriptor of the previous
 * folder: no name that somebody else may exchange is looked up twice.
 */
#include "os/trusted_path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LINKS_MAX 40		/* the kernel's own limit (MAXSYMLINKS) */

/* The current folder of the walk, and the rest of the path. */
struct way {
	int fd;
	unsigned int links;	/* number of links followed */
	char rest[2 * PATH_MAX];
};

static bool owner_trusted(const struct stat *st)
{
	return !st->st_uid;
}

bool tbg_trusted_is(int folder_fd)
{
	struct stat st;

	return !fstat(folder_fd, &st) && owner_trusted(&st) && !(st.st_mode & (S_IWGRP | S_IWOTH));
}

/* The links of /proc are magic: their text is not a path. */
static bool in_proc(int fd)
{
	struct statfs fs;

	return !fstatfs(fd, &fs) && fs.f_type == PROC_SUPER_MAGIC;
}

static int way_begin(struct way *w, const char *path)
{
	if (strlen(path) >= PATH_MAX)
		return -ENAMETOOLONG;
	w->links = 0;
	strcpy(w->rest, path);
	w->fd = open(*path == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return w->fd < 0 ? -errno : 0;
}

static void way_to(struct way *w, int fd)
{
	close(w->fd);
	w->fd = fd;
}

/* Replaces the link's name by its text. rest: the path after the name. */
static int link_follow(struct way *w, int link, const char *rest)
{
	char text[2 * PATH_MAX];
	ssize_t n = readlinkat(link, "", text, PATH_MAX);
	int fd;

	if (n < 0)
		return -errno;
	if (snprintf(text + n, sizeof(text) - n, "%s", rest) >= (int)(sizeof(text) - n))
		return -ENAMETOOLONG;
	if (*text == '/') {
		fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return -errno;
		way_to(w, fd);
	}
	strcpy(w->rest, text);
	return 0;
}

/*
 * Handles a component that is neither a folder nor a file: if it is a link that may be
 * followed, returns 0 with its text inserted into the path. For a link of /proc,
 * returns the descriptor opened with flags.
 */
static int link_step(struct way *w, const char *name, const char *rest, int flags)
{
	int link = openat(w->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC), err;
	struct stat st;

	if (link < 0)
		return -errno;
	if (fstat(link, &st) || !S_ISLNK(st.st_mode)) {
		err = -ENOTDIR;
	} else if (!owner_trusted(&st) || !tbg_trusted_is(w->fd) || ++w->links > LINKS_MAX) {
		err = -ELOOP;
	} else if (in_proc(link)) {
		err = openat(w->fd, name, flags | O_CLOEXEC);
		err = err < 0 ? -errno : err;
	} else {
		err = link_follow(w, link, rest);
	}
	close(link);
	return err;
}

/* Takes the next component off the path; *ret_len 0: there is none. */
static int component_take(struct way *w, char ret[NAME_MAX + 1], size_t *ret_len)
{
	const char *at = w->rest + strspn(w->rest, "/");
	size_t len = strcspn(at, "/");

	if (len > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(ret, at, len);
	ret[len] = 0;
	memmove(w->rest, at + len, strlen(at + len) + 1);
	*ret_len = len;
	return 0;
}

/* Enters the folder of that name. */
static int folder_step(struct way *w, const char *name)
{
	int fd = openat(w->fd, name, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
	char rest[2 * PATH_MAX];

	if (fd < 0 && errno == ENOTDIR) {
		strcpy(rest, w->rest);
		fd = link_step(w, name, rest, O_PATH | O_DIRECTORY);
	} else if (fd < 0) {
		return -errno;
	}
	if (fd > 0)
		way_to(w, fd);
	return fd < 0 ? fd : 0;
}

/* Walks the whole path, or up to the folder of its last component, which is then in name. */
static int walk(struct way *w, bool to_last, char name[NAME_MAX + 1])
{
	size_t len;
	int err;

	while (!(err = component_take(w, name, &len)) && len) {
		if (to_last && !w->rest[strspn(w->rest, "/")])
			return 0;
		err = folder_step(w, name);
		if (err)
			return err;
	}
	return err ?: to_last ? -EISDIR : 0;
}

int tbg_trusted_folder(const char *path)
{
	char name[NAME_MAX + 1];
	struct way w;
	int err = way_begin(&w, path);

	if (err)
		return err;
	err = walk(&w, false, name);
	if (!err)
		return w.fd;
	close(w.fd);
	return err;
}

int tbg_trusted_parent(const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	char folder[PATH_MAX];
	size_t len = slash ? slash - path + 1 : 1;
	int fd;

	if (len >= sizeof(folder))
		return -ENAMETOOLONG;
	memcpy(folder, slash ? path : ".", len);
	folder[len] = 0;
	fd = tbg_trusted_folder(folder);
	if (fd >= 0)
		*ret_name = slash ? slash + 1 : path;
	return fd;
}

int tbg_trusted_open(int folder_fd, const char *name, int flags, mode_t mode)
{
	int fd = openat(folder_fd, name, flags | O_NOFOLLOW | O_CLOEXEC, mode);
	struct stat st, named;

	if (fd < 0)
		return -errno;
	/* check now: when the file was opened, the name may have led to another one */
	if (!fstat(fd, &st) && !fstatat(folder_fd, name, &named, AT_SYMLINK_NOFOLLOW) &&
	    named.st_nlink == 1 && named.st_dev == st.st_dev && named.st_ino == st.st_ino)
		return fd;
	close(fd);
	return -EMLINK;
}

int tbg_trusted_file(const char *path, int flags, mode_t mode, int *ret_folder)
{
	char name[NAME_MAX + 1];
	struct way w;
	int fd = way_begin(&w, path);

	if (fd)
		return fd;
	do {
		fd = walk(&w, true, name);
		if (!fd)
			fd = tbg_trusted_open(w.fd, name, flags, mode);
		if (fd == -ELOOP)	/* a link: continue at its target, if it may be followed */
			fd = link_step(&w, name, "", flags);
	} while (!fd);
	if (fd >= 0)
		*ret_folder = w.fd;
	else
		close(w.fd);
	return fd;
}
