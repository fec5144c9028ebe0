// SPDX-License-Identifier: GPL-2.0
/*
 * The rounds of a worker (userd/worker/rounds.c): which function gets a completion and
 * in which order, when it waits and for how many, what a tick does, and how it ends.
 * The ring, the clock and all called functions are fakes; in each round the ring runs
 * the next step of the test, which supplies completions.
 */
#include "fake_rounds.h"

static void call_fn(struct tbg_worker *w, struct tbg_call *call, int res)
{
	note("call");
}

static struct tbg_call call = { .fn = call_fn };

KTAP_TEST(t_where_io_uring_is_forbidden_its_ring_is_epolls)
{
	int errs[] = { -EPERM, -EACCES, -ENOSYS, -EINVAL };
	struct tbg_worker *w = begin(NULL, 0);

	KTAP_CHECK(w && !it.epoll);
	finish(w);
	for (unsigned int i = 0; i < 4; i++) {
		it.epoll = false;
		it.uring_err = errs[i];
		it.epoll_err = 0;
		KTAP_EQ(tbg_worker_open(w), 0);
		KTAP_CHECK(it.epoll);
		finish(w);
	}
	it.epoll_err = -ENOMEM;
	KTAP_EQ(tbg_worker_open(w), -ENOMEM);
	finish(w);
	/* other errors, such as no memory, are no reason to try epoll */
	it.epoll = false;
	it.uring_err = -ENOMEM;
	KTAP_EQ(tbg_worker_open(w), -ENOMEM);
	KTAP_CHECK(!it.epoll);
	finish(w);
}

static int one_of_each(void)
{
	comes(TBG_OP_RECV, &it.c, 1);
	comes(TBG_OP_POLL, &it.c, 1);
	comes(TBG_OP_WAIT, &it.c, -ETIME);
	comes(TBG_OP_NONE, NULL, -ENOENT);
	comes(TBG_OP_ACCEPT, NULL, 9);
	comes(TBG_OP_CALL, &call, 1);
	return 0;
}

KTAP_TEST(t_each_completion_goes_to_whom_it_concerns)
{
	struct tbg_worker *w = BEGIN(one_of_each);

	KTAP_EQ(tbg_worker_run(w), 0);
	KTAP_CHECK(IN_ORDER("recv_event", "poll_event", "wait_event", "accept_event", "call",
			    "deliver_due", "turns_take"));
	KTAP_EQ(it.cq_head, 6);
	KTAP_CHECK(!memcmp(w->date, "Sun, 06 Nov 1994", 16));
	finish(w);
}

static int interrupted(void)
{
	return -EINTR;
}

static int busy(void)
{
	return -EBUSY;
}

static int timed_out(void)
{
	return -ETIME;
}

static int broken(void)
{
	return -EBADF;
}

KTAP_TEST(t_only_an_error_of_the_ring_ends_it)
{
	struct tbg_worker *w = BEGIN(interrupted, busy, timed_out, one_of_each, broken, nothing);

	KTAP_EQ(tbg_worker_run(w), -EBADF);
	KTAP_CHECK(times("recv_event") == 1 && it.step == 5);
	KTAP_CHECK(IN_ORDER("transfers_end", "upstream_conns_end", "mailbox_end"));
	finish(w);
}

static int call_ends(void)
{
	comes(TBG_OP_CALL, &call, 0);
	return 0;
}

static void turn_is_left(struct tbg_worker *w, struct tbg_call *c, int res)
{
	static struct tbg_conn_active t;

	if (TAILQ_EMPTY(&w->turns))
		TAILQ_INSERT_TAIL(&w->turns, &t, turn);
	else
		TAILQ_REMOVE(&w->turns, &t, turn);
}

KTAP_TEST(t_with_something_left_to_do_it_only_looks)
{
	struct tbg_worker *w = BEGIN(call_ends, call_ends, nothing);

	call.fn = turn_is_left;
	KTAP_EQ(tbg_worker_run(w), 0);
	call.fn = call_fn;
	KTAP_EQ(times("look"), 1);	/* in the second round */
	KTAP_EQ(it.waits, 4);
	finish(w);
}

static int many_answers_are_due(void)
{
	for (int i = 0; i < 40; i++)
		comes(TBG_OP_CALL, &call, 0);
	return 0;
}

static void one_more_due(struct tbg_worker *w, struct tbg_call *c, int res)
{
	w->due_nr++;
	note("call");
}

KTAP_TEST(t_answers_go_out_when_they_are_many)
{
	struct tbg_worker *w = BEGIN(many_answers_are_due);
	const char *first;

	call.fn = one_more_due;
	KTAP_EQ(tbg_worker_run(w), 0);
	call.fn = call_fn;
	first = strstr(it.log, "deliver_due");
	*(char *)first = 0;
	KTAP_EQ(times("call"), 32);
	finish(w);
}

static int more_came(void)
{
	comes(TBG_OP_RECV, &it.c, 1);
	return true;
}

