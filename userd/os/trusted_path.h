/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Opens paths as root without being misled by users who can write to a folder on the
 * path. Everything that root opens or makes below a folder that may belong to somebody
 * else is opened here: the control socket's folder at the start, the access log at any
 * time.
 */
#ifndef TBG_USERD_OS_TRUSTED_PATH_H
#define TBG_USERD_OS_TRUSTED_PATH_H

#include <stdbool.h>
#include <sys/types.h>

/* Returns whether only root can create files in the folder. */
bool tbg_trusted_is(int folder_fd);

/*
 * Opens the folder of path as an O_PATH descriptor. A symbolic link is followed only if
 * the link and its folder belong to root and nobody else may write to that folder:
 * -ELOOP otherwise. Returns a negative errno on failure.
 */
int tbg_trusted_folder(const char *path);

/* Opens the folder that contains the last component of path. *ret_name: that component. */
int tbg_trusted_parent(const char *path, const char **ret_name);

/*
 * Opens name in a folder. Refuses symbolic links (-ELOOP) and files with several hard
 * links (-EMLINK): the link's owner might be unable to open the file.
 */
int tbg_trusted_open(int folder_fd, const char *name, int flags, mode_t mode);

/* Opens path and follows links as tbg_trusted_folder(). *ret_folder: the file's folder. */
int tbg_trusted_file(const char *path, int flags, mode_t mode, int *ret_folder);

#endif
