/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One worker as the code in its thread sees it: a thread with its io_uring, its
 * listeners and its connections. Made by main.c, run by worker/rounds.c. Workers share
 * only what is in server.h.
 */
#ifndef TBG_USERD_SERVE_WORKER_H
#define TBG_USERD_SERVE_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "abi/cache.h"
#include "http/request.h"
#include "log/metrics.h"
#include "os/mail.h"
#include "os/ring.h"
#include "os/trace.h"
#include "serve/dispatch.h"
#include "serve/server.h"

#define TBG_OUT_BYTES	(192 << 10)	/* of a worker's send buffer */

#define TBG_SLAB_CONNS	128	/* connections in one allocation */

#define TBG_WAKE_NOW	(1ull << 32)	/* on wake_fd: end at once; smaller values: begin a round */

struct tbg_conn;
struct tbg_conn_active;
struct tbg_upstream_conn;
struct tbg_upstream_conn_pool;
struct tbg_transfer;
struct tbg_worker;

/* A ring operation with a callback for its completion. */
struct tbg_call {
	void (*fn)(struct tbg_worker *w, struct tbg_call *call, int res);
	bool busy;			/* in progress */
} __attribute__((aligned(16)));

/* A reply of wire for which take-back failed, and the time of the next attempt. */
struct tbg_take_back_tries {
	uint32_t sent_ms, next_ms, tries;
};

#define TBG_BACKLOG 4096	/* accept queue of a listening socket */

struct tbg_listener_fd {
	int fd;
	bool armed;		/* an accept operation is in progress */
	bool multishot, cancelled;
	bool given;		/* received from the service manager, which keeps it */
	bool wire;		/* wire may answer on it */
};

/* Accepted connections beyond the limit, served in the order of arrival. */
struct tbg_parked {
	int *fds;
	unsigned int nr, room;
};

struct tbg_worker {
	const struct tbg_server *s;
	unsigned int id;
	pthread_t thread;
	int wake_fd;			/* eventfd: begin a round */
	atomic_bool waits;		/* it has parked connections that wait for a free slot */
	uint64_t wake_value;
	struct tbg_listener_fd listeners[TBG_LISTENER_MAX];
	unsigned int listeners_nr;
	/* the following members belong to the worker's thread */
	struct tbg_ring ring;
	struct io_uring_buf_ring *buffers;
	uint8_t *buffer_memory;
	unsigned int buffers_back;	/* number to return to the kernel after this round */
	struct tbg_conn **slabs;
	unsigned int slabs_nr, conns_nr;
	SLIST_HEAD(, tbg_conn) free;
	struct tbg_conn **by_slot;	/* connections by wire's slot; NULL: no wire */
	struct tbg_take_back_tries *take_back_tries;	/* by wire's slot */
	struct tbg_conn **by_sock;	/* connections by sock's slot; NULL: no sock */
	struct ring_buffer *news;	/* reports connections that have input or an end to read */
	struct tbg_call news_call;
	unsigned int sweep_at;		/* slab to check at the next tick */
	uint64_t tick_ns;		/* when the last tick was armed */
	/* the thread was delayed since then: time limits wait for the next tick */
	bool held_up;
	const struct tbg_sites *_Atomic sites;	/* of this round */
	uint64_t now_ns;		/* of this round */
	struct tbg_trace trace;	/* read in a core dump */
	uint32_t now_ms;		/* now_ns in ms since the worker started */
	/* start of the current period, which lasts a few milliseconds */
	uint32_t period_ms;
	/* in this period: completions of the ring; clients that sent something */
	uint32_t completions, callers;
	/* from the last period: number of completions to wait for */
	uint32_t batch;
	uint8_t period;
	uint64_t start_ns, drain_ns;
	struct tbg_parked parked;
	bool room_made;			/* in this round, for parked connections */
	bool way_wanted;		/* a parked connection needs the slot of an idle one */
	uint32_t gave_ms;		/* when idle connections were last closed for others */
	bool draining, drain_moves, done;
	char date[TBG_DATE_LEN];
	uint8_t *out;			/* responses of the current connection */
	uint32_t out_len;
	char path[TBG_TARGET_MAX + 1];
	struct tbg_answer answer;
	unsigned int upstream_conns_nr;	/* all, including closing ones */
	struct tbg_upstream_conn_pool *idle;	/* see proxy/connection_pool.c */
	STAILQ_HEAD(, tbg_upstream_conn) due_upstream_conns;	/* with data to send */
	LIST_HEAD(, tbg_transfer) transfers;	/* all in progress */
	/* operations for requests that are not answered at once */
	const struct tbg_answerer_ops *answerer_ops;
	LIST_HEAD(, tbg_transfer) spare_transfers;	/* allocated, for reuse */
	unsigned int spare_transfers_nr;
	STAILQ_HEAD(, tbg_transfer) due;	/* transfers with data to send */
	unsigned int due_nr;
	TAILQ_HEAD(, tbg_conn_active) turns;	/* connections that need more than one turn */
	struct __kernel_timespec tick, wait;
	struct tbg_user_stats stats;
	struct tbg_metrics metrics;
	const struct tbg_site *site;	/* of the current request, for metrics and log */
	/* written by other threads */
	struct tbg_mailbox mailbox;	/* read by this worker */
};

/* Layout of user_data: an operation, and its object, which is 16-byte aligned. */
enum tbg_op {
	TBG_OP_ACCEPT,
	TBG_OP_RECV,
	TBG_OP_POLL,
	TBG_OP_WAIT,
	TBG_OP_TICK,
	TBG_OP_WAKE,
	TBG_OP_CALL,			/* struct tbg_call */
	TBG_OP_NONE,			/* its completion is ignored */
};

static inline uint64_t tbg_op_pack(enum tbg_op op, const void *object)
{
	return (uintptr_t)object | op;
}

static inline enum tbg_op tbg_op_of(const struct io_uring_cqe *cqe)
{
	return cqe->user_data & 15;
}

static inline void *tbg_op_object(const struct io_uring_cqe *cqe)
{
	return (void *)(cqe->user_data & ~15ull);
}

/* Marks sqe as the operation of that call; cancels it. */
void tbg_worker_call(struct io_uring_sqe *sqe, struct tbg_call *call);
void tbg_worker_cancel(struct tbg_worker *w, struct tbg_call *call);
void tbg_worker_call_event(struct tbg_worker *w, const struct io_uring_cqe *cqe);

/* Returns a submission entry. Submits the queued ones if the queue is full. */
struct io_uring_sqe *tbg_worker_sqe(struct tbg_worker *w);

/* One writer, many readers: needs no locked instruction. */
static inline void tbg_stat_add(_Atomic uint64_t *stat, uint64_t n)
{
	atomic_store_explicit(stat, atomic_load_explicit(stat,
			      memory_order_relaxed) + n, memory_order_relaxed);
}

#endif
