/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Opening by name with more rights than those who may write on the way have. All
 * that root opens or makes below a folder that may be somebody else's is opened
 * here: the control socket's folder at the start, the access log at any time.
 */
#ifndef TBG_USERD_OS_TRUSTED_PATH_H
#define TBG_USERD_OS_TRUSTED_PATH_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether nobody but root may put anything into the folder. */
bool tbg_trusted_is(int folder_fd);

/*
 * The folder that path leads to, as an O_PATH descriptor. A symbolic link is
 * followed only where the link and its folder are root's, and nobody else may
 * write there: -ELOOP for any other; or negative errno.
 */
int tbg_trusted_folder(const char *path);

/* The folder that holds the last component of path, which *ret_name points at. */
int tbg_trusted_parent(const char *path, const char **ret_name);

/*
 * Opens name in a folder: no symbolic link (-ELOOP), and no file that has another
 * name besides (-EMLINK), for it may be one that its owner could not open.
 */
int tbg_trusted_open(int folder_fd, const char *name, int flags, mode_t mode);

/* Opens path, links as tbg_trusted_folder() follows them; *ret_folder: as _parent(). */
int tbg_trusted_file(const char *path, int flags, mode_t mode, int *ret_folder);

#endif
