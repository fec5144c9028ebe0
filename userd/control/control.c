// SPDX-License-Identifier: GPL-2.0
/*
 * The control socket. Everything but streams (stream.h) happens in the control
 * thread, on non-blocking sockets and bounded buffers: a client has one line of
 * at most IN_MAX bytes and one answer at a time, and IDLE_S seconds to move.
 */
#include "control/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "os/clock.h"
#include "control/commands.h"
#include "os/loop.h"
#include "os/message.h"
#include "os/privilege.h"
#include "os/trusted_path.h"
#include "main/server.h"
#include "control/stream.h"

#define CLIENTS_MAX	32
#define BACKLOG		128
#define STREAMS_MAX	2		/* at once: each may hold a copy of all rows */
#define IN_MAX		8192
#define IDLE_S		TBG_STREAM_IDLE_S
#define PATH_LEN	sizeof(((struct sockaddr_un *)0)->sun_path)
#define LOCK_MS		2000		/* for another start to be done with the folder */

struct client {
	struct tbg_control *control;	/* NULL: free slot */
	int fd;
	uint64_t moved_ns;	/* when the client last read or wrote */
	bool closing;		/* once the answer is out */
	char in[IN_MAX];
	size_t in_len;
	char *out;
	size_t out_len, out_off;
	struct tbg_stream *stream;	/* its thread has the socket */
};

struct tbg_control {
	struct tbg_server *s;
	const char *name;	/* of the socket, */
	int folder_fd;		/* in there */
	bool as_user;		/* a link leads there that root does not follow */
	int fd, spare_fd;
	int done_fd;		/* eventfd: a stream is done */
	struct stat st;		/* of the socket, to unlink no other */
	struct client clients[CLIENTS_MAX];
};

/* --- clients ------------------------------------------------------------- */

static void client_event(void *arg, uint32_t events);

/* Unread bytes would turn the close into a reset that overtakes our answer. */
static void client_drain(struct client *cl)
{
	for (int i = 0; i < 64; i++)
		if (recv(cl->fd, cl->in, sizeof(cl->in), MSG_DONTWAIT) <= 0)
			break;
}

static void client_close(struct client *cl)
{
	client_drain(cl);
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
	text[cl->out_len - 1] = '\n';	/* where the NUL was */
	cl->out = text;
	cl->out_off = 0;
}

static unsigned int streams_running(const struct tbg_control *c)
{
	unsigned int nr = 0;

	for (int i = 0; i < CLIENTS_MAX; i++)
		nr += c->clients[i].stream && !atomic_load(&c->clients[i].stream->done);
	return nr;
}

/* NULL: a stream answers. */
static json_t *client_ask(struct client *cl, const char *cmd, const json_t *req)
{
	const json_t *limit = json_object_get(req, "limit");
	struct tbg_control *c = cl->control;

	if (limit && (!json_is_integer(limit) || json_integer_value(limit) < 0)) {
		char *text = json_dumps(limit, JSON_COMPACT | JSON_ENCODE_ANY);
		json_t *ret = tbg_command_error("limit: %.100s: give a number of objects, or 0 for all",
						text ?: "?");

		free(text);
		return ret;
	}
	if (!tbg_stream_takes(cmd))
		return tbg_command(c->s, cmd, req);
	if (streams_running(c) >= STREAMS_MAX)
		return tbg_command_error("%s: %d listings or warmings are under way already; try again when they are done",
					 cmd, STREAMS_MAX);
	return tbg_stream_start(&cl->stream, c->s, cmd, req, cl->fd, c->done_fd);
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
		answer = tbg_command_error("cmd: missing; give {\"cmd\":\"status\"} or stats, objects, why, purge, warm");
	else
		answer = client_ask(cl, cmd, req);
	if (!cl->stream)
		client_answer(cl, answer);
	json_decref(req);
}

/* Takes one line out of the buffer and executes it; false: none is whole. */
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

/* 0: all out or would block; else the client is gone. */
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

