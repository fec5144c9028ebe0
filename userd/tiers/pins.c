// SPDX-License-Identifier: GPL-2.0
/*
 * Folders and names of links in bpffs. Everything is opened relative to descriptors
 * and without following links, since root works below folders of the daemon's user
 * here.
 */
#include "tiers/pins.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/bpf.h>

#define TBG_PINS_PREFIX "toboggan-"
#define FOLDER_LEN (sizeof(TBG_PINS_PREFIX) + 10)
#define TRIES 8			/* attempts to create a folder that others remove */
#define TBG_PATH_FD (1u << 14)	/* BPF_F_PATH_FD of 6.5, older than tcx */

/* A part of union bpf_attr, with members that Debian 12's header lacks. */
struct obj_attr {
	uint64_t pathname;
	uint32_t bpf_fd, file_flags;
	int32_t path_fd;
	uint32_t pad;
};

static int obj_call(int cmd, int dir_fd, const char *name, int bpf_fd)
{
	struct obj_attr attr = {
		.pathname = (uintptr_t)name,
		.bpf_fd = bpf_fd,
		.file_flags = TBG_PATH_FD,
		.path_fd = dir_fd,
	};
	int ret = syscall(SYS_bpf, cmd, &attr, sizeof(attr));

	return ret < 0 ? -errno : ret;
}

/* `ip netns exec` hides the bpffs of its caller; the first process still has it. */
static int bpffs_open(void)
{
	char callers[64];
	const char *const places[] = {
		"/sys/fs/bpf", callers, "/proc/1/root/sys/fs/bpf",
	};

	snprintf(callers, sizeof(callers), "/proc/%d/root/sys/fs/bpf", getppid());
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		int fd = open(places[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		struct statfs st;

		if (fd >= 0 && !fstatfs(fd, &st) && (uint32_t)st.f_type == BPF_FS_MAGIC)
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return -ENOENT;
}

static unsigned long own_netns(void)
{
	struct stat st;

	return stat("/proc/self/ns/net", &st) ? 0 : st.st_ino;
}

/* Gives the folder to owner, which already owns it, or for which root has just created it. */
static int folder_give(int fd, uid_t owner)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (st.st_uid == owner)
		return st.st_mode & 022 ? -EPERM : 0;
	if (st.st_uid || geteuid())
		return -EPERM;
	return fchown(fd, owner, -1) ? -errno : 0;
}

static void folder_name(uid_t owner, char ret[FOLDER_LEN])
{
	snprintf(ret, FOLDER_LEN, TBG_PINS_PREFIX "%u", (unsigned int)owner);
}

/* Whether the folder still has this name. */
static bool is_there(int root, const char *name, int fd)
{
	struct stat one, other;

	return !fstat(fd, &one) && !fstatat(root, name, &other, AT_SYMLINK_NOFOLLOW) &&
	       one.st_ino == other.st_ino && one.st_dev == other.st_dev;
}

/* Creates the folder if necessary and locks it, so that no ending daemon removes it. */
static int folder_hold(int root, const char *name)
{
	for (int i = 0; i < TRIES; i++) {
		int fd;

		if (mkdirat(root, name, 0700) && errno != EEXIST)
			return -errno;
		fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 && errno != ENOENT)
			return -errno;
		if (fd < 0)
			continue;
		flock(fd, LOCK_SH);
		if (is_there(root, name, fd))
			return fd;
		close(fd);
	}
	return -EAGAIN;
}

static int folder_open(int root, uid_t owner)
{
	char name[FOLDER_LEN];
	int fd, err;

	folder_name(owner, name);
	fd = folder_hold(root, name);
	if (fd < 0)
		return fd;
	err = folder_give(fd, owner);
	if (!err)
		return fd;
	close(fd);
	return err;
}

void tbg_pins_leave(uid_t owner)
{
	char name[FOLDER_LEN];
	int root = bpffs_open(), fd = -1;

	folder_name(owner, name);
	if (root >= 0)
		fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB))
		unlinkat(root, name, AT_REMOVEDIR);
	if (fd >= 0)
		close(fd);
	if (root >= 0)
		close(root);
}

void tbg_pins_open(struct tbg_pins *ret, uid_t owner)
{
	int root = bpffs_open();

	ret->netns = own_netns();
	ret->dir_fd = root;
	if (root < 0)
		return;
	ret->dir_fd = folder_open(root, owner);
	close(root);
}

void tbg_pins_close(struct tbg_pins *p)
{
	if (p->dir_fd >= 0)
		close(p->dir_fd);
	p->dir_fd = -EBADF;
}

/* bpffs allows no dots in names. */
void tbg_pin_name(const struct tbg_pins *p, int ifindex, const char *hook, unsigned int prog_id,
		  char ret[TBG_PIN_LEN])
{
	snprintf(ret, TBG_PIN_LEN, "%lu-%d-%s-%u", p->netns, ifindex, hook, prog_id);
}

int tbg_pin_add(int dir_fd, const char *name, int link_fd)
{
	/* ids of programs are not reused: the name is unique */
	unlinkat(dir_fd, name, 0);
	return obj_call(BPF_OBJ_PIN, dir_fd, name, link_fd);
}

void tbg_pin_remove(int dir_fd, const char *name)
{
	unlinkat(dir_fd, name, 0);
}

/* Closes dir_fd. */
static DIR *listed(int dir_fd)
{
	DIR *ret = fdopendir(dir_fd);

	if (!ret)
		close(dir_fd);
	return ret;
}

static void folder_each(int dir_fd, unsigned long netns,
			void (*fn)(int, const char *, int, bool, void *), void *arg)
{
	DIR *d = listed(dir_fd);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		int fd = e->d_name[0] == '.' ? -1 :
			 obj_call(BPF_OBJ_GET, dirfd(d), e->d_name, 0);

		if (fd < 0)
			continue;
		fn(dirfd(d), e->d_name, fd, strtoul(e->d_name, NULL, 10) == netns, arg);
		close(fd);
	}
	if (d)
		closedir(d);
}

void tbg_pins_each(void (*fn)(int dir_fd, const char *name, int link_fd, bool here, void *arg),
		   void *arg)
{
	unsigned long netns = own_netns();
	int root = bpffs_open();
	DIR *d = root < 0 ? NULL : listed(root);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		int fd;

		if (strncmp(e->d_name, TBG_PINS_PREFIX, strlen(TBG_PINS_PREFIX)))
			continue;
		fd = openat(dirfd(d), e->d_name,
			    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0)
			folder_each(fd, netns, fn, arg);
	}
	if (d)
		closedir(d);
}
