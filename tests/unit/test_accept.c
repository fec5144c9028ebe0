// SPDX-License-Identifier: GPL-2.0
/*
 * New connections (userd/worker/accept.c), their memory (userd/client/slabs.c) and
 * their limit: which ones are accepted, wait, or are closed for others. The ring is a
 * fake, a connection is only its slot, and its descriptor is of /dev/null.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/connection.h"
#include "fake_ring.h"
#include "ktap.h"
#include "os/limits.h"
#include "worker/internal.h"

#define MOST	300		/* limit of connections in one test */

static struct {
	struct tbg_server s;
	struct tbg_worker w[2];
	struct tbg_conn *c[MOST];	/* in the order of their start */
	unsigned int nr;
	bool rests[MOST], late[MOST];	/* same order as c */
	unsigned int turns;
} it;

static unsigned int nr_of(const struct tbg_conn *c)
{
	for (unsigned int i = 0; i < it.nr; i++)
		if (it.c[i] == c)
			return i;
	return MOST - 1;
}

void tbg_conn_begin(struct tbg_worker *w, struct tbg_conn *c, int fd)
{
	c->state = TBG_CONN_OPEN;
	c->fd = fd;
	c->stamp_ms = w->now_ms;
	it.c[it.nr++] = c;
}

static void end(struct tbg_worker *w, struct tbg_conn *c)
{
	close(c->fd);
	it.rests[nr_of(c)] = it.late[nr_of(c)] = false;
	tbg_conn_free(w, c);
}

bool tbg_conn_rests(const struct tbg_conn *c)
{
	return c->state == TBG_CONN_OPEN && it.rests[nr_of(c)];
}

bool tbg_conn_give_way(struct tbg_worker *w, struct tbg_conn *c, uint32_t idle_ms)
{
	end(w, c);
	return true;
}

bool tbg_conn_head_is_late(const struct tbg_worker *w, const struct tbg_conn *c, uint32_t ms)
{
	return c->state == TBG_CONN_OPEN && it.late[nr_of(c)];
}

void tbg_conn_head_end(struct tbg_worker *w, struct tbg_conn *c)
{
	end(w, c);
}

/* Connections with the same number of answers count as one client's. */
bool tbg_conn_same_client(struct tbg_conn *a, struct tbg_conn *b)
{
	return a->answers == b->answers;
}

void tbg_conn_show(const struct tbg_worker *w, const struct tbg_conn *c,
		   struct tbg_conn_shown *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->state = c->state == TBG_CONN_OPEN ? "open" : "closed";
}

void tbg_conn_turn(struct tbg_worker *w, struct tbg_conn *c)
{
	it.turns++;
}

/* Two workers, of which the second is idle, and this many free slots. */
static struct tbg_worker *begin(unsigned int room)
{
	memset(&it, 0, sizeof(it));
	it.s.workers = it.w;
	it.s.workers_nr = 2;
	for (int i = 0; i < 2; i++) {
		it.w[i].s = &it.s;
		it.w[i].id = i;
		it.w[i].now_ms = 100000;
		it.w[i].wake_fd = -1;
		TAILQ_INIT(&it.w[i].turns);
	}
	it.w[0].listeners_nr = 1;
	it.w[0].listeners[0].fd = -1;
	fake_ring_open(&it.w[0].ring);
	return tbg_conn_limit_set(room, false) == room ? &it.w[0] : NULL;
}

static int descriptor(void)
{
	return open("/dev/null", O_RDWR | O_CLOEXEC);
}

/* The listener's accept completes with res; more: it remains active. */
static void accepts(struct tbg_worker *w, int res, bool more)
{
	struct io_uring_cqe cqe = { .user_data = TBG_OP_ACCEPT, .res = res,
				    .flags = more ? IORING_CQE_F_MORE : 0 };

	tbg_worker_accept_event(w, &cqe);
}

/* Closes all connections of a worker and restores the limit. */
static void finish(struct tbg_worker *w)
{
	while (w->parked.nr)
		close(w->parked.fds[--w->parked.nr]);
	tbg_conns_each(w, end);
	for (unsigned int i = 0; i < w->slabs_nr; i++)
		free(w->slabs[i]);
	free(w->slabs);
	free(w->parked.fds);
}

