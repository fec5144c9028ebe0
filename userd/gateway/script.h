/* SPDX-License-Identifier: GPL-2.0 */
/*
 * From the path of a request to the program that it names: the first regular
 * file on its way, below the folder of programs, whatever links there are. What
 * follows is the program's PATH_INFO.
 */
#ifndef TBG_USERD_GATEWAY_SCRIPT_H
#define TBG_USERD_GATEWAY_SCRIPT_H

#include <linux/limits.h>
#include <stddef.h>

struct tbg_executable {
	char path[PATH_MAX];	/* of the program, absolute */
	char folder[PATH_MAX];	/* that it is in */
	size_t name_len;	/* bytes of below that name it */
};

/*
 * below: a canonical path without its first slash. 0; -ENOENT: nothing there;
 * -EACCES: not a regular file that we may execute, or a non-parsed-header one.
 */
int tbg_script_find(int folder_fd, const char *folder, const char *below,
		    struct tbg_executable *ret);

#endif
