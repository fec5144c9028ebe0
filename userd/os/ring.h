/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A worker's ring: io_uring, or, where that is forbidden (Docker's default profile),
 * the same operations on epoll, slower. Callers prepare submission entries and read
 * completions as with liburing, for both. One thread.
 */
#ifndef TBG_USERD_OS_RING_H
#define TBG_USERD_OS_RING_H

#include <liburing.h>
#include <stdbool.h>

struct tbg_ring_epoll;

struct tbg_ring {
	struct io_uring uring;		/* its completion queue is read directly */
	struct tbg_ring_epoll *epoll;	/* NULL: io_uring */
};

/*
 * Opens an io_uring, disabled until tbg_ring_enable(). Returns 0 or a negative errno;
 * -EPERM, -EACCES or -ENOSYS: not permitted, or not supported.
 */
int tbg_ring_open(struct tbg_ring *r, unsigned int entries, unsigned int completions);
/* Opens the ring on epoll. Returns 0 or a negative errno. */
int tbg_ring_open_epoll(struct tbg_ring *r, unsigned int entries, unsigned int completions);

/* Registers nr receive buffers as group 0. The caller fills the buffer ring. */
int tbg_ring_buffers(struct tbg_ring *r, struct io_uring_buf_ring *buffers, unsigned int nr);

int tbg_ring_enable(struct tbg_ring *r);	/* in the thread that uses the ring */

/* Returns a submission entry; NULL: call tbg_ring_submit() first. */
struct io_uring_sqe *tbg_ring_sqe(struct tbg_ring *r);
int tbg_ring_submit(struct tbg_ring *r);
/* Submits, and fetches the completions that have arrived. */
int tbg_ring_submit_look(struct tbg_ring *r);
/*
 * Submits, and waits for nr completions, or until the time `most` has passed (NULL: no
 * limit).
 */
int tbg_ring_submit_wait(struct tbg_ring *r, unsigned int nr, struct __kernel_timespec *most);

/* Returns whether a completion has arrived, after fetching once more. */
bool tbg_ring_peek(struct tbg_ring *r);

static inline unsigned int tbg_ring_unsubmitted(const struct tbg_ring *r)
{
	return io_uring_sq_ready(&r->uring);
}

#endif
