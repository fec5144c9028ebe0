// SPDX-License-Identifier: GPL-2.0
/*
 * The rounds of a worker: one io_uring ring that only this thread uses, one timer. Each
 * round dispatches all completions, then sends what is due. It knows nothing about
 * requests: the meaning of a completion is in client/ring.c, accept.c and the object of a
 * call.
 */
#include "worker/rounds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/connection.h"
#include "client/take_back.h"
#include "os/clock.h"
#include "os/limits.h"
#include "os/timers.h"
#include "proxy/connection_pool.h"
#include "proxy/deliver.h"
#include "proxy/health.h"
#include "proxy/transfer.h"
#include "serve/worker.h"
#include "tiers/maps.h"
#include "worker/internal.h"

#define SQ_ENTRIES	1024
#define CQ_ENTRIES	8192
#define DUE_MAX		32		/* answers that are sent in a row */
#define BATCH_MAX	16		/* completions to wait for at once, */
#define BATCH_NS	50000		/* for at most about this long, */
#define BATCH_SHARE	4		/* with this many times as many clients, */
#define BATCH_CLIENTS	32		/* with at least this many clients */
#define BATCH_RATE	48		/* and this many completions in a millisecond */
#define PERIOD_MS	8
#define TICKS_PER_SWEEP	8		/* every connection once a second */
#define DRAIN_BYTES	(48u << 10)	/* taken within drain-still: progress of a client */
#define END_NS		500000000ull	/* time for the last operations of connections */
/* Time for the next request of a busy client, which is answered with Connection: close. */
#define DRAIN_IDLE_NS	300000000ull

int tbg_worker_open(struct tbg_worker *w)
{
	int err;

	w->out = malloc(TBG_OUT_BYTES);
	w->idle = calloc(TBG_UPSTREAM_CONN_POOLS, sizeof(*w->idle));
	if (!w->out || !w->idle)
		return -ENOMEM;
	tbg_mailbox_init(&w->mailbox, w, w->wake_fd);
	STAILQ_INIT(&w->due);
	TAILQ_INIT(&w->turns);
	STAILQ_INIT(&w->due_upstream_conns);
	err = tbg_ring_open(&w->ring, SQ_ENTRIES, CQ_ENTRIES);
	if (err == -EPERM || err == -EACCES || err == -ENOSYS || err == -EINVAL)
		err = tbg_ring_open_epoll(&w->ring, SQ_ENTRIES, CQ_ENTRIES);
	if (err)
		return err;
	return tbg_conn_buffers_open(w);
}

static void tick_arm(struct tbg_worker *w)
{
	struct io_uring_sqe *sqe = tbg_worker_sqe(w);

	w->tick = (struct __kernel_timespec){ .tv_nsec = TICK_MS * 1000000 };
	w->tick_ns = w->now_ns;
	io_uring_prep_timeout(sqe, &w->tick, 0, 0);
	io_uring_sqe_set_data64(sqe, TBG_OP_TICK);
}

static void wake_arm(struct tbg_worker *w)
{
	struct io_uring_sqe *sqe = tbg_worker_sqe(w);

	io_uring_prep_read(sqe, w->wake_fd, &w->wake_value, 8, 0);
	io_uring_sqe_set_data64(sqe, TBG_OP_WAKE);
}

/*
 * Progress is what the client takes, not what the daemon writes: the socket may hold
 * megabytes. For a client that takes very little, draining waits as long as each send
 * completes or, if the kernel has all bytes, for twice the time.
 */
static void drain_look(struct tbg_worker *w, struct tbg_conn *c)
{
	bool open = c->state == TBG_CONN_OPEN, lingers = c->state == TBG_CONN_LINGER;
	uint32_t still_ms = tbg_timer_ms(TBG_TIMER_DRAIN_STILL);
	bool soon = open || w->now_ns - w->drain_ns < 2 * tbg_timer_ns(TBG_TIMER_DRAIN);

	if (!open && !lingers)
		return;
	w->drain_moves |= (soon && w->now_ms - c->stamp_ms < still_ms) ||
			  tbg_conn_takes(w, c, DRAIN_BYTES, still_ms);
}