/* 1: something came; 0: would block or no room; else the client is gone. */
static int client_recv(struct client *cl)
{
	size_t room = sizeof(cl->in) - cl->in_len;
	ssize_t n;

	if (!room || cl->closing)
		return 0;
	n = recv(cl->fd, cl->in + cl->in_len, room, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0) {		/* what it has asked before is still answered */
		cl->closing = true;
		return 0;
	}
	cl->in_len += n;
	cl->moved_ns = tbg_mono_ns();
	return 1;
}

/*
 * Moves the client as far as it goes without waiting. At most STEPS_MAX
 * commands per call, the loop has others; it stays readable meanwhile.
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
		client_close(cl);
		return;
	}
	/* a writable socket calls again for the lines that are left */
	tbg_loop_change(loop, cl->fd,
			cl->out || steps > STEPS_MAX || cl->closing ?
			EPOLLOUT : EPOLLIN);
}

static void client_event(void *arg, uint32_t events)
{
	struct client *cl = arg;

	/* nobody is left to read what we might still say */
	if (events & (EPOLLHUP | EPOLLERR) && !(events & EPOLLIN)) {
		client_close(cl);
		return;
	}
	client_move(cl);
}

/* Streams that are done: their clients are ours again. */
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

/* A free slot, or that of who has not moved for longest; NULL: all are busy. */
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
	cl->closing = false;
	cl->in_len = 0;
	cl->out = NULL;
	cl->stream = NULL;
}

static void accept_event(void *arg, uint32_t events)
{
	struct tbg_control *c = arg;
	int fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0) {
		client_add(c, fd);
		return;
	}
	if (errno != EMFILE && errno != ENFILE)
		return;
	/* Out of descriptors: refuse with the spare one, or we would spin. */
	close(c->spare_fd);
	fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		close(fd);
	c->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* --- the socket ---------------------------------------------------------- */

/*
 * Two daemons that start at once must not unlink each other's socket: each holds
 * the folder for a moment. Whoever may read it can lock it for ever, which is
 * not to keep us from starting.
 */
static void folder_wait(int fd, const char *dir)
{
	for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK; i++) {
		if (i == LOCK_MS / 10) {
			tbg_warn("toboggand: --control: somebody keeps %s locked; starting without the lock",
				dir);
			return;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
}

/* Of a path of a socket, or of its folder. */
static void folder_name(const char *path, char ret[PATH_LEN])
{
	char *slash;

	snprintf(ret, PATH_LEN, "%s", path);
	slash = strrchr(ret, '/');
	if (!slash)
		strcpy(ret, ".");
	else if (slash == ret)
		strcpy(ret, "/");
	else
		*slash = 0;
}

/*
 * Makes the folder, as its user where that may, or else as root, whose parent it is
 * then: the new folder is given away by its descriptor.
 */
static int folder_make(const char *dir, const struct tbg_identity *id)
{
	const char *name;
	int above, fd, err;

	if (!id->change)
		return mkdir(dir, 0755) ? -errno : 0;
	tbg_privilege_files_of(id);
	err = mkdir(dir, 0755) ? -errno : 0;
	tbg_privilege_files_own();
	if (err != -EACCES)
		return err;
	above = tbg_trusted_parent(dir, &name);
	if (above < 0)
		return above;
	fd = -EACCES;
	if (tbg_trusted_is(above) && !mkdirat(above, name, 0755))
		fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	err = fd < 0 ? fd == -EACCES ? fd : -errno : 0;
	if (!err && fchown(fd, id->uid, id->gid))
		err = -errno;
	if (fd >= 0)
		close(fd);
	close(above);
	return err;
}

/*
 * The folder, as a descriptor. Where only a link of somebody else leads there, it is
 * the user's to follow, and what is done in it is done as the user alone.
 */
static int folder_find(struct tbg_control *c, const char *dir, const struct tbg_identity *id)
{
	int path_fd, fd;

	if (!id->change) {
		fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	}
	path_fd = tbg_trusted_folder(dir);
	c->as_user = path_fd == -ELOOP;
	if (path_fd < 0 && !c->as_user)
		return path_fd;
	if (c->as_user)
		tbg_privilege_files_of(id);
	fd = openat(c->as_user ? AT_FDCWD : path_fd, c->as_user ? dir : ".",
		    O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd = fd < 0 ? -errno : fd;
	if (c->as_user)
		tbg_privilege_files_own();
	else
		close(path_fd);
	return fd;
}

/* The folder of path, made if it is missing, and held locked. */
static int folder_open(struct tbg_control *c, const char *path, const struct tbg_identity *id)
{
	char dir[PATH_LEN];
	int fd, err;

	folder_name(path, dir);
	fd = folder_find(c, dir, id);
	if (fd == -ENOENT) {
		err = folder_make(dir, id);
		if (err && err != -EEXIST)
			return err;
		fd = folder_find(c, dir, id);
	}
	if (fd >= 0)
		folder_wait(fd, dir);
	return fd;
}

/* In the folder by its name alone, whatever becomes of the folder's own. */
static int in_folder(const struct tbg_control *c, int fd,
		     int (*call)(int fd, const struct sockaddr *addr, socklen_t len))
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int back = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC), err;

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", c->name);
	err = back < 0 || fchdir(c->folder_fd) ? -errno : 0;
	if (!err && call(fd, (const struct sockaddr *)&addr, sizeof(addr)))
		err = -errno;
	if (back >= 0 && fchdir(back))
		err = err ?: -errno;
	if (back >= 0)
		close(back);
	return err;
}

