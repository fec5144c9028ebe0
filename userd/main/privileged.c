// SPDX-License-Identifier: GPL-2.0
/*
 * Requests and answers are messages over a socket pair; when the daemon ends, so
 * does the process. os/trusted_path.c decides which paths root may follow. A
 * reopened log stays in its folder, or moves to one whose path has no symbolic
 * link.
 */
#include "main/privileged.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config/options.h"
#include "config/settings.h"
#include "os/root.h"
#include "log/access.h"
#include "os/filter.h"
#include "os/pass.h"
#include "os/privilege.h"
#include "os/trusted_path.h"
#include "tiers/pins.h"

#define WAIT_S	 2		/* for its answer */
#define LOG_MODE 0640
#define PATH_LEN 4096
#define SOCKETS_MAX 2		/* the control socket and the admin socket */

enum what { OPEN_LOG, KNOW_SOCKET, STARTED, UNLINK_SOCKET };

struct request {
	enum what what;
	struct stat st;		/* KNOW_SOCKET */
	char path[PATH_LEN];	/* OPEN_LOG; KNOW_SOCKET: the name in its folder */
};

struct answer {
	int err, before;
};

static int ours = -1;		/* the daemon's end */
static pid_t pid;

/* In the process */

static struct {
	char **argv;
	struct known_log {
		char *path;
		int folder;	/* folder in which it is open, or -1: not opened yet */
	} logs[TBG_LOGS_MAX];
	unsigned int logs_nr;
	bool started;
	struct known_socket {
		int folder;
		char name[256];
		struct stat st;
	} sockets[SOCKETS_MAX];
	unsigned int sockets_nr;
} self;

static struct known_log *log_known(const char *path)
{
	for (unsigned int i = 0; i < self.logs_nr; i++)
		if (!strcmp(self.logs[i].path, path))
			return &self.logs[i];
	return NULL;
}

/* Forgets logs that o no longer names. */
static void logs_forget(const struct tbg_options *o)
{
	for (unsigned int i = 0; i < self.logs_nr; ) {
		struct known_log *l = &self.logs[i];

		if (tbg_options_log(o, l->path)) {
			i++;
			continue;
		}
		if (l->folder >= 0)
			close(l->folder);
		free(l->path);
		*l = self.logs[--self.logs_nr];
	}
}

static struct known_log *log_note(const struct tbg_options *o, const char *path)
{
	struct known_log *l = &self.logs[self.logs_nr];

	if (self.logs_nr == TBG_LOGS_MAX || !tbg_options_log(o, path))
		return NULL;
	*l = (struct known_log){ strdup(path), -1 };
	if (!l->path)
		return NULL;
	self.logs_nr++;
	return l;
}

/* Learns all logs that o names. */
static void logs_name(const struct tbg_options *o)
{
	const struct tbg_setting *s;

	if (o->access_log)
		log_note(o, o->access_log);
	for (unsigned int i = 0; i < o->top->below_nr; i++) {
		s = tbg_setting_of(o->top->below[i], "access-log");
		if (s && !log_known(s->values[0]))
			log_note(o, s->values[0]);
	}
}

/* The log with this path in the present configuration; or NULL. */
static struct known_log *log_named(const char *path)
{
	struct known_log *ret = log_known(path);
	struct tbg_roots *roots = NULL;
	struct tbg_options o;

	if (ret || tbg_roots_open(&roots))
		return ret;
	if (!tbg_options_parse(&o, self.argv, roots)) {
		logs_forget(&o);
		ret = log_note(&o, path);
		tbg_options_free(&o);
	}
	tbg_roots_close(roots);
	return ret;
}

static bool same(int a, int b)
{
	struct stat one, other;

	return !fstat(a, &one) && !fstat(b, &other) && one.st_dev == other.st_dev &&
	       one.st_ino == other.st_ino;
}

/* The present folder of the path: the former one, or one reached without a symbolic link. */
static int folder_now(const char *path, int before)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC };
	const char *slash = strrchr(path, '/');
	char *dir = slash ? strndup(path, slash - path + 1) : strdup(".");
	int fd = dir ? open(dir, how.flags) : -1;

	if (fd >= 0 && !same(fd, before)) {
		close(fd);
		how.resolve = RESOLVE_NO_SYMLINKS;
		fd = syscall(SYS_openat2, AT_FDCWD, dir, &how, sizeof(how));
	}
	fd = fd < 0 ? -errno : fd;
	free(dir);
	return fd;
}

/* Opens it in folder, or (-1) by its path; *ret_folder: its folder then. */
static int log_open_as(const char *path, int folder, int flags, int *ret_folder)
{
	const char *slash = strrchr(path, '/');

	flags |= O_NOCTTY | O_NONBLOCK;
	return folder < 0 ? tbg_trusted_file(path, flags, LOG_MODE, ret_folder) :
			    tbg_trusted_open(folder, slash ? slash + 1 : path, flags, LOG_MODE);
}

/* Opens a pipe without a reader by being a reader at the same time, as log/access.c does. */
static int log_append(const char *path, int folder, int *ret_folder)
{
	int flags = O_WRONLY | O_APPEND | O_CREAT, reader, unused = -1;
	int fd = log_open_as(path, folder, flags, ret_folder);

	if (fd != -ENXIO)
		return fd;
	reader = log_open_as(path, folder, O_RDONLY, &unused);
	if (reader < 0)
		return fd;
	fd = log_open_as(path, folder, flags, ret_folder);
	close(reader);
	if (unused >= 0)
		close(unused);
	return fd;
}

