// SPDX-License-Identifier: GPL-2.0
/*
 * A table in order of last use. Compressed content lies in memory files, so that
 * it is sent as any large file. An entry is for one version of a file, by inode
 * and times: nothing needs to be withdrawn, unused entries are dropped. The
 * thread has the lowest priority, holds the lock only for pointer updates, and
 * has one text at a time in memory, in both forms.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <unistd.h>

#include "http/content_coding.h"
#include "files/files.h"
#include "files/compressed.h"

#define ENTRIES_MAX 128		/* with one descriptor each */
#define PAGE	    4096u

enum state { WAITING, WORKING, READY, USELESS };

struct entry {
	TAILQ_ENTRY(entry) link;
	struct stat st;		/* of the file */
	enum tbg_encoding encoding;
	enum state state;
	int fd;			/* of the file; READY: of the compressed content */
	uint64_t bytes;
};

TAILQ_HEAD(entries, entry);

struct tbg_compressed {
	pthread_mutex_t lock;
	pthread_cond_t work;
	pthread_t thread;
	bool running;
	struct entries entries;		/* the one used last at the head */
	unsigned int nr;
	uint64_t budget, used;
};

/* The table; p->lock held */

static void entry_remove(struct tbg_compressed *p, struct entry *e)
{
	if (e->fd >= 0)
		close(e->fd);
	TAILQ_REMOVE(&p->entries, e, link);
	p->used -= e->bytes;
	p->nr--;
	free(e);
}

/* Drops the oldest entry that is not being compressed. False: there is none. */
static bool oldest_drop(struct tbg_compressed *p, const struct entry *keep)
{
	struct entry *e;

	TAILQ_FOREACH_REVERSE(e, &p->entries, entries, link)
		if (e->state != WORKING && e != keep)
			break;
	if (!e)
		return false;
	entry_remove(p, e);
	return true;
}

/* Finds the entry, and moves it to the front. */
static struct entry *find(struct tbg_compressed *p, const struct stat *st,
			  enum tbg_encoding encoding)
{
	struct entry *e;

	TAILQ_FOREACH(e, &p->entries, link)
		if (e->encoding == encoding && tbg_version_same(&e->st, st))
			break;
	if (!e)
		return NULL;
	TAILQ_REMOVE(&p->entries, e, link);
	TAILQ_INSERT_HEAD(&p->entries, e, link);
	return e;
}

static struct entry *oldest_waiting(const struct tbg_compressed *p)
{
	struct entry *e;

	TAILQ_FOREACH_REVERSE(e, &p->entries, entries, link)
		if (e->state == WAITING)
			break;
	return e;
}

/* The work; without the lock */

static int memory_file(const char *data, size_t len)
{
	int fd = memfd_create("compressed", MFD_CLOEXEC);
	ssize_t n;

	for (size_t at = 0; fd >= 0 && at < len; at += n) {
		n = write(fd, data + at, len - at);
		if (n <= 0) {
			close(fd);
			return -ENOMEM;
		}
	}
	return fd < 0 ? -errno : fd;
}

/*
 * Compresses the file. Returns a descriptor of the result, -E2BIG, or another
 * negative errno. Uses mapped memory, which is returned to the system, while
 * malloc() would keep it.
 */
static int entry_compress(const struct entry *e, uint64_t *ret_len)
{
	size_t size = e->st.st_size;
	char *plain = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int n;

	if (plain == MAP_FAILED)
		return -ENOMEM;
	lseek(e->fd, 0, SEEK_DATA);	/* waits for a write under way, see files/files.c */
	n = tbg_version_read(e->fd, &e->st, plain);
	if (!n)
		n = tbg_encode(e->encoding, plain, size, plain + size, size - 1);
	if (n >= 0) {
		*ret_len = n;
		n = memory_file(plain + size, n);
	}
	munmap(plain, 2 * size);
	return n;
}

/* Stores the result; p->lock held. */
static void entry_done(struct tbg_compressed *p, struct entry *e, int fd, uint64_t len)
{
	close(e->fd);
	e->fd = fd;
	e->state = fd < 0 ? USELESS : READY;
	if (fd < 0)
		return;
	e->bytes = (len + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	p->used += e->bytes;
	while (p->used > p->budget && oldest_drop(p, e))
		;
	if (p->used > p->budget) {	/* larger than the whole budget */
		close(e->fd);
		e->fd = -1;
		e->state = USELESS;
		p->used -= e->bytes;
		e->bytes = 0;
	}
}

static void *thread_run(void *arg)
{
	struct tbg_compressed *p = arg;
	uint64_t len = 0;
	struct entry *e;
	int fd;

	setpriority(PRIO_PROCESS, gettid(), 19);
	pthread_mutex_lock(&p->lock);
	for (;;) {
		e = oldest_waiting(p);
		if (!e) {
			pthread_cond_wait(&p->work, &p->lock);
			continue;
		}
		e->state = WORKING;
		pthread_mutex_unlock(&p->lock);
		fd = entry_compress(e, &len);
		pthread_mutex_lock(&p->lock);
		entry_done(p, e, fd, len);
	}
	return NULL;
}

/* Called by workers */

/* The thread is started for the first text: after privileges were dropped. */
static int entry_add(struct tbg_compressed *p, int fd, const struct stat *st,
		     enum tbg_encoding encoding)
{
	struct entry *e;

	if (!p->running && pthread_create(&p->thread, NULL, thread_run, p))
		return -EAGAIN;
	p->running = true;
	if (p->nr >= ENTRIES_MAX && !oldest_drop(p, NULL))
		return -EAGAIN;
	e = malloc(sizeof(*e));
	if (!e)
		return -ENOMEM;
	*e = (struct entry){ .st = *st, .encoding = encoding, .state = WAITING,
			     .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0) };
	if (e->fd < 0) {
		free(e);
		return -EAGAIN;
	}
	TAILQ_INSERT_HEAD(&p->entries, e, link);
	p->nr++;
	pthread_cond_signal(&p->work);
	return -EAGAIN;
}

int tbg_compressed_get(struct tbg_compressed *p, int fd, const struct stat *st,
		  enum tbg_encoding encoding)
{
	struct entry *e;
	int ret;

	pthread_mutex_lock(&p->lock);
	e = find(p, st, encoding);
	if (!e)
		ret = entry_add(p, fd, st, encoding);
	else if (e->state == READY)
		ret = fcntl(e->fd, F_DUPFD_CLOEXEC, 0);
	else
		ret = e->state == USELESS ? -E2BIG : -EAGAIN;
	pthread_mutex_unlock(&p->lock);
	return ret;
}

int tbg_compressed_open(struct tbg_compressed **ret, uint64_t budget)
{
	struct tbg_compressed *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	TAILQ_INIT(&p->entries);
	p->budget = budget;
	*ret = p;
	return 0;
}
