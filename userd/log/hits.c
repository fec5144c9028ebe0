// SPDX-License-Identifier: GPL-2.0
/*
 * Reads the ring buffer of events. While the knob is on, which tbg_hits_want() counts,
 * a hit costs the kernel tiers one copy; they never wait for the reader.
 */
#include "log/hits.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <time.h>

#include <bpf/libbpf.h>

#include "abi/event.h"
#include "abi/stats.h"
#include "os/loop.h"
#include "tiers/maps.h"

#define READ_MAX	8192		/* hits per call: the control loop has other work */
#define ROUNDS_MAX	16		/* calls of this size before a file changes */

static struct {
	const struct tbg_maps *maps;
	struct ring_buffer *ring;	/* NULL: no kernel tiers */
	tbg_hit_fn *fn;
	void *arg;
	unsigned int read_nr;		/* by the current call */
	int64_t real_ns;		/* CLOCK_REALTIME minus CLOCK_MONOTONIC */
	pthread_mutex_t lock;		/* of wanted and of the knob's log */
	unsigned int wanted;
} hits = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int hit_take(void *arg, void *data, size_t size)
{
	const struct tbg_event *e = data;
	struct tbg_log_record r = { 0 };

	if (size < sizeof(*e))
		return 0;
	r.remote6 = e->remote;
	r.req = (const char *)e->req;
	r.req_len = e->req_len;
	if (r.req_len > size - sizeof(*e))
		r.req_len = size - sizeof(*e);
	r.second = ((int64_t)e->mono_ns + hits.real_ns) / 1000000000;
	r.status = e->status;
	r.body = e->body;
	r.sent = e->sent;
	r.tier = e->tier;
	r.reason = "hit";
	r.took_ns = e->took_ns;
	hits.fn(hits.arg, &r);
	/* the sample is consumed nevertheless; the descriptor remains readable */
	return ++hits.read_nr >= READ_MAX ? -EAGAIN : 0;
}

void tbg_hits_read(void)
{
	if (!hits.ring)
		return;
	hits.real_ns = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
	hits.read_nr = 0;
	ring_buffer__consume(hits.ring);
}

void tbg_hits_read_all(void)
{
	for (int i = 0; i < ROUNDS_MAX && (!i || hits.read_nr >= READ_MAX); i++)
		tbg_hits_read();
}

static void on_ring(void *arg, uint32_t events)
{
	tbg_hits_read();
}

int tbg_hits_open(const struct tbg_maps *maps, struct tbg_loop *loop, tbg_hit_fn *fn, void *arg)
{
	int err;

	if (!maps)
		return 0;
	hits.fn = fn;
	hits.arg = arg;
	hits.ring = ring_buffer__new(maps->events_fd, hit_take, NULL, NULL);
	if (!hits.ring)
		return -errno;
	err = tbg_loop_add(loop, ring_buffer__epoll_fd(hits.ring), EPOLLIN, on_ring, NULL);
	if (err) {
		tbg_hits_close();
		return err;
	}
	pthread_mutex_lock(&hits.lock);
	hits.maps = maps;
	__atomic_store_n(&maps->knob->log, hits.wanted > 0, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&hits.lock);
	return 0;
}

void tbg_hits_close(void)
{
	pthread_mutex_lock(&hits.lock);
	if (hits.maps)
		__atomic_store_n(&hits.maps->knob->log, 0, __ATOMIC_RELEASE);
	hits.maps = NULL;
	pthread_mutex_unlock(&hits.lock);
	ring_buffer__free(hits.ring);
	hits.ring = NULL;
}

static void wanted_change(int by)
{
	pthread_mutex_lock(&hits.lock);
	hits.wanted += by;
	if (hits.maps)
		__atomic_store_n(&hits.maps->knob->log, hits.wanted > 0, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&hits.lock);
}

void tbg_hits_want(void)
{
	wanted_change(1);
}

void tbg_hits_unwant(void)
{
	wanted_change(-1);
}

uint64_t tbg_hits_lost(void)
{
	struct tbg_stats st = { 0 };

	pthread_mutex_lock(&hits.lock);
	if (hits.maps && tbg_maps_stats(hits.maps, &st))
		st.log_lost = 0;
	pthread_mutex_unlock(&hits.lock);
	return st.log_lost;
}