static int log_open_again(const struct known_log *l, int *ret_folder, int *ret_before)
{
	const char *path = l->path;
	int folder = folder_now(path, l->folder), fd = folder;

	if (folder >= 0) {
		fd = log_append(path, folder, NULL);
		if (fd >= 0) {
			dup3(folder, l->folder, O_CLOEXEC);
			*ret_folder = folder;
			return fd;
		}
		close(folder);
	}
	*ret_before = fd;
	fd = log_append(path, l->folder, NULL);
	if (fd < 0)
		return *ret_before;
	*ret_folder = fcntl(l->folder, F_DUPFD_CLOEXEC, 0);
	return fd;
}

static int log_open(const char *path, int *ret_folder, int *ret_before)
{
	struct known_log *l = log_named(path);
	int fd;

	if (!l)
		return -EPERM;
	if (l->folder >= 0)
		return log_open_again(l, ret_folder, ret_before);
	fd = log_append(path, -1, ret_folder);
	if (fd >= 0)
		l->folder = fcntl(*ret_folder, F_DUPFD_CLOEXEC, 0);
	return fd;
}

static void log_answer(int fd, const struct request *r)
{
	int fds[2] = { -1, -1 };
	struct answer a = { 0 };

	fds[0] = log_open(r->path, &fds[1], &a.before);
	a.err = fds[0] < 0 ? fds[0] : 0;
	tbg_pass_send(fd, &a, sizeof(a), fds, a.err ? 0 : 2);
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static void socket_unlink(int fd)
{
	struct answer a = { 0 };
	struct stat st;

	for (unsigned int i = 0; i < self.sockets_nr; i++) {
		const struct known_socket *s = &self.sockets[i];

		if (!fstatat(s->folder, s->name, &st, AT_SYMLINK_NOFOLLOW) &&
		    st.st_dev == s->st.st_dev && st.st_ino == s->st.st_ino)
			unlinkat(s->folder, s->name, 0);
	}
	tbg_pass_send(fd, &a, sizeof(a), NULL, 0);
}

static void request_take(int fd, const struct request *r, int fds[2])
{
	switch (r->what) {
	case OPEN_LOG:
		log_answer(fd, r);
		break;
	case KNOW_SOCKET:
		if (self.started || fds[0] < 0 || strchr(r->path, '/') ||
		    strlen(r->path) >= sizeof(self.sockets[0].name) ||
		    self.sockets_nr == SOCKETS_MAX)
			break;
		self.sockets[self.sockets_nr].folder = fds[0];
		fds[0] = -1;
		strcpy(self.sockets[self.sockets_nr].name, r->path);
		self.sockets[self.sockets_nr++].st = r->st;
		break;
	case STARTED:
		self.started = true;
		break;
	case UNLINK_SOCKET:
		socket_unlink(fd);
		break;
	}
}

static void run(int fd)
{
	static struct request r;
	int fds[2];

	while (tbg_pass_receive(fd, &r, sizeof(r), fds)) {
		r.path[sizeof(r.path) - 1] = 0;
		request_take(fd, &r, fds);
		for (int i = 0; i < 2; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	}
}

static void child_main(const struct tbg_identity *id, const struct tbg_options *o, char **argv,
		       int fd)
{
	prctl(PR_SET_NAME, "tbg-privileged");
	tbg_pass_alone(fd);
	self.argv = argv;
	logs_name(o);
	if (tbg_privilege_writer(id) || tbg_filter_load(TBG_FILTER_PROGRAM))
		_exit(1);
	run(fd);
	tbg_pins_leave(id->uid);
	_exit(0);
}

/* In the daemon */

int tbg_privileged_start(const struct tbg_identity *id, const struct tbg_options *o,
			 char **argv)
{
	int fd;

	if (!tbg_privilege_writes())
		return 0;
	fd = tbg_pass_fork(WAIT_S, &pid);
	if (fd < 0)
		return fd;
	if (!pid)
		child_main(id, o, argv, fd);
	ours = fd;
	return 0;
}

static bool ask(enum what what, const char *path, int fd, const struct stat *st)
{
	static struct request r;

	r = (struct request){ .what = what };
	if (ours < 0 || strlen(path) >= sizeof(r.path))
		return false;
	strcpy(r.path, path);
	if (st)
		r.st = *st;
	return tbg_pass_send(ours, &r, sizeof(r), &fd, fd >= 0);
}

int tbg_privileged_log(const char *path, int *ret_folder, int *ret_before)
{
	struct answer a;
	int fds[2];

	if (!ask(OPEN_LOG, path, -1, NULL) || !tbg_pass_receive(ours, &a, sizeof(a), fds))
		return -EPERM;
	if (a.err)
		return a.err;
	*ret_folder = fds[1];
	*ret_before = a.before;
	return fds[0];
}

void tbg_privileged_socket(int folder_fd, const char *name, const struct stat *st)
{
	ask(KNOW_SOCKET, name, folder_fd, st);
}

void tbg_privileged_started(void)
{
	ask(STARTED, "", -1, NULL);
}

void tbg_privileged_unlink(void)
{
	struct answer a;
	int fds[2];

	if (ask(UNLINK_SOCKET, "", -1, NULL))
		tbg_pass_receive(ours, &a, sizeof(a), fds);
}

void tbg_privileged_stop(void)
{
	if (ours < 0)
		return;
	close(ours);
	ours = -1;
	waitpid(pid, NULL, 0);
}