KTAP_TEST(t_with_much_room_one_accept_takes_all_that_come)
{
	struct tbg_worker *w = begin(TBG_BACKLOG + 10);
	struct io_uring_sqe *sqe = NULL;

	if (!w)
		KTAP_SKIP("too few descriptors");
	tbg_worker_accept_resume(w);
	KTAP_EQ(fake_ring_ops(IORING_OP_ACCEPT, &sqe), 1);
	KTAP_CHECK(sqe->ioprio & IORING_ACCEPT_MULTISHOT);
	for (int i = 0; i < 10; i++)
		accepts(w, descriptor(), true);
	KTAP_EQ(it.nr, 10);
	KTAP_EQ(fake_ring_ops(IORING_OP_ASYNC_CANCEL, NULL), 0);
	/*
	 * one more, and connections that arrive before the accept is cancelled could be
	 * too many
	 */
	accepts(w, descriptor(), true);
	KTAP_EQ(it.nr, 11);
	KTAP_EQ(fake_ring_ops(IORING_OP_ASYNC_CANCEL, NULL), 1);
	accepts(w, -ECANCELED, false);
	KTAP_EQ(fake_ring_ops(IORING_OP_ACCEPT, &sqe), 2);
	KTAP_CHECK(!(sqe->ioprio & IORING_ACCEPT_MULTISHOT));
	finish(w);
}

KTAP_TEST(t_those_beyond_the_limit_wait_in_their_order)
{
	struct tbg_worker *w = begin(2);
	int fd[4];

	KTAP_CHECK(w);
	tbg_worker_accept_resume(w);
	for (int i = 0; i < 4; i++) {
		fd[i] = descriptor();
		accepts(w, fd[i], false);
	}
	KTAP_EQ(it.nr, 2);
	KTAP_EQ(w->parked.nr, 2);
	KTAP_CHECK(w->waits && w->way_wanted);
	KTAP_EQ(w->stats.refused, 2);
	KTAP_EQ(tbg_worker_waiting_nr(w), 2);
	KTAP_CHECK(!w->listeners[0].armed);	/* new connections wait in the kernel */
	/* one free slot: for the first that waits */
	end(w, it.c[0]);
	KTAP_CHECK(w->room_made);
	tbg_worker_accept_resume(w);
	KTAP_EQ(it.nr, 3);
	KTAP_EQ(it.c[2]->fd, fd[2]);
	KTAP_EQ(w->parked.nr, 1);
	KTAP_CHECK(!w->listeners[0].armed);
	end(w, it.c[1]);
	tbg_worker_accept_resume(w);
	KTAP_EQ(it.c[3]->fd, fd[3]);
	KTAP_CHECK(!w->waits && w->listeners[0].armed);
	finish(w);
}

KTAP_TEST(t_without_descriptors_it_is_not_tried_at_once)
{
	struct tbg_worker *w = begin(2);

	KTAP_CHECK(w);
	tbg_worker_accept_resume(w);
	accepts(w, -EMFILE, false);
	KTAP_EQ(w->stats.refused, 1);
	KTAP_CHECK(!w->listeners[0].armed);
	accepts(w, -ECONNABORTED, false);	/* by its client: the next one may succeed */
	KTAP_CHECK(w->listeners[0].armed);
	finish(w);
}

KTAP_TEST(t_room_goes_to_another_worker_that_waits_before)
{
	struct tbg_worker *w = begin(1);
	uint64_t value = 0;
	int pair[2];

	KTAP_CHECK(w && !pipe2(pair, O_NONBLOCK));
	it.w[1].wake_fd = pair[1];
	atomic_store(&it.w[1].waits, true);
	tbg_worker_accept_resume(w);
	accepts(w, descriptor(), false);
	KTAP_EQ(tbg_worker_waiting_nr(w), 1);
	end(w, it.c[0]);
	KTAP_CHECK(!w->room_made && !it.w[1].waits);
	KTAP_EQ(read(pair[0], &value, sizeof(value)), sizeof(value));
	KTAP_EQ(value, 1);
	close(pair[0]);
	close(pair[1]);
	finish(w);
}

KTAP_TEST(t_the_one_that_rests_longest_gives_way)
{
	struct tbg_worker *w = begin(3);

	KTAP_CHECK(w);
	tbg_worker_accept_resume(w);
	for (int i = 0; i < 4; i++)
		accepts(w, descriptor(), false);
	KTAP_EQ(w->parked.nr, 1);
	it.rests[0] = it.rests[1] = it.rests[2] = true;
	it.c[0]->stamp_ms = w->now_ms - 2000;
	it.c[1]->stamp_ms = w->now_ms - 3000;
	it.c[2]->stamp_ms = w->now_ms - 10;	/* idle for less than a second */
	tbg_worker_give_way(w, 1);
	KTAP_EQ(it.c[1]->state, TBG_CONN_FREE);
	KTAP_EQ(it.c[0]->state, TBG_CONN_OPEN);
	/* one check is enough for a while */
	tbg_worker_give_way(w, 1);
	KTAP_EQ(it.c[0]->state, TBG_CONN_OPEN);
	w->now_ms += TICK_MS;
	tbg_worker_give_way(w, 2);
	KTAP_EQ(it.c[0]->state, TBG_CONN_FREE);
	KTAP_EQ(it.c[2]->state, TBG_CONN_OPEN);
	finish(w);
}

