// SPDX-License-Identifier: GPL-2.0
/*
 * Programs and the requests they answer. A program's head is held back until it
 * is complete and valid, so that anything else becomes a 502. The body is
 * streamed, no faster than the daemon reads it. A program outlives its request
 * by the time that its keeper needs to kill it, and counts as running until
 * then.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgi.h"
#include "os/clock.h"
#include "gateway/cgi_input.h"
#include "upstream/pool_command.h"
#include "gateway/reaper.h"
#include "os/loop.h"
#include "os/message.h"
#include "http/response.h"
#include "script.h"
#include "gateway/responder.h"
#include "http/token.h"

#define HEAD_MAX	(32 << 10)	/* bytes; the daemon accepts no more */
#define QUEUE_FACTOR	16		/* waiting requests for each running one */
#define TICK_MS		100
#define KEEPER_NS	5000000000ull	/* for the end of a program without a request */
#define LINGER_NS	200000000ull	/* for the end of one that has closed its output */
#define PIECE		(64 << 10)
#define ERR_READS	16		/* of 4 KiB in one turn */

struct program {
	struct tbg_gateway_request *v;		/* NULL: the request is over */
	TAILQ_ENTRY(program) link;	/* in the list of waiting or of running ones */
	char *path;			/* of the request */
	struct tbg_executable script;
	uint64_t deadline_ns, over_ns, gone_ns;
	uint64_t paused_ns;		/* since when its output is not read */
	pid_t keeper;
	int control, in, out, err;	/* -1: closed */
	bool running, paused, head_done, reported;
	bool bodiless;			/* the answer has no body; known with the head */
	struct tbg_lines head;
	uint8_t *rest;			/* of the request's body, while the pipe is full */
	size_t rest_off, rest_len;
	uint64_t output;
	struct tbg_reaper_report report;
};

TAILQ_HEAD(programs, program);

/* This process serves one pool. */
static struct {
	const struct tbg_pool_command *o;
	struct tbg_serve serve;
	int folder_fd, proc_fd;
	struct programs waiting, running;
	unsigned int waiting_nr, running_nr;
} pool = {
	.waiting = TAILQ_HEAD_INITIALIZER(pool.waiting),
	.running = TAILQ_HEAD_INITIALIZER(pool.running),
};

static void next_start(void);

/* --- the head ------------------------------------------------------------ */

long tbg_cgi_head(const char *head, size_t len)
{
	size_t at = 0;

	for (;;) {
		const char *line = head + at, *end = memchr(line, '\n', len - at);
		const char *colon;
		size_t n;

		if (!end)
			return len < HEAD_MAX ? 0 : -EMSGSIZE;
		n = end - line;
		at += n + 1;
		if (at > HEAD_MAX)
			return -EMSGSIZE;
		if (n && line[n - 1] == '\r')
			n--;
		if (!n)
			return at > 2 ? (long)at : -EBADMSG;
		colon = memchr(line, ':', n);
		if (!colon || !tbg_token_valid(line, colon - line) ||
		    !tbg_value_valid(colon + 1, line + n - colon - 1))
			return -EBADMSG;
	}
}

/* --- its path ------------------------------------------------------------ */

/* The whole path of the request, whether or not the daemon has split it. */
static char *path_of(const struct tbg_gateway_request *v)
{
	char *ret;

	return asprintf(&ret, "%s%s", tbg_gateway_request_param(v, "SCRIPT_NAME") ?: "",
			tbg_gateway_request_param(v, "PATH_INFO") ?: "") < 0 ? NULL : ret;
}

static const char *below_of(const char *path)
{
	size_t len = strlen(pool.o->prefix);

	if (strncmp(path, pool.o->prefix, len))
		len = 0;
	path += len;
	return path + (*path == '/');
}

/* --- the end ------------------------------------------------------------- */

static void stream_close(int *fd)
{
	if (*fd < 0)
		return;
	tbg_loop_remove(pool.serve.loop, *fd);
	close(*fd);
	*fd = -1;
}

static void out_close(struct program *p)
{
	stream_close(&p->out);
	p->paused = false;
}

static void program_free(struct program *p)
{
	stream_close(&p->control);
	stream_close(&p->in);
	out_close(p);
	stream_close(&p->err);
	tbg_lines_free(&p->head);
	free(p->rest);
	free(p->path);
	free(p);
}