static void drain_step(struct tbg_worker *w)
{
	if (!w->draining) {
		w->draining = true;
		w->drain_ns = w->now_ns;
		for (unsigned int i = 0; i < w->listeners_nr; i++)
			tbg_worker_accept_rest(w, &w->listeners[i]);
		while (w->parked.nr)
			close(w->parked.fds[--w->parked.nr]);
	}
	if (w->now_ns - w->drain_ns > DRAIN_IDLE_NS)
		tbg_conns_each(w, tbg_conn_drain);
	w->drain_moves = w->now_ns - w->drain_ns < tbg_timer_ns(TBG_TIMER_DRAIN);
	tbg_conns_each(w, drain_look);
	if ((!w->conns_nr && !tbg_transfers_awaited(w)) || !w->drain_moves ||
	    w->now_ns - w->drain_ns > tbg_option_now(&w->s->opt.drain_ms) * 1000000ull ||
	    w->wake_value >= TBG_WAKE_NOW)
		w->done = true;
}

/* Checks all time limits. */
static void limits_check(struct tbg_worker *w)
{
	unsigned int nr = (w->slabs_nr + TICKS_PER_SWEEP - 1) / TICKS_PER_SWEEP;

	tbg_transfers_check(w);
	tbg_upstream_conns_check(w);
	tbg_conns_each_of(w, w->sweep_at, w->sweep_at + nr, tbg_conn_check);
	w->sweep_at = w->sweep_at + nr < w->slabs_nr ? w->sweep_at + nr : 0;
}

/*
 * A late tick means that this thread was delayed or stopped: what has arrived
 * meanwhile is processed first, and the next tick checks time limits.
 */
static void tick_event(struct tbg_worker *w)
{
	bool late = w->now_ns - w->tick_ns > 2 * TICK_MS * 1000000ull;

	tick_arm(w);
	tbg_worker_accept_resume(w);
	if (tbg_worker_waiting_nr(w))
		tbg_worker_give_way(w, tbg_worker_waiting_nr(w));
	tbg_take_back_tick(w);
	tbg_health_tick(w);
	w->held_up = late && !w->held_up;
	if (!w->held_up)
		limits_check(w);
	if (atomic_load(&w->s->draining))
		drain_step(w);
}

static void wake_event(struct tbg_worker *w)
{
	tbg_mailbox_read(&w->mailbox);
	if (atomic_load(&w->s->draining))
		drain_step(w);
	else
		tbg_worker_accept_resume(w);
	wake_arm(w);
}

static void event(struct tbg_worker *w, const struct io_uring_cqe *cqe)
{
	switch (tbg_op_of(cqe)) {
	case TBG_OP_RECV:
		tbg_conn_recv_event(w, cqe);
		break;
	case TBG_OP_POLL:
		tbg_conn_poll_event(w, cqe);
		break;
	case TBG_OP_WAIT:
		tbg_conn_wait_event(w, cqe);
		break;
	case TBG_OP_ACCEPT:
		tbg_worker_accept_event(w, cqe);
		break;
	case TBG_OP_TICK:
		tick_event(w);
		break;
	case TBG_OP_WAKE:
		wake_event(w);
		break;
	case TBG_OP_CALL:
		tbg_worker_call_event(w, cqe);
		break;
	case TBG_OP_NONE:
		break;
	}
}

/*
 * Waking up for each completion is most of the cost of a small answer. So with
 * many active clients the worker waits for several completions at once. It does
 * not with few clients, which may all be waiting for it, or with slow ones.
 */
static void batch_set(struct tbg_worker *w)
{
	uint32_t ms = w->now_ms - w->period_ms;

	if (ms < PERIOD_MS)
		return;
	w->batch = w->callers < BATCH_CLIENTS || w->completions < ms * BATCH_RATE ? 1 :
		   w->callers / BATCH_SHARE;
	if (w->batch > BATCH_MAX)
		w->batch = BATCH_MAX;
	w->completions = w->callers = 0;
	w->period_ms = w->now_ms;
	w->period++;
}

static void round_begin(struct tbg_worker *w)
{
	w->now_ns = tbg_mono_ns();
	w->now_ms = (w->now_ns - w->start_ns) / 1000000;
	batch_set(w);
	memcpy(w->date, tbg_clock_date(w->s->clock), TBG_DATE_LEN);
	atomic_store_explicit(&w->sites, w->s->sites, memory_order_release);
}

