/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Work of milliseconds that no worker does itself: listings of folders and
 * compression. Threads of low priority do it; who asked waits, and other connections
 * of the worker do not. Two who want the same wait for one.
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

/* What is to be made; owns fd and name, until it is given to tbg_aside_begin(). */
struct tbg_want {
	enum tbg_want_kind kind;
	int fd;			/* the root that the folder is below; or the file */
	struct tbg_root_ways ways;	/* to the root */
	char *name;		/* of the folder, below the root */
	char *title;		/* path of the request */
	struct stat st;		/* of the file, whose bytes are fewer than room */
	size_t room;		/* that the coding may take */
	enum tbg_encoding encoding;
};

/* What came of it; referenced. */
struct tbg_made {
	unsigned int refs;	/* under the lock of tbg_aside */
	struct tbg_want want;
	int err;		/* of a listing: the status that answers, or 0 */
	char *text;
	size_t len;
};

int tbg_aside_open(struct tbg_aside **ret);

void tbg_want_free(struct tbg_want *w);

/*
 * Has it made, and takes over what is wanted. Then, by mail, once: made(), in the thread
 * of the mailbox's reader. NULL: no memory, or no thread.
 */
struct tbg_aside_task *tbg_aside_begin(struct tbg_aside *a, struct tbg_want *want,
				       struct tbg_mailbox *mailbox,
				       void (*made)(void *reader, void *arg), void *arg);

/* Nobody waits any more, and nothing follows. The reader's thread. */
void tbg_aside_leave(struct tbg_aside_task *t);

const struct tbg_made *tbg_aside_made(const struct tbg_aside_task *t);

#endif
