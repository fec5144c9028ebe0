// SPDX-License-Identifier: GPL-2.0
/*
 * The control socket. Everything except streams (stream.h) happens in the control
 * thread, with non-blocking sockets and bounded buffers: a client may send one line of
 * at most IN_MAX bytes at a time, gets one answer at a time, and is closed after IDLE_S
 * seconds without progress.
 */
#include "control/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "abi/version.h"
#include "os/clock.h"
#include "control/commands.h"
#include "os/loop.h"
#include "serve/server.h"
#include "os/socket_file.h"
#include "control/stream.h"

#define CLIENTS_MAX	32
#define HEAVY_MAX	2		/* streams at once: each may hold a copy of all rows */
#define IN_MAX		8192
#define IDLE_S		TBG_STREAM_IDLE_S

struct client {
	struct tbg_control *control;	/* NULL: free slot */
	int fd;
	uint64_t moved_ns;	/* when the client last sent or read */
	bool closing;		/* close after the answer is sent */
	bool eof;		/* the client has shut down its side */
	bool draining;		/* our side is shut down, input is discarded */
	char in[IN_MAX];
	size_t in_len;
	char *out;
	size_t out_len, out_off;
	struct tbg_stream *stream;	/* a stream's thread owns the socket */
};

struct tbg_control {
	struct tbg_server *s;
	struct tbg_socket_file socket;
	int spare_fd;
	int done_fd;		/* eventfd: a stream has ended */
	struct client clients[CLIENTS_MAX];
};

/* --- clients ------------------------------------------------------------- */

static void client_event(void *arg, uint32_t events);

static void client_close(struct client *cl)
{
	tbg_loop_remove(cl->control->s->loop, cl->fd);
	close(cl->fd);
	free(cl->out);
	cl->out = NULL;
	cl->control = NULL;
}

static void client_answer(struct client *cl, json_t *answer)
{
	static const char no_memory[] =
		"{\"ok\":false,\"error\":\"out of memory\"}";
	char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;

	json_decref(answer);
	if (!text)
		text = strdup(no_memory);
	if (!text) {
		cl->closing = true;
		return;
	}
	cl->out_len = strlen(text) + 1;
	text[cl->out_len - 1] = '\n';	/* replaces the NUL */
	cl->out = text;
	cl->out_off = 0;
}

static unsigned int heavy_running(const struct tbg_control *c)
{
	unsigned int nr = 0;

	for (int i = 0; i < CLIENTS_MAX; i++)
		nr += c->clients[i].stream && atomic_load(&c->clients[i].stream->heavy) &&
		      !atomic_load(&c->clients[i].stream->done);
	return nr;
}

static bool is_text(const json_t *v)
{
	return json_is_string(v);
}

static bool is_bool(const json_t *v)
{
	return json_is_boolean(v);
}

static bool is_list(const json_t *v)
{
	return json_is_array(v);
}

static bool is_limit(const json_t *v)
{
	return json_is_integer(v) && json_integer_value(v) >= 0;
}

static const char a_text[] = "a text", a_bool[] = "true or false";

/* Fields of commands. The commands themselves ignore one of another type. */
static const struct {
	const char *name;
	bool (*takes)(const json_t *v);
	const char *wanted;
} fields[] = {
	{ "accept_encoding", is_text, a_text },
	{ "addresses", is_list, "a list of texts" },
	{ "all", is_bool, a_bool },
	{ "client", is_text, a_text },
	{ "for", is_text, "a text such as \"10m\"" },
	{ "host", is_text, a_text },
	{ "limit", is_limit, "a number, or 0 for all" },
	{ "path", is_text, a_text },
	{ "path_encoded", is_text, a_text },
	{ "prefix", is_text, a_text },
	{ "remove", is_bool, a_bool },
	{ "request", is_text, a_text },
	{ "tag", is_text, a_text },
	{ "url", is_text, a_text },
};

/* Refuses a field of the wrong type. NULL: all are right. */
static json_t *fields_refuse(const json_t *req)
{
	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		const json_t *v = json_object_get(req, fields[i].name);
		json_t *ret;
		char *text;

		if (!v || fields[i].takes(v))
			continue;
		text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
		ret = tbg_command_error("%s: %.100s: give %s", fields[i].name, text ?: "?",
					fields[i].wanted);
		free(text);
		return ret;
	}
	return NULL;
}

/* Returns the answer, or NULL if a stream answers. */
static json_t *client_ask(struct client *cl, const char *cmd, const json_t *req)
{
	struct tbg_control *c = cl->control;
	json_t *wrong = fields_refuse(req);

	if (wrong)
		return wrong;
	if (!tbg_stream_takes(cmd))
		return tbg_command(c->s, cmd, req);
	if (tbg_stream_is_heavy(cmd) && heavy_running(c) >= HEAVY_MAX)
		return tbg_command_error("%d listings or warmings are under way already; try again when they are done",
					 HEAVY_MAX);
	return tbg_stream_start(&cl->stream, c->s, cmd, req, cl->fd, c->done_fd);
}

