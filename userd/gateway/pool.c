// SPDX-License-Identifier: GPL-2.0
/*
 * Workers are forked, and become what the command requires before they load or run
 * anything: another user, another root. One that dies is replaced, the sooner
 * the longer it has lived. Processes that a dead worker leaves become children
 * of this process, and are killed, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgi.h"
#include "os/clock.h"
#include "upstream/pool_command.h"
#include "gateway/reaper.h"
#include "os/loop.h"
#include "module.h"
#include "pool.h"
#include "os/privilege.h"
#include "os/message.h"
#include "os/filter.h"

#define TICK_MS		50
#define SWEEP_MS	1000		/* for programs that have lost their keeper */
#define BACKOFF_MS	50		/* after the first death, then doubled, */
#define BACKOFF_MAX_MS	1000
#define UNFIT_MS	5000		/* after one that could not start */
#define STEADY_NS	(10 * 1000000000ull)	/* alive for this long: it works reliably */

struct worker {
	pid_t pid;			/* 0: none */
	int state_fd;			/* of tbg_serve */
	uint64_t started_ns, start_ns;	/* start_ns: not before */
	unsigned int backoff_ms;
	bool unfit;			/* until it serves */
};

struct pool {
	LIST_ENTRY(pool) link;
	struct tbg_pool_command o;
	int listen_fd;
	bool closing;
	struct worker workers[TBG_MODULE_WORKERS_MAX];
	struct worker old[TBG_MODULE_WORKERS_MAX];	/* retiring workers that were replaced */
};

static struct {
	struct tbg_loop *l;
	LIST_HEAD(, pool) pools;
	int signal_fd, proc_fd;
	bool started;
	struct identity {
		uid_t uid;
		gid_t gid;
		char chroot[TBG_POOL_COMMAND_PATH];
	} *known;			/* users and chroots named at the daemon's start */
	unsigned int known_nr;
} all;

/* --- a worker ------------------------------------------------------------ */

/* Paths are given as seen from outside; inside a chroot they begin below it. */
static void rebase(struct tbg_pool_command *o)
{
	size_t len = strlen(o->chroot);

	if (!len || strncmp(o->path, o->chroot, len))
		return;
	memmove(o->path, o->path + len, strlen(o->path + len) + 1);
	if (!*o->path)
		strcpy(o->path, "/");
}

static int become(struct tbg_pool_command *o)
{
	struct tbg_identity id = { .change = !geteuid(), .uid = o->uid,
				   .gid = o->gid };
	int err;

	if (*o->chroot && (chroot(o->chroot) || chdir("/")))
		return -errno;
	if (!id.change && o->uid != geteuid())
		return -EPERM;
	rebase(o);
	err = tbg_privilege_drop(&id);
	err = err ?: tbg_privilege_none();
	if (!err)
		tbg_filter_load(TBG_FILTER_PROGRAM);
	return err;
}

static void descriptors_close(int listen_fd, int state_fd)
{
	int high = state_fd > listen_fd ? state_fd : listen_fd;

	for (int fd = STDERR_FILENO + 1; fd < high; fd++)
		if (fd != listen_fd && fd != state_fd && fd != all.proc_fd)
			close(fd);
	if (all.proc_fd > high) {
		close_range(high + 1, all.proc_fd - 1, 0);
		high = all.proc_fd;
	}
	close_range(high + 1, ~0u, 0);
}

