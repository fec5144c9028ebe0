// SPDX-License-Identifier: GPL-2.0
/*
 * The listener and its clients: non-blocking sockets in one event loop, with bounded
 * buffers. A client has one request at a time and IDLE_S seconds to make progress;
 * beyond CLIENTS_MAX, the one that was idle for longest is closed. Questions that only
 * the control thread can answer go to the control socket, as from `toboggan`.
 */
#include "admin/admin.h"

#include <errno.h>
#include <stdatomic.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "admin/answer.h"
#include "http/request.h"
#include "os/clock.h"
#include "os/loop.h"
#include "os/message.h"
#include "os/privilege.h"
#include "os/socket_file.h"
#include "serve/server.h"

#define CLIENTS_MAX	64
#define BACKLOG		128
#define ASKS_MAX	8		/* concurrent questions to the control socket */
#define IN_MAX		16384
#define HEAD_MAX	8192
#define ASKED_MAX	(8 << 20)	/* limit of the control socket's answer */
#define IDLE_S		10
#define NICE		10

struct client {
	struct tbg_admin *admin;
	int fd;				/* -1: free slot */
	uint64_t moved_ns;
	bool close, eof;
	uint8_t in[IN_MAX];
	size_t in_len, used;		/* used: length of the current request */
	char *out;
	size_t out_len, out_off;
	int ask_fd;			/* connection to the control socket; -1: none */
	char *asked;
	size_t asked_len, asked_room;
};

struct tbg_admin {
	struct tbg_server *s;
	struct tbg_loop *loop;
	char text[128];			/* address or path */
	bool has_file;
	struct tbg_socket_file file;	/* with has_file; else fd listens on TCP */
	int fd, stop_fd;
	pthread_t thread;
	bool running;
	atomic_bool bare;		/* the thread has dropped its capabilities */
	bool full;			/* not accepting */
	char target[TBG_TARGET_MAX + 1];
	struct client clients[CLIENTS_MAX];
};

static void accept_event(void *arg, uint32_t events);
static void client_move(struct client *c);

/* --- clients ------------------------------------------------------------- */

static void ask_end(struct client *c)
{
	if (c->ask_fd < 0)
		return;
	tbg_loop_remove(c->admin->loop, c->ask_fd);
	close(c->ask_fd);
	c->ask_fd = -1;
	free(c->asked);
	c->asked = NULL;
	c->asked_len = c->asked_room = 0;
}

static void client_close(struct client *c)
{
	struct tbg_admin *a = c->admin;
	char rest[4096];

	ask_end(c);
	/* unread bytes would turn the close into a reset, which can discard the answer */
	for (int i = 0; i < 16 && recv(c->fd, rest, sizeof(rest), MSG_DONTWAIT) > 0; i++)
		;
	tbg_loop_remove(a->loop, c->fd);
	close(c->fd);
	free(c->out);
	c->out = NULL;
	c->fd = -1;
	if (a->full && !tbg_loop_add(a->loop, a->fd, EPOLLIN, accept_event, a))
		a->full = false;
}

static void out_set(struct client *c, char *text, size_t len)
{
	if (!text) {
		c->close = true;
		return;
	}
	c->out = text;
	c->out_len = len;
	c->out_off = 0;
}

static void error_set(struct client *c, unsigned int status, const char *line)
{
	size_t len = 0;
	char *text = tbg_admin_error(status, line, &len);

	c->close = true;
	out_set(c, text, len);
}

/* --- the control socket -------------------------------------------------- */

static void ask_done(struct client *c, bool good)
{
	size_t len = 0;
	char *text = tbg_admin_answered(good ? c->asked : NULL, c->asked_len, c->close, &len);

	ask_end(c);
	out_set(c, text, len);
	client_move(c);
}

