// SPDX-License-Identifier: GPL-2.0
/*
 * The ring operations of a connection (userd/client/ring.c): which ones are submitted,
 * and the effect of each completion. The ring, sock and the connection are fakes.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <bpf/libbpf.h>

#include "client/connection.h"
#include "core/span.h"
#include "fake_ring.h"
#include "ktap.h"
#include "tiers/sock.h"

#define NEWS_FD		77
#define CONN_FD		5
#define SOCK_SLOTS	4

/* The last function of the connection that ring.c called. */
enum called { NOTHING, RECEIVE, RECV, END, KILL, WRITABLE, AGAIN };

static struct {
	struct tbg_server s;
	struct tbg_worker w;
	struct tbg_conn c;
	struct tbg_sock_conn sock[SOCK_SLOTS];
	struct io_uring_buf_ring *ring;
	unsigned int buffers;
	enum called called;
	unsigned int calls;
	const uint8_t *bytes;
	uint32_t bytes_nr;
	enum tbg_conn_state becomes;	/* when bytes are received */
	ring_buffer_sample_fn on_news;
	void *news_ctx;
	uint32_t news_slot;
	bool news_freed;
} it;

static void called(enum called what)
{
	it.called = what;
	it.calls++;
}

int tbg_ring_buffers(struct tbg_ring *r, struct io_uring_buf_ring *buffers, unsigned int nr)
{
	it.ring = buffers;
	it.buffers = nr;
	return 0;
}

void tbg_conn_receive(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *b, uint32_t n)
{
	called(RECEIVE);
	it.bytes = b;
	it.bytes_nr = n;
	if (it.becomes)
		c->state = it.becomes;
}

void tbg_conn_recv(struct tbg_worker *w, struct tbg_conn *c)
{
	called(RECV);
}

void tbg_conn_eof(struct tbg_worker *w, struct tbg_conn *c)
{
	called(END);
}

void tbg_conn_kill(struct tbg_worker *w, struct tbg_conn *c)
{
	called(KILL);
}

void tbg_conn_writable(struct tbg_worker *w, struct tbg_conn *c)
{
	called(WRITABLE);
}

void tbg_conn_again(struct tbg_worker *w, struct tbg_conn *c)
{
	called(AGAIN);
}

uint32_t tbg_sock_slots(const struct tbg_sock *s)
{
	return SOCK_SLOTS;
}

int tbg_sock_news_fd(const struct tbg_sock *s, unsigned int worker)
{
	return NEWS_FD;
}

struct tbg_sock_conn *tbg_sock_conn(const struct tbg_sock *s, int slot)
{
	return &it.sock[slot];
}

struct ring_buffer *ring_buffer__new(int fd, ring_buffer_sample_fn fn, void *ctx,
				     const struct ring_buffer_opts *opts)
{
	it.on_news = fn;
	it.news_ctx = ctx;
	return fd == NEWS_FD ? (struct ring_buffer *)&it : NULL;
}

int ring_buffer__consume(struct ring_buffer *r)
{
	return it.on_news(it.news_ctx, &it.news_slot, sizeof(it.news_slot));
}

void ring_buffer__free(struct ring_buffer *r)
{
	it.news_freed = true;
}

libbpf_print_fn_t libbpf_set_print(libbpf_print_fn_t fn)
{
	return NULL;
}

/* A connection without submitted operations. */
static struct tbg_worker *begin(void)
{
	memset(&it, 0, sizeof(it));
	it.w.s = &it.s;
	it.c = (struct tbg_conn){ .fd = CONN_FD, .sock = -1, .slot = -1, .state = TBG_CONN_OPEN };
	fake_ring_open(&it.w.ring);
	return &it.w;
}

static struct io_uring_sqe *last(void)
{
	return &fake_ring.sqe[fake_ring.nr - 1];
}

/* Its receive completes with that result; in a buffer, if there are bytes. */
static void received(int res, bool more)
{
	struct io_uring_cqe cqe = {
		.user_data = tbg_op_pack(TBG_OP_RECV, &it.c), .res = res,
		.flags = (more ? IORING_CQE_F_MORE : 0) |
			 (res > 0 ? IORING_CQE_F_BUFFER | 3 << IORING_CQE_BUFFER_SHIFT : 0),
	};

	it.called = NOTHING;
	tbg_conn_recv_event(&it.w, &cqe);
}

static void buffers_close(struct tbg_worker *w)
{
	munmap(w->buffer_memory, it.buffers * sizeof(struct tbg_head) + sizeof(struct tbg_head));
	munmap(w->buffers, it.buffers * sizeof(struct io_uring_buf));
}

