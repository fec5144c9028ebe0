// SPDX-License-Identifier: GPL-2.0
/*
 * Accepts new connections. When all places are taken, a new one waits, or replaces
 * one that is idle. Called by the worker's rounds.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <bpf/libbpf.h>

#include "client/connection.h"
#include "os/limits.h"
#include "serve/worker.h"
#include "worker/internal.h"

#define GIVE_WAY_NR	32		/* idle connections closed at a time, */
#define GIVE_WAY_MS	1000		/* if they have been idle for this long */

static void accept_arm(struct tbg_worker *w, struct tbg_listener_fd *l)
{
	struct io_uring_sqe *sqe = tbg_worker_sqe(w);
	int flags = SOCK_NONBLOCK | SOCK_CLOEXEC;

	/* it accepts all that wait before it can be cancelled */
	l->multishot = tbg_conn_limit_conn_left() >= TBG_BACKLOG;
	if (l->multishot)
		io_uring_prep_multishot_accept(sqe, l->fd, NULL, NULL, flags);
	else
		io_uring_prep_accept(sqe, l->fd, NULL, NULL, flags);
	io_uring_sqe_set_data64(sqe, tbg_op_pack(TBG_OP_ACCEPT,
				(void *)((uintptr_t)(l - w->listeners) << 4)));
	l->armed = true;
	l->cancelled = false;
}

static void accept_cancel(struct tbg_worker *w, struct tbg_listener_fd *l)
{
	struct io_uring_sqe *sqe;

	if (!l->armed || l->cancelled)
		return;
	l->cancelled = true;
	sqe = tbg_worker_sqe(w);
	io_uring_prep_cancel64(sqe, tbg_op_pack(TBG_OP_ACCEPT,
			       (void *)((uintptr_t)(l - w->listeners) << 4)), 0);
	io_uring_sqe_set_data64(sqe, TBG_OP_NONE);
}

/* Begins a connection on fd, which tbg_conn_limit_conn_get() has counted. */
static void conn_serve(struct tbg_worker *w, int fd)
{
	struct tbg_conn *c = tbg_conn_alloc(w);

	if (!c) {
		close(fd);
		tbg_conn_limit_conn_put();
		tbg_stat_add(&w->stats.refused, 1);
		return;
	}
	tbg_stat_add(&w->stats.accepted, 1);
	tbg_stat_add(&w->stats.connections, 1);
	tbg_conn_begin(w, c, fd);
}

static void park(struct tbg_worker *w, int fd)
{
	struct tbg_parked *p = &w->parked;

	tbg_stat_add(&w->stats.refused, 1);
	if (p->nr == p->room) {
		int *fds = reallocarray(p->fds, p->room + 64, sizeof(*fds));

		if (!fds) {
			close(fd);
			return;
		}
		p->fds = fds;
		p->room += 64;
	}
	p->fds[p->nr++] = fd;
	atomic_store(&w->waits, true);
	w->room_made = true;	/* perhaps before other workers could see that it waits */
	w->way_wanted = true;
}

static void parked_serve(struct tbg_worker *w)
{
	struct tbg_parked *p = &w->parked;
	unsigned int nr = 0;

	while (nr < p->nr && tbg_conn_limit_conn_get())
		conn_serve(w, p->fds[nr++]);
	if (nr)
		memmove(p->fds, p->fds + nr, (p->nr - nr) * sizeof(*p->fds));
	p->nr -= nr;
	atomic_store(&w->waits, p->nr > 0);
}

/* Finds idle connections, the oldest first, at most GIVE_WAY_NR. */
static unsigned int resting_find(struct tbg_worker *w, struct tbg_conn *ret[GIVE_WAY_NR])
{
	unsigned int nr = 0;

	for (unsigned int i = 0; i < w->slabs_nr; i++)
		for (struct tbg_conn *c = w->slabs[i]; c < w->slabs[i] + TBG_SLAB_CONNS; c++) {
			unsigned int at = nr;

			if (w->now_ms - c->stamp_ms < GIVE_WAY_MS || !tbg_conn_rests(c))
				continue;
			while (at && (int32_t)(c->stamp_ms - ret[at - 1]->stamp_ms) < 0)
				at--;
			if (at == GIVE_WAY_NR)
				continue;
			nr += nr < GIVE_WAY_NR;
			memmove(ret + at + 1, ret + at, (nr - at - 1) * sizeof(*ret));
			ret[at] = c;
		}
	return nr;
}

