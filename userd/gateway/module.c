// SPDX-License-Identifier: GPL-2.0
/*
 * A worker process of a module. A crash, exit(), or a callback that takes too long,
 * ends the process; before, it answers the current request with an error, and the
 * pool starts another worker (pool.c). Leaks are bounded: the worker retires when
 * it has grown, or after a number of requests.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "os/clock.h"
#include "upstream/pool_command.h"
#include "os/loop.h"
#include "module.h"
#include "os/message.h"

#define LINE_MAX_LEN	1024	/* bytes of a line in the log */
#define STUCK_EXIT	75	/* exit status of one that ran out of time */
#define WATCH_STEPS	8	/* checks of a callback within its time */
#define WATCH_STACK	(64 << 10)
#define LOOK_EVERY	16		/* requests between two checks for all leaks */
#define RESUMES_MAX	64		/* before other events have their turn */

static struct {
	const struct tbg_pool_command *o;
	const struct tbg_module *module;
	void *state;
	struct tbg_serve serve;
	STAILQ_HEAD(, tbg_request) todo;
	bool settling;
	int again_fd;			/* an eventfd: more requests are to be resumed */
	bool leaving;
	int statm_fd;
	long faults;			/* page faults at the last check */
	rlim_t files;			/* limit of descriptors */
	unsigned int requests;
	/* of the watch */
	struct tbg_request *_Atomic current;	/* request whose callback runs */
	_Atomic uint64_t entered_ns;	/* since when; NONE, TAKEN */
	atomic_bool watched;
	sem_t wanted;
} worker;

enum { NONE, TAKEN };

struct tbg_loop *tbg_module_loop(void)
{
	return worker.serve.loop;
}

const struct tbg_pool_command *tbg_module_command(void)
{
	return worker.o;
}

/* --- the watch ----------------------------------------------------------- */

/*
 * A thread watches the time, so that no signal interrupts the module. It wakes
 * up once for many callbacks, and not at all while there are none.
 */
static void enter(struct tbg_request *r)
{
	worker.current = r;
	atomic_store(&worker.entered_ns, tbg_mono_ns());
	if (!atomic_load(&worker.watched) &&
	    !atomic_exchange(&worker.watched, true))
		sem_post(&worker.wanted);
}

static void leave(void)
{
	uint64_t was = atomic_exchange(&worker.entered_ns, NONE);

	while (was == TAKEN)		/* the watch is about to end the process */
		pause();
	worker.current = NULL;
}

/* Logs once. In a signal handler, so not by tbg_report(); never waits. */
static void last_words(unsigned int status, const char *why)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	const char *path = worker.o->path;
	struct tbg_request *r = atomic_exchange(&worker.current, NULL);

	if (r)
		tbg_gateway_request_last_words(r->v, status);
	if (poll(&p, 1, 0) > 0 && write(STDERR_FILENO, "toboggan-gateway: ", 18) > 0 &&
	    write(STDERR_FILENO, path, strlen(path)) > 0 &&
	    write(STDERR_FILENO, why, strlen(why)) < 0)
		return;			/* there is no request */
}

/* Whether a callback runs, or has run since the last check. */
static bool watch_look(uint64_t limit_ns)
{
	uint64_t now_ns = tbg_mono_ns();
	uint64_t since_ns = atomic_load(&worker.entered_ns);

	if (since_ns <= TAKEN)
		return false;
	if (now_ns < since_ns + limit_ns ||
	    !atomic_compare_exchange_strong(&worker.entered_ns, &since_ns, TAKEN))
		return true;
	last_words(504, ": a callback took longer than module-time allows\n");
	_exit(STUCK_EXIT);
}

static void *watch(void *arg)
{
	uint64_t limit_ns = worker.o->time_ms * 1000000ull;
	uint64_t step_ns = limit_ns / WATCH_STEPS + 1;
	struct timespec step = { step_ns / 1000000000, step_ns % 1000000000 };

	for (;;) {
		while (sem_wait(&worker.wanted))
			continue;
		do {
			atomic_store(&worker.watched, true);
			nanosleep(&step, NULL);
			atomic_store(&worker.watched, false);
		} while (watch_look(limit_ns));
	}
	return NULL;
}

/* The handler runs once: the same signal, raised again, ends the process when it returns. */
static void on_crash(int nr)
{
	last_words(502, ": crashed\n");
	raise(nr);
}

