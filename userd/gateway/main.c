// SPDX-License-Identifier: GPL-2.0
/*
 * toboggan-gateway: the process that runs programs (CGI) and modules for
 * toboggand, which starts it and speaks FastCGI to its pools. Ends when the
 * daemon does, however that ends. Started by hand, it serves one module or
 * folder of programs (standalone.c).
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/standalone.h"
#include "upstream/pool_command.h"
#include "os/filter.h"
#include "os/loop.h"
#include "os/privilege.h"
#include "pool.h"

static struct tbg_loop *the_loop;

static int fd_of(struct msghdr *m)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(m);
	int fd = -1;

	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(fd)))
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

static void on_command(void *arg, uint32_t events)
{
	static struct tbg_pool_command o;
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &o, sizeof(o) };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	ssize_t n = recvmsg(TBG_POOL_COMMAND_FD, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	int fd;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		tbg_loop_stop(the_loop);
		return;
	}
	fd = fd_of(&m);
	if (n == sizeof(o) && o.size == sizeof(o))
		tbg_pools_command(&o, fd);
	else if (fd >= 0)
		close(fd);
}

/* Descriptors: one for each connection of the daemon, three for each program. */
static void files_raise(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r))
		return;
	r.rlim_cur = r.rlim_max < 65536 ? r.rlim_max : 65536;
	setrlimit(RLIMIT_NOFILE, &r);
}

static bool has_daemon(void)
{
	int type;
	socklen_t len = sizeof(type);

	return !getsockopt(TBG_POOL_COMMAND_FD, SOL_SOCKET, SO_TYPE, &type, &len) &&
	       type == SOCK_SEQPACKET;
}

static void on_signal(void *arg, uint32_t events)
{
	tbg_loop_stop(the_loop);
}

/* Under a daemon, which decides about the end, terminating signals are ignored. */
static int signals_take(bool standalone)
{
	sigset_t set;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	if (!standalone) {
		signal(SIGINT, SIG_IGN);
		signal(SIGTERM, SIG_IGN);
		return 0;
	}
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : tbg_loop_add(the_loop, fd, EPOLLIN, on_signal, NULL);
}

int main(int argc, char **argv)
{
	static struct tbg_pool_command command;
	bool standalone = argc > 1;
	int err, fd = -1;

	err = standalone ? tbg_standalone_read(argc, argv, &command, &fd) : -1;
	if (err >= 0)
		return err;
	if (!standalone && !has_daemon()) {
		fprintf(stderr, "toboggan-gateway: started by toboggand, see cgi and module in toboggan.conf(5); or with a module, see --help\n");
		return 2;
	}
	umask(022);
	tbg_privilege_close();
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	tbg_privilege_becomer();
	tbg_filter_load(TBG_FILTER_GATEWAY);	/* the daemon has logged an error */
	files_raise();
	err = tbg_loop_open(&the_loop);
	err = err ?: signals_take(standalone);
	err = err ?: tbg_pools_open(the_loop);
	if (!err && standalone)
		tbg_pools_command(&command, fd);
	else
		err = err ?: tbg_loop_add(the_loop, TBG_POOL_COMMAND_FD, EPOLLIN, on_command, NULL);
	if (!err)
		err = tbg_loop_run(the_loop);
	tbg_pools_close();
	tbg_standalone_end();
	return err ? 1 : 0;
}