/* One connection of the client that has more than half of all late heads, if there is one. */
static struct tbg_conn *head_of_most(struct tbg_worker *w)
{
	struct tbg_conn *ret = NULL;
	unsigned int votes = 0;

	for (unsigned int i = 0; i < w->slabs_nr; i++)
		for (struct tbg_conn *c = w->slabs[i]; c < w->slabs[i] + TBG_SLAB_CONNS; c++) {
			if (!tbg_conn_head_is_late(w, c, GIVE_WAY_MS))
				continue;
			if (!votes)
				ret = c;
			votes += !votes || tbg_conn_same_client(c, ret) ? 1 : -1;
		}
	return ret;
}

/*
 * If unfinished heads of one client take more than half of all places, ends them down
 * to that half, as at their time limit.
 */
static void heads_give_way(struct tbg_worker *w, unsigned int wanted)
{
	struct tbg_conn *one = head_of_most(w), *late[GIVE_WAY_NR];
	unsigned int nr = 0, room = w->conns_nr;

	for (unsigned int i = 0; one && i < w->slabs_nr; i++)
		for (struct tbg_conn *c = w->slabs[i]; c < w->slabs[i] + TBG_SLAB_CONNS; c++)
			if (tbg_conn_head_is_late(w, c, GIVE_WAY_MS) &&
			    tbg_conn_same_client(c, one) && nr++ < GIVE_WAY_NR)
				late[nr - 1] = c;
	if (wanted > GIVE_WAY_NR)
		wanted = GIVE_WAY_NR;
	for (unsigned int i = 0; i < wanted && nr > 1 && nr > room / 2; i++, nr--)
		tbg_conn_head_end(w, late[i]);
}

void tbg_worker_give_way(struct tbg_worker *w, unsigned int wanted)
{
	struct tbg_conn *resting[GIVE_WAY_NR];
	unsigned int nr;

	if (w->draining || w->now_ms - w->gave_ms < TICK_MS / 2)
		return;
	w->gave_ms = w->now_ms;
	nr = resting_find(w, resting);
	for (unsigned int i = 0; i < nr && wanted; i++)
		wanted -= tbg_conn_give_way(w, resting[i], GIVE_WAY_MS);
	if (wanted)
		heads_give_way(w, wanted);
}

unsigned int tbg_worker_waiting_nr(const struct tbg_worker *w)
{
	if (w->parked.nr)
		return w->parked.nr;
	for (unsigned int i = 0; i < w->s->workers_nr; i++)
		if (atomic_load_explicit(&w->s->workers[i].waits, memory_order_relaxed))
			return 1;
	return 0;
}

void tbg_worker_accept_resume(struct tbg_worker *w)
{
	if (w->draining)
		return;
	parked_serve(w);
	for (unsigned int i = 0; !w->parked.nr && i < w->listeners_nr; i++)
		if (!w->listeners[i].armed)
			accept_arm(w, &w->listeners[i]);
}

static void accepted(struct tbg_worker *w, struct tbg_listener_fd *l, int fd)
{
	if (!w->parked.nr && tbg_conn_limit_conn_get())
		conn_serve(w, fd);
	else if (w->draining)
		close(fd);
	else
		park(w, fd);
	if (l->multishot && tbg_conn_limit_conn_left() < TBG_BACKLOG)
		accept_cancel(w, l);
}

void tbg_worker_accept_event(struct tbg_worker *w, const struct io_uring_cqe *cqe)
{
	struct tbg_listener_fd *l = &w->listeners[cqe->user_data >> 4];

	if (!(cqe->flags & IORING_CQE_F_MORE))
		l->armed = false;
	if (cqe->res >= 0)
		accepted(w, l, cqe->res);
	if (l->armed)
		return;
	/* out of descriptors or memory: retry at the next tick */
	if (cqe->res == -EMFILE || cqe->res == -ENFILE || cqe->res == -ENOBUFS ||
	    cqe->res == -ENOMEM)
		tbg_stat_add(&w->stats.refused, 1);
	else
		tbg_worker_accept_resume(w);
}

void tbg_worker_accept_rest(struct tbg_worker *w, struct tbg_listener_fd *l)
{
	int fd;

	accept_cancel(w, l);
	if (l->given)		/* connections that wait are left to the next daemon */
		return;
	fcntl(l->fd, F_SETFL, O_NONBLOCK);
	while ((fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
		accepted(w, l, fd);
	shutdown(l->fd, SHUT_RDWR);
}
