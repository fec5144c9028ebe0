// SPDX-License-Identifier: GPL-2.0
/*
 * The keeper is forked without exec(): it is small and shares the gateway's
 * pages. It ends when the gateway ends in any way, because its control socket
 * is closed then.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/reaper.h"

#define FILES		1024	/* limit of descriptors of a program, the usual one */
#define CANNOT_RUN	127	/* exit status, as of a shell */

enum { IN, OUT, ERR, STREAMS };

struct streams {
	int ours[STREAMS], theirs[STREAMS];
	int control[2];
};

/* --- the program --------------------------------------------------------- */

static void limit(int what, uint64_t soft, uint64_t hard)
{
	struct rlimit r;

	if (getrlimit(what, &r))
		return;
	r.rlim_max = hard < r.rlim_max ? hard : r.rlim_max;
	r.rlim_cur = soft < r.rlim_max ? soft : r.rlim_max;
	setrlimit(what, &r);
}

static void limits(const struct tbg_program *p)
{
	if (p->memory)
		limit(RLIMIT_AS, p->memory, p->memory);
	if (p->cpu_s)
		limit(RLIMIT_CPU, p->cpu_s, p->cpu_s + 1);
	if (p->processes)
		limit(RLIMIT_NPROC, p->processes, p->processes);
	limit(RLIMIT_CORE, 0, 0);
	limit(RLIMIT_NOFILE, FILES, FILES);
}

/*
 * Resets signal handlers, including those internal to the C library, which posix_spawn()
 * omits.
 */
static void signals_reset(void)
{
	static const uint64_t none_of_it[8];	/* the kernel's struct sigaction */
	sigset_t none;

	for (int i = 1; i < NSIG; i++)
		syscall(SYS_rt_sigaction, i, none_of_it, NULL, NSIG / 8);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void program_run(const struct tbg_program *p, const struct streams *s)
{
	setsid();
	for (int i = 0; i < STREAMS; i++)
		if (dup2(s->theirs[i], i) < 0)
			_exit(CANNOT_RUN);
	close_range(STREAMS, ~0u, 0);
	signals_reset();
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	if (chdir(p->folder))
		_exit(CANNOT_RUN);
	limits(p);
	execve(p->path, p->argv, p->envp);
	dprintf(STDERR_FILENO, "%s: %s\n", p->path, strerror(errno));
	_exit(CANNOT_RUN);
}

/* --- the keeper ---------------------------------------------------------- */

int tbg_children_kill(int proc_fd, bool (*spared)(pid_t pid))
{
	char name[64], text[4096];
	ssize_t n;
	int fd, nr = 0;

	snprintf(name, sizeof(name), "%d/task/%d/children", getpid(), getpid());
	fd = proc_fd < 0 ? -1 : openat(proc_fd, name, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (n < 0)
		return -1;
	text[n] = 0;
	for (char *at = text, *end;; at = end) {
		long pid = strtol(at, &end, 10);

		/* the last number may be truncated with the text */
		if (end == at || (n == sizeof(text) - 1 && !*end))
			return nr;
		if (!spared || !spared(pid))
			nr += !kill(pid, SIGKILL);
	}
}

void tbg_children_end(int proc_fd)
{
	int status, nr;

	do
		nr = tbg_children_kill(proc_fd, NULL);
	while (nr >= 0 && (waitpid(-1, &status, nr ? 0 : WNOHANG) >= 0 ||
			   errno == EINTR));
}

/* Reaps children; whether the program is among them. */
static bool program_ended(pid_t program, struct tbg_reaper_report *ret)
{
	struct rusage used;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &used)) > 0) {
		if (pid != program)
			continue;
		ret->status = status;
		ret->cpu_s = used.ru_utime.tv_sec + used.ru_stime.tv_sec +
			     (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000000;
		return true;
	}
	return false;
}

static void keep(pid_t program, int control, int signal_fd, int proc_fd)
{
	struct tbg_reaper_report report = { .killed = true };
	struct pollfd p[] = {
		{ .fd = control, .events = POLLIN },
		{ .fd = signal_fd, .events = POLLIN },
	};
	struct signalfd_siginfo info;

	while (program > 0) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			break;
		if (p[1].revents && read(signal_fd, &info, sizeof(info)) > 0 &&
		    program_ended(program, &report)) {
			report.killed = false;
			break;
		}
		if (p[0].revents)
			break;
	}
	kill(-program, SIGKILL);	/* all that is possible without /proc */
	tbg_children_end(proc_fd);
	send(control, &report, sizeof(report), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/*
 * Keeps the control socket, the streams and /proc (returned) at high
 * descriptors, and closes all others.
 */
static int descriptors_move(const struct tbg_program *p, struct streams *s)
{
	int keep[STREAMS + 2] = { s->theirs[IN], s->theirs[OUT], s->theirs[ERR],
				  s->control[1], p->proc_fd };
	struct rlimit r = { .rlim_cur = FILES };
	int base;

	getrlimit(RLIMIT_NOFILE, &r);
	base = r.rlim_cur - 2 * (STREAMS + 2);
	for (int i = 0; i < STREAMS + 2; i++)
		if (keep[i] >= 0)
			keep[i] = fcntl(keep[i], F_DUPFD_CLOEXEC, base);
	close_range(0, base - 1, 0);
	memcpy(s->theirs, keep, sizeof(s->theirs));
	s->control[1] = keep[STREAMS];
	return keep[STREAMS + 1];
}

static void keeper_run(struct tbg_program *p, struct streams *s)
{
	int proc_fd = descriptors_move(p, s), signal_fd;
	sigset_t set;
	pid_t program;

	prctl(PR_SET_NAME, "tbg-keeper");
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
		_exit(1);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	sigfillset(&set);
	sigprocmask(SIG_SETMASK, &set, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	program = signal_fd < 0 ? -1 : fork();
	if (!program)
		program_run(p, s);
	for (int i = 0; i < STREAMS; i++)
		close(s->theirs[i]);
	if (program > 0)
		keep(program, s->control[1], signal_fd, proc_fd);
	_exit(0);
}

/* --- its parent ---------------------------------------------------------- */

static void streams_close(struct streams *s)
{
	int *all = (int *)s;

	for (size_t i = 0; i < sizeof(*s) / sizeof(*all); i++)
		if (all[i] >= 0)
			close(all[i]);
}

static int streams_open(struct streams *s)
{
	memset(s, -1, sizeof(*s));
	for (int i = 0; i < STREAMS; i++) {
		int p[2];

		if (pipe2(p, O_CLOEXEC))
			return -errno;
		s->ours[i] = p[i == IN];
		s->theirs[i] = p[i != IN];
		fcntl(s->ours[i], F_SETFL, O_NONBLOCK);
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
		       s->control))
		return -errno;
	return 0;
}

int tbg_reaper_start(struct tbg_program *p)
{
	struct streams s;
	int err = streams_open(&s);
	pid_t pid;

	pid = err ? -1 : fork();
	if (!pid)
		keeper_run(p, &s);
	if (pid < 0) {
		err = err ?: -errno;
		streams_close(&s);
		return err;
	}
	for (int i = 0; i < STREAMS; i++)
		close(s.theirs[i]);
	close(s.control[1]);
	p->keeper = pid;
	p->control = s.control[0];
	p->in = s.ours[IN];
	p->out = s.ours[OUT];
	p->err = s.ours[ERR];
	return 0;
}
