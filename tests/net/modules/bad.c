// SPDX-License-Identifier: GPL-2.0
/*
 * A module that does what the query says, and much of it is what a module must
 * not do. For t_module.py: crash, loop, leak, files, exit, sleep, wait, fetch.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "toboggan-module.h"

#ifndef ABI			/* future.so has another */
#define ABI TBG_MODULE_ABI
#endif
#ifndef MUTE			/* mute.so has no request() */
#define MUTE 0
#endif
#ifdef LOADED			/* loops.so and lasts.so never load, or unload */
__attribute__((LOADED)) static void loaded(void)
{
	for (;;)
		usleep(1000);
}
#endif

static struct tbg_request *parked, *queued, *turning, *crowd[1000];
static unsigned int crowd_nr, came_nr;
static const char *mode = "";	/* the last of the arguments */

static void answer(struct tbg_request *r, unsigned int status, const char *text)
{
	tbg_response_status(r, status);
	tbg_response_field(r, "Content-Type", "text/plain");
	tbg_response_send(r, text, strlen(text));
	tbg_response_end(r);
}

static void crash(struct tbg_request *r, const char *arg)
{
	if (!strcmp(arg, "abort"))
		abort();
	if (!strcmp(arg, "late")) {	/* once some has gone out */
		char *page = calloc(1, 1 << 20);

		tbg_response_send(r, page, 1 << 20);
		tbg_request_wait_ms(r, 50);
		tbg_request_set(r, "crash");
		free(page);
		return;
	}
	raise(SIGSEGV);
}

static void loop(struct tbg_request *r, const char *arg)
{
	for (volatile unsigned long n = 0;; n++)
		;
}

static void leak(struct tbg_request *r, const char *arg)
{
	size_t bytes = strtoul(arg, NULL, 10);
	char *p = malloc(bytes);

	if (!p) {
		answer(r, 500, "no memory\n");
		return;
	}
	memset(p, 1, bytes);
	answer(r, 200, "leaked\n");
}

static void misbehave(struct tbg_request *r, const char *how)
{
	if (!strcmp(how, "loop"))
		loop(r, how);
	if (!strcmp(how, "exit"))
		exit(78);
	if (!strcmp(how, "crash"))
		raise(SIGSEGV);
}

/* Descriptors: a so-manieth part of all that there may be. */
static void files(struct tbg_request *r, const char *arg)
{
	struct rlimit most;

	getrlimit(RLIMIT_NOFILE, &most);
	for (rlim_t i = most.rlim_cur / strtoul(arg, NULL, 10); i; i--)
		if (dup(STDERR_FILENO) < 0) {
			answer(r, 500, "no descriptor\n");
			return;
		}
	answer(r, 200, "leaked\n");
}

static void leave(struct tbg_request *r, const char *arg)
{
	exit(0);
}

/* Once more, and again; a worker has one that does, or some in a circle. */
static void turn(struct tbg_request *r, const char *arg)
{
	tbg_request_set(r, turn);
	tbg_request_resume(turning ?: r);
	turning = r;
}

/* Waits for a time, or to be woken with all others. */
static void crowded(struct tbg_request *r, const char *arg)
{
	tbg_request_set(r, crowded);
	crowd[crowd_nr++ % 1000] = r;
	came_nr++;
	tbg_request_wait_ms(r, strtoul(arg, NULL, 10));
}

/* Its time was over before it was woken, or its client has left. */
static void uncrowd(const struct tbg_request *r)
{
	for (unsigned int i = 0; i < crowd_nr; i++)
		if (crowd[i] == r)
			crowd[i] = crowd[--crowd_nr];
}

/* Whether this many have come; then all that wait are told to go on. */
static void wake(struct tbg_request *r, const char *arg)
{
	if (came_nr < strtoul(arg, NULL, 10)) {
		answer(r, 404, "not yet\n");
		return;
	}
	for (unsigned int i = 0; i < crowd_nr; i++)
		tbg_request_resume(crowd[i]);
	crowd_nr = came_nr = 0;
	answer(r, 200, "told\n");
}