static void ask_event(void *arg, uint32_t events)
{
	struct client *c = arg;
	ssize_t n;

	if (c->asked_len == c->asked_room) {
		size_t room = c->asked_room ? 2 * c->asked_room : 65536;
		char *more = room <= ASKED_MAX ? realloc(c->asked, room) : NULL;

		if (!more) {
			ask_done(c, false);
			return;
		}
		c->asked = more;
		c->asked_room = room;
	}
	n = recv(c->ask_fd, c->asked + c->asked_len, c->asked_room - c->asked_len,
		 MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	c->moved_ns = tbg_mono_ns();
	if (n > 0)
		c->asked_len += n;
	else
		ask_done(c, !n && c->asked_len);
}

static unsigned int asks_nr(const struct tbg_admin *a)
{
	unsigned int nr = 0;

	for (int i = 0; i < CLIENTS_MAX; i++)
		nr += a->clients[i].fd >= 0 && a->clients[i].ask_fd >= 0;
	return nr;
}

/* The line is short, so the socket's buffer accepts it completely. */
static bool ask_begin(struct client *c, const char *line)
{
	const char *path = c->admin->s->opt.control;
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	struct iovec iov[2] = { { (void *)line, strlen(line) }, { "\n", 1 } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
	int fd;

	if (asks_nr(c->admin) >= ASKS_MAX || strlen(path) >= sizeof(to.sun_path))
		return false;
	strcpy(to.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) ||
	    sendmsg(fd, &m, MSG_NOSIGNAL) != (ssize_t)(strlen(line) + 1) ||
	    shutdown(fd, SHUT_WR) ||
	    tbg_loop_add(c->admin->loop, fd, EPOLLIN, ask_event, c)) {
		close(fd);
		return false;
	}
	c->ask_fd = fd;
	return true;
}

/* --- requests ------------------------------------------------------------ */

static void request_answer(struct client *c, const struct tbg_message *m)
{
	struct tbg_admin *a = c->admin;
	struct tbg_admin_request r = {
		.head = (char *)c->in + m->head_off, .head_len = m->len - m->head_off,
		.get = m->method == TBG_METHOD_GET, .is_head = m->method == TBG_METHOD_HEAD,
		.post = m->method == TBG_METHOD_POST, .close = m->close, .path = a->target,
		.query = m->has_query ? (char *)c->in + m->query.off : NULL,
		.query_len = m->query.len,
		.body = (char *)c->in + m->len, .body_len = m->content_length,
	};
	struct tbg_admin_answer answer;

	c->close = m->close;
	c->used = m->len + m->content_length;
	if (!tbg_admin_answer(a->s, a->s->opt.admin_token, &r, &answer)) {
		c->close = true;
		return;
	}
	if (answer.text)
		out_set(c, answer.text, answer.len);
	else if (!ask_begin(c, answer.ask))
		error_set(c, 503, "the control socket is busy or away; try again\n");
	free(answer.ask);
	/* after an error response, the rest of the stream is not parsed */
	if (c->out && memmem(c->out, c->out_len < 512 ? c->out_len : 512, "Connection: close", 17))
		c->close = true;
}

/* Returns true if a request was answered or is being answered. */
static bool request_take(struct client *c)
{
	struct tbg_message m = { 0 };
	enum tbg_parsed p;

	if (!c->in_len)
		return false;
	p = tbg_message_parse(&m, c->in, c->in_len, HEAD_MAX, c->admin->target);
	if (p == TBG_PARSED_MORE)
		return false;
	c->used = c->in_len;
	if (p == TBG_PARSED_BAD)
		error_set(c, m.status, "not a request that is understood here\n");
	else if (m.chunked || m.content_length > IN_MAX - HEAD_MAX)
		error_set(c, 413, "the body is too long, or chunked\n");
	else if (c->in_len < m.len + m.content_length)
		return false;
	else
		request_answer(c, &m);
	return true;
}

/* Returns 0 if everything was sent or the socket is full. */
static int client_send(struct client *c)
{
	while (c->out) {
		ssize_t n = send(c->fd, c->out + c->out_off, c->out_len - c->out_off,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		c->moved_ns = tbg_mono_ns();
		c->out_off += n;
		if (c->out_off < c->out_len)
			continue;
		free(c->out);
		c->out = NULL;
		c->in_len -= c->used;
		memmove(c->in, c->in + c->used, c->in_len);
		c->used = 0;
	}
	return 0;
}

static int client_recv(struct client *c)
{
	ssize_t n;

	if (c->in_len == IN_MAX)
		return -EMSGSIZE;
	n = recv(c->fd, c->in + c->in_len, IN_MAX - c->in_len, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (!n) {
		c->eof = true;
		return 0;
	}
	c->in_len += n;
	c->moved_ns = tbg_mono_ns();
	return 0;
}

static void client_move(struct client *c)
{
	bool more = true;

	while (more) {
		if (client_send(c)) {
			client_close(c);
			return;
		}
		more = !c->out && c->ask_fd < 0 && !c->close && request_take(c);
	}
	if (!c->out && c->ask_fd < 0 && (c->close || c->eof)) {
		shutdown(c->fd, SHUT_WR);
		client_close(c);
		return;
	}
	tbg_loop_change(c->admin->loop, c->fd, c->out ? EPOLLOUT :
			c->ask_fd >= 0 ? 0 : EPOLLIN);
}

static void client_event(void *arg, uint32_t events)
{
	struct client *c = arg;

	if ((events & (EPOLLHUP | EPOLLERR) && !(events & EPOLLIN)) ||
	    (events & EPOLLIN && client_recv(c))) {
		client_close(c);
		return;
	}
	client_move(c);
}

static struct client *client_room(struct tbg_admin *a)
{
	struct client *oldest = NULL;

	for (int i = 0; i < CLIENTS_MAX; i++) {
		struct client *c = &a->clients[i];

		if (c->fd < 0)
			return c;
		if (!c->out && c->ask_fd < 0 && (!oldest || c->moved_ns < oldest->moved_ns))
			oldest = c;
	}
	if (oldest)
		client_close(oldest);
	return oldest;
}

/* If all slots are busy, new clients wait in the kernel's queue. */
static void accept_event(void *arg, uint32_t events)
{
	struct tbg_admin *a = arg;
	struct client *c = client_room(a);
	int fd, on = 1;

	if (!c) {
		tbg_loop_remove(a->loop, a->fd);
		a->full = true;
		return;
	}
	fd = accept4(a->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE)	/* do not spin */
			usleep(10000);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	c->fd = fd;
	c->close = c->eof = false;
	c->in_len = c->used = 0;
	c->moved_ns = tbg_mono_ns();
	if (tbg_loop_add(a->loop, fd, EPOLLIN, client_event, c)) {
		close(fd);
		c->fd = -1;
	}
}

static void clients_tick(void *arg, uint64_t now_ns)
{
	struct tbg_admin *a = arg;

	for (int i = 0; i < CLIENTS_MAX; i++) {
		struct client *c = &a->clients[i];

		if (c->fd >= 0 && (int64_t)(now_ns - c->moved_ns) > IDLE_S * 1000000000ll)
			client_close(c);
	}
}

/* --- life ---------------------------------------------------------------- */

static void stop_event(void *arg, uint32_t events)
{
	struct tbg_admin *a = arg;

	tbg_loop_stop(a->loop);
}

static void *admin_run(void *arg)
{
	struct tbg_admin *a = arg;

	tbg_privilege_none();
	atomic_store(&a->bare, true);
	/* on Linux, for this thread only */
	setpriority(PRIO_PROCESS, syscall(SYS_gettid), NICE);
	tbg_loop_run(a->loop);
	return NULL;
}

static int address_bind(struct tbg_admin *a, const struct sockaddr_storage *to)
{
	struct sockaddr_storage bound = *to;
	socklen_t len = to->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
						    sizeof(struct sockaddr_in);
	char *colon = strrchr(a->text, ':');
	int on = 1;

	a->fd = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (a->fd < 0)
		return -errno;
	setsockopt(a->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (to->ss_family == AF_INET6)
		setsockopt(a->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(a->fd, (const struct sockaddr *)to, len) || listen(a->fd, BACKLOG))
		return -errno;
	getsockname(a->fd, (struct sockaddr *)&bound, &len);
	/* both families have the port at the same offset */
	snprintf(colon, a->text + sizeof(a->text) - colon, ":%u",
		 ntohs(((struct sockaddr_in *)&bound)->sin_port));
	return 0;
}

static void failed(const struct tbg_admin *a, int err, char *ret_msg, size_t msg_len)
{
	snprintf(ret_msg, msg_len, "%s: %s; %s", a->s->opt.admin, strerror(-err),
		 err == -EMFILE || err == -ENFILE ? "raise the limit of open files (ulimit -n)" :
		 "choose another address, or off");
}

static int admin_bind(struct tbg_admin *a, const struct tbg_identity *id,
		      char *ret_msg, size_t msg_len)
{
	const struct tbg_options *o = &a->s->opt;
	int err;

	snprintf(a->text, sizeof(a->text), "%s", o->admin);
	if (o->admin_address.ss_family) {
		err = address_bind(a, &o->admin_address);
		if (err)
			failed(a, err, ret_msg, msg_len);
		return err;
	}
	err = tbg_socket_file_open(&a->file, a->text, id, ret_msg, msg_len);
	a->has_file = !err;
	if (!err)
		a->fd = a->file.fd;
	return err;
}

int tbg_admin_open(struct tbg_admin **ret, struct tbg_server *s,
		   const struct tbg_identity *id, char *ret_msg, size_t msg_len)
{
	struct tbg_admin *a;
	int err;

	*ret = NULL;
	if (!s->opt.admin)
		return 0;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->s = s;
	a->fd = -1;
	for (int i = 0; i < CLIENTS_MAX; i++)
		a->clients[i] = (struct client){ .admin = a, .fd = -1, .ask_fd = -1 };
	a->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = a->stop_fd < 0 ? -errno : tbg_loop_open(&a->loop);
	if (err) {
		failed(a, err, ret_msg, msg_len);
		goto no_loop;
	}
	err = admin_bind(a, id, ret_msg, msg_len);
	if (err)
		goto no_loop;
	err = tbg_loop_add(a->loop, a->stop_fd, EPOLLIN, stop_event, a);
	err = err ?: tbg_loop_every(a->loop, 1000, clients_tick, a);
	err = err ?: tbg_loop_add(a->loop, a->fd, EPOLLIN, accept_event, a);
	if (err)
		goto no_accept;
	*ret = a;
	return 0;

no_accept:
	failed(a, err, ret_msg, msg_len);
no_loop:
	tbg_admin_close(a);
	return err;
}

bool tbg_admin_socket(const struct tbg_admin *a, int *ret_folder, const char **ret_name,
		      struct stat *ret_st)
{
	if (!a || !a->has_file)
		return false;
	*ret_folder = a->file.folder_fd;
	*ret_name = a->file.name;
	*ret_st = a->file.st;
	return true;
}

int tbg_admin_start(struct tbg_admin *a)
{
	sigset_t all, old;
	int err;

	if (!a)
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&a->thread, NULL, admin_run, a);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err) {
		tbg_report("toboggand: admin: no thread: %s", strerror(err));
		return -err;
	}
	a->running = true;
	pthread_setname_np(a->thread, "tbg-admin");
	/* `ready` promises that only the main thread has capabilities */
	while (!atomic_load(&a->bare))
		usleep(100);
	return 0;
}

void tbg_admin_close(struct tbg_admin *a)
{
	uint64_t one = 1;

	if (!a)
		return;
	if (a->running && write(a->stop_fd, &one, sizeof(one)) > 0)
		pthread_join(a->thread, NULL);
	for (int i = 0; i < CLIENTS_MAX; i++)
		if (a->clients[i].fd >= 0)
			client_close(&a->clients[i]);
	if (a->has_file)
		tbg_socket_file_close(&a->file);
	else if (a->fd >= 0)
		close(a->fd);
	if (a->stop_fd >= 0)
		close(a->stop_fd);
	tbg_loop_close(a->loop);
	free(a);
}

const char *tbg_admin_text(const struct tbg_admin *a)
{
	return a ? a->text : NULL;
}