KTAP_TEST(t_bytes_arrive_in_a_buffer_that_is_given_back)
{
	struct tbg_worker *w = begin();

	KTAP_EQ(tbg_conn_buffers_open(w), 0);
	KTAP_EQ(it.ring->tail, it.buffers);	/* the kernel has all of them */
	tbg_conn_recv_arm(w, &it.c);
	KTAP_EQ(last()->opcode, IORING_OP_RECV);
	KTAP_EQ(last()->fd, CONN_FD);
	KTAP_CHECK(last()->ioprio & IORING_RECV_MULTISHOT);
	KTAP_CHECK(last()->flags & IOSQE_BUFFER_SELECT);
	KTAP_CHECK(it.c.receiving && it.c.ops == 1);
	received(9, true);
	KTAP_EQ(it.called, RECEIVE);
	KTAP_EQ(it.bytes_nr, 9);
	KTAP_CHECK((uint64_t)(uintptr_t)it.bytes == it.ring->bufs[3].addr);
	KTAP_CHECK(it.c.receiving && it.c.ops == 1);
	/* at the end of the round, after those that the kernel has */
	KTAP_EQ(w->buffers_back, 1);
	KTAP_EQ(it.ring->tail, it.buffers);
	KTAP_EQ(it.ring->bufs[it.ring->tail & (it.buffers - 1)].bid, 3);
	buffers_close(w);
}

KTAP_TEST(t_a_head_that_fills_a_buffer_may_be_read_beyond)
{
	struct tbg_worker *w = begin();

	KTAP_EQ(tbg_conn_buffers_open(w), 0);
	for (unsigned int i = 0; i < it.buffers; i++) {
		uint64_t next = i + 1 < it.buffers ? it.ring->bufs[i + 1].addr :
				(uintptr_t)w->buffer_memory +
				it.buffers * sizeof(struct tbg_head) + TBG_REQ_SLACK;

		KTAP_CHECK(it.ring->bufs[i].addr + it.ring->bufs[i].len + TBG_REQ_SLACK <= next);
	}
	buffers_close(w);
}

KTAP_TEST(t_the_end_of_the_stream_ends_the_operation)
{
	struct tbg_worker *w = begin();

	tbg_conn_recv_arm(w, &it.c);
	received(0, false);
	KTAP_EQ(it.called, END);
	KTAP_CHECK(!it.c.receiving && !it.c.ops && !it.c.eof);
}

KTAP_TEST(t_an_error_ends_the_connection)
{
	struct tbg_worker *w = begin();

	tbg_conn_recv_arm(w, &it.c);
	received(-ECONNRESET, false);
	KTAP_EQ(it.called, KILL);
	KTAP_CHECK(it.c.eof && !it.c.receiving && !it.c.ops);
}

KTAP_TEST(t_without_a_buffer_it_receives_once_more)
{
	struct tbg_worker *w = begin();
	int errs[] = { -ENOBUFS, -ECANCELED };

	for (int i = 0; i < 2; i++) {
		tbg_conn_recv_arm(w, &it.c);
		received(errs[i], false);
		KTAP_EQ(it.called, RECV);	/* which checks whether input is full */
		KTAP_CHECK(!it.c.receiving);
	}
	/* data after our shutdown is received and discarded */
	it.c.state = TBG_CONN_LINGER;
	tbg_conn_recv_arm(w, &it.c);
	received(-ENOBUFS, false);
	KTAP_EQ(it.called, NOTHING);
	KTAP_CHECK(it.c.receiving && it.c.ops == 1);
}

KTAP_TEST(t_one_that_begins_to_linger_goes_on_receiving)
{
	struct tbg_worker *w = begin();

	KTAP_EQ(tbg_conn_buffers_open(w), 0);
	tbg_conn_recv_arm(w, &it.c);
	it.becomes = TBG_CONN_LINGER;
	received(1, false);
	KTAP_CHECK(it.c.receiving && it.c.ops == 1);
	KTAP_EQ(fake_ring_ops(IORING_OP_RECV, NULL), 2);
	buffers_close(w);
}