static void events(struct tbg_worker *w)
{
	struct io_uring_cqe *cqe;
	unsigned int head, nr = 0;

	io_uring_for_each_cqe(&w->ring.uring, head, cqe) {
		event(w, cqe);
		if (w->due_nr >= DUE_MAX)
			tbg_deliver_due(w);
		nr++;
	}
	io_uring_cq_advance(&w->ring.uring, nr);
	w->completions += nr;
}

/*
 * Sends everything that is due to clients and servers in a row: receivers on
 * another CPU are woken once, and the CPU caches hold one kind of work.
 *
 * Before a request is sent, completions are checked once more, with every
 * receive under way: the connection may have ended, or the server may have
 * sent bytes that no request asked for. Requests added by this check wait for
 * their own check.
 */
static void send_due(struct tbg_worker *w)
{
	tbg_deliver_due(w);
	if (STAILQ_EMPTY(&w->due_upstream_conns))
		return;
	tbg_upstream_conns_look(w);
	if (tbg_ring_unsubmitted(&w->ring))
		tbg_ring_submit_look(&w->ring);
	if (tbg_ring_unsubmitted(&w->ring))
		return;			/* the rest: next round */
	if (tbg_ring_peek(&w->ring))
		events(w);
	tbg_upstream_conns_due(w);
}

/* Waits for completions, unless something is still to be sent. */
static int round_wait(struct tbg_worker *w)
{
	struct __kernel_timespec most = { .tv_nsec = BATCH_NS };

	if (!STAILQ_EMPTY(&w->due) || !STAILQ_EMPTY(&w->due_upstream_conns) ||
	    !TAILQ_EMPTY(&w->turns))
		return tbg_ring_submit_look(&w->ring);
	if (w->batch > 1) {
		int err = tbg_ring_submit_wait(&w->ring, w->batch, &most);

		if (io_uring_cq_ready(&w->ring.uring) || (err < 0 && err != -ETIME))
			return err;
	}
	return tbg_ring_submit_wait(&w->ring, 1, NULL);
}

/* Handles all completions. */
static int round_make(struct tbg_worker *w)
{
	int err = round_wait(w);

	if (err < 0 && err != -EINTR && err != -EBUSY && err != -ETIME)
		return err;
	round_begin(w);
	events(w);
	send_due(w);
	tbg_conn_turns_take(w);
	if (w->way_wanted && w->parked.nr)
		tbg_worker_give_way(w, w->parked.nr);
	w->way_wanted = false;
	if (w->room_made && w->parked.nr)
		tbg_worker_accept_resume(w);
	w->room_made = false;
	if (w->buffers_back) {
		io_uring_buf_ring_advance(w->buffers, w->buffers_back);
		w->buffers_back = 0;
	}
	return 0;
}

static int rounds(struct tbg_worker *w)
{
	uint64_t end_ns;
	int err = 0;

	if (w->s->wire) {
		w->by_slot = calloc(w->s->maps->conns_nr ?: 1, sizeof(*w->by_slot));
		w->take_back_tries = calloc(w->s->maps->conns_nr ?: 1, sizeof(*w->take_back_tries));
		if (!w->by_slot || !w->take_back_tries)
			return -ENOMEM;
	}
	err = tbg_ring_enable(&w->ring);
	if (err)
		return err;
	w->start_ns = tbg_mono_ns();
	round_begin(w);
	tbg_worker_accept_resume(w);
	tick_arm(w);
	wake_arm(w);
	if (w->news)
		tbg_conn_news_arm(w);
	while (!w->done && !err)
		err = round_make(w);
	tbg_conns_each(w, tbg_conn_kill);	/* also logs what they were sent */
	tbg_transfers_end(w);
	tbg_upstream_conns_end(w);
	/* while wire is attached: it translates their FIN or reset */
	end_ns = w->now_ns + END_NS;
	while ((w->conns_nr || w->upstream_conns_nr) && w->now_ns < end_ns && !err)
		err = round_make(w);
	return err;
}

int tbg_worker_run(struct tbg_worker *w)
{
	int err = rounds(w);

	tbg_mailbox_end(&w->mailbox);	/* no connection is left */
	return err;
}
