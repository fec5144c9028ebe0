/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Messages with descriptors between the daemon and its own processes, on a
 * SOCK_SEQPACKET socket. Any thread.
 */
#ifndef TBG_USERD_OS_PASS_H
#define TBG_USERD_OS_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TBG_PASS_MAX 2	/* descriptors per message */

/* Sends a message with the first fds_nr of fds. Returns whether it was sent completely. */
bool tbg_pass_send(int fd, void *b, size_t len, const int *fds, unsigned int fds_nr);

/*
 * Receives a message. Returns whether it has the full length. ret_fds: its descriptors,
 * -1 for each missing one.
 */
bool tbg_pass_receive(int fd, void *ret, size_t len, int ret_fds[TBG_PASS_MAX]);

/*
 * Forks a process of the daemon. In the new process, *ret_pid is 0 and the result is its end
 * of the socket. In the daemon, the result is the daemon's end, on which a receive
 * waits at most wait_s seconds. Returns a negative errno on failure.
 */
int tbg_pass_fork(unsigned int wait_s, pid_t *ret_pid);

/* In the new process: closes all descriptors except standard input, output, error and fd. */
void tbg_pass_alone(int fd);

#endif
