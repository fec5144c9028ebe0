// SPDX-License-Identifier: GPL-2.0
/*
 * Messages (userd/os/message.c) to a stderr without a reader: none of them waits.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "ktap.h"
#include "os/message.h"

#define WAIT_S	10		/* SIGALRM ends a test that waits for a reader */

static bool room;		/* the result of poll() for stderr */

int poll(struct pollfd *fds, nfds_t nr, int timeout_ms)
{
	fds->revents = room ? POLLOUT : 0;
	return room;
}

/* Replaces stderr by a full pipe and returns its other end; *ret_old is stderr. */
static int fill(int *ret_old)
{
	int ends[2];

	if (pipe(ends))
		return -1;
	fcntl(ends[1], F_SETPIPE_SZ, 4096);
	fcntl(ends[1], F_SETFL, O_NONBLOCK);
	while (write(ends[1], "-\n", 2) > 0)
		;
	fcntl(ends[1], F_SETFL, 0);
	*ret_old = dup(STDERR_FILENO);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	return ends[0];
}

static bool kernel_need_not_wait(void)
{
	struct iovec iov = { .iov_base = "", .iov_len = 1 };

	return pwritev2(STDERR_FILENO, &iov, 1, -1, RWF_NOWAIT) >= 0 || errno == EAGAIN;
}

static size_t read_all(int fd, char *ret, size_t size)
{
	size_t len = 0;
	ssize_t n;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	while (len < size - 1 && (n = read(fd, ret + len, size - 1 - len)) > 0)
		len += n;
	ret[len] = 0;
	return len;
}

KTAP_TEST(t_a_pipe_that_is_filled_behind_its_back_is_not_waited_for)
{
	static char got[16384];
	int old, fd = fill(&old);
	bool can = kernel_need_not_wait();

	alarm(WAIT_S);
	room = true;			/* another process fills it between poll() and write() */
	if (can)
		tbg_report("lost");
	alarm(0);
	read_all(fd, got, sizeof(got));
	tbg_report("next");
	read_all(fd, got, sizeof(got));
	dup2(old, STDERR_FILENO);
	close(old);
	close(fd);
	if (!can)
		KTAP_SKIP("before Linux 6.4: a write to a pipe waits");
	KTAP_CHECK(!strcmp(got, "next\nstderr: nobody read it; 1 lines before the last one are "
			   "lost\n"));
}

KTAP_TEST(t_lines_that_find_no_room_are_counted)
{
	static char got[16384];
	int old, fd = fill(&old);

	room = false;
	for (int i = 0; i < 3; i++)
		tbg_report("lost");
	read_all(fd, got, sizeof(got));
	room = true;
	tbg_report("next");
	read_all(fd, got, sizeof(got));
	dup2(old, STDERR_FILENO);
	close(old);
	close(fd);
	KTAP_CHECK(!strcmp(got, "next\nstderr: nobody read it; 3 lines before the last one are "
			   "lost\n"));
}

KTAP_MAIN()