/* -EADDRINUSE: somebody answers there; *ret_pid is who, or 0. */
static int dead_remove(const struct tbg_control *c, pid_t *ret_pid)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct ucred peer = { 0 };
	socklen_t len = sizeof(peer);
	struct stat st;
	int err;

	if (fd < 0)
		return -errno;
	err = in_folder(c, fd, connect);
	if (!err)
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len);
	close(fd);
	*ret_pid = peer.pid;
	if (!err || err == -EAGAIN)
		return -EADDRINUSE;
	if (err == -ENOENT)
		return 0;
	if (err != -ECONNREFUSED)
		return err;
	if (fstatat(c->folder_fd, c->name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISSOCK(st.st_mode))
		return -EEXIST;
	return unlinkat(c->folder_fd, c->name, 0) ? -errno : 0;
}

/*
 * The socket that root has bound is given to the user, by its descriptor: in a folder
 * that others may write to, what has that name by now may be a file of root's.
 */
static int socket_give(struct tbg_control *c, const struct tbg_identity *id)
{
	int fd = openat(c->folder_fd, c->name, O_PATH | O_NOFOLLOW | O_CLOEXEC), err = 0;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &c->st))
		err = -errno;
	else if (!S_ISSOCK(c->st.st_mode) || c->st.st_uid != geteuid() || c->st.st_nlink != 1)
		err = -EEXIST;
	else if (fchownat(fd, "", id->uid, id->gid, AT_EMPTY_PATH))
		err = -errno;
	close(fd);
	return err;
}

/* As the user, who owns it then; else as root, and given away. */
static int socket_bind(struct tbg_control *c, const struct tbg_identity *id)
{
	mode_t old = umask(0177);
	int err;

	if (id->change)
		tbg_privilege_files_of(id);
	err = in_folder(c, c->fd, bind);
	if (id->change)
		tbg_privilege_files_own();
	if (err == -EACCES && id->change && !c->as_user) {
		err = in_folder(c, c->fd, bind);
		err = err ?: socket_give(c, id);
	}
	umask(old);
	if (!err && fstatat(c->folder_fd, c->name, &c->st, AT_SYMLINK_NOFOLLOW))
		err = -errno;
	if (err)
		return err;
	return listen(c->fd, BACKLOG) ? -errno : 0;
}

