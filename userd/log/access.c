// SPDX-License-Identifier: GPL-2.0
/*
 * An access log. Workers and the control thread format lines into the front half of a
 * double buffer; a writer thread writes the back half to disk. The mutex protects a
 * reservation and the copy of one line, never a system call.
 *
 * Lines that do not reach the file are counted in `lost`: those that find the front
 * half full, and those that the file did not accept completely.
 */
#include "log/access.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log/line.h"
#include "log/sink.h"
#include "os/privilege.h"
#include "os/message.h"

#define HALF_LEN	(1u << 20)	/* bytes of each half */
#define WAKE_LEN	(HALF_LEN / 2)	/* wakes the writer before the next flush */
#define STUCK_MS	1000		/* maximum wait for the reader of a pipe */

struct half {
	char *b;
	size_t len;
	size_t old_len;		/* bytes received before the last reopen */
};

struct tbg_log {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t writer;
	struct half half[2];
	unsigned int front;
	bool running, stop, flush, ended;
	/* of the file; the daemon's user may be unable to reach it from / */
	int folder;
	int fd, next_fd;	/* next_fd: opened by reopen, or -1 */
	tbg_log_open_fn *open_as_root;	/* NULL: none */
	bool torn;		/* the file ends with an incomplete line */
	bool failing;		/* the failure has been logged */
	char *path;
	enum tbg_log_format format;
	char *pattern;		/* of TBG_LOG_CUSTOM */
	bool needs_site;	/* it has fields that the caller must set */
	_Atomic uint64_t lost;
	struct tbg_sink *sink;	/* in place of a file, or NULL */
};

static _Atomic uint64_t lost_all;	/* of all logs */

static void lost_count(struct tbg_log *l, uint64_t nr)
{
	atomic_fetch_add_explicit(&l->lost, nr, memory_order_relaxed);
	atomic_fetch_add_explicit(&lost_all, nr, memory_order_relaxed);
}

void tbg_log_write(struct tbg_log *l, const struct tbg_log_record *r)
{
	struct tbg_log_made line;
	struct half *h;
	bool wake = false;

	if (!l)
		return;
	tbg_log_make(&line, r, l->format, l->pattern);
	pthread_mutex_lock(&l->lock);
	h = &l->half[l->front];
	if (h->len + line.len <= HALF_LEN) {
		tbg_log_put(&line, h->b + h->len);
		wake = h->len < WAKE_LEN && h->len + line.len >= WAKE_LEN;
		h->len += line.len;
		l->flush |= wake;
	} else {
		lost_count(l, 1);
	}
	pthread_mutex_unlock(&l->lock);
	if (wake)
		pthread_cond_signal(&l->wake);
}

/* --- the writer thread --------------------------------------------------- */

/* Writes everything, or returns the number of bytes written before errno was set. */
static size_t file_write(struct tbg_log *l, const char *p, size_t len)
{
	struct pollfd pfd = { .fd = l->fd, .events = POLLOUT };
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = write(l->fd, p + done, len - done);
		if (n > 0)
			done += n;
		else if (n == 0)
			break;
		else if (errno == EAGAIN && poll(&pfd, 1, STUCK_MS) > 0)
			continue;
		else if (errno != EINTR)
			break;
	}
	return done;
}

static size_t write_all(struct tbg_log *l, const char *p, size_t len)
{
	if (l->sink)
		return tbg_sink_write(l->sink, p, len);
	return file_write(l, p, len);
}

static void failure_log(struct tbg_log *l, int err)
{
	if (!l->failing)
		tbg_report("log: %s: %s; lines are being lost and counted, requests are served: free space, or move the file away and send SIGUSR1",
			l->path, strerror(err));
	l->failing = true;
}

static void lines_write(struct tbg_log *l, const char *b, size_t len)
{
	uint64_t lost = 0;
	size_t done = 0;

	if (!len)
		return;
	errno = ENOSPC;
	if (l->torn && write_all(l, "\n", 1) == 1)
		l->torn = false;
	if (!l->torn)
		done = write_all(l, b, len);
	if (done == len) {
		if (l->failing)
			tbg_notice("log: %s: writing again, %llu lines lost so far",
				l->path, (unsigned long long)tbg_log_lost(l));
		l->failing = false;
		return;
	}
	failure_log(l, errno);
	if (done)
		l->torn = b[done - 1] != '\n';
	for (size_t i = done; i < len; i++)
		lost += b[i] == '\n';
	lost_count(l, lost);
}

/*
 * next_fd: the file for lines after the reopen, or -1 without a reopen. If the old file
 * fails, it is given up at once: the new one may work.
 */