/* Slowly; and nobody goes on behind an answer. */
static void woken(struct tbg_request *r)
{
	uncrowd(r);
	tbg_request_set(r, woken);
	answer(r, 200, "woken\n");
	usleep(2000);
}

/* Without last words. */
static void vanish(struct tbg_request *r, const char *arg)
{
	tbg_module_log(NULL, "vanishes by %s", arg);
	if (!strcmp(arg, "kill"))
		raise(SIGKILL);
	if (!strcmp(arg, "stop"))
		raise(SIGSTOP);
	_exit(0);
}

static void nap(struct tbg_request *r, const char *arg)
{
	usleep(strtoul(arg, NULL, 10) * 1000);
	answer(r, 200, "slept\n");
}

static void forks(struct tbg_request *r, const char *arg)
{
	char text[32];
	pid_t pid = fork();

	if (!pid)
		misbehave(r, arg);
	while (!pid)
		pause();
	if (*arg)
		waitpid(pid, NULL, 0);
	snprintf(text, sizeof(text), "%d\n", pid);
	answer(r, 200, text);
}

static void later(struct tbg_request *r, const char *arg)
{
	tbg_request_wait_ms(r, strtoul(arg, NULL, 10));
}

static void piped(struct tbg_request *r, const char *arg)
{
	int p[2];

	if (pipe(p) || write(p[1], "x", 1) != 1)
		abort();
	tbg_request_wait_fd(r, p[0], POLLIN);
	close(p[0]);
	close(p[1]);
}

static void park(struct tbg_request *r, const char *arg)
{
	parked = r;
}

/* One at a time has it; its end() resumes the next. */
static void lock(struct tbg_request *r, const char *arg)
{
	if (parked)
		queued = r;
	else
		parked = r;
}

/* Whether this many are here for it. */
static void locked(struct tbg_request *r, const char *arg)
{
	answer(r, *arg ? queued ? 200 : 404 : parked ? 200 : 404, "\n");
}

static void unpark(struct tbg_request *r, const char *arg)
{
	if (parked)
		tbg_request_resume(parked);
	answer(r, parked ? 200 : 404, "\n");
}

static void fetch(struct tbg_request *r, const char *arg)
{
	int err = tbg_request_fetch(r, arg, NULL, 0);
	char text[64];

	snprintf(text, sizeof(text), "error %d\n", err);
	if (err)
		answer(r, 500, text);
}

/* What it is asked for, once more. */
static void again(struct tbg_request *r, const char *arg)
{
	fetch(r, tbg_request_target(r));
}

static void cached(struct tbg_request *r, const char *arg)
{
	if (tbg_request_fetch(r, arg, NULL, TBG_FETCH_CACHED))
		answer(r, 500, "no fetch\n");
}

static void fresh(struct tbg_request *r, const char *arg)
{
	static unsigned int nr;
	char text[64];

	tbg_response_cache(r, strtoul(arg, NULL, 10));
	tbg_response_tag(r, "bad");
	snprintf(text, sizeof(text), "%d.%u\n", getpid(), nr++);
	answer(r, 200, text);
}

static void pid(struct tbg_request *r, const char *arg)
{
	char text[32];

	snprintf(text, sizeof(text), "%d\n", getpid());
	answer(r, 200, text);
}

static void says(struct tbg_request *r, const char *arg)
{
	tbg_module_log(r, "says %s", arg);
	answer(r, 200, "said\n");
}

/* Says something, and then does not return. */
static void said(struct tbg_request *r, const char *arg)
{
	tbg_module_log(r, "said before %s", arg);
	misbehave(r, arg);
}

/* An answer that is complete, and end() does not return. */
static void last(struct tbg_request *r, const char *arg)
{
	tbg_request_set(r, (void *)arg);
	answer(r, 200, "complete\n");
}

