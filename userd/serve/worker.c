// SPDX-License-Identifier: GPL-2.0
/*
 * A worker's ring as its objects use it: submission entries, operations with callbacks,
 * and their cancellation. worker/rounds.c runs the rounds.
 */
#include "serve/worker.h"

struct io_uring_sqe *tbg_worker_sqe(struct tbg_worker *w)
{
	struct io_uring_sqe *sqe;

	while (!(sqe = tbg_ring_sqe(&w->ring)))
		tbg_ring_submit(&w->ring);
	return sqe;
}

void tbg_worker_call(struct io_uring_sqe *sqe, struct tbg_call *call)
{
	io_uring_sqe_set_data64(sqe, tbg_op_pack(TBG_OP_CALL, call));
	call->busy = true;
}

void tbg_worker_cancel(struct tbg_worker *w, struct tbg_call *call)
{
	struct io_uring_sqe *sqe;

	if (!call->busy)
		return;
	sqe = tbg_worker_sqe(w);
	io_uring_prep_cancel64(sqe, tbg_op_pack(TBG_OP_CALL, call), 0);
	io_uring_sqe_set_data64(sqe, TBG_OP_NONE);
}

void tbg_worker_call_event(struct tbg_worker *w, const struct io_uring_cqe *cqe)
{
	struct tbg_call *call = tbg_op_object(cqe);

	call->busy = false;
	call->fn(w, call, cqe->res);
}
