// SPDX-License-Identifier: GPL-2.0
/*
 * Descriptors between processes of the daemon, see pass.h: the kernel duplicates them
 * (SCM_RIGHTS).
 */
#include "os/pass.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

union control {
	struct cmsghdr align;
	char b[CMSG_SPACE(TBG_PASS_MAX * sizeof(int))];
};

bool tbg_pass_send(int fd, void *b, size_t len, const int *fds, unsigned int fds_nr)
{
	struct iovec iov = { b, len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	union control control = { 0 };

	if (fds_nr) {
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(fds_nr * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(fds_nr * sizeof(int));
		memcpy(CMSG_DATA(&control.align), fds, fds_nr * sizeof(int));
	}
	return sendmsg(fd, &m, MSG_NOSIGNAL) == (ssize_t)len;
}

bool tbg_pass_receive(int fd, void *ret, size_t len, int ret_fds[TBG_PASS_MAX])
{
	struct iovec iov = { ret, len };
	union control control;
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c;
	ssize_t n;

	for (int i = 0; i < TBG_PASS_MAX; i++)
		ret_fds[i] = -1;
	do {
		n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	c = n < 0 ? NULL : CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return n == (ssize_t)len;
}

int tbg_pass_fork(unsigned int wait_s, pid_t *ret_pid)
{
	struct timeval wait = { .tv_sec = wait_s };
	int p[2], err;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p))
		return -errno;
	*ret_pid = fork();
	if (!*ret_pid) {
		close(p[0]);
		return p[1];
	}
	err = *ret_pid < 0 ? -errno : 0;
	close(p[1]);
	if (err) {
		close(p[0]);
		return err;
	}
	setsockopt(p[0], SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	return p[0];
}

void tbg_pass_alone(int fd)
{
	if (fd > STDERR_FILENO + 1)
		close_range(STDERR_FILENO + 1, fd - 1, 0);
	close_range(fd + 1, ~0u, 0);
	/* ignore signals from a terminal: the daemon handles them and ends this process */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
}
