// SPDX-License-Identifier: GPL-2.0
/*
 * Reads and writes use the page cache and are as large as one receive, so they wait for
 * a disk only if memory is short.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/message.h"
#include "store/spool.h"

#define ROOM_FIRST 4096
#define TOTAL_FAILED "toboggand: body-folder %s: %s: the bodies that are held have reached --body-total; requests with more are answered with 503"
#define LOG_INTERVAL_NS	   10000000000ull	/* between two messages */

static _Atomic uint64_t total, total_max = UINT64_MAX;

void tbg_spool_total_set(uint64_t bytes)
{
	total_max = bytes;
}

static bool total_take(uint64_t bytes)
{
	if (atomic_fetch_add(&total, bytes) + bytes <= total_max)
		return true;
	atomic_fetch_sub(&total, bytes);
	return false;
}

struct tbg_spool *tbg_spool_new(uint64_t memory_max, const char *folder)
{
	struct tbg_spool *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->memory_max = memory_max;
	s->folder = strdup(folder);
	s->fd = -1;
	if (s->folder)
		return s;
	free(s);
	return NULL;
}

void tbg_spool_free(struct tbg_spool *s)
{
	if (!s)
		return;
	atomic_fetch_sub(&total, s->held);
	if (s->fd >= 0)
		close(s->fd);
	free(s->folder);
	free(s->memory);
	free(s);
}

static int memory_add(struct tbg_spool *s, const uint8_t *b, size_t len)
{
	size_t room = s->memory_room ?: ROOM_FIRST;
	uint8_t *more;

	while (room < s->memory_len + len)
		room *= 2;
	if (room != s->memory_room) {
		more = realloc(s->memory, room);
		if (!more)
			return -ENOMEM;
		s->memory = more;
		s->memory_room = room;
	}
	memcpy(s->memory + s->memory_len, b, len);
	s->memory_len += len;
	s->len += len;
	return 0;
}

/*
 * Opens an unnamed file, or, where O_TMPFILE is not supported, a named one that is
 * unlinked at once.
 */
static int file_open(const char *folder)
{
	char name[4096];
	int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);

	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
		return fd;
	if (snprintf(name, sizeof(name), "%s/toboggan-XXXXXX", folder) >= (int)sizeof(name)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = mkostemp(name, O_CLOEXEC);
	if (fd >= 0)
		unlink(name);
	return fd;
}

/* Logs the reason at most once per interval. The requests are refused. */
static int file_failed(const struct tbg_spool *s, int err)
{
	static _Atomic uint64_t logged_ns;
	uint64_t now_ns = tbg_mono_ns(), was_ns = logged_ns;

	if ((!was_ns || now_ns - was_ns >= LOG_INTERVAL_NS) &&
	    atomic_compare_exchange_strong(&logged_ns, &was_ns, now_ns))
		tbg_report(err == -EDQUOT ? TOTAL_FAILED : "toboggand: body-folder %s: %s; requests with long bodies are answered with 503: free space there, or name a folder that can be written",
			s->folder, strerror(-err));
	return err;
}

static int file_add(struct tbg_spool *s, const uint8_t *b, size_t len)
{
	if (s->fd < 0) {
		s->fd = file_open(s->folder);
		if (s->fd < 0)
			return file_failed(s, -errno);
	}
	while (len) {
		ssize_t n = pwrite(s->fd, b, len, s->len - s->memory_len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return file_failed(s, n ? -errno : -ENOSPC);
		s->len += n;
		b += n;
		len -= n;
	}
	return 0;
}

int tbg_spool_add(struct tbg_spool *s, const uint8_t *b, size_t len)
{
	uint64_t room = s->memory_max - s->memory_len;
	size_t first = len < room ? len : room;
	int err = 0;

	if (!total_take(len))
		return file_failed(s, -EDQUOT);
	s->held += len;
	if (first)
		err = memory_add(s, b, first);
	if (err || first == len)
		return err;
	return file_add(s, b + first, len - first);
}

void tbg_spool_empty(struct tbg_spool *s)
{
	s->len = s->memory_len = 0;
	atomic_fetch_sub(&total, s->held);
	s->held = 0;
	if (s->fd >= 0 && ftruncate(s->fd, 0))
		return;		/* old content is overwritten */
}

ssize_t tbg_spool_read(const struct tbg_spool *s, uint64_t off, uint8_t *b,
		       size_t size)
{
	ssize_t n;

	if (off >= s->len)
		return 0;
	if (off < s->memory_len) {
		n = s->memory_len - off < size ? s->memory_len - off : size;
		memcpy(b, s->memory + off, n);
		return n;
	}
	do {
		n = pread(s->fd, b, size, off - s->memory_len);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return n ?: -EIO;	/* the file is shorter than what was written */
}