static void on_exit_call(void)
{
	if (!worker.leaving && atomic_exchange(&worker.entered_ns, TAKEN) > TAKEN)
		last_words(502, ": exit() in a callback\n");
}

/* Overrides what the module's constructors have done with these signals. */
static int crash_open(void)
{
	static const int crashes[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS };
	struct sigaction crash = { .sa_handler = on_crash,
				   .sa_flags = SA_ONSTACK | SA_RESETHAND };
	static char stack[64 << 10];
	stack_t s = { .ss_sp = stack, .ss_size = sizeof(stack) };

	if (sigaltstack(&s, NULL))
		return -errno;
	for (size_t i = 0; i < sizeof(crashes) / sizeof(*crashes); i++)
		sigaction(crashes[i], &crash, NULL);
	return 0;
}

static int watch_open(void)
{
	pthread_attr_t a;
	pthread_t thread;
	int err;

	if (sem_init(&worker.wanted, 0, 0) || atexit(on_exit_call))
		return -errno;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, WATCH_STACK);
	err = -pthread_create(&thread, &a, watch, NULL);
	pthread_attr_destroy(&a);
	return err;
}

/* --- calls of the module ------------------------------------------------- */

/* module->fn(r, state ...), if there is one. */
#define CALL(r, fn, ...)						\
	do {								\
		if (worker.module->fn) {				\
			enter(r);					\
			worker.module->fn(r, worker.state, ##__VA_ARGS__); \
			leave();					\
		}							\
	} while (0)

void tbg_request_mark(struct tbg_request *r)
{
	if (r->marked)
		return;
	r->marked = true;
	STAILQ_INSERT_TAIL(&worker.todo, r, todo);
}

static void unmark(struct tbg_request *r)
{
	if (!r->marked)
		return;
	STAILQ_REMOVE(&worker.todo, r, tbg_request, todo);
	r->marked = false;
}

/*
 * Handles scheduled requests; to be called after each callback from the loop.
 * Requests may resume each other without end, which must not delay other events. So
 * the end of a request may be handled later, and it is not called meanwhile.
 */
static void requests_settle(void)
{
	unsigned int resumes = 0;
	struct tbg_request *r;

	if (worker.settling)		/* called from an end(): handled in its turn */
		return;
	worker.settling = true;
	while ((r = STAILQ_FIRST(&worker.todo)) && resumes < RESUMES_MAX) {
		unmark(r);
		if (r->called && !r->ended) {
			r->called = false;
			CALL(r, resume, TBG_RESUME_CALLED);
			tbg_request_mark(r);
			resumes++;
			continue;
		}
		tbg_reply_settle(r);
	}
	worker.settling = false;
	if (r)
		eventfd_write(worker.again_fd, 1);
}

static void on_again(void *arg, uint32_t events)
{
	eventfd_t nr;

	eventfd_read(worker.again_fd, &nr);
	requests_settle();
}

void tbg_module_fetched(struct tbg_request *r, const struct tbg_fetched *f)
{
	r->lookup = NULL;
	if (!r->ended)
		CALL(r, fetched, f);
	requests_settle();
}

/* --- postponed requests -------------------------------------------------- */

static void fd_forget(int *fd)
{
	if (*fd < 0)
		return;
	tbg_loop_remove(worker.serve.loop, *fd);
	close(*fd);
	*fd = -1;
}

static void on_wait_ms(void *arg, uint32_t events)
{
	struct tbg_request *r = arg;

	fd_forget(&r->timer_fd);
	if (!r->ended)
		CALL(r, resume, TBG_RESUME_TIME);
	requests_settle();
}

static void on_wait_fd(void *arg, uint32_t events)
{
	struct tbg_request *r = arg;

	fd_forget(&r->wait_fd);
	if (!r->ended)
		CALL(r, resume, TBG_RESUME_READY);
	requests_settle();
}

int tbg_request_wait_ms(struct tbg_request *r, unsigned int ms)
{
	uint64_t ns = ms ? ms * 1000000ull : 1;
	struct itimerspec t = {
		.it_value = { ns / 1000000000, ns % 1000000000 },
	};
	int err;

	fd_forget(&r->timer_fd);
	r->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (r->timer_fd < 0)
		return -errno;
	timerfd_settime(r->timer_fd, 0, &t, NULL);
	err = tbg_loop_add(worker.serve.loop, r->timer_fd, EPOLLIN, on_wait_ms, r);
	if (err)
		fd_forget(&r->timer_fd);
	return err;
}

int tbg_request_wait_fd(struct tbg_request *r, int fd, short events)
{
	uint32_t wanted = (events & POLLIN ? EPOLLIN : 0) |
			  (events & POLLOUT ? EPOLLOUT : 0);
	int err;

	fd_forget(&r->wait_fd);
	r->wait_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (r->wait_fd < 0)
		return -errno;
	err = tbg_loop_add(worker.serve.loop, r->wait_fd, wanted, on_wait_fd, r);
	if (err)
		fd_forget(&r->wait_fd);
	return err;
}

void tbg_request_resume(struct tbg_request *r)
{
	r->called = true;
	tbg_request_mark(r);
}

void tbg_module_log(struct tbg_request *r, const char *format, ...)
{
	char line[LINE_MAX_LEN];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	if (n < 0)
		return;
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	if (!r) {
		tbg_report("toboggan-gateway: %s: %.*s", worker.o->path, n - 1, line);
		return;
	}
	tbg_gateway_request_complain(r->v, line, n);
	tbg_request_mark(r);
}

/* --- requests ------------------------------------------------------------ */

/* Limit of address space; 0: none. Sanitizers reserve terabytes. */
static uint64_t memory_max(void)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
	return 0;
#else
	return worker.o->memory;
#endif
}