/*
 * Refuses a tool of another version, if it names its version: commands or answers may
 * mean something else there.
 */
static json_t *version_refuse(const json_t *req)
{
	const json_t *version = json_object_get(req, "version");
	const char *text = json_string_value(version);

	if (!version || (text && !strcmp(text, TBG_VERSION)))
		return NULL;
	return tbg_command_error("this toboggan is version %.40s, the daemon is version %s; restart the daemon (systemctl restart toboggan), or use the toboggan of its version",
				 text ?: "(no text)", TBG_VERSION);
}

static void client_execute(struct client *cl, const char *line, size_t len)
{
	json_error_t error;
	json_t *req = json_loadb(line, len, JSON_REJECT_DUPLICATES, &error);
	const char *cmd = json_string_value(json_object_get(req, "cmd"));
	json_t *answer;

	if (!req)
		answer = tbg_command_error("not a line of JSON: %s at byte %d",
					   error.text, error.position);
	else if (!cmd)
		answer = tbg_command_error("cmd: missing; give {\"cmd\":\"status\"} or stats, objects, connections, why, purge, warm");
	else
		answer = version_refuse(req) ?: client_ask(cl, cmd, req);
	if (!cl->stream)
		client_answer(cl, answer);
	json_decref(req);
}

/* Takes one line out of the buffer and executes it. Returns false if none is complete. */
static bool client_step(struct client *cl)
{
	char *lf = memchr(cl->in, '\n', cl->in_len);
	size_t len;

	if (!lf && cl->in_len == sizeof(cl->in)) {
		client_answer(cl, tbg_command_error("line longer than %zu bytes",
						  sizeof(cl->in) - 1));
		cl->in_len = 0;
		cl->closing = true;
		return true;
	}
	if (!lf)
		return false;
	len = lf - cl->in;
	client_execute(cl, cl->in, len);
	cl->in_len -= len + 1;
	memmove(cl->in, lf + 1, cl->in_len);
	return true;
}

