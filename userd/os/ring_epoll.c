// SPDX-License-Identifier: GPL-2.0
/*
 * Performs ring operations with epoll: those that workers use; others fail with
 * -EINVAL. Each operation is tried at submission, waits for its descriptor if it would
 * block, and ends with one completion (multishot: one per success).
 *
 * The queues are private memory in liburing's layout. A descriptor may be closed before
 * the cancellation of its operations is submitted. epoll has removed it by then, so
 * errors of epoll_ctl() during removal are ignored.
 */
#include "os/ring_epoll.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/clock.h"

#define TABLE_BITS	12		/* hash table of operations by user_data */
#define EVENTS_MAX	256
#define SHOTS_MAX	16		/* of a multishot operation per event */
#define RESERVE		1024		/* completions that multishot leaves for others */
#define RETRY_NS	5000000ull	/* for a Unix socket whose queue is full */
#define OPS_CHUNK	256

struct op {
	SLIST_ENTRY(op) fd_link;	/* in the list of its descriptor, or of free ones */
	LIST_ENTRY(op) table_link;
	LIST_ENTRY(op) timed_link;
	struct io_uring_sqe sqe;
	uint64_t due_ns;		/* 0: waits for its descriptor only */
};

SLIST_HEAD(op_stack, op);
LIST_HEAD(op_list, op);

/* The array of these may be reallocated: lists must not point back into it. */
struct watched {
	struct op_stack ops;
	uint32_t armed;			/* events; 0: not in the epoll set */
};

struct tbg_ring_epoll {
	int epoll_fd;
	unsigned int sq_head, cq_head, cq_tail, zero;
	struct watched *fds;
	unsigned int fds_nr;
	struct op_list table[1 << TABLE_BITS];
	struct op_list timed;
	struct op_stack free;
	struct io_uring_buf_ring *buffers;
	unsigned int buffers_mask;
	uint16_t buffers_head;
};

/* --- queues -------------------------------------------------------------- */

static unsigned int cq_room(const struct tbg_ring *r)
{
	return r->uring.cq.ring_entries - io_uring_cq_ready(&r->uring);
}

static void complete(struct tbg_ring *r, const struct op *op, int res, uint32_t flags)
{
	struct tbg_ring_epoll *e = r->epoll;
	struct io_uring_cqe *cqe = &r->uring.cq.cqes[e->cq_tail & r->uring.cq.ring_mask];

	/* cannot happen: RESERVE exceeds the number of other operations */
	if (!cq_room(r))
		abort();
	cqe->user_data = op->sqe.user_data;
	cqe->res = res;
	cqe->flags = flags;
	e->cq_tail++;
}

struct io_uring_sqe *tbg_ring_epoll_sqe(struct tbg_ring *r)
{
	struct io_uring_sq *sq = &r->uring.sq;

	if (sq->sqe_tail - *sq->khead == sq->ring_entries)
		return NULL;
	return &sq->sqes[sq->sqe_tail++ & sq->ring_mask];
}

void tbg_ring_epoll_buffers(struct tbg_ring_epoll *e, struct io_uring_buf_ring *buffers,
			    unsigned int nr)
{
	e->buffers = buffers;
	e->buffers_mask = nr - 1;
	e->buffers_head = 0;
}

/* --- operations ---------------------------------------------------------- */

static struct op_list *table_at(struct tbg_ring_epoll *e, uint64_t user_data)
{
	return &e->table[(user_data * 0x9e3779b97f4a7c15ull) >> (64 - TABLE_BITS)];
}

static struct op *op_new(struct tbg_ring_epoll *e, const struct io_uring_sqe *sqe)
{
	struct op *op = SLIST_FIRST(&e->free);

	if (!op) {
		op = calloc(OPS_CHUNK, sizeof(*op));
		if (!op)
			return NULL;
		for (int i = 1; i < OPS_CHUNK; i++)
			SLIST_INSERT_HEAD(&e->free, &op[i], fd_link);
	} else {
		SLIST_REMOVE_HEAD(&e->free, fd_link);
	}
	*op = (struct op){ .sqe = *sqe };
	return op;
}

static void timed_add(struct tbg_ring_epoll *e, struct op *op, uint64_t due_ns)
{
	op->due_ns = due_ns;
	LIST_INSERT_HEAD(&e->timed, op, timed_link);
}

/* The caller has removed it from its descriptor's list. */
static void op_free(struct tbg_ring_epoll *e, struct op *op)
{
	LIST_REMOVE(op, table_link);
	if (op->due_ns)
		LIST_REMOVE(op, timed_link);
	SLIST_INSERT_HEAD(&e->free, op, fd_link);
}

/* --- descriptors --------------------------------------------------------- */