static void worker_main(struct tbg_pool_command *o, int listen_fd, int state_fd,
			pid_t parent)
{
	int err;

	prctl(PR_SET_NAME, o->kind == TBG_POOL_CGI ? "tbg-cgi" : "tbg-module");
	descriptors_close(listen_fd, state_fd);
	for (int i = 1; i < NSIG; i++)
		signal(i, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	err = become(o);
	/* after the change of user, which resets it */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	if (err)
		tbg_report("toboggan-gateway: %s: cannot become user %u%s%s: %s", o->path,
			o->uid, *o->chroot ? " in " : "", o->chroot, strerror(-err));
	else if (o->kind == TBG_POOL_CGI)
		err = tbg_cgi_run(o, listen_fd, state_fd, all.proc_fd);
	else
		err = tbg_module_run(o, listen_fd, state_fd);
	if (err && err != -ENOEXEC)
		tbg_report("toboggan-gateway: %s: %s", o->path, strerror(-err));
	exit(err ? EXIT_FAILURE : EXIT_SUCCESS);
}

static void state_forget(struct worker *w)
{
	if (w->state_fd < 0)
		return;
	tbg_loop_remove(all.l, w->state_fd);
	close(w->state_fd);
	w->state_fd = -1;
}

/*
 * A worker reports first that it serves, later that it retires: it finishes its requests,
 * and another takes its place.
 */
static void on_state(void *arg, uint32_t events)
{
	struct worker *w = arg;
	char c;
	struct pool *p = LIST_FIRST(&all.pools);

	if (read(w->state_fd, &c, 1) <= 0) {
		state_forget(w);	/* SIGCHLD reports the rest */
		return;
	}
	if (w->unfit) {
		w->unfit = false;
		return;
	}
	state_forget(w);
	while (w < p->workers || w >= p->workers + TBG_MODULE_WORKERS_MAX)
		p = LIST_NEXT(p, link);
	for (unsigned int i = 0; i < TBG_MODULE_WORKERS_MAX; i++) {
		if (p->old[i].pid)
			continue;
		p->old[i] = *w;
		w->pid = 0;
		w->start_ns = 0;
		return;
	}
}

static void worker_start(struct pool *p, struct worker *w, uint64_t now_ns)
{
	pid_t parent = getpid(), pid;
	int state[2];

	if (pipe2(state, O_CLOEXEC | O_NONBLOCK))
		return;
	pid = fork();
	if (!pid)
		worker_main(&p->o, p->listen_fd, state[1], parent);
	close(state[1]);
	w->started_ns = now_ns;
	w->start_ns = now_ns + BACKOFF_MAX_MS * 1000000ull;
	if (pid < 0) {
		close(state[0]);
		return;
	}
	w->pid = pid;
	w->unfit = true;
	w->state_fd = state[0];
	if (tbg_loop_add(all.l, w->state_fd, EPOLLIN, on_state, w))
		state_forget(w);
}

/* --- pools --------------------------------------------------------------- */

static void pool_free(struct pool *p)
{
	LIST_REMOVE(p, link);
	if (p->listen_fd >= 0)
		close(p->listen_fd);
	free(p);
}

static bool pool_empty(const struct pool *p)
{
	for (unsigned int i = 0; i < TBG_MODULE_WORKERS_MAX; i++)
		if (p->workers[i].pid || p->old[i].pid)
			return false;
	return true;
}

/*
 * No worker will serve them for a while: closes waiting connections, so that clients know
 * at once.
 */
static void turn_away(const struct pool *p)
{
	int fd;

	while ((fd = accept4(p->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		close(fd);
}

static unsigned int pool_size(const struct pool *p)
{
	return p->o.kind == TBG_POOL_CGI ? 1 : p->o.at_once;
}

static void pool_tick(struct pool *p, uint64_t now_ns)
{
	bool unfit = true;

	if (p->closing) {
		if (pool_empty(p))
			pool_free(p);
		return;
	}
	for (unsigned int i = 0; i < pool_size(p); i++) {
		struct worker *w = &p->workers[i];

		unfit &= !w->pid && w->unfit;
		if (!w->pid && now_ns >= w->start_ns)
			worker_start(p, w, now_ns);
	}
	if (unfit)
		turn_away(p);
}

static void on_tick(void *arg, uint64_t now_ns)
{
	struct pool *next;

	for (struct pool *p = LIST_FIRST(&all.pools); p; p = next) {
		next = LIST_NEXT(p, link);
		pool_tick(p, now_ns);
	}
}

static void worker_died(struct pool *p, struct worker *w, int status)
{
	uint64_t now_ns = tbg_mono_ns();
	unsigned int wait_ms;
	char c;

	if (w->unfit && w->state_fd >= 0 && read(w->state_fd, &c, 1) == 1)
		w->unfit = false;	/* it has served, even if not for long */
	state_forget(w);
	w->pid = 0;
	if (now_ns - w->started_ns > STEADY_NS)
		w->backoff_ms = 0;
	else
		w->backoff_ms = w->backoff_ms ? w->backoff_ms * 2 : BACKOFF_MS;
	if (w->backoff_ms > BACKOFF_MAX_MS)
		w->backoff_ms = BACKOFF_MAX_MS;
	wait_ms = w->unfit ? UNFIT_MS : w->backoff_ms;
	w->start_ns = now_ns + wait_ms * 1000000ull;
	if (WIFSIGNALED(status) && !p->closing)
		tbg_report("toboggan-gateway: %s: worker ended by signal %d (%s); the next one in %u ms",
			p->o.path, WTERMSIG(status), strsignal(WTERMSIG(status)), wait_ms);
	pool_tick(p, now_ns);
}

static struct worker *worker_of(pid_t pid, struct pool **ret)
{
	struct pool *p;

	LIST_FOREACH(p, &all.pools, link)
		for (unsigned int i = 0; i < TBG_MODULE_WORKERS_MAX; i++) {
			*ret = p;
			if (p->workers[i].pid == pid)
				return &p->workers[i];
			if (p->old[i].pid == pid)
				return &p->old[i];
		}
	return NULL;
}

static bool is_worker(pid_t pid)
{
	struct pool *p;

	return worker_of(pid, &p);
}

/* A keeper that was killed by its program sends no report: looks for such programs. */
static void on_sweep(void *arg, uint64_t now_ns)
{
	tbg_children_kill(all.proc_fd, is_worker);
}

static void reap(void)
{
	struct worker *w;
	struct pool *p;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
		w = worker_of(pid, &p);
		if (w && WIFSTOPPED(status))	/* its own watch was stopped, too */
			kill(pid, SIGKILL);
		else if (w)
			worker_died(p, w, status);
	}
	tbg_children_kill(all.proc_fd, is_worker);
}

static void on_child(void *arg, uint32_t events)
{
	struct signalfd_siginfo info;

	while (read(all.signal_fd, &info, sizeof(info)) > 0)
		continue;
	reap();
}

/* --- commands ------------------------------------------------------------ */

/*
 * The daemon is no longer root: an attacker who controls it must not get the
 * rights of users through this process, except those named by the
 * administrator at the start.
 */
static bool allowed(const struct tbg_pool_command *o)
{
	struct identity *more;

	for (unsigned int i = 0; i < all.known_nr; i++)
		if (all.known[i].uid == o->uid && all.known[i].gid == o->gid &&
		    !strcmp(all.known[i].chroot, o->chroot))
			return true;
	if (all.started)
		return false;
	more = reallocarray(all.known, all.known_nr + 1, sizeof(*more));
	if (!more)
		return false;
	all.known = more;
	more[all.known_nr] = (struct identity){ .uid = o->uid, .gid = o->gid };
	strcpy(more[all.known_nr++].chroot, o->chroot);
	return true;
}

static void pool_open(const struct tbg_pool_command *o, int listen_fd)
{
	struct pool *p = calloc(1, sizeof(*p));

	if (!p) {
		close(listen_fd);
		return;
	}
	p->o = *o;
	p->listen_fd = listen_fd;
	if (p->o.at_once > TBG_MODULE_WORKERS_MAX && o->kind == TBG_POOL_MODULE)
		p->o.at_once = TBG_MODULE_WORKERS_MAX;
	for (unsigned int i = 0; i < TBG_MODULE_WORKERS_MAX; i++)
		p->workers[i].state_fd = p->old[i].state_fd = -1;
	LIST_INSERT_HEAD(&all.pools, p, link);
	if (!allowed(o)) {
		tbg_report("toboggan-gateway: %s: user %u%s%s: not among those of the start; start the daemon again",
			o->path, o->uid, *o->chroot ? " in " : "", o->chroot);
		for (unsigned int i = 0; i < TBG_MODULE_WORKERS_MAX; i++) {
			p->workers[i].unfit = true;
			p->workers[i].start_ns = UINT64_MAX;
		}
	}
	pool_tick(p, tbg_mono_ns());
}

/* Its workers finish their requests, and are not replaced. */
static void pool_close(uint32_t id)
{
	struct pool *p;

	LIST_FOREACH(p, &all.pools, link) {
		if (p->o.id != id || p->closing)
			continue;
		p->closing = true;
		for (unsigned int i = 0; i < TBG_MODULE_WORKERS_MAX; i++)
			if (p->workers[i].pid)
				kill(p->workers[i].pid, SIGTERM);
		close(p->listen_fd);
		p->listen_fd = -1;
		return;
	}
}

/* Drops root if no pool needs another user than the daemon's. */
static void settle_down(const struct tbg_pool_command *o)
{
	struct tbg_identity id = { .change = !geteuid(), .uid = o->uid,
				   .gid = o->gid };

	all.started = true;
	for (unsigned int i = 0; i < all.known_nr; i++)
		if (all.known[i].uid != o->uid || all.known[i].gid != o->gid ||
		    *all.known[i].chroot)
			return;
	if (tbg_privilege_drop(&id) || tbg_privilege_none())
		tbg_report("toboggan-gateway: cannot become user %u", o->uid);
}

static bool command_valid(const struct tbg_pool_command *o)
{
	return memchr(o->path, 0, sizeof(o->path)) &&
	       memchr(o->mark, 0, sizeof(o->mark)) &&
	       memchr(o->prefix, 0, sizeof(o->prefix)) &&
	       memchr(o->chroot, 0, sizeof(o->chroot)) &&
	       o->args_len <= sizeof(o->args) &&
	       (!o->args_len || !o->args[o->args_len - 1]);
}

void tbg_pools_command(const struct tbg_pool_command *o, int listen_fd)
{
	if (o->what == TBG_POOL_COMMAND_OPEN && listen_fd >= 0 && command_valid(o)) {
		pool_open(o, listen_fd);
		return;
	}
	if (listen_fd >= 0)
		close(listen_fd);
	if (o->what == TBG_POOL_COMMAND_CLOSE)
		pool_close(o->id);
	else if (o->what == TBG_POOL_COMMAND_STARTED)
		settle_down(o);
}

int tbg_pools_open(struct tbg_loop *l)
{
	sigset_t set;
	int err;

	all.l = l;
	all.proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);	/* for workers, from before they are forked */
	sigprocmask(SIG_BLOCK, &set, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	all.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (all.signal_fd < 0)
		return -errno;
	err = tbg_loop_add(l, all.signal_fd, EPOLLIN, on_child, NULL);
	err = err ?: tbg_loop_every(l, SWEEP_MS, on_sweep, NULL);
	return err ?: tbg_loop_every(l, TICK_MS, on_tick, NULL);
}

void tbg_pools_close(void)
{
	tbg_children_end(all.proc_fd);
}
