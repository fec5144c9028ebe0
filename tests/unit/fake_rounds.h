/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Fakes of everything that a worker's rounds call: a ring whose rounds are steps of the
 * test, a clock that the test sets, and a log of calls in order. Include it once per
 * test.
 */
#ifndef TBG_TESTS_UNIT_FAKE_ROUNDS_H
#define TBG_TESTS_UNIT_FAKE_ROUNDS_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/connection.h"
#include "client/take_back.h"
#include "fake_ring.h"
#include "ktap.h"
#include "os/clock.h"
#include "proxy/connection_pool.h"
#include "proxy/deliver.h"
#include "proxy/health.h"
#include "proxy/transfer.h"
#include "worker/internal.h"
#include "worker/rounds.h"

#define CQES		256		/* power of two */
#define MS		1000000ull
#define STEPS_MAX	64
#define LOG_BYTES	4096

static struct {
	struct tbg_server s;
	struct tbg_worker w;
	struct tbg_conn c;
	struct tbg_upstream_conn up;
	uint64_t now_ns;
	int (*steps[STEPS_MAX])(void);	/* of the rounds, in order */
	unsigned int steps_nr, step;
	struct io_uring_cqe *cqes;
	unsigned int cq_head, cq_tail;
	int uring_err, epoll_err;
	bool epoll;
	unsigned int wait_nr;		/* of the latest wait; 0: it only polled */
	unsigned int waits;
	char log[LOG_BYTES];		/* calls in order */
	int (*peek)(void);		/* called before requests are sent */
	bool sending;			/* the ring is polled once more before that */
	unsigned int checked_from, checked_to, checks;
	bool awaited, takes;		/* another worker uses a transfer; the client reads */
	unsigned int killed;
} it;

static void note(const char *what)
{
	if (strlen(it.log) + strlen(what) + 2 < LOG_BYTES) {
		strcat(it.log, what);
		strcat(it.log, " ");
	}
}

/* the ring */

int tbg_ring_open(struct tbg_ring *r, unsigned int entries, unsigned int completions)
{
	return it.uring_err;
}

int tbg_ring_open_epoll(struct tbg_ring *r, unsigned int entries, unsigned int completions)
{
	it.epoll = true;
	return it.epoll_err;
}

int tbg_ring_enable(struct tbg_ring *r)
{
	return 0;
}

static void comes(enum tbg_op op, const void *object, int res)
{
	it.cqes[it.cq_tail++ & (CQES - 1)] = (struct io_uring_cqe){
		.user_data = tbg_op_pack(op, object), .res = res };
}

/* Runs the next step; after the last one, the worker is done and time passes. */
static int step(unsigned int wait_nr)
{
	it.wait_nr = wait_nr;
	it.waits++;
	if (it.step == it.steps_nr) {
		it.w.done = true;
		it.now_ns += 1000 * MS;
		return 0;
	}
	return it.steps[it.step++]();
}

int tbg_ring_submit_look(struct tbg_ring *r)
{
	note("look");
	if (it.sending) {
		it.sending = false;
		return 0;
	}
	return step(0);
}

int tbg_ring_submit_wait(struct tbg_ring *r, unsigned int nr, struct __kernel_timespec *most)
{
	return step(nr);
}

bool tbg_ring_peek(struct tbg_ring *r)
{
	return it.peek && it.peek();
}

/* functions that the rounds call */

uint64_t tbg_mono_ns(void)
{
	return it.now_ns;
}

const char *tbg_clock_date(const struct tbg_clock *c)
{
	return "Sun, 06 Nov 1994 08:49:37 GMT";
}

#define NOTES(fn_, ...)	void fn_(__VA_ARGS__) { note(#fn_ + 4); }
NOTES(tbg_conn_recv_event, struct tbg_worker *w, const struct io_uring_cqe *cqe)
NOTES(tbg_conn_poll_event, struct tbg_worker *w, const struct io_uring_cqe *cqe)
NOTES(tbg_conn_wait_event, struct tbg_worker *w, const struct io_uring_cqe *cqe)
NOTES(tbg_worker_accept_event, struct tbg_worker *w, const struct io_uring_cqe *cqe)
NOTES(tbg_worker_accept_resume, struct tbg_worker *w)
NOTES(tbg_worker_accept_rest, struct tbg_worker *w, struct tbg_listener_fd *l)
NOTES(tbg_take_back_tick, struct tbg_worker *w)
NOTES(tbg_health_tick, struct tbg_worker *w)
NOTES(tbg_transfers_check, struct tbg_worker *w)
NOTES(tbg_transfers_end, struct tbg_worker *w)
NOTES(tbg_upstream_conns_check, struct tbg_worker *w)
NOTES(tbg_upstream_conns_end, struct tbg_worker *w)
NOTES(tbg_conn_turns_take, struct tbg_worker *w)
NOTES(tbg_conn_news_arm, struct tbg_worker *w)
NOTES(tbg_mailbox_read, struct tbg_mailbox *b)
NOTES(tbg_mailbox_end, struct tbg_mailbox *b)
NOTES(tbg_conn_drain, struct tbg_worker *w, struct tbg_conn *c)
NOTES(tbg_conn_check, struct tbg_worker *w, struct tbg_conn *c)