static void half_write(struct tbg_log *l, const struct half *h, int next_fd)
{
	size_t old_len = next_fd < 0 ? h->len : l->failing ? 0 : h->old_len;

	lines_write(l, h->b, old_len);
	if (next_fd >= 0) {
		close(l->fd);
		l->fd = next_fd;
		l->torn = false;
	}
	lines_write(l, h->b + old_len, h->len - old_len);
}

static void *writer_run(void *arg)
{
	struct tbg_log *l = arg;
	struct half *h;
	int next_fd;

	pthread_mutex_lock(&l->lock);
	tbg_privilege_none();	/* the open file is all that it needs */
	l->running = true;
	pthread_cond_broadcast(&l->wake);
	for (;;) {
		while (!l->flush && !l->stop)
			pthread_cond_wait(&l->wake, &l->lock);
		l->flush = false;
		next_fd = l->next_fd;
		l->next_fd = -1;
		h = &l->half[l->front];
		if (!h->len && next_fd < 0) {
			if (l->stop)
				break;
			continue;
		}
		l->front ^= 1;
		pthread_mutex_unlock(&l->lock);
		half_write(l, h, next_fd);
		pthread_mutex_lock(&l->lock);
		h->len = h->old_len = 0;
		/* filled beyond WAKE_LEN meanwhile: no signal follows */
		l->flush |= l->half[l->front].len >= WAKE_LEN;
	}
	l->ended = true;
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

void tbg_log_flush(struct tbg_log *l)
{
	bool wake;

	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	wake = l->half[l->front].len;
	l->flush |= wake;
	pthread_mutex_unlock(&l->lock);
	if (wake)
		pthread_cond_signal(&l->wake);
}

/* --- life ---------------------------------------------------------------- */

/* The file's name in l->folder. */
static const char *name_of(const struct tbg_log *l)
{
	const char *slash = strrchr(l->path, '/');

	return slash ? slash + 1 : l->path;
}

static int file_open_as(const struct tbg_log *l, int folder, int flags)
{
	int fd = openat(folder, name_of(l), O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags, 0640);

	return fd < 0 ? -errno : fd;
}

/*
 * Opens the file with O_NONBLOCK: a pipe without a reader fails with ENXIO instead of
 * blocking. It is then opened with a temporary reader: lines are lost and counted until
 * another reader opens it, as after a reader that has closed it.
 */
static int file_open(const struct tbg_log *l, int folder)
{
	int flags = O_WRONLY | O_APPEND | O_CREAT, reader;
	int fd = file_open_as(l, folder, flags);

	if (fd != -ENXIO)
		return fd;
	reader = file_open_as(l, folder, O_RDONLY);
	if (reader < 0)
		return fd;
	fd = file_open_as(l, folder, flags);
	close(reader);
	return fd;
}

static int folder_open(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash ? strndup(path, slash - path + 1) : strdup(".");
	int fd = dir ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;

	if (fd < 0)
		fd = dir ? -errno : -ENOMEM;
	free(dir);
	return fd;
}

/* Opens the file and its folder: *ret_folder, unchanged on failure. */
static int file_find(const struct tbg_log *l, int *ret_folder)
{
	int folder = folder_open(l->path), fd = folder;

	if (folder >= 0)
		fd = file_open(l, folder);
	if (fd >= 0)
		*ret_folder = folder;
	else if (folder >= 0)
		close(folder);
	return fd;
}

static void elsewhere_log(const struct tbg_log *l, int err)
{
	tbg_notice("log: reopen %s: %s; opened in the folder where it was before: let the daemon's user create files in the new one",
		l->path, strerror(-err));
}

/*
 * Opens the file as the daemon's user, or else by the process with more rights. If the
 * path fails, opens it in the folder where the file was before, if it was open.
 */
static int file_get(const struct tbg_log *l, int *ret_folder)
{
	int fd = file_find(l, ret_folder), err = fd, before = 0;

	if (fd >= 0)
		return fd;
	fd = l->open_as_root ? l->open_as_root(l->path, ret_folder, &before) : -EPERM;
	if (fd == -EPERM && l->folder >= 0) {
		fd = file_open(l, l->folder);
		*ret_folder = fd < 0 ? -1 : fcntl(l->folder, F_DUPFD_CLOEXEC, 0);
		before = err;
	}
	if (fd >= 0 && before)
		elsewhere_log(l, before);
	return fd == -EPERM ? err : fd;
}

int tbg_log_reopen(struct tbg_log *l)
{
	int fd, folder = -1;
	struct half *h;

	if (!l || l->sink)
		return 0;
	/* lines queued until now belong to the old file */
	pthread_mutex_lock(&l->lock);
	h = &l->half[l->front];
	h->old_len = h->len;
	pthread_mutex_unlock(&l->lock);
	fd = file_get(l, &folder);
	if (fd < 0) {
		tbg_report("log: reopen %s: %s; still writing to the old file: let the daemon's user create files there",
			l->path, strerror(-fd));
		return fd;
	}
	close(l->folder);
	l->folder = folder;
	pthread_mutex_lock(&l->lock);
	if (l->next_fd >= 0)
		close(l->next_fd);
	l->next_fd = fd;
	l->flush = true;
	pthread_mutex_unlock(&l->lock);
	pthread_cond_signal(&l->wake);
	return 0;
}

/* The control thread handles signals; SIGPIPE becomes EPIPE. */
int tbg_log_start(struct tbg_log *l)
{
	sigset_t all, old;
	int err;

	if (!l)
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&l->writer, NULL, writer_run, l);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err) {
		tbg_report("toboggand: --access-log %s: no thread to write it: %s", l->path,
			strerror(err));
		return -err;
	}
	pthread_setname_np(l->writer, "tbg-log");
	pthread_mutex_lock(&l->lock);
	while (!l->running)
		pthread_cond_wait(&l->wake, &l->lock);
	pthread_mutex_unlock(&l->lock);
	return 0;
}