static int request_is_due(void)
{
	STAILQ_INSERT_TAIL(&it.w.due_upstream_conns, &it.up, due_link);
	it.peek = more_came;
	it.w.ring.uring.sq.sqe_tail = 1;	/* something to submit */
	return 0;
}

KTAP_TEST(t_before_a_request_goes_out_it_looks_at_what_came)
{
	struct tbg_worker *w = BEGIN(request_is_due);

	KTAP_EQ(tbg_worker_run(w), 0);
	/* not all could be submitted: the request waits */
	KTAP_CHECK(IN_ORDER("deliver_due", "upstream_conns_look", "look"));
	KTAP_EQ(times("upstream_conns_due"), 0);
	finish(w);

	w = BEGIN(request_is_due);
	fake_ring.head = 1;			/* the kernel has taken it */
	KTAP_EQ(tbg_worker_run(w), 0);
	KTAP_CHECK(IN_ORDER("deliver_due", "upstream_conns_look", "recv_event", "upstream_conns_due"));
	finish(w);
}

static int tick(void)
{
	it.now_ns += 125 * MS;
	comes(TBG_OP_TICK, NULL, -ETIME);
	return 0;
}

KTAP_TEST(t_eight_ticks_check_every_connection)
{
	struct tbg_worker *w = BEGIN(tick, tick, tick, tick, tick, tick, tick, tick);
	struct io_uring_sqe *sqe = NULL;

	w->slabs_nr = 15;
	KTAP_EQ(tbg_worker_run(w), 0);
	KTAP_EQ(it.checks, 8);
	KTAP_CHECK(it.checked_to >= 15);
	KTAP_EQ(w->sweep_at, 0);
	KTAP_EQ(times("health_tick"), 8);
	KTAP_EQ(times("take_back_tick"), 8);
	KTAP_EQ(times("transfers_check"), 8);
	KTAP_EQ(times("upstream_conns_check"), 8);
	KTAP_EQ(fake_ring_ops(IORING_OP_TIMEOUT, &sqe), 9);
	KTAP_EQ(w->tick.tv_nsec, 125 * MS);
	finish(w);
}

static int late_tick(void)
{
	it.now_ns += 126 * MS;
	return tick();
}

KTAP_TEST(t_behind_a_late_tick_nobodys_time_is_over_yet)
{
	struct tbg_worker *w = BEGIN(late_tick);

	KTAP_EQ(tbg_worker_run(w), 0);
	KTAP_CHECK(times("transfers_check") == 0 && it.checks == 0 && w->held_up);
	KTAP_EQ(times("health_tick"), 1);
	finish(w);
	/* always late: every second tick checks */
	w = BEGIN(late_tick, late_tick, late_tick, late_tick);
	KTAP_EQ(tbg_worker_run(w), 0);
	KTAP_EQ(times("transfers_check"), 2);
	finish(w);
}

static int eight_ms(void)
{
	it.now_ns += 8 * MS;
	return 0;
}

static int many_clients(void)
{
	it.w.callers = 200;
	it.w.completions = 8 * 60;
	return eight_ms();
}

static int some_clients(void)
{
	it.w.callers = 40;
	it.w.completions = 8 * 60;
	return eight_ms();
}

static int few_clients(void)
{
	it.w.callers = 31;
	it.w.completions = 8 * 60;
	return eight_ms();
}

static int slow_clients(void)
{
	it.w.callers = 200;
	it.w.completions = 8 * 40;
	return eight_ms();
}

static unsigned int waited_nr;

static int waited(void)
{
	waited_nr = it.wait_nr;
	comes(TBG_OP_NONE, NULL, 0);
	return 0;
}

KTAP_TEST(t_where_many_clients_keep_it_busy_it_waits_for_several)
{
	static const struct {
		int (*clients)(void);
		unsigned int nr;
	} cases[] = { { many_clients, 16 }, { some_clients, 10 }, { few_clients, 1 },
		      { slow_clients, 1 } };

	for (unsigned int i = 0; i < 4; i++) {
		struct tbg_worker *w = BEGIN(cases[i].clients, waited);

		KTAP_EQ(tbg_worker_run(w), 0);
		KTAP_EQ(waited_nr, cases[i].nr);
		finish(w);
	}
}

KTAP_TEST(t_a_wait_for_several_that_finds_none_waits_for_one)
{
	struct tbg_worker *w = BEGIN(many_clients, timed_out, waited);

	KTAP_EQ(tbg_worker_run(w), 0);
	KTAP_EQ(waited_nr, 1);
	finish(w);
}

static int one_is_parked(void)
{
	static int fds[1];

	it.w.parked.fds = fds;
	it.w.parked.nr = 1;
	it.w.parked.fds[0] = dup(0);
	it.w.way_wanted = it.w.room_made = true;
	return 0;
}

KTAP_TEST(t_who_waits_for_room_is_thought_of_at_the_end_of_a_round)
{
	struct tbg_worker *w = BEGIN(one_is_parked, tick);

	KTAP_EQ(tbg_worker_run(w), 0);
	KTAP_CHECK(IN_ORDER("accept_resume", "deliver_due", "turns_take", "give_way",
			    "accept_resume", "accept_resume", "give_way"));
	KTAP_CHECK(!w->way_wanted && !w->room_made);
	close(w->parked.fds[0]);
	finish(w);
}

