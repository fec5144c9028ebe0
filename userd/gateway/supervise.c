// SPDX-License-Identifier: GPL-2.0
/*
 * The daemon owns the listening sockets, so that no waiting request is lost if
 * the gateway dies: its successor gets the same sockets. Their names are in the
 * abstract namespace, which leaves no files behind; the gateway checks the
 * peer's user.
 */
#include "gateway/supervise.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "upstream/pool_command.h"
#include "os/message.h"
#include "upstream/upstream.h"
#include "site/site.h"

#define BINARY		"toboggan-gateway"	/* beside toboggand */
#define BACKLOG		4096
#define END_MS		2000		/* for the gateway to end its processes */

struct pool {
	LIST_ENTRY(pool) link;
	struct tbg_upstream *upstream;	/* referenced */
	struct tbg_pool_command command;
	int listen_fd;
};

struct tbg_gateway {
	const struct sockaddr_storage *listener;
	const char *mark;
	uid_t uid;
	gid_t gid;
	pid_t pid;		/* 0: not running */
	int fd;			/* of commands; -1 */
	uint32_t ids;
	LIST_HEAD(, pool) pools;
};

extern char **environ;

struct tbg_gateway *tbg_gateway_new(const struct sockaddr_storage *listener, const char *mark,
				    uid_t uid, gid_t gid)
{
	struct tbg_gateway *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->listener = listener;
	g->mark = mark;
	g->uid = uid;
	g->gid = gid;
	g->fd = -1;
	return g;
}

/* --- commands ------------------------------------------------------------ */

static void fd_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/*
 * listen_fd -1: none is sent along. A command that cannot be sent is sent to the next
 * process.
 */
static void command_send(struct tbg_gateway *g, const struct tbg_pool_command *o, int listen_fd)
{
	union {
		struct cmsghdr align;
		char b[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { (void *)o, sizeof(*o) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (listen_fd >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof(control);
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.align), &listen_fd, sizeof(int));
	}
	if (g->fd >= 0 && sendmsg(g->fd, &m, MSG_NOSIGNAL) < 0)
		fd_close(&g->fd);
}

/* The address for fetches of modules: the first listener, from this machine. */
static void fetch_address(const struct sockaddr_storage *listener, struct sockaddr_storage *ret)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)ret;
	struct sockaddr_in *four = (struct sockaddr_in *)ret;

	*ret = *listener;
	if (ret->ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr))
		six->sin6_addr = in6addr_loopback;
	if (ret->ss_family == AF_INET && four->sin_addr.s_addr == htonl(INADDR_ANY))
		four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

static void command_complete(struct tbg_gateway *g, struct tbg_pool_command *o)
{
	o->size = sizeof(*o);
	o->what = TBG_POOL_COMMAND_OPEN;
	o->id = ++g->ids;
	o->daemon = g->uid;
	if (o->uid == (uid_t)-1) {
		o->uid = g->uid;
		o->gid = g->gid;
	}
	fetch_address(g->listener, &o->fetch);
	strcpy(o->mark, g->mark);
}

static int listener_open(const struct tbg_backend *b)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

	if (fd < 0)
		return -errno;
	if (!bind(fd, (const struct sockaddr *)&b->address, b->address_len) &&
	    !listen(fd, BACKLOG))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

/* --- the process --------------------------------------------------------- */

static bool binary_path(char *ret, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", ret, size - sizeof(BINARY));
	char *slash;

	if (n <= 0)
		return false;
	ret[n] = 0;
	slash = strrchr(ret, '/');
	if (!slash)
		return false;
	strcpy(slash + 1, BINARY);
	return true;
}

/* Standard input and output are /dev/null, standard error is the daemon's. */
static int spawn(const char *path, int fd, pid_t *ret)
{
	char *argv[] = { BINARY, NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t all, none;
	int err;

	sigfillset(&all);
	sigemptyset(&none);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
					POSIX_SPAWN_SETSID);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawn_file_actions_init(&files);
	err = posix_spawn_file_actions_adddup2(&files, fd, TBG_POOL_COMMAND_FD);
	err = err ?: posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null",
						      O_RDONLY, 0);
	err = err ?: posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null",
						      O_WRONLY, 0);
	err = err ?: posix_spawn_file_actions_addclosefrom_np(&files, TBG_POOL_COMMAND_FD + 1);
	err = err ?: posix_spawn(ret, path, &files, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return -err;
}

