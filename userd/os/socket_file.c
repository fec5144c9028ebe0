// SPDX-License-Identifier: GPL-2.0
/*
 * Opens socket files: makes the folder if necessary, replaces the socket of a dead
 * daemon but not of a running one, and gives what root binds to the daemon's user.
 * Called before there are threads. Must not follow links that other users can exchange.
 */
#include "os/socket_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "os/message.h"
#include "os/privilege.h"
#include "os/trusted_path.h"

#define BACKLOG		128
#define PATH_LEN	sizeof(((struct sockaddr_un *)0)->sun_path)
#define LOCK_MS		2000		/* maximum wait for the lock of the folder */

/*
 * Locks the folder for a moment, so that two daemons that start at once do not unlink
 * each other's socket. Anybody who can read the folder can hold the lock forever, which
 * must not prevent a start.
 */
static void folder_wait(int fd, const char *dir)
{
	for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK; i++) {
		if (i == LOCK_MS / 10) {
			tbg_warn("toboggand: another process keeps %s locked; starting without the lock",
				dir);
			return;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
}

/* Returns the folder of a path. */
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
 * Makes the folder as its user, if permitted. Otherwise root makes it, in a folder of
 * root's, and gives it to the user by its descriptor.
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
 * Opens the folder. If another user's symbolic link leads there, it is followed and
 * used with the permissions of the daemon's user only.
 */
static int folder_find(struct tbg_socket_file *s, const char *dir,
		       const struct tbg_identity *id)
{
	int path_fd, fd;

	if (!id->change) {
		fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	}
	path_fd = tbg_trusted_folder(dir);
	s->as_user = path_fd == -ELOOP;
	if (path_fd < 0 && !s->as_user)
		return path_fd;
	if (s->as_user)
		tbg_privilege_files_of(id);
	fd = openat(s->as_user ? AT_FDCWD : path_fd, s->as_user ? dir : ".",
		    O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd = fd < 0 ? -errno : fd;
	if (s->as_user)
		tbg_privilege_files_own();
	else
		close(path_fd);
	return fd;
}

/* Opens the folder of path, makes it if it is missing, and locks it. */
static int folder_open(struct tbg_socket_file *s, const char *path,
		       const struct tbg_identity *id)
{
	char dir[PATH_LEN];
	int fd, err;

	folder_name(path, dir);
	fd = folder_find(s, dir, id);
	if (fd == -ENOENT) {
		err = folder_make(dir, id);
		if (err && err != -EEXIST)
			return err;
		fd = folder_find(s, dir, id);
	}
	if (fd >= 0)
		folder_wait(fd, dir);
	return fd;
}

/* Calls bind() or connect() relative to the open folder, even if that was renamed. */
static int in_folder(const struct tbg_socket_file *s, int fd,
		     int (*call)(int fd, const struct sockaddr *addr, socklen_t len))
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int back = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC), err;

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", s->name);
	err = back < 0 || fchdir(s->folder_fd) ? -errno : 0;
	if (!err && call(fd, (const struct sockaddr *)&addr, sizeof(addr)))
		err = -errno;
	if (back >= 0 && fchdir(back))
		err = err ?: -errno;
	if (back >= 0)
		close(back);
	return err;
}

/*
 * Removes the socket of a dead daemon. -EADDRINUSE: a process answers; *ret_pid: its
 * pid, or 0.
 */
static int dead_remove(const struct tbg_socket_file *s, pid_t *ret_pid)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct ucred peer = { 0 };
	socklen_t len = sizeof(peer);
	struct stat st;
	int err;

	if (fd < 0)
		return -errno;
	err = in_folder(s, fd, connect);
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
	if (fstatat(s->folder_fd, s->name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISSOCK(st.st_mode))
		return -EEXIST;
	return unlinkat(s->folder_fd, s->name, 0) ? -errno : 0;
}

/*
 * Gives a socket bound by root to the user. In a folder where others may write, the
 * name may lead to a file of root's by now: checks the descriptor and uses it.
 */
static int socket_give(struct tbg_socket_file *s, const struct tbg_identity *id)
{
	int fd = openat(s->folder_fd, s->name, O_PATH | O_NOFOLLOW | O_CLOEXEC), err = 0;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &s->st))
		err = -errno;
	else if (!S_ISSOCK(s->st.st_mode) || s->st.st_uid != geteuid() || s->st.st_nlink != 1)
		err = -EEXIST;
	else if (fchownat(fd, "", id->uid, id->gid, AT_EMPTY_PATH))
		err = -errno;
	close(fd);
	return err;
}

/* Binds as the user, who then owns the socket. Otherwise root binds it and gives it away. */
static int socket_bind(struct tbg_socket_file *s, const struct tbg_identity *id)
{
	mode_t old = umask(0177);
	int err;

	if (id->change)
		tbg_privilege_files_of(id);
	err = in_folder(s, s->fd, bind);
	if (id->change)
		tbg_privilege_files_own();
	if (err == -EACCES && id->change && !s->as_user) {
		err = in_folder(s, s->fd, bind);
		err = err ?: socket_give(s, id);
	}
	umask(old);
	if (!err && fstatat(s->folder_fd, s->name, &s->st, AT_SYMLINK_NOFOLLOW))
		err = -errno;
	if (err)
		return err;
	return listen(s->fd, BACKLOG) ? -errno : 0;
}

static int socket_open(struct tbg_socket_file *s, const char *path,
		       const struct tbg_identity *id, pid_t *ret_pid)
{
	const char *slash = strrchr(path, '/');
	int err;

	if (!*path || strlen(path) >= PATH_LEN)
		return -ENAMETOOLONG;
	s->name = slash ? slash + 1 : path;
	s->folder_fd = folder_open(s, path, id);
	if (s->folder_fd < 0)
		return s->folder_fd;
	err = dead_remove(s, ret_pid);
	if (err)
		goto no_socket;
	s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	err = s->fd < 0 ? -errno : socket_bind(s, id);
	if (!err) {
		flock(s->folder_fd, LOCK_UN);
		return 0;
	}
	if (s->fd >= 0)
		close(s->fd);
no_socket:
	close(s->folder_fd);
	return err;
}

void tbg_socket_file_explain(const char *path, int err, pid_t pid, char *ret_msg,
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

int tbg_socket_file_check(const char *path)
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

int tbg_socket_file_open(struct tbg_socket_file *s, const char *path,
			    const struct tbg_identity *id, char *ret_msg, size_t msg_len)
{
	pid_t pid = 0;
	int err = socket_open(s, path, id, &pid);

	if (err)
		tbg_socket_file_explain(path, err, pid, ret_msg, msg_len);
	return err;
}

/* If the daemon may not unlink it, main/privileged.c does. */
static void socket_unlink(const struct tbg_socket_file *s)
{
	struct stat st;

	if (!fstatat(s->folder_fd, s->name, &st, AT_SYMLINK_NOFOLLOW) &&
	    st.st_dev == s->st.st_dev && st.st_ino == s->st.st_ino)
		unlinkat(s->folder_fd, s->name, 0);
}

void tbg_socket_file_close(struct tbg_socket_file *s)
{
	close(s->fd);
	socket_unlink(s);
	close(s->folder_fd);
}