static int buffers_are_used(void)
{
	it.w.buffers_back = 3;
	return 0;
}

KTAP_TEST(t_buffers_go_back_at_the_end_of_a_round)
{
	static struct io_uring_buf_ring ring;
	struct tbg_worker *w = BEGIN(buffers_are_used, nothing);

	ring.tail = 10;
	w->buffers = &ring;
	KTAP_EQ(tbg_worker_run(w), 0);
	KTAP_EQ(ring.tail, 13);
	KTAP_EQ(w->buffers_back, 0);
	finish(w);
}

static int wake(void)
{
	it.w.wake_value = 1;
	comes(TBG_OP_WAKE, NULL, 8);
	return 0;
}

KTAP_TEST(t_when_woken_it_reads_its_mail)
{
	struct tbg_worker *w = BEGIN(wake, wake);

	KTAP_EQ(tbg_worker_run(w), 0);
	KTAP_EQ(times("mailbox_read"), 2);
	KTAP_EQ(fake_ring_ops(IORING_OP_READ, NULL), 3);
	finish(w);
}

static int drains(void)
{
	atomic_store(&it.s.draining, true);
	return wake();
}

KTAP_TEST(t_without_connections_draining_is_over_at_once)
{
	struct tbg_worker *w = BEGIN(drains, tick);

	w->listeners_nr = 2;
	KTAP_EQ(tbg_worker_run(w), 0);
	KTAP_EQ(it.step, 1);
	KTAP_EQ(times("accept_rest"), 2);	/* already established connections are served */
	finish(w);
	/* but not while another worker uses one of its transfers */
	w = BEGIN(drains, tick, tick);
	it.awaited = true;
	KTAP_EQ(tbg_worker_run(w), 0);
	KTAP_EQ(it.step, 3);
	finish(w);
}

static int much_later(void)
{
	it.now_ns += 6000 * MS;		/* longer than a connection may be without progress */
	return tick();
}

static int conn_moves(void)
{
	it.c.stamp_ms = (it.now_ns + 125 * MS - it.w.start_ns) / MS;
	return tick();
}

static int conn_ends(void)
{
	it.w.conns_nr = 0;
	return tick();
}

KTAP_TEST(t_draining_ends_connections_that_stand_still)
{
	struct tbg_worker *w = BEGIN(drains, tick, tick, tick, much_later, tick, tick);

	w->conns_nr = 1;
	KTAP_EQ(tbg_worker_run(w), 0);
	KTAP_CHECK(times("conn_drain") >= 1);	/* idle ones are closed after 300 ms */
	KTAP_CHECK(it.killed == 1 && w->done);
	KTAP_EQ(times("upstream_conns_end"), 1);
	finish(w);
}

KTAP_TEST(t_draining_waits_for_a_client_that_gets_on)
{
	struct tbg_worker *w = BEGIN(drains, much_later, conn_moves, conn_moves, conn_ends);

	w->conns_nr = 1;
	it.takes = true;
	KTAP_EQ(tbg_worker_run(w), 0);
	KTAP_EQ(it.step, 5);
	KTAP_EQ(it.killed, 0);
	finish(w);
}

KTAP_TEST(t_draining_ends_after_its_time)
{
	struct tbg_worker *w = BEGIN(drains, much_later, conn_ends, tick);

	it.s.opt.drain_ms = 6000;
	it.takes = true;
	w->conns_nr = 1;
	KTAP_EQ(tbg_worker_run(w), 0);
	KTAP_EQ(it.killed, 1);
	KTAP_EQ(it.step, 3);
	KTAP_CHECK(IN_ORDER("transfers_end", "upstream_conns_end"));
	finish(w);
}

static int wake_now(void)
{
	it.w.wake_value = TBG_WAKE_NOW;
	comes(TBG_OP_WAKE, NULL, 8);
	return 0;
}

KTAP_TEST(t_a_second_signal_ends_it_at_once)
{
	struct tbg_worker *w = BEGIN(drains, wake_now, conn_ends, tick);

	it.takes = true;
	w->conns_nr = 1;
	KTAP_EQ(tbg_worker_run(w), 0);
	KTAP_EQ(it.killed, 1);
	KTAP_EQ(it.step, 3);		/* one more round, until its operations had ended */
	finish(w);
}

static int a_second(void)
{
	it.now_ns += 1000 * MS;
	return 0;
}

KTAP_TEST(t_operations_that_do_not_end_are_left_after_half_a_second)
{
	struct tbg_worker *w = BEGIN(drains, wake_now, nothing, a_second, nothing);

	it.takes = true;
	w->conns_nr = 1;
	KTAP_EQ(tbg_worker_run(w), 0);
	KTAP_EQ(it.step, 4);
	finish(w);
}

KTAP_MAIN()