static uint32_t events_of(const struct op *op)
{
	switch (op->sqe.opcode) {
	case IORING_OP_SENDMSG:
	case IORING_OP_CONNECT:
		return EPOLLOUT;
	case IORING_OP_POLL_ADD:
		return op->sqe.poll32_events & (EPOLLIN | EPOLLOUT | EPOLLRDHUP);
	default:
		return EPOLLIN;
	}
}

static struct watched *watched_of(struct tbg_ring_epoll *e, int fd)
{
	unsigned int nr = e->fds_nr ?: 1024;
	struct watched *more;

	if (fd < 0)
		return NULL;
	if ((unsigned int)fd < e->fds_nr)
		return &e->fds[fd];
	while (nr <= (unsigned int)fd)
		nr *= 2;
	more = reallocarray(e->fds, nr, sizeof(*more));
	if (!more)
		return NULL;
	memset(more + e->fds_nr, 0, (nr - e->fds_nr) * sizeof(*more));
	e->fds = more;
	e->fds_nr = nr;
	return &more[fd];
}

/* Registers the events that its operations wait for. Returns 0 or a negative errno. */
static int fd_arm(struct tbg_ring_epoll *e, int fd)
{
	struct watched *w = &e->fds[fd];
	struct epoll_event event = { .data.fd = fd };
	int err;

	for (const struct op *op = SLIST_FIRST(&w->ops); op; op = SLIST_NEXT(op, fd_link))
		event.events |= events_of(op);
	if (event.events == w->armed)
		return 0;
	if (!event.events) {
		epoll_ctl(e->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		w->armed = 0;
		return 0;
	}
	err = epoll_ctl(e->epoll_fd, w->armed ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) ?
	      errno : 0;
	if (err == ENOENT)		/* the descriptor number now belongs to another file */
		err = epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? errno : 0;
	else if (err == EEXIST)
		err = epoll_ctl(e->epoll_fd, EPOLL_CTL_MOD, fd, &event) ? errno : 0;
	w->armed = err ? 0 : event.events;
	return -err;
}

/* --- attempts ------------------------------------------------------------ */

static bool would_block(int err)
{
	return err == EAGAIN || err == EWOULDBLOCK || err == EINTR || err == EINPROGRESS ||
	       err == EALREADY;
}

/* Receives once into a buffer of the ring; *ret_flags: of its completion. */
static int recv_buffer(struct tbg_ring *r, const struct op *op, uint32_t *ret_flags)
{
	struct tbg_ring_epoll *e = r->epoll;
	struct io_uring_buf *b = &e->buffers->bufs[e->buffers_head & e->buffers_mask];
	ssize_t n;

	if (e->buffers_head == __atomic_load_n(&e->buffers->tail, __ATOMIC_ACQUIRE))
		return -ENOBUFS;
	n = recv(op->sqe.fd, (void *)(uintptr_t)b->addr, b->len, MSG_DONTWAIT);
	if (n < 0)
		return -errno;
	if (n > 0) {
		*ret_flags = IORING_CQE_F_BUFFER |
			     (uint32_t)b->bid << IORING_CQE_BUFFER_SHIFT;
		e->buffers_head++;
	}
	return n;
}

static int connect_try(const struct op *op)
{
	const struct sockaddr *to = (void *)(uintptr_t)op->sqe.addr;
	int flags = fcntl(op->sqe.fd, F_GETFL), err;
	socklen_t len = sizeof(err);

	fcntl(op->sqe.fd, F_SETFL, flags | O_NONBLOCK);
	if (!connect(op->sqe.fd, to, op->sqe.off))
		return 0;
	if (errno != EISCONN)
		return -errno;
	return getsockopt(op->sqe.fd, SOL_SOCKET, SO_ERROR, &err, &len) ? -errno : -err;
}

static int poll_try(const struct op *op)
{
	struct pollfd p = { .fd = op->sqe.fd, .events = op->sqe.poll32_events };
	int n = poll(&p, 1, 0);

	return n < 0 ? -errno : n ? p.revents : -EAGAIN;
}

static int try(struct tbg_ring *r, struct op *op, uint32_t *ret_flags)
{
	const struct io_uring_sqe *q = &op->sqe;
	void *at = (void *)(uintptr_t)q->addr;
	ssize_t n;

	*ret_flags = 0;
	switch (q->opcode) {
	case IORING_OP_ACCEPT:
		n = accept4(q->fd, NULL, NULL, q->accept_flags);
		break;
	case IORING_OP_RECV:
		if (q->flags & IOSQE_BUFFER_SELECT)
			return recv_buffer(r, op, ret_flags);
		n = recv(q->fd, at, q->len, q->msg_flags | MSG_DONTWAIT);
		break;
	case IORING_OP_SENDMSG:
		n = sendmsg(q->fd, at, q->msg_flags | MSG_DONTWAIT);
		break;
	case IORING_OP_READ:		/* an eventfd, which may be blocking */
		if (poll(&(struct pollfd){ .fd = q->fd, .events = POLLIN }, 1, 0) < 1)
			return -EAGAIN;
		n = read(q->fd, at, q->len);
		break;
	case IORING_OP_CONNECT:
		return connect_try(op);
	case IORING_OP_POLL_ADD:
		return poll_try(op);
	default:
		return -EINVAL;
	}
	return n < 0 ? -errno : n;
}

static bool is_multishot(const struct op *op)
{
	return (op->sqe.opcode == IORING_OP_ACCEPT && op->sqe.ioprio & IORING_ACCEPT_MULTISHOT) ||
	       (op->sqe.opcode == IORING_OP_RECV && op->sqe.ioprio & IORING_RECV_MULTISHOT);
}

/* Tries an operation. Returns true if it has ended and its completion was added. */
static bool advance(struct tbg_ring *r, struct op *op)
{
	bool multishot = is_multishot(op), on;
	uint32_t flags;
	int res;

	for (int i = 0; i < SHOTS_MAX && cq_room(r) > RESERVE; i++) {
		res = try(r, op, &flags);
		if (res < 0 && would_block(-res))
			return false;
		/* end of input and errors end a multishot operation */
		on = multishot && (op->sqe.opcode == IORING_OP_ACCEPT ? res >= 0 : res > 0);
		complete(r, op, res, flags | (on ? IORING_CQE_F_MORE : 0));
		if (!on)
			return true;
	}
	return false;
}

/* --- submission ---------------------------------------------------------- */

static void end(struct tbg_ring *r, struct op *op, int res)
{
	struct tbg_ring_epoll *e = r->epoll;

	if (op->sqe.opcode != IORING_OP_TIMEOUT) {
		SLIST_REMOVE(&e->fds[op->sqe.fd].ops, op, op, fd_link);
		fd_arm(e, op->sqe.fd);
	}
	complete(r, op, res, 0);
	op_free(e, op);
}

static void cancel(struct tbg_ring *r, const struct io_uring_sqe *sqe)
{
	struct op self = { .sqe = *sqe };
	struct op *op = LIST_FIRST(table_at(r->epoll, sqe->addr));

	while (op && op->sqe.user_data != sqe->addr)
		op = LIST_NEXT(op, table_link);
	if (op)
		end(r, op, -ECANCELED);
	complete(r, &self, op ? 0 : -ENOENT, 0);
}

static void timeout_add(struct tbg_ring *r, const struct io_uring_sqe *sqe)
{
	const struct __kernel_timespec *t = (void *)(uintptr_t)sqe->addr;
	struct op self = { .sqe = *sqe }, *op = op_new(r->epoll, sqe);

	if (!op) {
		complete(r, &self, -ENOMEM, 0);
		return;
	}
	LIST_INSERT_HEAD(table_at(r->epoll, sqe->user_data), op, table_link);
	timed_add(r->epoll, op, tbg_mono_ns() + t->tv_sec * 1000000000ull + t->tv_nsec);
}

/* A full queue of a Unix socket causes no event: connect() is retried after a short time. */
static bool must_retry(const struct op *op)
{
	const struct sockaddr *to = (void *)(uintptr_t)op->sqe.addr;

	return op->sqe.opcode == IORING_OP_CONNECT && to->sa_family == AF_UNIX;
}

static void op_add(struct tbg_ring *r, const struct io_uring_sqe *sqe)
{
	struct op self = { .sqe = *sqe }, *op;
	struct watched *w;
	int err;

	if (advance(r, &self))
		return;
	w = watched_of(r->epoll, sqe->fd);
	op = w ? op_new(r->epoll, sqe) : NULL;
	if (!op) {
		complete(r, &self, -ENOMEM, 0);
		return;
	}
	LIST_INSERT_HEAD(table_at(r->epoll, sqe->user_data), op, table_link);
	SLIST_INSERT_HEAD(&w->ops, op, fd_link);
	if (must_retry(op))
		timed_add(r->epoll, op, tbg_mono_ns() + RETRY_NS);
	err = fd_arm(r->epoll, sqe->fd);
	if (err)
		end(r, op, err);
}

int tbg_ring_epoll_submit(struct tbg_ring *r)
{
	struct io_uring_sq *sq = &r->uring.sq;
	int nr = 0;

	/* a cancellation needs two completions */
	while (*sq->khead != sq->sqe_tail && cq_room(r) > 1) {
		struct io_uring_sqe sqe = sq->sqes[*sq->khead & sq->ring_mask];

		++*sq->khead;
		nr++;
		if (sqe.opcode == IORING_OP_ASYNC_CANCEL)
			cancel(r, &sqe);
		else if (sqe.opcode == IORING_OP_TIMEOUT)
			timeout_add(r, &sqe);
		else
			op_add(r, &sqe);
	}
	return nr;
}

/* --- waiting ------------------------------------------------------------- */

static void fd_event(struct tbg_ring *r, int fd, uint32_t events)
{
	struct tbg_ring_epoll *e = r->epoll;
	struct watched *w = &e->fds[fd];
	bool ended = false;

	for (struct op *op = SLIST_FIRST(&w->ops), *next; op; op = next) {
		uint32_t wanted = events_of(op) | EPOLLERR | EPOLLHUP;

		next = SLIST_NEXT(op, fd_link);
		if (!(events & wanted) || !advance(r, op))
			continue;
		SLIST_REMOVE(&w->ops, op, op, fd_link);
		op_free(e, op);
		ended = true;
	}
	if (ended || SLIST_EMPTY(&w->ops))
		fd_arm(e, fd);
}

/* Handles operations whose time has come. Returns the time of the next one, or UINT64_MAX. */
static uint64_t timed_run(struct tbg_ring *r, uint64_t now_ns)
{
	uint64_t next_ns = UINT64_MAX;

	for (struct op *op = LIST_FIRST(&r->epoll->timed), *next; op; op = next) {
		next = LIST_NEXT(op, timed_link);
		if (op->due_ns <= now_ns && cq_room(r) > 1) {
			if (op->sqe.opcode == IORING_OP_TIMEOUT) {
				end(r, op, -ETIME);
				continue;
			}
			op->due_ns = now_ns + RETRY_NS;
			fd_event(r, op->sqe.fd, EPOLLOUT);
			return now_ns;		/* the list may have changed */
		}
		if (op->due_ns < next_ns)
			next_ns = op->due_ns;
	}
	return next_ns;
}

static int look(struct tbg_ring *r, int wait_ms)
{
	struct epoll_event events[EVENTS_MAX];
	int nr = epoll_wait(r->epoll->epoll_fd, events, EVENTS_MAX, wait_ms);

	for (int i = 0; i < nr; i++)
		fd_event(r, events[i].data.fd, events[i].events);
	return nr < 0 ? -errno : nr;
}

/* Rounds up: otherwise the loop would spin until the timer expires. */
static int ms_until(uint64_t ns, uint64_t now_ns)
{
	return ns <= now_ns ? 0 : ns - now_ns > 3600000000000ull ? 3600000 :
	       (int)((ns - now_ns + 999999) / 1000000);
}

int tbg_ring_epoll_wait(struct tbg_ring *r, unsigned int nr, struct __kernel_timespec *most)
{
	uint64_t now_ns = tbg_mono_ns(), next_ns;
	uint64_t end_ns = most ? now_ns + most->tv_sec * 1000000000ull + most->tv_nsec :
			  UINT64_MAX;
	int submitted = tbg_ring_epoll_submit(r), err;

	for (;;) {
		next_ns = timed_run(r, now_ns);
		if (io_uring_cq_ready(&r->uring) >= nr || now_ns >= end_ns)
			return nr ? submitted : look(r, 0) < 0 ? 0 : submitted;
		/* a wait of less than a millisecond only polls */
		if (most && end_ns - now_ns < 1000000)
			end_ns = now_ns;
		err = look(r, ms_until(next_ns < end_ns ? next_ns : end_ns, now_ns));
		if (err < 0)
			return err;
		now_ns = tbg_mono_ns();
	}
}

int tbg_ring_open_epoll(struct tbg_ring *r, unsigned int entries, unsigned int completions)
{
	struct tbg_ring_epoll *e = calloc(1, sizeof(*e));
	struct io_uring_sq *sq = &r->uring.sq;
	struct io_uring_cq *cq = &r->uring.cq;

	if (!e)
		return -ENOMEM;
	memset(&r->uring, 0, sizeof(r->uring));
	sq->sqes = calloc(entries, sizeof(*sq->sqes));
	cq->cqes = calloc(completions, sizeof(*cq->cqes));
	e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (!sq->sqes || !cq->cqes || e->epoll_fd < 0) {
		free(sq->sqes);
		free(cq->cqes);
		free(e);
		return -ENOMEM;
	}
	sq->khead = &e->sq_head;
	sq->kflags = &e->zero;
	sq->ring_mask = entries - 1;
	sq->ring_entries = entries;
	cq->khead = &e->cq_head;
	cq->ktail = &e->cq_tail;
	cq->ring_mask = completions - 1;
	cq->ring_entries = completions;
	r->uring.ring_fd = r->uring.enter_ring_fd = -1;
	r->epoll = e;
	return 0;
}
