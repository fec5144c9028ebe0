/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Finds the program that a request's path names: the first regular file on the
 * path, below the folder of programs, whatever links there are. The rest of the
 * path is PATH_INFO.
 */
#ifndef TBG_USERD_GATEWAY_SCRIPT_H
#define TBG_USERD_GATEWAY_SCRIPT_H

#include <linux/limits.h>
#include <stddef.h>

struct tbg_executable {
	char path[PATH_MAX];	/* of the program, absolute */
	char folder[PATH_MAX];	/* that it is in */
	size_t name_len;	/* length of its name in below */
};

/*
 * below: a canonical path without its first slash. Returns 0; -ENOENT: no such
 * file; -EACCES: not a regular, executable file, or a non-parsed-header
 * program.
 */
int tbg_script_find(int folder_fd, const char *folder, const char *below,
		    struct tbg_executable *ret);

#endif
