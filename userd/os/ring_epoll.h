/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The ring of ring.h on epoll. Called only by ring.c.
 */
#ifndef TBG_USERD_OS_RING_EPOLL_H
#define TBG_USERD_OS_RING_EPOLL_H

#include "os/ring.h"

void tbg_ring_epoll_buffers(struct tbg_ring_epoll *e, struct io_uring_buf_ring *buffers,
			    unsigned int nr);
struct io_uring_sqe *tbg_ring_epoll_sqe(struct tbg_ring *r);
int tbg_ring_epoll_submit(struct tbg_ring *r);
int tbg_ring_epoll_wait(struct tbg_ring *r, unsigned int nr, struct __kernel_timespec *most);

#endif
