/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Work that takes milliseconds and would delay the other connections of a worker:
 * listings of folders and compression. Threads of low priority do it. Only the
 * requesting connection waits; equal tasks are done once.
 */
#ifndef TBG_USERD_SERVE_ASIDE_H
#define TBG_USERD_SERVE_ASIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "abi/cache.h"
#include "os/root.h"

struct tbg_aside;
struct tbg_aside_task;
struct tbg_mailbox;

enum tbg_want_kind {
	TBG_WANT_NOTHING,
	TBG_WANT_LISTING,	/* of a folder */
	TBG_WANT_CODING,	/* of a file's bytes */
};

/* A description of the result. Owns fd and name until tbg_aside_begin() takes it over. */
struct tbg_want {
	enum tbg_want_kind kind;
	int fd;			/* the root above the folder; or the file */
	struct tbg_root_ways ways;	/* access to the root */
	char *name;		/* of the folder, relative to the root */
	char *title;		/* path of the request */
	struct stat st;		/* of the file; its size is less than `room` */
	size_t room;		/* limit for the encoded bytes */
	enum tbg_encoding encoding;
};

/* A result, with a reference. */
struct tbg_made {
	unsigned int refs;	/* under the lock of tbg_aside */
	struct tbg_want want;
	int err;		/* of a listing: the status to answer with, or 0 */
	char *text;
	size_t len;
};

int tbg_aside_open(struct tbg_aside **ret);

void tbg_want_free(struct tbg_want *w);

/*
 * Starts a task and takes over `want`. When it ends, calls made() once, by mail, in the
 * thread that reads the mailbox. NULL: no memory, or no thread.
 */
struct tbg_aside_task *tbg_aside_begin(struct tbg_aside *a, struct tbg_want *want,
				       struct tbg_mailbox *mailbox,
				       void (*made)(void *reader, void *arg), void *arg);

/* Cancels a task: made() is not called afterwards. Call it in the mailbox's thread. */
void tbg_aside_leave(struct tbg_aside_task *t);

const struct tbg_made *tbg_aside_made(const struct tbg_aside_task *t);

#endif
