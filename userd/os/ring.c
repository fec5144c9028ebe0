// SPDX-License-Identifier: GPL-2.0
/*
 * Thin wrappers around io_uring. ring_epoll.c has the other implementation.
 */
#include "os/ring.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/ring_epoll.h"

int tbg_ring_open(struct tbg_ring *r, unsigned int entries, unsigned int completions)
{
	struct io_uring_params p = {
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			 IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
			 IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | IORING_SETUP_R_DISABLED,
		.cq_entries = completions,
	};

	r->epoll = NULL;
	return io_uring_queue_init_params(entries, &r->uring, &p);
}

int tbg_ring_buffers(struct tbg_ring *r, struct io_uring_buf_ring *buffers, unsigned int nr)
{
	struct io_uring_buf_reg reg = {
		.ring_addr = (uintptr_t)buffers, .ring_entries = nr,
	};

	if (!r->epoll)
		return io_uring_register_buf_ring(&r->uring, &reg, 0);
	tbg_ring_epoll_buffers(r->epoll, buffers, nr);
	return 0;
}

int tbg_ring_enable(struct tbg_ring *r)
{
	if (r->epoll)
		return 0;
	/* declared by liburing 2.3, but not exported */
	return syscall(SYS_io_uring_register, r->uring.ring_fd, IORING_REGISTER_ENABLE_RINGS,
		       NULL, 0) < 0 ? -errno : 0;
}

struct io_uring_sqe *tbg_ring_sqe(struct tbg_ring *r)
{
	return r->epoll ? tbg_ring_epoll_sqe(r) : io_uring_get_sqe(&r->uring);
}

int tbg_ring_submit(struct tbg_ring *r)
{
	return r->epoll ? tbg_ring_epoll_submit(r) : io_uring_submit(&r->uring);
}

int tbg_ring_submit_look(struct tbg_ring *r)
{
	return r->epoll ? tbg_ring_epoll_wait(r, 0, NULL) :
			  io_uring_submit_and_get_events(&r->uring);
}

int tbg_ring_submit_wait(struct tbg_ring *r, unsigned int nr, struct __kernel_timespec *most)
{
	struct io_uring_cqe *cqe;

	if (r->epoll)
		return tbg_ring_epoll_wait(r, nr, most);
	return most ? io_uring_submit_and_wait_timeout(&r->uring, &cqe, nr, most, NULL) :
		      io_uring_submit_and_wait(&r->uring, nr);
}

bool tbg_ring_peek(struct tbg_ring *r)
{
	struct io_uring_cqe *cqe;

	return r->epoll ? io_uring_cq_ready(&r->uring) : !io_uring_peek_cqe(&r->uring, &cqe);
}
