// SPDX-License-Identifier: GPL-2.0
/*
 * Descriptors through epoll, timers by deadline. Everything runs in one thread;
 * handlers may add and remove sources.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/loop.h"

#define EVENTS_MAX 16

struct source {
	LIST_ENTRY(source) link;
	int fd;				/* -1: removed; freed after the round */
	void (*fn)(void *arg, uint32_t events);
	void *arg;
};

struct timer {
	LIST_ENTRY(timer) link;
	uint64_t interval_ns, due_ns;
	bool (*wanted)(void *arg);	/* NULL: always */
	uint64_t (*when_ns)(void *arg);	/* NULL: due_ns */
	void (*fn)(void *arg, uint64_t now_ns);
	void *arg;
};

struct tbg_loop {
	int epoll_fd;
	bool stop;
	LIST_HEAD(, source) sources;
	LIST_HEAD(, timer) timers;
};

int tbg_loop_open(struct tbg_loop **ret)
{
	struct tbg_loop *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll_fd < 0) {
		free(l);
		return -errno;
	}
	*ret = l;
	return 0;
}

/* Frees removed sources. Until then, events of the current round may point to them. */
static void sources_sweep(struct tbg_loop *l)
{
	for (struct source *s = LIST_FIRST(&l->sources), *next; s; s = next) {
		next = LIST_NEXT(s, link);
		if (s->fd >= 0)
			continue;
		LIST_REMOVE(s, link);
		free(s);
	}
}

void tbg_loop_close(struct tbg_loop *l)
{
	struct source *s;
	struct timer *t;

	if (!l)
		return;
	LIST_FOREACH(s, &l->sources, link)
		s->fd = -1;
	sources_sweep(l);
	while ((t = LIST_FIRST(&l->timers))) {
		LIST_REMOVE(t, link);
		free(t);
	}
	close(l->epoll_fd);
	free(l);
}

static struct source *source_of(struct tbg_loop *l, int fd)
{
	struct source *s;

	LIST_FOREACH(s, &l->sources, link)
		if (s->fd == fd)
			break;
	return s;
}

int tbg_loop_add(struct tbg_loop *l, int fd, uint32_t events,
		 void (*fn)(void *arg, uint32_t events), void *arg)
{
	struct source *s = malloc(sizeof(*s));
	struct epoll_event e = { .events = events, .data.ptr = s };

	if (!s)
		return -ENOMEM;
	*s = (struct source){ .fd = fd, .fn = fn, .arg = arg };
	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &e)) {
		free(s);
		return -errno;
	}
	LIST_INSERT_HEAD(&l->sources, s, link);
	return 0;
}

int tbg_loop_change(struct tbg_loop *l, int fd, uint32_t events)
{
	struct epoll_event e = { .events = events,
				 .data.ptr = source_of(l, fd) };

	if (!e.data.ptr)
		return -ENOENT;
	return epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, fd, &e) ? -errno : 0;
}

void tbg_loop_remove(struct tbg_loop *l, int fd)
{
	struct source *s = source_of(l, fd);

	if (!s)
		return;
	epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	s->fd = -1;
}

int tbg_loop_every(struct tbg_loop *l, unsigned int interval_ms,
		   void (*fn)(void *arg, uint64_t now_ns), void *arg)
{
	return tbg_loop_while(l, interval_ms, NULL, fn, arg);
}

static int timer_add(struct tbg_loop *l, struct timer timer)
{
	struct timer *t = malloc(sizeof(*t));

	if (!t)
		return -ENOMEM;
	*t = timer;
	t->due_ns = tbg_mono_ns() + t->interval_ns;
	LIST_INSERT_HEAD(&l->timers, t, link);
	return 0;
}

int tbg_loop_while(struct tbg_loop *l, unsigned int interval_ms, bool (*wanted)(void *arg),
		   void (*fn)(void *arg, uint64_t now_ns), void *arg)
{
	return timer_add(l, (struct timer){
		.interval_ns = interval_ms * 1000000ull, .wanted = wanted, .fn = fn, .arg = arg,
	});
}

int tbg_loop_at(struct tbg_loop *l, uint64_t (*due_ns)(void *arg),
		void (*fn)(void *arg, uint64_t now_ns), void *arg)
{
	return timer_add(l, (struct timer){ .when_ns = due_ns, .fn = fn, .arg = arg });
}

/* When a timer is due; UINT64_MAX: never, as things are. */
static uint64_t due_of(const struct timer *t)
{
	if (t->when_ns)
		return t->when_ns(t->arg) ?: UINT64_MAX;
	return !t->wanted || t->wanted(t->arg) ? t->due_ns : UINT64_MAX;
}

/*
 * Runs the timers that are due. Returns the milliseconds until the next one; -1: there
 * is none.
 */
static int timers_run(struct tbg_loop *l)
{
	uint64_t now_ns = tbg_mono_ns(), next_ns = UINT64_MAX, due_ns;
	struct timer *t;

	LIST_FOREACH(t, &l->timers, link)
		if (now_ns >= due_of(t)) {
			t->due_ns = now_ns + t->interval_ns;
			t->fn(t->arg, now_ns);
		}
	/* in the end, since one may have made another wanted */
	LIST_FOREACH(t, &l->timers, link) {
		due_ns = due_of(t);
		if (due_ns < next_ns)
			next_ns = due_ns;
	}
	if (next_ns == UINT64_MAX)
		return -1;
	now_ns = tbg_mono_ns();
	return next_ns > now_ns ? (next_ns - now_ns + 999999) / 1000000 : 0;
}

int tbg_loop_run(struct tbg_loop *l)
{
	struct epoll_event events[EVENTS_MAX];

	l->stop = false;
	while (!l->stop) {
		int wait_ms = timers_run(l), nr;

		if (l->stop)
			break;
		nr = epoll_wait(l->epoll_fd, events, EVENTS_MAX, wait_ms);
		if (nr < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; i < nr; i++) {
			struct source *s = events[i].data.ptr;

			if (s->fd >= 0)
				s->fn(s->arg, events[i].events);
		}
		sources_sweep(l);
	}
	return 0;
}

void tbg_loop_stop(struct tbg_loop *l)
{
	l->stop = true;
}