KTAP_TEST(t_unfinished_heads_of_one_client_give_way_down_to_half_of_the_room)
{
	struct tbg_worker *w = begin(10);

	KTAP_CHECK(w);
	tbg_worker_accept_resume(w);
	for (int i = 0; i < 10; i++)
		accepts(w, descriptor(), false);
	for (int i = 0; i < 10; i++) {
		it.late[i] = true;
		it.c[i]->answers = i < 8 ? 1 : 2;	/* eight belong to one client */
	}
	tbg_worker_give_way(w, 100);
	KTAP_EQ(w->conns_nr, 7);
	KTAP_EQ(it.c[8]->state, TBG_CONN_OPEN);
	KTAP_EQ(it.c[9]->state, TBG_CONN_OPEN);
	finish(w);
}

KTAP_TEST(t_whoever_waits_in_the_kernel_is_served_before_a_drain)
{
	struct sockaddr_un { sa_family_t family; char path[108]; } name = { AF_UNIX, "\0tbg-accept" };
	struct tbg_worker *w = begin(10);
	int l = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
	int late = socket(AF_UNIX, SOCK_STREAM, 0);

	KTAP_CHECK(w);
	snprintf(name.path + 1, sizeof(name.path) - 1, "tbg-accept-%d", getpid());
	KTAP_EQ(bind(l, (void *)&name, sizeof(name)), 0);
	KTAP_EQ(listen(l, 5), 0);
	KTAP_EQ(connect(client, (void *)&name, sizeof(name)), 0);
	w->listeners[0].fd = l;
	tbg_worker_accept_resume(w);
	w->draining = true;
	tbg_worker_accept_rest(w, &w->listeners[0]);
	KTAP_EQ(fake_ring_ops(IORING_OP_ASYNC_CANCEL, NULL), 1);
	KTAP_EQ(it.nr, 1);
	KTAP_CHECK(connect(late, (void *)&name, sizeof(name)));
	close(l);
	close(client);
	close(late);
	finish(w);
}

KTAP_TEST(t_slots_are_used_again_and_slabs_stay)
{
	struct tbg_worker *w = begin(MOST);
	struct tbg_conn_shown shown[TBG_SLAB_CONNS];
	struct tbg_conn *last;
	unsigned int nr;

	if (!w)
		KTAP_SKIP("too few descriptors");
	for (int i = 0; i < TBG_SLAB_CONNS + 1; i++) {
		KTAP_CHECK(tbg_conn_limit_conn_get());
		tbg_conn_begin(w, tbg_conn_alloc(w), descriptor());
	}
	KTAP_EQ(w->slabs_nr, 2);
	KTAP_EQ(w->conns_nr, TBG_SLAB_CONNS + 1);
	last = it.c[TBG_SLAB_CONNS];
	last->stamp_ms = 5;
	KTAP_CHECK(tbg_conns_oldest(w, NULL, tbg_conn_rests) == NULL);
	it.rests[TBG_SLAB_CONNS] = it.rests[3] = true;
	KTAP_CHECK(tbg_conns_oldest(w, NULL, tbg_conn_rests) == last);
	KTAP_CHECK(tbg_conns_oldest(w, last, tbg_conn_rests) == it.c[3]);
	KTAP_CHECK(tbg_conns_slab_show(w, 1, shown, &nr));
	KTAP_EQ(nr, 1);
	KTAP_CHECK(!strcmp(shown[0].state, "open"));
	KTAP_CHECK(!tbg_conns_slab_show(w, 2, shown, &nr));
	KTAP_EQ(nr, 0);
	end(w, last);
	KTAP_CHECK(tbg_conn_limit_conn_get());
	KTAP_CHECK(tbg_conn_alloc(w) == last);
	last->fd = descriptor();
	last->state = TBG_CONN_OPEN;
	KTAP_EQ(w->slabs_nr, 2);
	finish(w);
	KTAP_EQ(w->conns_nr, 0);
	KTAP_EQ(tbg_conn_limit_conn_left(), MOST);
}

KTAP_TEST(t_those_with_more_to_do_have_a_few_turns_in_a_round)
{
	struct tbg_worker *w = begin(10);
	struct tbg_conn_active t[6] = {};
	struct tbg_conn c[6] = {};

	KTAP_CHECK(w);
	for (int i = 0; i < 6; i++) {
		t[i].c = &c[i];
		c[i].active = &t[i];
		tbg_conn_turn_await(w, &c[i]);
		tbg_conn_turn_await(w, &c[i]);	/* a second call has no effect */
	}
	tbg_conn_turn_leave(w, &t[0]);
	tbg_conn_turns_take(w);
	KTAP_EQ(it.turns, 4);
	KTAP_CHECK(!t[1].in_turns && t[5].in_turns);
	tbg_conn_turns_take(w);
	KTAP_EQ(it.turns, 5);
	KTAP_CHECK(TAILQ_EMPTY(&w->turns));
}

KTAP_MAIN()