/* Returns 0 if everything was sent or the socket is full; else the client is gone. */
static int client_send(struct client *cl)
{
	ssize_t n;

	while (cl->out) {
		n = send(cl->fd, cl->out + cl->out_off,
			 cl->out_len - cl->out_off, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		cl->moved_ns = tbg_mono_ns();
		cl->out_off += n;
		if (cl->out_off == cl->out_len) {
			free(cl->out);
			cl->out = NULL;
		}
	}
	return 0;
}

/* Returns 1: data was received; 0: none, or no space; else the client is gone. */
static int client_recv(struct client *cl)
{
	size_t room = sizeof(cl->in) - cl->in_len;
	ssize_t n;

	if (!room || cl->closing)
		return 0;
	n = recv(cl->fd, cl->in + cl->in_len, room, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0) {		/* earlier commands are still answered */
		cl->closing = cl->eof = true;
		return 0;
	}
	cl->in_len += n;
	cl->moved_ns = tbg_mono_ns();
	return 1;
}

/*
 * Everything is answered. A close with unread input would become a reset, which can discard
 * the answer: the socket is closed when the client has ended its side. clients_tick() and
 * client_room() limit the time.
 */
static void client_finish(struct client *cl)
{
	if (cl->eof || shutdown(cl->fd, SHUT_WR)) {
		client_close(cl);
		return;
	}
	cl->draining = true;
	tbg_loop_change(cl->control->s->loop, cl->fd, EPOLLIN);
}

/* Discards at most a buffer per call, since the loop has other work. */
static void client_drain(struct client *cl)
{
	ssize_t n = recv(cl->fd, cl->in, sizeof(cl->in), MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		client_close(cl);
}

/*
 * Handles a client without waiting. At most STEPS_MAX commands per call, since the loop
 * has other work; the socket then remains ready.
 */
#define STEPS_MAX 8

static void client_move(struct client *cl)
{
	struct tbg_loop *loop = cl->control->s->loop;
	int steps = 0;

	do {
		if (client_send(cl) || (!cl->out && client_recv(cl) < 0)) {
			client_close(cl);
			return;
		}
	} while (!cl->out && ++steps <= STEPS_MAX && client_step(cl) &&
		 !cl->stream);
	if (cl->stream) {
		tbg_loop_remove(loop, cl->fd);
		return;
	}
	if (cl->closing && !cl->out && !memchr(cl->in, '\n', cl->in_len)) {
		client_finish(cl);
		return;
	}
	/* for remaining lines, a writable socket calls again */
	tbg_loop_change(loop, cl->fd,
			cl->out || steps > STEPS_MAX || cl->closing ?
			EPOLLOUT : EPOLLIN);
}

static void client_event(void *arg, uint32_t events)
{
	struct client *cl = arg;

	/* the client does not read answers any more */
	if (events & (EPOLLHUP | EPOLLERR) && !(events & EPOLLIN)) {
		client_close(cl);
		return;
	}
	if (cl->draining)
		client_drain(cl);
	else
		client_move(cl);
}

/* Streams have ended: the control thread takes their clients back. */
static void done_event(void *arg, uint32_t events)
{
	struct tbg_control *c = arg;
	uint64_t nr;

	if (read(c->done_fd, &nr, sizeof(nr)) < 0)
		return;
	for (int i = 0; i < CLIENTS_MAX; i++) {
		struct client *cl = &c->clients[i];
		struct tbg_stream *st = cl->stream;
		bool failed;

		if (!st || !atomic_load(&st->done))
			continue;
		failed = atomic_load(&st->failed);
		tbg_stream_end(st);
		cl->stream = NULL;
		cl->moved_ns = tbg_mono_ns();
		if (failed ||
		    tbg_loop_add(c->s->loop, cl->fd, EPOLLIN, client_event, cl))
			client_close(cl);
		else
			client_move(cl);
	}
}

static void clients_tick(void *arg, uint64_t now_ns)
{
	struct tbg_control *c = arg;

	for (int i = 0; i < CLIENTS_MAX; i++) {
		struct client *cl = &c->clients[i];

		if (cl->control && !cl->stream &&
		    (int64_t)(now_ns - cl->moved_ns) > IDLE_S * 1000000000LL)
			client_close(cl);
	}
}

/* Returns a free slot, or closes the client that was idle for longest. NULL: all are busy. */
static struct client *client_room(struct tbg_control *c)
{
	struct client *oldest = NULL;

	for (int i = 0; i < CLIENTS_MAX; i++) {
		struct client *cl = &c->clients[i];

		if (!cl->control)
			return cl;
		if (!cl->stream &&
		    (!oldest || cl->moved_ns < oldest->moved_ns))
			oldest = cl;
	}
	if (oldest)
		client_close(oldest);
	return oldest;
}

static void client_add(struct tbg_control *c, int fd)
{
	struct client *cl = client_room(c);

	if (!cl || tbg_loop_add(c->s->loop, fd, EPOLLIN, client_event, cl)) {
		close(fd);
		return;
	}
	cl->control = c;
	cl->fd = fd;
	cl->moved_ns = tbg_mono_ns();
	cl->closing = cl->eof = cl->draining = false;
	cl->in_len = 0;
	cl->out = NULL;
	cl->stream = NULL;
}

static void accept_event(void *arg, uint32_t events)
{
	struct tbg_control *c = arg;
	int fd = accept4(c->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0) {
		client_add(c, fd);
		return;
	}
	if (errno != EMFILE && errno != ENFILE)
		return;
	/* Out of descriptors: refuse with the spare one; otherwise the loop would spin. */
	close(c->spare_fd);
	fd = accept4(c->socket.fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		close(fd);
	c->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int tbg_control_open(struct tbg_control **ret, struct tbg_server *s,
		     const char *path, const struct tbg_identity *id,
		     char *ret_msg, size_t msg_len)
{
	struct tbg_control *c = calloc(1, sizeof(*c));
	int err;

	if (!c) {
		tbg_socket_file_explain(path, -ENOMEM, 0, ret_msg, msg_len);
		return -ENOMEM;
	}
	c->s = s;
	err = tbg_socket_file_open(&c->socket, path, id, ret_msg, msg_len);
	if (err)
		goto no_socket;
	c->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	c->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = c->done_fd < 0 ? -errno : 0;
	if (err)
		goto no_done;
	err = tbg_loop_add(s->loop, c->done_fd, EPOLLIN, done_event, c);
	if (err)
		goto no_loop;
	err = tbg_loop_every(s->loop, 1000, clients_tick, c);
	if (err)
		goto no_accept;
	err = tbg_loop_add(s->loop, c->socket.fd, EPOLLIN, accept_event, c);
	if (err)
		goto no_accept;
	*ret = c;
	return 0;

no_accept:
	tbg_loop_remove(s->loop, c->done_fd);
no_loop:
	close(c->done_fd);
no_done:
	close(c->spare_fd);
	tbg_socket_file_close(&c->socket);
	tbg_socket_file_explain(path, err, 0, ret_msg, msg_len);
no_socket:
	free(c);
	return err;
}

void tbg_control_socket(const struct tbg_control *c, int *ret_folder, const char **ret_name,
			struct stat *ret_st)
{
	*ret_folder = c->socket.folder_fd;
	*ret_name = c->socket.name;
	*ret_st = c->socket.st;
}

/* The loop no longer runs: the timer that still points here is never called. */
void tbg_control_close(struct tbg_control *c)
{
	if (!c)
		return;
	tbg_loop_remove(c->s->loop, c->socket.fd);
	tbg_loop_remove(c->s->loop, c->done_fd);
	for (int i = 0; i < CLIENTS_MAX; i++) {
		struct client *cl = &c->clients[i];

		if (!cl->control)
			continue;
		if (cl->stream) {
			shutdown(cl->fd, SHUT_RDWR);
			tbg_stream_end(cl->stream);
			close(cl->fd);
			continue;
		}
		client_close(cl);
	}
	tbg_socket_file_close(&c->socket);
	close(c->done_fd);
	close(c->spare_fd);
	free(c);
}