static int socket_open(struct tbg_control *c, const char *path, const struct tbg_identity *id,
		       pid_t *ret_pid)
{
	const char *slash = strrchr(path, '/');
	int err;

	if (!*path || strlen(path) >= PATH_LEN)
		return -ENAMETOOLONG;
	c->name = slash ? slash + 1 : path;
	c->folder_fd = folder_open(c, path, id);
	if (c->folder_fd < 0)
		return c->folder_fd;
	err = dead_remove(c, ret_pid);
	if (err)
		goto no_socket;
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	err = c->fd < 0 ? -errno : socket_bind(c, id);
	if (!err) {
		flock(c->folder_fd, LOCK_UN);
		return 0;
	}
	if (c->fd >= 0)
		close(c->fd);
no_socket:
	close(c->folder_fd);
	return err;
}

static void open_explain(const char *path, int err, pid_t pid, char *ret_msg,
			 size_t msg_len)
{
	if (err == -EADDRINUSE)
		snprintf(ret_msg, msg_len, "%s: a daemon (pid %d) answers there; stop it, or choose another path",
			 path, (int)pid);
	else if (err == -ENAMETOOLONG)
		snprintf(ret_msg, msg_len, "%s: a socket's path has 1 to %zu bytes; choose another one",
			 path, PATH_LEN - 1);
	else if (err == -EEXIST || err == -ENOTSOCK)
		snprintf(ret_msg, msg_len, "%s: exists and is not a socket; remove it, or choose another path",
			 path);
	else if (err == -EMFILE || err == -ENFILE)
		snprintf(ret_msg, msg_len, "%s: %s; raise the limit of open files (ulimit -n)",
			 path, strerror(-err));
	else
		snprintf(ret_msg, msg_len, "%s: %s; choose a path in a folder that can be written",
			 path, strerror(-err));
}

static int folder_check(const char *dir)
{
	int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC), err;

	if (fd < 0)
		return -errno;
	err = faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) ? -errno : 0;
	close(fd);
	return err;
}

int tbg_control_check(const char *path)
{
	char dir[PATH_LEN], above[PATH_LEN];
	struct stat st;
	int err;

	if (!lstat(path, &st) && !S_ISSOCK(st.st_mode))
		return -EEXIST;
	folder_name(path, dir);
	err = folder_check(dir);
	if (err != -ENOENT)
		return err;
	folder_name(dir, above);
	return folder_check(above);
}

int tbg_control_open(struct tbg_control **ret, struct tbg_server *s,
		     const char *path, const struct tbg_identity *id,
		     char *ret_msg, size_t msg_len)
{
	struct tbg_control *c = calloc(1, sizeof(*c));
	pid_t pid = 0;
	int err = -ENOMEM;

	if (!c)
		goto no_control;
	c->s = s;
	err = socket_open(c, path, id, &pid);
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
	err = tbg_loop_add(s->loop, c->fd, EPOLLIN, accept_event, c);
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
	close(c->fd);
	unlinkat(c->folder_fd, c->name, 0);
	close(c->folder_fd);
no_socket:
	free(c);
no_control:
	open_explain(path, err, pid, ret_msg, msg_len);
	return err;
}

void tbg_control_socket(const struct tbg_control *c, int *ret_folder, const char **ret_name,
			struct stat *ret_st)
{
	*ret_folder = c->folder_fd;
	*ret_name = c->name;
	*ret_st = c->st;
}

/* If that is ours to do: else main/privileged.c does it. */
static void socket_unlink(const struct tbg_control *c)
{
	struct stat st;

	if (!fstatat(c->folder_fd, c->name, &st, AT_SYMLINK_NOFOLLOW) &&
	    st.st_dev == c->st.st_dev && st.st_ino == c->st.st_ino)
		unlinkat(c->folder_fd, c->name, 0);
}

/* The loop no longer runs: the timer that still points here is never called. */
void tbg_control_close(struct tbg_control *c)
{
	if (!c)
		return;
	tbg_loop_remove(c->s->loop, c->fd);
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
	close(c->fd);
	socket_unlink(c);
	close(c->folder_fd);
	close(c->done_fd);
	close(c->spare_fd);
	free(c);
}
