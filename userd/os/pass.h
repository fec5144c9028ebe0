/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Messages between the daemon and its own processes, with descriptors, on a socket that
 * keeps messages apart (SOCK_SEQPACKET). Any thread.
 */
#ifndef TBG_USERD_OS_PASS_H
#define TBG_USERD_OS_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TBG_PASS_MAX 2	/* descriptors with a message */

/* Whether all of it was sent, with the first fds_nr of fds. */
bool tbg_pass_send(int fd, void *b, size_t len, const int *fds, unsigned int fds_nr);

/*
 * Whether a whole message arrived. ret_fds: the descriptors of it, -1 in place of each that
 * it does not have.
 */
bool tbg_pass_receive(int fd, void *ret, size_t len, int ret_fds[TBG_PASS_MAX]);

/*
 * Forks a process of ours. Returns the end of it in the new process, where *ret_pid is 0, and
 * the daemon's end in the daemon, which waits wait_s seconds for a message. Negative errno.
 */
int tbg_pass_fork(unsigned int wait_s, pid_t *ret_pid);

/* In the new process: closes all but standard input, output, error and fd. */
void tbg_pass_alone(int fd);

#endif