/* The request is over: requests the keeper to end the program, and waits for its report. */
static void on_gone(struct tbg_gateway_request *v)
{
	struct program *p = v->own;

	if (!p)
		return;
	v->own = NULL;
	p->v = NULL;
	if (!p->running) {
		TAILQ_REMOVE(&pool.waiting, p, link);
		pool.waiting_nr--;
		program_free(p);
		return;
	}
	p->gone_ns = tbg_mono_ns();
	if (p->in >= 0)			/* stays open: half a body must not look complete */
		tbg_loop_remove(pool.serve.loop, p->in);
	out_close(p);
	stream_close(&p->err);
	shutdown(p->control, SHUT_WR);
	if (!p->reported)
		return;
	TAILQ_REMOVE(&pool.running, p, link);
	program_free(p);
}

/* Logs the reason in the daemon's log, and answers with the status. */
static void fail(struct program *p, unsigned int status, const char *why)
{
	char text[PATH_MAX + 100];
	int n = snprintf(text, sizeof(text), "%s: %s\n", p->script.path, why);

	if (p->head_done)		/* earlier output may never be read */
		tbg_report("toboggan-gateway: %s: %s; its answer is cut off", p->script.path, why);
	else
		tbg_gateway_request_complain(p->v, text,
				n < (int)sizeof(text) ? n : (int)sizeof(text) - 1);
	tbg_gateway_request_fail(p->v, status);
}

/*
 * Reads at most what a pipe holds, so that a program that floods takes no more than its
 * turn.
 */
static void err_read(struct program *p)
{
	char b[4096];
	ssize_t n;

	for (int i = 0; i < ERR_READS && p->err >= 0; i++) {
		n = read(p->err, b, sizeof(b));
		if (n < 0)
			return;
		if (!n)
			stream_close(&p->err);
		p->output += n;
		if (tbg_gateway_request_room(p->v))	/* drop it if there is no room */
			tbg_gateway_request_complain(p->v, b, n);
		if (pool.o->output && p->output > pool.o->output)
			return;
	}
}

/* The output has ended, and the program's exit status is known. */
static void finish(struct program *p)
{
	int status = p->report.status, sig = WTERMSIG(status);
	bool spent = pool.o->cpu_s && p->report.cpu_s >= pool.o->cpu_s;
	char why[100];

	err_read(p);
	if (!p->reported || p->report.killed || WIFEXITED(status)) {
		if (p->head_done)
			tbg_gateway_request_exit(p->v, p->report.killed ?: WEXITSTATUS(status));
		else
			fail(p, 502, "ended without a head");
		return;
	}
	snprintf(why, sizeof(why), "killed by signal %d (%s)", sig, strsignal(sig));
	/* it may have handled the first signal */
	fail(p, sig == SIGXCPU || (sig == SIGKILL && spent) ? 504 : 502, why);
}

/* --- output -------------------------------------------------------------- */

static void on_out(void *arg, uint32_t events);

/* A pipe without writers would wake the loop for nothing: removes it. */
static void out_pause(struct program *p, bool pause)
{
	if (p->out < 0 || p->paused == pause)
		return;
	if (pause)
		tbg_loop_remove(pool.serve.loop, p->out);
	else if (tbg_loop_add(pool.serve.loop, p->out, EPOLLIN, on_out, p))
		return;
	/* the time limit is for its work, not for its client's reading */
	if (pause)
		p->paused_ns = tbg_mono_ns();
	else
		p->deadline_ns += tbg_mono_ns() - p->paused_ns;
	p->paused = pause;
}

/* Whether the head is the whole answer, whatever the program does afterwards. */
static bool bodiless(const struct program *p, size_t len)
{
	const char *method = tbg_gateway_request_param(p->v, "REQUEST_METHOD") ?: "";
	struct tbg_fields fields = { 0 };
	struct tbg_response r = { 0 };
	enum tbg_parsed got = tbg_response_parse_cgi(&r, &fields, (uint8_t *)p->head.text, len);

	tbg_fields_free(&fields);
	if (got != TBG_PARSED_DONE)
		return false;		/* the daemon treats it as failed */
	return (r.has_length && !r.content_length) ||
	       tbg_response_bodiless(r.status, strcmp(method, "HEAD") ? TBG_METHOD_GET
								      : TBG_METHOD_HEAD);
}

