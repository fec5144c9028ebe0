// SPDX-License-Identifier: GPL-2.0
/*
 * openat2(RESOLVE_BENEATH) checks each component of the path, so that neither an
 * encoding nor a symbolic link leads out of the folder. Between this check and
 * the execution only users with write access to the folder can change the
 * program.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "script.h"

#define RACE_TRIES 8	/* openat2 gives EAGAIN when a rename races with ".." */

/* The file mode at a path, or negative errno. */
static int mode_of(int folder_fd, const char *path, int *ret_access)
{
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	struct stat st;
	long fd = -1;
	int err;

	for (int i = 0; i < RACE_TRIES && fd < 0; i++) {
		fd = syscall(SYS_openat2, folder_fd, path, &how, sizeof(how));
		if (fd < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	if (fd < 0)
		return -EAGAIN;
	err = fstat(fd, &st) ? -errno : 0;
	*ret_access = faccessat(fd, "", X_OK, AT_EMPTY_PATH | AT_EACCESS) ? -errno : 0;
	close(fd);
	return err ?: (int)(st.st_mode & S_IFMT);
}

/*
 * Refuses non-parsed-header programs: they write their own status line, which cannot be
 * checked.
 */
static bool raw(const char *name)
{
	const char *slash = strrchr(name, '/');

	return !strncmp(slash ? slash + 1 : name, "nph-", 4);
}

static int found(const char *folder, const char *name, size_t len,
		 struct tbg_executable *ret)
{
	int n = snprintf(ret->path, sizeof(ret->path), "%s/%s", folder, name);
	char *slash;

	if (n >= (int)sizeof(ret->path))
		return -ENOENT;
	memcpy(ret->folder, ret->path, n + 1);
	slash = strrchr(ret->folder, '/');
	slash[slash == ret->folder] = 0;
	ret->name_len = len;
	return 0;
}

int tbg_script_find(int folder_fd, const char *folder, const char *below,
		    struct tbg_executable *ret)
{
	char name[PATH_MAX];
	size_t len = 0;

	while (below[len]) {
		int mode, access = 0;

		len += strcspn(below + len, "/");
		if (!len || len >= sizeof(name))
			return -ENOENT;
		memcpy(name, below, len);
		name[len] = 0;
		mode = mode_of(folder_fd, name, &access);
		if (mode < 0)
			return mode == -EACCES ? mode : -ENOENT;
		if (mode == S_IFREG)
			return access || raw(name) ? -EACCES :
			       found(folder, name, len, ret);
		if (mode != S_IFDIR)
			return -EACCES;
		if (!below[len])
			return -EACCES;
		len++;
	}
	return len ? -EACCES : -ENOENT;
}
