/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A worker's ring (userd/os/ring.h) that keeps submitted operations. The test decides
 * about completions and rounds. Include it once per test.
 */
#ifndef TBG_TESTS_UNIT_FAKE_RING_H
#define TBG_TESTS_UNIT_FAKE_RING_H

#include <string.h>

#include "serve/worker.h"

#define FAKE_SQES	64

static struct {
	struct io_uring_sqe sqe[FAKE_SQES];
	unsigned int nr, submitted;
	unsigned int left;		/* number of entries that the kernel has not taken */
	unsigned int head, tail;
} fake_ring;

/* A ring without entries, of which the kernel has taken all but fake_ring.left. */
static void fake_ring_open(struct tbg_ring *r)
{
	memset(&fake_ring, 0, sizeof(fake_ring));
	memset(r, 0, sizeof(*r));
	r->uring.sq.khead = &fake_ring.head;
}

struct io_uring_sqe *tbg_ring_sqe(struct tbg_ring *r)
{
	struct io_uring_sqe *sqe = &fake_ring.sqe[fake_ring.nr++ % FAKE_SQES];

	memset(sqe, 0, sizeof(*sqe));
	return sqe;
}

int tbg_ring_submit(struct tbg_ring *r)
{
	fake_ring.submitted++;
	r->uring.sq.sqe_tail = fake_ring.left;
	return 0;
}

/* Returns the number of operations of that kind; *ret_last: the last of them. */
__attribute__((unused))
static unsigned int fake_ring_ops(uint8_t opcode, struct io_uring_sqe **ret_last)
{
	unsigned int ret = 0;

	for (unsigned int i = 0; i < fake_ring.nr && i < FAKE_SQES; i++)
		if (fake_ring.sqe[i].opcode == opcode) {
			ret++;
			if (ret_last)
				*ret_last = &fake_ring.sqe[i];
		}
	return ret;
}

/* Completes the call's operation with that result. */
__attribute__((unused))
static void fake_ring_complete(struct tbg_worker *w, struct tbg_call *call, int res)
{
	struct io_uring_cqe cqe = { .user_data = tbg_op_pack(TBG_OP_CALL, call), .res = res };

	tbg_worker_call_event(w, &cqe);
}

#endif
