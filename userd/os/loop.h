/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The event loop (epoll) of the control thread: signals, control socket, inotify,
 * kernel events, timers. Workers have their own io_uring loops.
 */
#ifndef TBG_USERD_OS_LOOP_H
#define TBG_USERD_OS_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct tbg_loop;

int tbg_loop_open(struct tbg_loop **ret);
void tbg_loop_close(struct tbg_loop *l);

/*
 * events: EPOLLIN and others; fn is called with those that occurred. Returns 0 or a
 * negative errno.
 */
int tbg_loop_add(struct tbg_loop *l, int fd, uint32_t events,
		 void (*fn)(void *arg, uint32_t events), void *arg);
int tbg_loop_change(struct tbg_loop *l, int fd, uint32_t events);
void tbg_loop_remove(struct tbg_loop *l, int fd);

/* Calls fn every interval_ms with the time of CLOCK_MONOTONIC. */
int tbg_loop_every(struct tbg_loop *l, unsigned int interval_ms,
		   void (*fn)(void *arg, uint64_t now_ns), void *arg);

/*
 * Does so while wanted(arg) returns true, which the loop asks after each event and timer.
 * Without need, such a timer does not wake the loop.
 */
int tbg_loop_while(struct tbg_loop *l, unsigned int interval_ms, bool (*wanted)(void *arg),
		   void (*fn)(void *arg, uint64_t now_ns), void *arg);

/*
 * Calls fn once CLOCK_MONOTONIC has reached due_ns(arg), which the loop asks after each
 * event and timer; 0: not now. fn must change what it returns.
 */
int tbg_loop_at(struct tbg_loop *l, uint64_t (*due_ns)(void *arg),
		void (*fn)(void *arg, uint64_t now_ns), void *arg);

int tbg_loop_run(struct tbg_loop *l);	/* until tbg_loop_stop() */
void tbg_loop_stop(struct tbg_loop *l);	/* called inside the loop */

#endif
