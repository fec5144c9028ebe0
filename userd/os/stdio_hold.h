/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Prevents a process started without standard descriptors from writing messages into
 * the first files and sockets that it opens. Called first by the daemon and the
 * command-line tool.
 */
#ifndef TBG_USERD_OS_STDIO_HOLD_H
#define TBG_USERD_OS_STDIO_HOLD_H

#include <fcntl.h>
#include <unistd.h>

/*
 * Opens /dev/null for each closed standard descriptor. how: O_RDWR, or O_RDONLY so that
 * writes to it still fail.
 */
static inline void tbg_stdio_hold(int how)
{
	int fd;

	do
		fd = open("/dev/null", how);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

#endif