KTAP_TEST(t_a_closing_connection_waits_for_its_operations)
{
	struct tbg_worker *w = begin();
	struct io_uring_sqe *sqe = NULL;
	struct io_uring_cqe cqe = { .user_data = tbg_op_pack(TBG_OP_POLL, &it.c),
				    .res = -ECANCELED };

	tbg_conn_recv_arm(w, &it.c);
	tbg_conn_poll(w, &it.c);
	KTAP_EQ(it.c.ops, 2);
	/* while it is open, only the receive is cancelled */
	tbg_conn_recv_stop(w, &it.c);
	KTAP_EQ(fake_ring_ops(IORING_OP_ASYNC_CANCEL, &sqe), 1);
	KTAP_CHECK(sqe->addr == tbg_op_pack(TBG_OP_RECV, &it.c));
	KTAP_EQ(sqe->user_data, TBG_OP_NONE);
	it.c.state = TBG_CONN_CLOSING;
	tbg_conn_recv_stop(w, &it.c);
	KTAP_EQ(fake_ring_ops(IORING_OP_ASYNC_CANCEL, &sqe), 3);
	KTAP_CHECK(sqe->addr == tbg_op_pack(TBG_OP_POLL, &it.c));
	received(-ECANCELED, false);
	KTAP_EQ(it.called, END);
	KTAP_CHECK(it.c.eof && it.c.ops == 1);
	tbg_conn_poll_event(w, &cqe);
	KTAP_EQ(it.c.ops, 0);
	tbg_conn_recv_stop(w, &it.c);
	KTAP_EQ(fake_ring_ops(IORING_OP_ASYNC_CANCEL, NULL), 3);
}

KTAP_TEST(t_room_in_its_socket_is_awaited_once)
{
	struct tbg_worker *w = begin();
	struct io_uring_cqe cqe = { .user_data = tbg_op_pack(TBG_OP_POLL, &it.c), .res = POLLOUT };

	tbg_conn_poll(w, &it.c);
	tbg_conn_poll(w, &it.c);
	KTAP_EQ(fake_ring_ops(IORING_OP_POLL_ADD, NULL), 1);
	KTAP_EQ(last()->poll32_events, POLLOUT);
	tbg_conn_poll_event(w, &cqe);
	KTAP_EQ(it.called, WRITABLE);
	KTAP_CHECK(!it.c.polling && !it.c.ops);
	tbg_conn_poll(w, &it.c);
	KTAP_EQ(fake_ring_ops(IORING_OP_POLL_ADD, NULL), 2);
}

KTAP_TEST(t_a_moment_is_awaited_once)
{
	struct tbg_worker *w = begin();
	struct io_uring_cqe cqe = { .user_data = tbg_op_pack(TBG_OP_WAIT, &it.c), .res = -ETIME };

	tbg_conn_wait(w, &it.c);
	tbg_conn_wait(w, &it.c);
	KTAP_EQ(fake_ring_ops(IORING_OP_TIMEOUT, NULL), 1);
	KTAP_CHECK(!w->wait.tv_sec && w->wait.tv_nsec == 2000000);
	tbg_conn_wait_event(w, &cqe);
	KTAP_EQ(it.called, AGAIN);
	KTAP_CHECK(!it.c.waiting && !it.c.ops);
}

KTAP_TEST(t_a_client_is_counted_once_in_a_period)
{
	struct tbg_worker *w = begin();

	KTAP_EQ(tbg_conn_buffers_open(w), 0);
	w->period = 7;
	tbg_conn_recv_arm(w, &it.c);
	received(1, true);
	received(1, true);
	KTAP_EQ(w->callers, 1);
	w->period++;
	received(1, true);
	KTAP_EQ(w->callers, 2);
	buffers_close(w);
}

KTAP_TEST(t_sock_knows_what_has_been_received)
{
	struct tbg_worker *w = begin();

	KTAP_EQ(tbg_conn_buffers_open(w), 0);
	it.c.sock = 2;
	tbg_conn_recv_arm(w, &it.c);
	received(100, true);
	received(20, true);
	received(0, false);
	KTAP_EQ(it.sock[2].received, 120);
	KTAP_EQ(it.sock[0].received, 0);
	buffers_close(w);
}

KTAP_TEST(t_news_of_sock_wake_connections_that_rest)
{
	struct tbg_worker *w = begin();

	KTAP_EQ(tbg_conn_news_open(w), 0);
	tbg_conn_news_arm(w);
	KTAP_EQ(last()->opcode, IORING_OP_POLL_ADD);
	KTAP_EQ(last()->fd, NEWS_FD);
	w->by_sock[1] = &it.c;
	it.news_slot = 1;
	fake_ring_complete(w, &w->news_call, POLLIN);
	KTAP_EQ(it.called, RECV);
	KTAP_EQ(fake_ring_ops(IORING_OP_POLL_ADD, NULL), 2);	/* and waits for the next event */
	/* for a connection that has ended meanwhile */
	it.news_slot = 3;
	fake_ring_complete(w, &w->news_call, POLLIN);
	KTAP_EQ(it.calls, 1);
	tbg_conn_news_close(w);
	KTAP_CHECK(it.news_freed && !w->news && !w->by_sock);
}

KTAP_MAIN()
