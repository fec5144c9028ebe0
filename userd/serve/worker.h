/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One worker: a thread, its io_uring, its listeners, its connections, as those see it that
 * run in its thread. Made by main.c, run by worker/rounds.c; nothing here is shared
 * between workers but what server.h shares.
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

#define TBG_SLAB_CONNS	128	/* connections of a worker that are allocated at once */

#define TBG_WAKE_NOW	(1ull << 32)	/* on wake_fd: end at once; less: look around */

struct tbg_conn;
struct tbg_conn_active;
struct tbg_upstream_conn;
struct tbg_upstream_conn_pool;
struct tbg_transfer;
struct tbg_worker;

/* An operation of the ring whose object says what its completion means. */
struct tbg_call {
	void (*fn)(struct tbg_worker *w, struct tbg_call *call, int res);
	bool busy;			/* under way */
} __attribute__((aligned(16)));

/* A reply of wire's that was tried to be taken back, and when it is again. */
struct tbg_vain {
	uint32_t sent_ms, next_ms, tries;
};

#define TBG_BACKLOG 4096	/* connections of a listening socket that wait to be accepted */

struct tbg_listener_fd {
	int fd;
	bool armed;		/* an accept is running */
	bool multishot, cancelled;
	bool given;		/* by the service manager, who has it too */
};

/* Accepted beyond the limit of connections: first come, first served. */
struct tbg_parked {
	int *fds;
	unsigned int nr, room;
};

struct tbg_worker {
	const struct tbg_server *s;
	unsigned int id;
	pthread_t thread;
	int wake_fd;			/* eventfd: look around */
	atomic_bool waits;		/* for room: it has parked connections */
	uint64_t wake_value;
	struct tbg_listener_fd listeners[TBG_LISTENER_MAX];
	unsigned int listeners_nr;
	/* everything below belongs to the thread */
	struct tbg_ring ring;
	struct io_uring_buf_ring *buffers;
	uint8_t *buffer_memory;
	unsigned int buffers_back;	/* to give back after this round */
	struct tbg_conn **slabs;
	unsigned int slabs_nr, conns_nr;
	SLIST_HEAD(, tbg_conn) free;
	struct tbg_conn **by_slot;	/* of wire's connections; NULL: no wire */
	struct tbg_vain *vain;		/* by slot: replies that cannot be taken back */
	struct tbg_conn **by_sock;	/* of sock's, by slot; NULL: no sock */
	struct ring_buffer *news;	/* which of these are to be looked at */
	struct tbg_call news_call;
	unsigned int sweep_at;		/* slab that the next tick looks at */
	uint64_t tick_ns;		/* when the last one was armed */
	bool held_up;			/* since that one: limits wait for the next */
	const struct tbg_sites *_Atomic sites;	/* of this round */
	uint64_t now_ns;		/* of this round */
	struct tbg_trace trace;	/* for who looks at a crash */
	uint32_t now_ms;		/* the same, since the worker started */
	uint32_t period_ms;		/* when this one began, a few milliseconds long */
	uint32_t completions, callers;	/* in it: of the ring; clients that sent something */
	uint32_t batch;			/* from the last one: completions to wait for at once */
	uint8_t period;
	uint64_t start_ns, drain_ns;
	struct tbg_parked parked;
	bool room_made;			/* in this round, for parked ones */
	bool way_wanted;		/* in this round, by one that was parked */
	uint32_t gave_ms;		/* when connections last gave way */
	bool draining, drain_moves, done;
	char date[TBG_DATE_LEN];
	uint8_t *out;			/* responses of the connection at hand */
	uint32_t out_len;
	char path[TBG_TARGET_MAX + 1];
	struct tbg_answer answer;
	unsigned int upstream_conns_nr;	/* all that there are, closing ones too */
	struct tbg_upstream_conn_pool *idle;	/* see proxy/connection_pool.c */
	STAILQ_HEAD(, tbg_upstream_conn) due_upstream_conns;	/* to be sent on */
	LIST_HEAD(, tbg_transfer) transfers;	/* all that are under way */
	const struct tbg_answerer_ops *behind;	/* what answers from behind */
	LIST_HEAD(, tbg_transfer) spare_transfers;	/* memory for the next ones */
	unsigned int spare_transfers_nr;
	STAILQ_HEAD(, tbg_transfer) due;	/* of them, who have something to send */
	unsigned int due_nr;
	TAILQ_HEAD(, tbg_conn_active) turns;	/* with more to do than one turn allows */
	struct __kernel_timespec tick, wait;
	struct tbg_user_stats stats;
	struct tbg_metrics metrics;
	const struct tbg_site *site;	/* of the request at hand, for metrics and log */
	/* written by other threads */
	struct tbg_mailbox mailbox;	/* whose reader is this */
};

/* What user_data says: an operation and its object, 16-byte aligned. */
enum tbg_op {
	TBG_OP_ACCEPT,
	TBG_OP_RECV,
	TBG_OP_POLL,
	TBG_OP_WAIT,
	TBG_OP_TICK,
	TBG_OP_WAKE,
	TBG_OP_CALL,			/* struct tbg_call */
	TBG_OP_NONE,			/* whose completion nobody awaits */
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

/* Marks sqe as that call's operation, and its cancellation. */
void tbg_worker_call(struct io_uring_sqe *sqe, struct tbg_call *call);
void tbg_worker_cancel(struct tbg_worker *w, struct tbg_call *call);
void tbg_worker_call_event(struct tbg_worker *w, const struct io_uring_cqe *cqe);

/* A submission entry; submits what there is when the queue is full. */
struct io_uring_sqe *tbg_worker_sqe(struct tbg_worker *w);

/* One writer, many readers: no locked instruction. */
static inline void tbg_stat_add(_Atomic uint64_t *stat, uint64_t n)
{
	atomic_store_explicit(stat, atomic_load_explicit(stat,
			      memory_order_relaxed) + n, memory_order_relaxed);
}

#endif
