// SPDX-License-Identifier: GPL-2.0
/*
 * The io_uring operations of a connection and their completions: receive into buffers
 * that the kernel selects, wait until its socket is writable, wait for a time. The
 * worker's rounds dispatch the completions. No other file of this folder uses the ring.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <bpf/libbpf.h>

#include "client/connection.h"
#include "core/span.h"
#include "serve/worker.h"
#include "tiers/sock.h"

#define BUFFERS		512		/* must be a power of two */
#define BUFFER_BYTES	TBG_REQ_MAX
#define BUFFER_STRIDE	sizeof(struct tbg_head)
#define GROUP		0
#define WAIT_MS		2		/* until data queued in the kernel becomes readable */

int tbg_conn_buffers_open(struct tbg_worker *w)
{
	size_t ring_bytes = BUFFERS * sizeof(struct io_uring_buf);
	size_t bytes = BUFFERS * BUFFER_STRIDE + sizeof(struct tbg_head);
	void *ring = mmap(NULL, ring_bytes, PROT_READ | PROT_WRITE,
			  MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
	int err;

	if (ring == MAP_FAILED)
		return -ENOMEM;
	w->buffer_memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
	if (w->buffer_memory == MAP_FAILED) {
		munmap(ring, ring_bytes);
		return -ENOMEM;
	}
	err = tbg_ring_buffers(&w->ring, ring, BUFFERS);
	if (err)
		return err;
	w->buffers = ring;
	io_uring_buf_ring_init(w->buffers);
	for (unsigned int i = 0; i < BUFFERS; i++)
		io_uring_buf_ring_add(w->buffers, w->buffer_memory + i * BUFFER_STRIDE,
				      BUFFER_BYTES, i,
				      io_uring_buf_ring_mask(BUFFERS), i);
	io_uring_buf_ring_advance(w->buffers, BUFFERS);
	return 0;
}

static void buffer_back(struct tbg_worker *w, unsigned int id)
{
	io_uring_buf_ring_add(w->buffers, w->buffer_memory + id * BUFFER_STRIDE,
			      BUFFER_BYTES, id, io_uring_buf_ring_mask(BUFFERS),
			      w->buffers_back++);
}

void tbg_conn_recv_arm(struct tbg_worker *w, struct tbg_conn *c)
{
	struct io_uring_sqe *sqe = tbg_worker_sqe(w);

	io_uring_prep_recv_multishot(sqe, c->fd, NULL, 0, 0);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = GROUP;
	io_uring_sqe_set_data64(sqe, tbg_op_pack(TBG_OP_RECV, c));
	c->receiving = true;
	c->ops++;
}

void tbg_conn_recv_stop(struct tbg_worker *w, struct tbg_conn *c)
{
	struct io_uring_sqe *sqe;

	if (c->receiving) {
		sqe = tbg_worker_sqe(w);
		io_uring_prep_cancel64(sqe, tbg_op_pack(TBG_OP_RECV, c), 0);
		io_uring_sqe_set_data64(sqe, TBG_OP_NONE);
	}
	if (c->polling && c->state == TBG_CONN_CLOSING) {
		sqe = tbg_worker_sqe(w);
		io_uring_prep_cancel64(sqe, tbg_op_pack(TBG_OP_POLL, c), 0);
		io_uring_sqe_set_data64(sqe, TBG_OP_NONE);
	}
}

void tbg_conn_recv_event(struct tbg_worker *w, const struct io_uring_cqe *cqe)
{
	struct tbg_conn *c = tbg_op_object(cqe);
	bool buffer = cqe->flags & IORING_CQE_F_BUFFER;
	unsigned int id = cqe->flags >> IORING_CQE_BUFFER_SHIFT;

	if (!(cqe->flags & IORING_CQE_F_MORE)) {
		c->receiving = false;
		assert(c->ops);
		c->ops--;
	}
	if (cqe->res > 0 && c->sock >= 0)
		tbg_sock_received(tbg_sock_conn(w->s->sock, c->sock), cqe->res);
	if (cqe->res > 0) {
		const uint8_t *b = w->buffer_memory + id * BUFFER_STRIDE;

		w->callers += c->period != w->period;
		c->period = w->period;
		tbg_conn_receive(w, c, b, cqe->res);
		if (c->state == TBG_CONN_LINGER && !c->receiving)
			tbg_conn_recv_arm(w, c);
	} else if ((cqe->res == -ENOBUFS || cqe->res == -ECANCELED) &&
		   c->state != TBG_CONN_CLOSING) {
		if (c->state == TBG_CONN_LINGER && !c->receiving)
			tbg_conn_recv_arm(w, c);
		else		/* Linux 6.1 stops only for lack of buffers; input may be full */
			tbg_conn_recv(w, c);
	} else if (cqe->res || c->state == TBG_CONN_CLOSING) {
		c->eof = true;
		if (c->state == TBG_CONN_CLOSING)
			tbg_conn_eof(w, c);
		else
			tbg_conn_kill(w, c);
	} else {
		tbg_conn_eof(w, c);
	}
	if (buffer)
		buffer_back(w, id);
}

void tbg_conn_news_arm(struct tbg_worker *w)
{
	struct io_uring_sqe *sqe = tbg_worker_sqe(w);

	io_uring_prep_poll_add(sqe, tbg_sock_news_fd(w->s->sock, w->id), POLLIN);
	tbg_worker_call(sqe, &w->news_call);
}

static int on_news(void *ctx, void *slot, size_t len)
{
	struct tbg_worker *w = ctx;
	struct tbg_conn *c = w->by_sock[*(uint32_t *)slot];

	if (c)
		tbg_conn_recv(w, c);
	return 0;
}

static void news_event(struct tbg_worker *w, struct tbg_call *call, int res)
{
	ring_buffer__consume(w->news);
	tbg_conn_news_arm(w);
}

int tbg_conn_news_open(struct tbg_worker *w)
{
	libbpf_print_fn_t print = libbpf_set_print(NULL);
	int err;

	w->by_sock = calloc(tbg_sock_slots(w->s->sock), sizeof(*w->by_sock));
	w->news = ring_buffer__new(tbg_sock_news_fd(w->s->sock, w->id), on_news, w, NULL);
	err = w->by_sock && w->news ? 0 : -errno;
	libbpf_set_print(print);
	w->news_call.fn = news_event;
	return err;
}

void tbg_conn_news_close(struct tbg_worker *w)
{
	ring_buffer__free(w->news);
	free(w->by_sock);
	w->news = NULL;
	w->by_sock = NULL;
}

void tbg_conn_poll(struct tbg_worker *w, struct tbg_conn *c)
{
	struct io_uring_sqe *sqe;

	if (c->polling)
		return;
	sqe = tbg_worker_sqe(w);
	io_uring_prep_poll_add(sqe, c->fd, POLLOUT);
	io_uring_sqe_set_data64(sqe, tbg_op_pack(TBG_OP_POLL, c));
	c->polling = true;
	c->ops++;
}

void tbg_conn_poll_event(struct tbg_worker *w, const struct io_uring_cqe *cqe)
{
	struct tbg_conn *c = tbg_op_object(cqe);

	c->polling = false;
	assert(c->ops);
	c->ops--;
	tbg_conn_writable(w, c);
}

void tbg_conn_wait(struct tbg_worker *w, struct tbg_conn *c)
{
	struct io_uring_sqe *sqe;

	if (c->waiting)
		return;
	sqe = tbg_worker_sqe(w);
	w->wait = (struct __kernel_timespec){ .tv_nsec = WAIT_MS * 1000000 };
	io_uring_prep_timeout(sqe, &w->wait, 0, 0);
	io_uring_sqe_set_data64(sqe, tbg_op_pack(TBG_OP_WAIT, c));
	c->waiting = true;
	c->ops++;
}

void tbg_conn_wait_event(struct tbg_worker *w, const struct io_uring_cqe *cqe)
{
	struct tbg_conn *c = tbg_op_object(cqe);

	c->waiting = false;
	c->ops--;
	tbg_conn_again(w, c);
}
