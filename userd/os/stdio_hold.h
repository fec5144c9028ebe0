/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who is started without standard descriptors would have what is meant for them in
 * the first files and sockets of its own. Called first of all, by the daemon and the
 * command-line tool.
 */
#ifndef TBG_USERD_OS_STDIO_HOLD_H
#define TBG_USERD_OS_STDIO_HOLD_H

#include <fcntl.h>
#include <unistd.h>

/*
 * Those that are closed become /dev/null. how: O_RDWR, or O_RDONLY for what is written
 * to them to fail as before.
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