/* False: the request is over. */
static bool head_add(struct program *p, const void *b, size_t len)
{
	long n;

	tbg_lines_put(&p->head, b, len);
	n = p->head.failed ? -ENOMEM : tbg_cgi_head(p->head.text, p->head.len);
	if (n < 0) {
		err_read(p);
		fail(p, 502, n == -EMSGSIZE ? "more than 32 KiB of head" :
					      "no head: expected \"Name: value\" lines and an empty one");
		return false;
	}
	if (!n)
		return true;
	p->head_done = true;
	p->bodiless = bodiless(p, n);
	tbg_gateway_request_send(p->v, p->head.text, p->head.len);
	tbg_lines_free(&p->head);
	p->head = (struct tbg_lines){ 0 };
	return true;
}

static bool too_much(struct program *p)
{
	if (!pool.o->output || p->output <= pool.o->output)
		return false;
	fail(p, 502, "more output than cgi-output allows");
	return true;
}

static void on_out(void *arg, uint32_t events)
{
	static uint8_t b[PIECE];
	struct program *p = arg;
	size_t room = tbg_gateway_request_room(p->v);
	ssize_t n;

	if (!room) {
		out_pause(p, true);
		return;
	}
	n = read(p->out, b, room < sizeof(b) ? room : sizeof(b));
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		out_close(p);
		p->over_ns = tbg_mono_ns();
		if (p->reported)
			finish(p);
		return;
	}
	p->output += n;
	if (too_much(p))
		return;
	if (p->head_done)
		tbg_gateway_request_send(p->v, b, n);
	else if (!head_add(p, b, n))
		return;
	tbg_gateway_request_flush(p->v);
}

static void on_err(void *arg, uint32_t events)
{
	struct program *p = arg;

	err_read(p);
	if (!too_much(p))
		tbg_gateway_request_flush(p->v);
}

static void on_output(struct tbg_gateway_request *v)
{
	if (v->own)
		out_pause(v->own, false);
}

/* The program and all its descendants are dead. */
static void on_control(void *arg, uint32_t events)
{
	struct program *p = arg;

	if (recv(p->control, &p->report, sizeof(p->report), 0) != sizeof(p->report))
		p->report = (struct tbg_reaper_report){ .killed = true };
	stream_close(&p->control);
	p->reported = true;
	pool.running_nr--;
	if (!p->v) {
		TAILQ_REMOVE(&pool.running, p, link);
		program_free(p);
	} else if (p->out < 0) {
		finish(p);
	}
	next_start();
}

/* --- input --------------------------------------------------------------- */

/* Loads the bytes of the body that are to be written next; 0: none now. */
static size_t rest_fill(struct program *p)
{
	if (p->rest_off < p->rest_len)
		return p->rest_len - p->rest_off;
	p->rest = p->rest ?: malloc(PIECE);
	p->rest_off = 0;
	p->rest_len = p->rest ? tbg_gateway_request_read(p->v, p->rest, PIECE) : 0;
	return p->rest_len;
}

static void push(struct program *p)
{
	size_t len;

	while ((len = rest_fill(p))) {
		ssize_t n = p->in < 0 ? (ssize_t)len :
			    write(p->in, p->rest + p->rest_off, len);

		if (n < 0 && errno == EAGAIN) {
			tbg_loop_change(pool.serve.loop, p->in, EPOLLOUT);
			return;
		}
		if (n < 0)		/* the program does not read it */
			stream_close(&p->in);
		else
			p->rest_off += n;
	}
	if (p->v->input_over)
		stream_close(&p->in);
	else if (p->in >= 0)
		tbg_loop_change(pool.serve.loop, p->in, 0);
}

static void on_in(void *arg, uint32_t events)
{
	struct program *p = arg;

	if (events & EPOLLERR)
		stream_close(&p->in);
	push(p);
}

static void on_input(struct tbg_gateway_request *v)
{
	struct program *p = v->own;

	if (p && p->running)
		push(p);
}

/* --- the begin ----------------------------------------------------------- */

static int streams_watch(struct program *p)
{
	struct tbg_loop *l = pool.serve.loop;
	int err = tbg_loop_add(l, p->control, EPOLLIN, on_control, p);

	err = err ?: tbg_loop_add(l, p->in, 0, on_in, p);
	err = err ?: tbg_loop_add(l, p->out, EPOLLIN, on_out, p);
	return err ?: tbg_loop_add(l, p->err, EPOLLIN, on_err, p);
}