/*
 * Whether the process has grown too much, so that a fresh worker must replace
 * it. Checked after each request that has touched a new page: the next may need
 * all that is left. Pages touched by the module's own threads are noticed at the
 * check for all leaks.
 */
static bool grown(bool all)
{
	struct rusage used;
	char text[100];
	ssize_t n;

	if (!memory_max() || getrusage(RUSAGE_THREAD, &used) ||
	    (used.ru_minflt == worker.faults && !all))
		return false;
	worker.faults = used.ru_minflt;
	n = pread(worker.statm_fd, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return false;
	text[n] = 0;
	return strtoul(text, NULL, 10) * sysconf(_SC_PAGESIZE) > memory_max() / 4 * 3;
}

/* The same for descriptors, apart from connections: dup() returns the lowest free one. */
static bool crowded(void)
{
	int fd = dup(worker.serve.state_fd);
	rlim_t used = fd < 0 ? worker.files : (rlim_t)fd;

	if (fd >= 0)
		close(fd);
	return used > worker.files / 4 * 3 + worker.serve.connections_nr;
}

static void count(void)
{
	bool all = ++worker.requests % LOOK_EVERY == 0;

	if (grown(all) || (all && crowded()) ||
	    (worker.o->requests && worker.requests >= worker.o->requests))
		tbg_serve_retire(&worker.serve);
}

static void on_full(struct tbg_serve *s)
{
	if (crowded())
		tbg_serve_retire(s);
}

static bool path_make(struct tbg_request *r)
{
	const char *name = tbg_gateway_request_param(r->v, "SCRIPT_NAME") ?: "";
	const char *info = tbg_gateway_request_param(r->v, "PATH_INFO") ?: "";
	size_t size = strlen(name) + strlen(info) + 1;

	r->path = tbg_request_alloc(r, size);
	if (r->path)
		snprintf(r->path, size, "%s%s", name, info);
	return r->path;
}

static void on_begin(struct tbg_gateway_request *v)
{
	struct tbg_request *r = calloc(1, sizeof(*r));

	if (!r) {
		tbg_gateway_request_fail(v, 503);
		return;
	}
	v->own = r;
	r->v = v;
	r->timer_fd = r->wait_fd = -1;
	if (!path_make(r)) {
		tbg_gateway_request_fail(v, 503);
		return;
	}
	CALL(r, request);
	requests_settle();
}

static void on_input(struct tbg_gateway_request *v)
{
	struct tbg_request *r = v->own;

	if (!r || r->ended || !r->wants_input)
		return;
	r->wants_input = false;
	CALL(r, readable);
	requests_settle();
}

static void on_output(struct tbg_gateway_request *v)
{
	struct tbg_request *r = v->own;

	if (!r || r->ended || !r->wants_room)
		return;
	r->wants_room = false;
	CALL(r, writable);
	requests_settle();
}

static void on_gone(struct tbg_gateway_request *v)
{
	struct tbg_request *r = v->own;
	struct tbg_chunk *c;

	if (!r)
		return;
	v->own = NULL;
	fd_forget(&r->timer_fd);
	fd_forget(&r->wait_fd);
	if (r->lookup)
		tbg_lookup_cancel(r->lookup);
	r->lookup = NULL;
	r->ended = true;
	CALL(r, end);
	unmark(r);
	while ((c = SLIST_FIRST(&r->chunks))) {
		SLIST_REMOVE_HEAD(&r->chunks, link);
		free(c);
	}
	tbg_lines_free(&r->fields);
	tbg_lines_free(&r->tags);
	tbg_lines_free(&r->early);
	free(r);
	count();
	requests_settle();		/* requests that end() has resumed */
}

/* --- its children -------------------------------------------------------- */

/* Signals blocked here are for the worker; ends of children are ignored. */
static void on_fork(void)
{
	sigset_t none;

	worker.current = NULL;
	atomic_store(&worker.entered_ns, NONE);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* --- the module ---------------------------------------------------------- */

static int refuse(const char *why)
{
	tbg_report("toboggan-gateway: %s: %s", worker.o->path, why);
	return -ENOEXEC;
}

static int load(void)
{
	char text[100];
	void *object;

	enter(NULL);			/* its constructors */
	object = dlopen(worker.o->path, RTLD_NOW | RTLD_LOCAL);
	leave();
	if (!object)
		return refuse(dlerror());
	worker.module = dlsym(object, "tbg_module");
	if (!worker.module)
		return refuse("no module: expected a symbol tbg_module, see toboggan-module(3)");
	if (worker.module->abi >> 16 != TBG_MODULE_ABI >> 16 ||
	    worker.module->abi > TBG_MODULE_ABI) {
		snprintf(text, sizeof(text), "made for ABI %#x, this is %#x; compile it again",
			 worker.module->abi, TBG_MODULE_ABI);
		return refuse(text);
	}
	return worker.module->request ? 0 : refuse("it has no request(), which answers");
}

static int module_open(void)
{
	char *argv[TBG_POOL_COMMAND_ARGS + 1], *at = (char *)worker.o->args;
	int argc = 0, err;

	while (at < worker.o->args + worker.o->args_len) {
		argv[argc++] = at;
		at += strlen(at) + 1;
	}
	argv[argc] = NULL;
	if (!worker.module->open)
		return 0;
	enter(NULL);
	err = worker.module->open(argc, argv, &worker.state);
	leave();
	if (err)
		refuse("its open() does not serve");
	return err ? -ENOEXEC : 0;
}

static void module_close(void)
{
	if (!worker.module->close)
		return;
	enter(NULL);
	worker.module->close(worker.state);
	leave();
}

static void memory_limit(uint64_t bytes)
{
	struct rlimit r = { bytes, bytes }, none = { 0, 0 };

	if (bytes)
		setrlimit(RLIMIT_AS, &r);
	setrlimit(RLIMIT_CORE, &none);
}

/*
 * A request does not preempt its sender: on the same CPU the daemon continues to send
 * the next one, and the worker runs once for many.
 */
static void wait_for_turn(void)
{
	struct sched_param none = { 0 };

	if (sched_getscheduler(0) == SCHED_OTHER)
		sched_setscheduler(0, SCHED_BATCH, &none);
}

int tbg_module_run(const struct tbg_pool_command *o, int listen_fd, int state_fd)
{
	static const struct tbg_answerer answerer = {
		.begin = on_begin, .input = on_input, .output = on_output,
		.gone = on_gone, .full = on_full,
	};
	struct rlimit files;
	struct tbg_loop *l;
	int err;

	getrlimit(RLIMIT_NOFILE, &files);
	worker.files = files.rlim_cur;
	worker.o = o;
	STAILQ_INIT(&worker.todo);
	worker.statm_fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	memory_limit(memory_max());
	wait_for_turn();
	err = tbg_loop_open(&l);
	if (err)
		return err;
	worker.serve = (struct tbg_serve){ .loop = l, .answerer = &answerer,
					   .listen_fd = listen_fd,
					   .state_fd = state_fd,
					   .daemon = o->daemon };
	worker.again_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (worker.again_fd < 0)
		return -errno;
	err = tbg_loop_add(l, worker.again_fd, EPOLLIN, on_again, NULL);
	err = err ?: -pthread_atfork(NULL, NULL, on_fork);
	err = err ?: watch_open();
	err = err ?: load();
	err = err ?: crash_open();
	err = err ?: module_open();
	err = err ?: tbg_serve_open(&worker.serve);
	err = err ?: tbg_loop_run(l);
	if (!err)
		module_close();
	worker.leaving = true;
	enter(NULL);			/* its destructors */
	return err;
}
