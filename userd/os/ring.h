/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A worker's ring: io_uring, or where that is forbidden (Docker's default profile)
 * the same operations on epoll, slower. Callers prepare submission entries and
 * read completions as liburing has them, and cannot tell which it is. One thread.
 */
#ifndef TBG_USERD_OS_RING_H
#define TBG_USERD_OS_RING_H

#include <liburing.h>
#include <stdbool.h>

struct tbg_ring_epoll;

struct tbg_ring {
	struct io_uring uring;		/* its completion side is read directly */
	struct tbg_ring_epoll *epoll;	/* NULL: io_uring */
};

/*
 * Of io_uring, disabled until tbg_ring_enable(). Negative errno; -EPERM, -EACCES or
 * -ENOSYS: it is forbidden, or not there.
 */
int tbg_ring_open(struct tbg_ring *r, unsigned int entries, unsigned int completions);
/* Of epoll. Negative errno. */
int tbg_ring_open_epoll(struct tbg_ring *r, unsigned int entries, unsigned int completions);

/* A ring of nr receive buffers of group 0, in memory that the caller fills. */
int tbg_ring_buffers(struct tbg_ring *r, struct io_uring_buf_ring *buffers, unsigned int nr);

int tbg_ring_enable(struct tbg_ring *r);	/* in the thread that uses it */

/* A submission entry; NULL: submit first. */
struct io_uring_sqe *tbg_ring_sqe(struct tbg_ring *r);
int tbg_ring_submit(struct tbg_ring *r);
/* And takes the completions that are there. */
int tbg_ring_submit_look(struct tbg_ring *r);
/* And waits for nr completions, or until most is over (NULL: however long it takes). */
int tbg_ring_submit_wait(struct tbg_ring *r, unsigned int nr, struct __kernel_timespec *most);

/* Whether a completion is there, looking once more. */
bool tbg_ring_peek(struct tbg_ring *r);

static inline unsigned int tbg_ring_unsubmitted(const struct tbg_ring *r)
{
	return io_uring_sq_ready(&r->uring);
}

#endif