void tbg_worker_give_way(struct tbg_worker *w, unsigned int wanted)
{
	note("give_way");
}

unsigned int tbg_worker_waiting_nr(const struct tbg_worker *w)
{
	return w->parked.nr;
}

int tbg_conn_buffers_open(struct tbg_worker *w)
{
	return 0;
}

void tbg_mailbox_init(struct tbg_mailbox *b, void *reader, int wake_fd)
{
}

bool tbg_transfers_awaited(const struct tbg_worker *w)
{
	return it.awaited;
}

bool tbg_conn_takes(struct tbg_worker *w, struct tbg_conn *c, uint32_t bytes, uint32_t within_ms)
{
	return it.takes;
}

void tbg_conn_kill(struct tbg_worker *w, struct tbg_conn *c)
{
	it.killed++;
}

void tbg_conns_each(struct tbg_worker *w, void (*fn)(struct tbg_worker *w, struct tbg_conn *c))
{
	if (w->conns_nr)
		fn(w, &it.c);
}

void tbg_conns_each_of(struct tbg_worker *w, unsigned int from, unsigned int to,
		       void (*fn)(struct tbg_worker *w, struct tbg_conn *c))
{
	it.checked_from = from;
	it.checked_to = to;
	it.checks++;
}

void tbg_deliver_due(struct tbg_worker *w)
{
	note("deliver_due");
	STAILQ_INIT(&w->due);
	w->due_nr = 0;
}

void tbg_upstream_conns_look(struct tbg_worker *w)
{
	note("upstream_conns_look");
	it.sending = true;
}

void tbg_upstream_conns_due(struct tbg_worker *w)
{
	note("upstream_conns_due");
	STAILQ_INIT(&w->due_upstream_conns);
}

/* Opens a worker with the steps of its rounds. */
static struct tbg_worker *begin(int (*const *steps)(void), unsigned int nr)
{
	static struct io_uring_cqe *cqes;
	struct tbg_worker *w = &it.w;

	if (!cqes)
		cqes = calloc(CQES, sizeof(*cqes));
	memset(&it, 0, sizeof(it));
	it.cqes = cqes;
	it.now_ns = 1000 * MS;
	it.s.opt.drain_ms = 60000;
	it.c.state = TBG_CONN_OPEN;
	w->s = &it.s;
	w->wake_fd = -1;
	for (unsigned int i = 0; i < nr; i++)
		it.steps[it.steps_nr++] = steps[i];
	fake_ring_open(&w->ring);
	w->ring.uring.cq.khead = &it.cq_head;
	w->ring.uring.cq.ktail = &it.cq_tail;
	w->ring.uring.cq.ring_mask = CQES - 1;
	w->ring.uring.cq.ring_entries = CQES;
	w->ring.uring.cq.cqes = it.cqes;
	return tbg_worker_open(w) ? NULL : w;
}

static void finish(struct tbg_worker *w)
{
	free(w->out);
	free(w->idle);
}

#define BEGIN(...) \
	begin((int (*const [])(void)){ __VA_ARGS__ }, \
	      sizeof((int (*const [])(void)){ __VA_ARGS__ }) / sizeof(int (*)(void)))

/* Returns whether these calls were made in this order, perhaps with others between. */
static bool in_order(const char *const *what)
{
	const char *at = it.log;

	for (; *what; what++) {
		at = strstr(at, *what);
		if (!at) {
			ktap_note("no %s in: %s", *what, it.log);
			return false;
		}
		at += strlen(*what);
	}
	return true;
}

#define IN_ORDER(...)	in_order((const char *const []){ __VA_ARGS__, NULL })

static unsigned int times(const char *what)
{
	unsigned int nr = 0;

	for (const char *at = it.log; (at = strstr(at, what)); at += strlen(what))
		nr++;
	return nr;
}

static int nothing(void)
{
	return 0;
}

#endif