/* A pipe need not have a reader yet. */
int tbg_log_check(const char *path)
{
	struct stat st;
	int folder, err;

	if (tbg_sink_is(path))
		return tbg_sink_check(path);

	if (!stat(path, &st)) {
		if (S_ISDIR(st.st_mode) || S_ISSOCK(st.st_mode))
			return S_ISDIR(st.st_mode) ? -EISDIR : -ENXIO;
		return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) ? -errno : 0;
	}
	if (errno != ENOENT)
		return -errno;
	folder = folder_open(path);
	if (folder < 0)
		return folder;
	err = faccessat(folder, ".", W_OK | X_OK, AT_EACCESS) ? -errno : 0;
	close(folder);
	return err;
}

static void path_close(struct tbg_log *l)
{
	tbg_sink_close(l->sink);
	if (l->fd >= 0)
		close(l->fd);
	if (l->folder >= 0)
		close(l->folder);
}

static void log_free(struct tbg_log *l)
{
	free(l->half[1].b);
	free(l->half[0].b);
	free(l->path);
	free(l->pattern);
	pthread_cond_destroy(&l->wake);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

int tbg_log_open(struct tbg_log **ret, const char *path,
		 enum tbg_log_format format, const char *pattern,
		 tbg_log_open_fn *open_as_root, char *ret_msg, size_t msg_len)
{
	struct tbg_log *l = calloc(1, sizeof(*l));
	int err = -ENOMEM;

	if (!l)
		goto no_log;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->wake, NULL);
	l->next_fd = l->folder = -1;
	l->open_as_root = open_as_root;
	l->format = format;
	l->path = strdup(path);
	l->pattern = strdup(pattern ?: "");
	l->needs_site = pattern && (strstr(pattern, "$client") || strstr(pattern, "$request_id"));
	l->half[0].b = malloc(HALF_LEN);
	l->half[1].b = malloc(HALF_LEN);
	if (!l->path || !l->pattern || !l->half[0].b || !l->half[1].b)
		goto no_file;
	l->fd = -1;
	err = tbg_sink_is(path) ? tbg_sink_open(&l->sink, path) :
				  (l->fd = file_get(l, &l->folder));
	if (err < 0)
		goto no_file;
	*ret = l;
	return 0;

no_file:
	log_free(l);
no_log:
	snprintf(ret_msg, msg_len,
		 "%s: %s; choose a file that can be written, or off",
		 path, strerror(-err));
	return err;
}

bool tbg_log_needs_site(const struct tbg_log *l)
{
	return l && l->needs_site;
}

const char *tbg_log_path(const struct tbg_log *l)
{
	return l ? l->path : NULL;
}

bool tbg_log_stop(struct tbg_log *l)
{
	bool ret;

	pthread_mutex_lock(&l->lock);
	l->stop = true;
	ret = l->ended || !l->running;
	pthread_mutex_unlock(&l->lock);
	pthread_cond_signal(&l->wake);
	return ret;
}

void tbg_log_close(struct tbg_log *l)
{
	if (!l)
		return;
	tbg_log_stop(l);
	if (l->running)
		pthread_join(l->writer, NULL);
	path_close(l);
	if (l->next_fd >= 0)
		close(l->next_fd);
	log_free(l);
}

uint64_t tbg_log_lost(const struct tbg_log *l)
{
	return l ? atomic_load_explicit(&l->lost, memory_order_relaxed) : 0;
}

uint64_t tbg_logs_lost(void)
{
	return atomic_load_explicit(&lost_all, memory_order_relaxed);
}