static int program_start(struct program *p)
{
	struct tbg_cgi_variables e;
	bool made = tbg_cgi_variables_make(&e, p->v, &p->script, p->path,
					   below_of(p->path) + p->script.name_len);
	char *query = tbg_cgi_query(p->v);
	char **argv = query ? tbg_cgi_arguments(p->script.path, query) : NULL;
	struct tbg_program run = {
		.path = p->script.path, .folder = p->script.folder,
		.argv = argv, .envp = e.list,
		.proc_fd = pool.proc_fd, .memory = pool.o->memory,
		.cpu_s = pool.o->cpu_s, .processes = pool.o->processes,
	};
	int err = made && argv ? tbg_reaper_start(&run) : -ENOMEM;

	free(argv);
	free(query);
	tbg_cgi_variables_free(&e);
	if (err)
		return err;
	p->keeper = run.keeper;
	p->control = run.control;
	p->in = run.in;
	p->out = run.out;
	p->err = run.err;
	return streams_watch(p);
}

static void start(struct program *p)
{
	int err;

	p->running = true;
	TAILQ_INSERT_HEAD(&pool.running, p, link);
	pool.running_nr++;
	p->deadline_ns = tbg_mono_ns() + pool.o->time_ms * 1000000ull;
	err = program_start(p);
	if (!err) {
		push(p);
		return;
	}
	if (p->control < 0) {		/* there will be no report of the keeper */
		p->reported = true;
		pool.running_nr--;
	}
	fail(p, 503, strerror(-err));
}

static void next_start(void)
{
	struct program *p;

	while ((p = TAILQ_FIRST(&pool.waiting)) && pool.running_nr < pool.o->at_once) {
		TAILQ_REMOVE(&pool.waiting, p, link);
		pool.waiting_nr--;
		start(p);
	}
}

static struct program *program_new(struct tbg_gateway_request *v)
{
	struct program *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->v = v;
	p->control = p->in = p->out = p->err = -1;
	p->deadline_ns = tbg_mono_ns() + pool.o->time_ms * 1000000ull;
	p->path = path_of(v);
	if (p->path)
		return p;
	program_free(p);
	return NULL;
}

static void on_begin(struct tbg_gateway_request *v)
{
	bool full = pool.waiting_nr >= pool.o->at_once * QUEUE_FACTOR;
	struct program *p = full ? NULL : program_new(v);
	int err;

	if (!p) {
		tbg_gateway_request_fail(v, 503);
		return;
	}
	err = tbg_script_find(pool.folder_fd, pool.o->path, below_of(p->path), &p->script);
	if (err) {
		program_free(p);
		tbg_gateway_request_fail(v, err == -ENOENT ? 404 : 403);
		return;
	}
	v->own = p;
	TAILQ_INSERT_TAIL(&pool.waiting, p, link);
	pool.waiting_nr++;
	next_start();
}

/* --- time ---------------------------------------------------------------- */

static void late(struct programs *list, uint64_t now_ns)
{
	struct program *next;

	for (struct program *p = TAILQ_FIRST(list); p; p = next) {
		next = TAILQ_NEXT(p, link);
		if (!p->v) {		/* the program may have stopped its keeper */
			if (now_ns > p->gone_ns + KEEPER_NS)
				kill(p->keeper, SIGKILL);
			continue;
		}
		if (p->out < 0 && p->running && !p->bodiless &&
		    now_ns > p->over_ns + LINGER_NS)
			finish(p);
		else if (!p->paused && now_ns > p->deadline_ns)
			fail(p, p->running ? 504 : 503,
			     p->running ? "ran longer than cgi-time allows" :
					  "waited longer than cgi-time allows");
	}
}

static void on_tick(void *arg, uint64_t now_ns)
{
	late(&pool.running, now_ns);
	late(&pool.waiting, now_ns);
}

int tbg_cgi_run(const struct tbg_pool_command *o, int listen_fd, int state_fd, int proc_fd)
{
	static const struct tbg_answerer answerer = {
		.begin = on_begin, .input = on_input, .output = on_output,
		.gone = on_gone,
	};
	struct tbg_loop *l;
	int err;

	pool.o = o;
	pool.proc_fd = proc_fd;
	pool.folder_fd = open(o->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (pool.folder_fd < 0)
		return -errno;
	signal(SIGCHLD, SIG_IGN);	/* keepers report by their sockets */
	err = tbg_loop_open(&l);
	if (err)
		return err;
	pool.serve = (struct tbg_serve){ .loop = l, .answerer = &answerer,
					 .listen_fd = listen_fd,
					 .state_fd = state_fd,
					 .daemon = o->daemon };
	err = tbg_loop_every(l, TICK_MS, on_tick, NULL);
	err = err ?: tbg_serve_open(&pool.serve);
	return err ?: tbg_loop_run(l);
}