static int process_start(struct tbg_gateway *g)
{
	char path[4096];
	const struct pool *one;
	int p[2], err;

	if (!binary_path(path, sizeof(path)))
		return -ENOENT;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p))
		return -errno;
	err = spawn(path, p[1], &g->pid);
	close(p[1]);
	if (err) {
		g->pid = 0;
		close(p[0]);
		tbg_report("toboggand: %s: %s; it is installed beside toboggand", path,
			strerror(-err));
		return err;
	}
	g->fd = p[0];
	LIST_FOREACH(one, &g->pools, link)
		command_send(g, &one->command, one->listen_fd);
	return 0;
}

/* --- pools ------------------------------------------------------------- */

static struct pool *pool_of(const struct tbg_gateway *g, const struct tbg_upstream *u)
{
	struct pool *p;

	LIST_FOREACH(p, &g->pools, link)
		if (p->upstream == u)
			break;
	return p;
}

static int pool_open(struct tbg_gateway *g, struct tbg_upstream *u)
{
	struct pool *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->command = *u->command;
	command_complete(g, &p->command);
	p->listen_fd = listener_open(&u->backends[0]);
	if (p->listen_fd < 0) {
		int err = p->listen_fd;

		free(p);
		return err;
	}
	p->upstream = tbg_upstream_get(u);
	LIST_INSERT_HEAD(&g->pools, p, link);
	if (g->pid)
		command_send(g, &p->command, p->listen_fd);
	return 0;
}

int tbg_gateway_take(struct tbg_gateway *g, const struct tbg_sites *sites)
{
	int err = 0;

	for (unsigned int i = 0; i < sites->upstreams_nr && !err; i++)
		if (sites->upstreams[i]->command && !pool_of(g, sites->upstreams[i]))
			err = pool_open(g, sites->upstreams[i]);
	if (err || g->pid || LIST_EMPTY(&g->pools))
		return err;
	return process_start(g);
}

void tbg_gateway_started(struct tbg_gateway *g)
{
	struct tbg_pool_command o = {
		.size = sizeof(o), .what = TBG_POOL_COMMAND_STARTED, .uid = g->uid,
		.gid = g->gid,
	};

	command_send(g, &o, -1);
}

/* --- as time goes by ----------------------------------------------------- */

static void pool_free(struct pool *p)
{
	LIST_REMOVE(p, link);
	close(p->listen_fd);
	tbg_upstream_put(p->upstream);
	free(p);
}

static void pool_close(struct tbg_gateway *g, struct pool *p)
{
	p->command.what = TBG_POOL_COMMAND_CLOSE;
	command_send(g, &p->command, -1);
	pool_free(p);
}

static bool process_died(struct tbg_gateway *g)
{
	int status;

	if (!g->pid || waitpid(g->pid, &status, WNOHANG) != g->pid)
		return false;
	if (WIFSIGNALED(status))
		tbg_report("toboggand: " BINARY ": ended by signal %d (%s)", WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	g->pid = 0;
	fd_close(&g->fd);
	return true;
}

void tbg_gateway_tick(struct tbg_gateway *g)
{
	for (struct pool *p = LIST_FIRST(&g->pools), *next; p; p = next) {
		next = LIST_NEXT(p, link);
		if (!atomic_load(&p->upstream->sites))
			pool_close(g, p);
	}
	if (!process_died(g) && g->pid)
		return;
	if (!LIST_EMPTY(&g->pools) && !process_start(g))
		tbg_gateway_started(g);
}

void tbg_gateway_close(struct tbg_gateway *g)
{
	if (!g)
		return;
	fd_close(&g->fd);
	for (int i = 0; g->pid && i < END_MS / 5; i++) {
		if (process_died(g))
			break;
		usleep(5000);
	}
	if (g->pid)
		kill(g->pid, SIGKILL);
	while (!LIST_EMPTY(&g->pools))
		pool_free(LIST_FIRST(&g->pools));
	free(g);
}
