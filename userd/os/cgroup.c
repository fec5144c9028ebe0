// SPDX-License-Identifier: GPL-2.0
/* Finds the cgroup of this process, also where the hierarchy is mounted nowhere. */
#include "os/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <unistd.h>

/*
 * The path of our cgroup in the hierarchy of version 2, from its root or that of our
 * cgroup namespace.
 */
static int cgroup_path(char *ret, size_t len)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[4096];
	int err = -ENOENT;

	if (!f)
		return -errno;
	while (err && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "0::/", 4))
			continue;
		line[strcspn(line, "\n")] = 0;
		err = snprintf(ret, len, ".%s", line + 3) < (int)len ? 0 : -ENAMETOOLONG;
	}
	fclose(f);
	return err;
}

/* Opens the root of the hierarchy by a detached mount: correct in each cgroup namespace. */
static int cgroup_mount(void)
{
	int fs = fsopen("cgroup2", FSOPEN_CLOEXEC), fd = -1;

	if (fs < 0)
		return -errno;
	if (!fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	if (fd < 0)
		fd = -errno;
	close(fs);
	return fd;
}

/* Opens it at the usual mount point. */
static int cgroup_mounted(void)
{
	static const char *const usual[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };

	for (int i = 0; i < 2; i++) {
		int fd = open(usual[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		struct statfs st;

		if (fd >= 0 && !fstatfs(fd, &st) && st.f_type == CGROUP2_SUPER_MAGIC)
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return -ENOENT;
}

int tbg_cgroup_root(void)
{
	int root = cgroup_mount();

	return root < 0 ? cgroup_mounted() : root;
}

int tbg_cgroup_open(void)
{
	char path[4096];
	int err = cgroup_path(path, sizeof(path)), root, fd;

	if (err)
		return err;
	root = tbg_cgroup_root();
	if (root < 0)
		return root;
	fd = openat(root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		fd = -errno;
	close(root);
	return fd;
}