/* What the API must refuse. */
static void split(struct tbg_request *r, const char *arg)
{
	char text[100];

	snprintf(text, sizeof(text), "%d %d %d %d %d %d\n",
		 tbg_response_field(r, "X-A", "b\r\nX-Evil: 1"),
		 tbg_response_field(r, "X-A:", "b"),
		 tbg_response_field(r, "Content-Length", "7"),
		 tbg_response_status(r, 99),
		 tbg_response_tag(r, "a b"),
		 tbg_request_fetch(r, "/a b", NULL, 0));
	answer(r, 200, text);
}

static void move(struct tbg_request *r, const char *arg)
{
	tbg_response_field(r, "Location", arg);
	tbg_response_end(r);
}

static void big(struct tbg_request *r, const char *arg)
{
	static char b[10000];

	memset(b, 'x', sizeof(b));
	tbg_request_set(r, "big");
	for (;;)
		if (tbg_response_send(r, b, sizeof(b)) < (ssize_t)sizeof(b))
			return;
}

static const struct {
	const char *name;
	void (*fn)(struct tbg_request *r, const char *arg);
} deeds[] = {
	{ "crash", crash }, { "loop", loop }, { "leak", leak }, { "files", files },
	{ "exit", leave }, { "sleep", nap }, { "fork", forks },
	{ "later", later }, { "pipe", piped }, { "park", park },
	{ "unpark", unpark }, { "fetch", fetch }, { "cached", cached },
	{ "fresh", fresh }, { "pid", pid }, { "says", says },
	{ "split", split }, { "endless", big }, { "move", move },
	{ "again", again }, { "lock", lock }, { "locked", locked },
	{ "said", said }, { "last", last }, { "vanish", vanish },
	{ "turn", turn }, { "crowded", crowded }, { "wake", wake },
};

static void request(struct tbg_request *r, void *state)
{
	for (size_t i = 0; i < sizeof(deeds) / sizeof(*deeds); i++) {
		const char *arg = tbg_request_parameter(r, deeds[i].name);

		if (!arg)
			continue;
		deeds[i].fn(r, arg);
		return;
	}
	answer(r, 404, "nothing to do\n");
}

static void resume(struct tbg_request *r, void *state, enum tbg_resume why)
{
	static const char *const whys[] = { "ready\n", "time\n", "called\n" };

	if (tbg_request_get(r) == turn)
		turn(r, "");
	else if (tbg_request_get(r) == crowded)
		woken(r);
	else if (tbg_request_get(r))
		raise(SIGSEGV);
	else
		answer(r, 200, whys[why]);
}

static void fetched(struct tbg_request *r, void *state, const struct tbg_fetched *f)
{
	char text[64];

	if (f->error) {
		snprintf(text, sizeof(text), "error %d\n", f->error);
		answer(r, 502, text);
		return;
	}
	tbg_response_status(r, f->status);
	tbg_response_send(r, f->body, f->body_len);
	tbg_response_end(r);
}

static void writable(struct tbg_request *r, void *state)
{
	if (tbg_request_get(r))
		big(r, NULL);
}

static void end(struct tbg_request *r, void *state)
{
	const char *how = tbg_request_get(r);

	if (r == turning)
		turning = NULL;
	uncrowd(r);
	if (how == (char *)turn || how == (char *)crowded || how == (char *)woken)
		return;
	if (r == queued)
		queued = NULL;
	if (r == parked) {
		parked = queued;
		queued = NULL;
		if (parked)
			tbg_request_resume(parked);
	}
	if (how)
		misbehave(r, how);
}

static int start(int argc, char **argv, void **ret_state)
{
	mode = argc ? argv[argc - 1] : "";
	if (!strncmp(mode, "open ", 5))
		misbehave(NULL, mode + 5);
	return !strcmp(mode, "unfit");
}

static void stop(void *state)
{
	tbg_module_log(NULL, "closed");
	if (!strncmp(mode, "close ", 6))
		misbehave(NULL, mode + 6);
}

const struct tbg_module tbg_module = {
	.abi = ABI,
	.open = start,
	.close = stop,
	.request = MUTE ? NULL : request,
	.resume = resume,
	.fetched = fetched,
	.writable = writable,
	.end = end,
};
