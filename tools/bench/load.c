// SPDX-License-Identifier: GPL-2.0
/*
 * The client for what no packaged generator does: many connections of which a
 * few are active, lines of a given speed, an exact number of requests on each
 * connection, requests drawn by weight, an open loop whose latency counts from
 * when a request was due, and every byte of every reply checked. Run by `bench`,
 * which reads the line of JSON at the end; `load --help` has the options.
 *
 * One thread, one epoll loop, HTTP/1.1. It counts what
 * goes wrong by kind and never retries: that is the reader's to judge.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <netinet/in.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#define HEAD_MAX	4096
#define REQUEST_MAX	4096
#define SOURCE_MAX	256
#define EVENTS_MAX	512
#define OPENING_MAX	256		/* handshakes at once before the measure */
#define TICK_NS		10000000L	/* slow lines read that often */
#define SCAN_NS		200000000L	/* timeouts are looked for that often */
#define SECOND_NS	1000000000L
#define SYN_AGAIN_NS	1500000000L	/* TCP has sent a lost SYN again by then, once */
#define HOPELESS	1000		/* errors, if they outnumber the replies */
#define STATUS_MAX	999
#define SUB_BITS	5		/* latencies are kept to 3 % */

#define ERRORS(X) \
	X(timeout) X(refused) X(reset) X(closed) X(fd) X(addr) X(status) X(length) \
	X(body) X(framing) X(other)

enum error {
#define X(name) ERR_##name,
	ERRORS(X)
#undef X
	ERR_NR
};

static const char *const error_names[] = {
#define X(name) #name,
	ERRORS(X)
#undef X
};

enum state { CLOSED, CONNECTING, IDLE, READING };

/* Runs of a body's bytes in which any digit is right. */
struct digits {
	long first, len, every, times;
};

struct target {
	char *path;
	char *cookie, *post;		/* NULL: none; '#' is any digit */
	double up_to;			/* cumulative share of the requests */
	long body_len;			/* -1: not known */
	uint32_t crc;
	bool crc_known;
	struct digits *digits;		/* NULL: none */
};

struct conn {
	int fd;
	enum state state;
	unsigned int calls_left;	/* UINT32_MAX: no end */
	bool queued, asleep, close_after, used;
	const struct target *target;
	long due_ns, sent_ns, heard_ns;	/* heard: of the reply, its last bytes so far */
	int head_len;
	long body_left, body_len, offset;	/* offset: where in the body the reply begins */
	enum chunk { UNCHUNKED, SIZE, EXTENSION, DATA, END, TRAILER } chunk;
	long chunk_left;		/* or bytes of a trailer line */
	int status;
	uint32_t crc;
	double tokens;			/* bytes that the line has left */
	double bits, busy_s;		/* of requests, from when they were due */
	char *head;			/* while a reply is read: most connections wait */
};

static struct {
	struct sockaddr_storage to, sources[SOURCE_MAX];
	socklen_t to_len;
	char authority[300];
	int source_nr, connections, active, calls_min, calls_max, expect;
	double seconds, rate, line_bps, conform_bps, timeout_s, single, opening_s;
	const char *list, *path, *headers;
	bool once, verify, wait, offsets;
} opt = {
	.connections = 1, .seconds = 1, .timeout_s = 8, .expect = 200, .path = "/",
	.headers = "", .verify = true, .opening_s = 60,
};

static struct target *targets;
static long target_nr, next_once;
static struct conn *conns;
static int *queue, queue_head, queue_len;	/* of connections that wait for work */
static int *sleepers, sleeper_nr;		/* whose line is used up */
static int epfd, in_flight, opening, opened, source_next;
static long start_ns, end_ns, polled_ns, issued;
static bool measuring, stopped;
static volatile sig_atomic_t interrupted;
static long done_nr, byte_nr, sent_nr, used_nr, error_nr, errors[ERR_NR];
static long wrong_statuses[STATUS_MAX + 1];
static long latencies[64 << SUB_BITS], latency_nr, latency_max_us, latency_sum_us;
static uint64_t seed = 88172645463325252ULL;

static long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * SECOND_NS + ts.tv_nsec;
}

static double random_share(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (seed >> 11) * (1.0 / 9007199254740992.0);
}

static int die(const char *what)
{
	fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* --- latencies ------------------------------------------------------------ */

static int latency_slot(long us)
{
	int high = us > 0 ? 63 - __builtin_clzl(us) : 0;

	if (high < SUB_BITS)
		return us;
	return ((high - SUB_BITS + 1) << SUB_BITS) +
	       ((us >> (high - SUB_BITS)) & ((1 << SUB_BITS) - 1));
}

static long slot_us(int slot)
{
	int high = slot >> SUB_BITS;
	long low = slot & ((1 << SUB_BITS) - 1);

	return high ? (low + (1 << SUB_BITS)) << (high - 1) : low;
}

static void latency_count(long us)
{
	latencies[latency_slot(us)]++;
	latency_nr++;
	latency_sum_us += us;
	latency_max_us = us > latency_max_us ? us : latency_max_us;
}

static long percentile_us(double share)
{
	long want = share * latency_nr, seen = 0;

	for (size_t i = 0; i < sizeof(latencies) / sizeof(*latencies); i++) {
		seen += latencies[i];
		if (seen > want)
			return slot_us(i);
	}
	return latency_max_us;
}

/* --- connections ---------------------------------------------------------- */

static void enqueue(struct conn *c)
{
	if (c->queued)
		return;
	c->queued = true;
	queue[(queue_head + queue_len++) % opt.connections] = c - conns;
}

static struct conn *dequeue(void)
{
	struct conn *c = &conns[queue[queue_head]];

	queue_head = (queue_head + 1) % opt.connections;
	queue_len--;
	c->queued = false;
	return c;
}

static void conn_close(struct conn *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	free(c->head);
	c->head = NULL;
	opening -= c->state == CONNECTING;
	opened -= c->state == IDLE || c->state == READING;
	c->state = CLOSED;
}

static void count_error(enum error kind)
{
	errors[kind]++;
	error_nr++;
	if (error_nr > HOPELESS && error_nr > done_nr)
		stopped = true;
}

/* The request, if there was one, has failed; the slot is free for another. */
static void conn_fail(struct conn *c, enum error kind)
{
	in_flight -= c->target != NULL;
	c->target = NULL;
	conn_close(c);
	count_error(kind);
	enqueue(c);
}

static enum error error_of(int err)
{
	switch (err) {
	case ECONNREFUSED:	return ERR_refused;
	case ECONNRESET:
	case EPIPE:		return ERR_reset;
	case ETIMEDOUT:		return ERR_timeout;
	case EMFILE:
	case ENFILE:		return ERR_fd;
	case EADDRNOTAVAIL:
	case EADDRINUSE:	return ERR_addr;
	default:		return ERR_other;
	}
}

static int open_socket(void)
{
	int fd = socket(opt.to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int small = 4096, one = 1;

	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (opt.line_bps > 0)		/* the server must see that the line is slow */
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	if (opt.source_nr) {
		setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
		if (bind(fd, (void *)&opt.sources[source_next++ % opt.source_nr], opt.to_len))
			goto fail;
	}
	if (!connect(fd, (void *)&opt.to, opt.to_len) || errno == EINPROGRESS)
		return fd;
fail:
	small = errno;
	close(fd);
	return -small;
}

static void conn_open(struct conn *c)
{
	struct epoll_event ev = { .events = EPOLLOUT, .data.u32 = c - conns };
	int fd = open_socket();

	if (fd < 0) {
		conn_fail(c, error_of(-fd));
		return;
	}
	c->fd = fd;
	c->state = CONNECTING;
	c->used = false;
	opening++;
	c->calls_left = !opt.calls_max ? UINT32_MAX :
			random_share() < opt.single ? 1 :
			opt.calls_min + random_share() * (opt.calls_max - opt.calls_min + 1);
	if (c->calls_left != UINT32_MAX && c->calls_left > (unsigned int)opt.calls_max)
		c->calls_left = opt.calls_max;
	c->sent_ns = now_ns();
	if (epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev))
		die("epoll_ctl");
}

/* --- requests ------------------------------------------------------------- */

static const struct target *target_choose(void)
{
	long low = 0, high = target_nr - 1;
	double want;

	if (opt.once)
		return &targets[next_once++];
	want = random_share() * targets[high].up_to;
	while (low < high) {
		long mid = (low + high) / 2;

		if (targets[mid].up_to > want)
			high = mid;
		else
			low = mid + 1;
	}
	return &targets[low];
}

/* Appends a text whose every '#' becomes a digit. */
static int digits_put(char *to, int len, const char *text)
{
	for (; text && *text && len < REQUEST_MAX; text++)
		to[len++] = *text == '#' ? '0' + (int)(random_share() * 10) : *text;
	return len;
}

static int request_put(char *to, struct conn *c)
{
	const struct target *t = c->target;
	int len = snprintf(to, REQUEST_MAX, "%s %s HTTP/1.1\r\nHost: %s\r\n%s",
			   t->post ? "POST" : "GET", t->path, opt.authority, opt.headers);

	c->offset = opt.offsets && t->body_len > 0 ? random_share() * t->body_len : 0;
	if (opt.offsets && len < REQUEST_MAX)
		len += snprintf(to + len, REQUEST_MAX - len, "Range: bytes=%ld-\r\n", c->offset);
	if (t->cookie) {
		len = digits_put(to, len, "Cookie: ");
		len = digits_put(to, len, t->cookie);
		len = digits_put(to, len, "\r\n");
	}
	if (t->post && len < REQUEST_MAX)
		len += snprintf(to + len, REQUEST_MAX - len, "Content-Length: %zu\r\n",
				strlen(t->post));
	len = digits_put(to, len, "\r\n");
	return digits_put(to, len, t->post);
}

static void conn_send(struct conn *c)
{
	static char text[REQUEST_MAX];
	struct epoll_event ev = { .events = EPOLLIN, .data.u32 = c - conns };
	int len = request_put(text, c);

	c->state = READING;
	c->head = malloc(HEAD_MAX);
	if (!c->head)
		die("memory");
	c->head_len = 0;
	c->body_left = -1;
	c->crc = 0;
	c->sent_ns = c->heard_ns = now_ns();
	if (len >= (int)sizeof(text) || send(c->fd, text, len, MSG_NOSIGNAL) != len) {
		conn_fail(c, len >= (int)sizeof(text) ? ERR_other : error_of(errno));
		return;
	}
	if (epoll_ctl(epfd, EPOLL_CTL_MOD, c->fd, &ev))
		die("epoll_ctl");
	sent_nr += len;
	used_nr += !c->used;
	c->used = true;
}

static void request_start(long due_ns)
{
	struct conn *c = dequeue();

	c->target = target_choose();
	c->due_ns = due_ns;
	in_flight++;
	issued++;
	if (c->state == IDLE)
		conn_send(c);
	else if (c->state == CLOSED)
		conn_open(c);
}

/* Bytes of the reply under way that have come, or of the whole one. */
static long reply_len(const struct conn *c)
{
	return c->head_len + (c->body_left < 0 ? 0 : c->body_len - c->body_left);
}

static void request_done(struct conn *c)
{
	const struct target *t = c->target;
	long now = now_ns(), us = (now - c->due_ns) / 1000;

	in_flight--;
	c->target = NULL;
	if (c->status != opt.expect) {
		count_error(ERR_status);
		wrong_statuses[c->status]++;
	} else if (t->body_len >= 0 && c->status != 304 &&
		   t->body_len - c->offset != c->body_len) {
		count_error(ERR_length);
	} else if (t->crc_known && opt.verify && !opt.offsets && c->status != 304 &&
		   t->crc != c->crc) {
		count_error(ERR_body);
	} else if (measuring) {
		done_nr += now <= end_ns;
		if (now <= end_ns || opt.rate > 0)
			latency_count(us);
		c->bits += 8.0 * reply_len(c);
		c->busy_s += (now - c->due_ns) / 1e9;
	}
	free(c->head);
	c->head = NULL;
	c->state = IDLE;
	if (c->calls_left != UINT32_MAX && !--c->calls_left)
		c->close_after = true;
	if (c->close_after)
		conn_close(c);
	c->close_after = false;
	enqueue(c);
}

/* --- replies -------------------------------------------------------------- */

/* The value of a field in the head, or NULL. */
static const char *field(const char *head, const char *name)
{
	size_t len = strlen(name);
	const char *p = head;

	while ((p = strchr(p, '\n')) != NULL) {
		p++;
		if (!strncasecmp(p, name, len) && p[len] == ':')
			return p + len + 1 + strspn(p + len + 1, " \t");
	}
	return NULL;
}

/* Whether the lists in all fields of a name have a member. */
static bool field_lists(const char *head, const char *name, const char *member)
{
	for (const char *p = head; (p = field(p, name)) != NULL;) {
		size_t len = 1;

		while (len) {
			p += strspn(p, ", \t");
			len = strcspn(p, ", \t\r\n");
			if (len == strlen(member) && !strncasecmp(p, member, len))
				return true;
			p += len;
		}
	}
	return false;
}

/* Length of the head once it is whole; 0: more is needed, -1: not HTTP as we know it. */
static int head_parse(struct conn *c)
{
	char *end = memmem(c->head, c->head_len, "\r\n\r\n", 4);
	const char *length, *coding;
	int minor;

	if (!end)
		return c->head_len == HEAD_MAX - 1 ? -1 : 0;
	*end = 0;
	if (sscanf(c->head, "HTTP/1.%1d %3d", &minor, &c->status) != 2 || minor > 1 ||
	    c->status < 100)
		return -1;
	length = field(c->head, "content-length");
	/* RFC 9112, 9.3 */
	c->close_after = field_lists(c->head, "connection", "close") ||
			 (!minor && !field_lists(c->head, "connection", "keep-alive"));
	coding = field(c->head, "transfer-encoding");
	c->chunk = coding && !strncasecmp(coding, "chunked", 7) ? SIZE : UNCHUNKED;
	c->chunk_left = 0;
	c->body_len = c->status == 304 || c->status == 204 || c->chunk ? 0 :
		      length ? atol(length) : -1;
	return c->body_len < 0 ? -1 : end + 4 - c->head;
}

/* Bytes from `at` on until a run of digits begins or ends; whether they are in one. */
static long stretch(const struct digits *d, long at, bool *ret_in)
{
	long nth = d && at >= d->first ? (at - d->first) / d->every : -1;
	long off = nth < 0 ? 0 : (at - d->first) % d->every;

	*ret_in = nth >= 0 && nth < d->times && off < d->len;
	return !d || nth >= d->times ? LONG_MAX :
	       nth < 0 ? d->first - at : *ret_in ? d->len - off : d->every - off;
}

/* Bytes of the body, of which so many came before. */
static void crc_take(struct conn *c, const char *data, long len, long at)
{
	if (!opt.verify || !c->target->crc_known)
		return;
	while (len) {
		bool in;
		long n = stretch(c->target->digits, at, &in);

		n = n < len ? n : len;
		for (long i = 0; in && i < n; i++) {
			char ch = data[i] >= '0' && data[i] <= '9' ? '0' : data[i];

			c->crc = crc32(c->crc, (const void *)&ch, 1);
		}
		if (!in)
			c->crc = crc32(c->crc, (const void *)data, n);
		data += n;
		at += n;
		len -= n;
	}
}

static void body_take(struct conn *c, const char *data, long len)
{
	crc_take(c, data, len, c->body_len - c->body_left);
	c->body_left -= len;
	if (!c->body_left)
		request_done(c);
}

static int hex(char ch)
{
	return ch >= '0' && ch <= '9' ? ch - '0' :
	       (ch | 0x20) >= 'a' && (ch | 0x20) <= 'f' ? (ch | 0x20) - 'a' + 10 : -1;
}

/* One byte of what frames the chunks; 1: it was the last, -1: of no size that can be. */
static int frame_take(struct conn *c, char ch)
{
	bool line = ch == '\n';

	switch (c->chunk) {
	case SIZE:
		if (hex(ch) >= 0 && c->chunk_left > LONG_MAX >> 4)
			return -1;
		if (hex(ch) >= 0)
			c->chunk_left = c->chunk_left << 4 | hex(ch);
		else if (!line)
			c->chunk = EXTENSION;
		/* fall through */
	case EXTENSION:
		if (line)
			c->chunk = c->chunk_left ? DATA : TRAILER;
		return 0;
	case TRAILER:
		if (line && !c->chunk_left)
			return 1;
		c->chunk_left = line ? 0 : c->chunk_left + (ch != '\r');
		return 0;
	default:			/* the line end behind a chunk */
		c->chunk = line ? SIZE : END;
		return 0;
	}
}

static void chunks_take(struct conn *c, const char *data, long len)
{
	while (len) {
		long n = 1;
		int end = 0;

		if (c->chunk == DATA) {
			n = c->chunk_left < len ? c->chunk_left : len;
			crc_take(c, data, n, c->body_len);
			c->body_len += n;
			c->chunk_left -= n;
			c->chunk = c->chunk_left ? DATA : END;
		} else {
			end = frame_take(c, *data);
		}
		if (end < 0 || (end && len > 1))
			conn_fail(c, ERR_framing);
		else if (end)
			request_done(c);
		if (end)
			return;
		data += n;
		len -= n;
	}
}

static void reply_take(struct conn *c, char *data, long len)
{
	long room, extra;
	int head;

	if (measuring)
		byte_nr += len;
	if (!c->target) {		/* what nobody asked for */
		conn_fail(c, ERR_framing);
		return;
	}
	if (c->body_left < 0) {
		room = HEAD_MAX - 1 - c->head_len;
		room = len < room ? len : room;
		memcpy(c->head + c->head_len, data, room);
		c->head_len += room;
		c->head[c->head_len] = 0;
		head = head_parse(c);
		if (head < 0)
			conn_fail(c, ERR_framing);
		if (head <= 0)
			return;
		extra = c->head_len - head;
		data += room - extra;
		len -= room - extra;
		c->head_len = head;
		c->body_left = c->body_len;
	}
	if (c->chunk)
		chunks_take(c, data, len);
	else if (len > c->body_left)
		conn_fail(c, ERR_length);
	else
		body_take(c, data, len);
}

static void fall_asleep(struct conn *c)
{
	struct epoll_event ev = { .events = 0, .data.u32 = c - conns };

	if (c->asleep)
		return;
	c->asleep = true;
	sleepers[sleeper_nr++] = c - conns;
	epoll_ctl(epfd, EPOLL_CTL_MOD, c->fd, &ev);
}

static void conn_read(struct conn *c)
{
	static char buf[1 << 16];
	long want = sizeof(buf), got;

	if (opt.line_bps > 0) {
		if (c->tokens < 1) {
			fall_asleep(c);
			return;
		}
		want = c->tokens < want ? (long)c->tokens : want;
	}
	got = recv(c->fd, buf, want, 0);
	if (got < 0 && errno == EAGAIN)
		return;
	if (got > 0) {
		c->tokens -= got;
		c->heard_ns = polled_ns;
		reply_take(c, buf, got);
	} else if (!got && !c->target) {
		conn_close(c);		/* an idle connection may end: not an error */
		enqueue(c);
	} else {
		conn_fail(c, got ? error_of(errno) : ERR_closed);
	}
}

/* The line of each slow connection has moved on by dt. */
static void tick(double dt_s)
{
	double more = opt.line_bps / 8 * dt_s, most = 2 * more > 1500 ? 2 * more : 1500;
	int kept = 0;

	for (int i = 0; i < opt.connections; i++) {
		conns[i].tokens += more;
		if (conns[i].tokens > most)
			conns[i].tokens = most;
	}
	for (int i = 0; i < sleeper_nr; i++) {
		struct conn *c = &conns[sleepers[i]];
		struct epoll_event ev = { .events = EPOLLIN, .data.u32 = sleepers[i] };

		if (c->tokens < 1 && c->fd >= 0) {
			sleepers[kept++] = sleepers[i];
			continue;
		}
		c->asleep = false;
		if (c->fd >= 0 && c->state != CONNECTING)
			epoll_ctl(epfd, EPOLL_CTL_MOD, c->fd, &ev);
	}
	sleeper_nr = kept;
}

static void scan_timeouts(long now)
{
	for (int i = 0; i < opt.connections; i++) {
		struct conn *c = &conns[i];

		if ((c->state == CONNECTING || c->target) &&
		    now - c->sent_ns > opt.timeout_s * SECOND_NS)
			conn_fail(c, ERR_timeout);
	}
}

static void conn_ready(struct conn *c, uint32_t events)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u32 = c - conns };
	socklen_t len = sizeof(int);
	int err = 0;

	if (c->fd < 0)
		return;
	if (c->state != CONNECTING) {
		conn_read(c);
		return;
	}
	getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (err || events & EPOLLHUP) {
		conn_fail(c, err ? error_of(err) : ERR_reset);
		return;
	}
	opening--;
	opened++;
	c->state = IDLE;
	if (c->target) {
		conn_send(c);
		return;
	}
	epoll_ctl(epfd, EPOLL_CTL_MOD, c->fd, &ev);
	enqueue(c);
}

/* --- the run -------------------------------------------------------------- */

static bool more_to_ask(void)
{
	return !opt.once || next_once < target_nr;
}

/* When the nr-th request of an open loop is to be made. */
static long nth_due_ns(long nr)
{
	return start_ns + (long)(nr / opt.rate * SECOND_NS);
}

static void requests_start(long now)
{
	if (opt.rate > 0) {
		while (queue_len && more_to_ask() && nth_due_ns(issued) <= now)
			request_start(nth_due_ns(issued));
		return;
	}
	while (queue_len && in_flight < opt.active && more_to_ask() && !stopped)
		request_start(now);
}

static long wait_ms(long now)
{
	long due;

	if (!measuring || opt.rate <= 0)
		return TICK_NS / 1000000;
	due = nth_due_ns(issued) - now;
	if (due < 0)
		due = queue_len ? 0 : TICK_NS;
	return due < TICK_NS ? due / 1000000 : TICK_NS / 1000000;
}

static void poll_once(void)
{
	static struct epoll_event evs[EVENTS_MAX];
	static long ticked_ns, scanned_ns;
	long now = now_ns();
	int nr = epoll_wait(epfd, evs, EVENTS_MAX, wait_ms(now));

	polled_ns = now_ns();
	for (int i = 0; i < nr; i++)
		conn_ready(&conns[evs[i].data.u32], evs[i].events);
	now = now_ns();
	if (opt.line_bps > 0 && now - ticked_ns >= TICK_NS) {
		tick(ticked_ns ? (now - ticked_ns) / 1e9 : 0.01);
		ticked_ns = now;
	}
	if (now - scanned_ns >= SCAN_NS) {
		scan_timeouts(now);
		scanned_ns = now;
	}
}

/* All connections, before the clock starts; closed ones again are the run's own. */
static void open_all(void)
{
	long give_up_ns = now_ns() + (long)(opt.opening_s * SECOND_NS);
	int next = 0;

	while (opened < opt.connections && !interrupted && !stopped && now_ns() < give_up_ns) {
		while (next < opt.connections && opening < OPENING_MAX && !stopped)
			conn_open(&conns[next++]);
		if (next == opt.connections && !opening)
			break;
		poll_once();
	}
}

/* Until whoever runs us has looked at the clock, and closes our stdin. */
static void wait_for_go(void)
{
	char ch;

	printf("ready\n");
	fflush(stdout);
	while (!interrupted && read(STDIN_FILENO, &ch, 1) > 0)
		;
}

/*
 * What was due and has no reply takes at least until now: a server that stalls
 * to the end would else look as if it had not been asked.
 */
static void unanswered_count(long now)
{
	for (int i = 0; i < opt.connections; i++)
		if (conns[i].target)
			latency_count((now - conns[i].due_ns) / 1000);
	for (long nr = issued; nth_due_ns(nr) <= now && (!opt.once || nr < target_nr); nr++)
		latency_count((now - nth_due_ns(nr)) / 1000);
}

/*
 * A closed loop ends before such a request is late: those of which so long not a
 * byte has come the server has forgotten. Over slow lines replies take their time,
 * and so does a connection whose SYN got lost.
 */
static void forgotten_count(long now)
{
	long half = (now - start_ns) / 2;

	for (int i = 0; i < opt.connections; i++) {
		bool connecting = conns[i].state == CONNECTING;
		long since = connecting ? conns[i].sent_ns : conns[i].heard_ns;
		long most = connecting && half < SYN_AGAIN_NS ? SYN_AGAIN_NS : half;

		if (conns[i].target && now - since > most)
			count_error(ERR_timeout);
	}
}

static void run(void)
{
	long now;

	start_ns = now_ns();
	end_ns = start_ns + (long)(opt.seconds * SECOND_NS);
	measuring = true;
	for (int i = 0; i < opt.connections; i++)
		if (conns[i].state == CLOSED || conns[i].state == IDLE)
			enqueue(&conns[i]);
	while ((now = now_ns()) < end_ns && !interrupted && !stopped) {
		if (opt.once && next_once == target_nr && !in_flight)
			break;
		requests_start(now);
		poll_once();
	}
	measuring = false;
	if (opt.rate > 0)
		unanswered_count(now < end_ns ? now : end_ns);
	else if (opt.line_bps <= 0)
		forgotten_count(now);
}

/*
 * Connections whose replies came at that speed, with what has come of the one
 * under way: a server that stalls to the end would else look fast.
 */
static int conforming(void)
{
	long now = now_ns();
	int nr = 0;

	for (int i = 0; i < opt.connections; i++) {
		struct conn *c = &conns[i];

		if (c->state == READING)
			c->bits += 8.0 * reply_len(c);
		if (c->target)
			c->busy_s += (now - c->due_ns) / 1e9;
		nr += c->busy_s > 0 && c->bits / c->busy_s >= opt.conform_bps;
	}
	return nr;
}

static void report(double seconds, int opened_nr)
{
	bool more = false;

	printf("{\"requests\": %ld, \"bytes\": %ld, \"seconds\": %.6f, \"errors\": %ld, "
	       "\"statuses\": %ld, \"p50_us\": %ld, \"p90_us\": %ld, \"p99_us\": %ld, "
	       "\"max_us\": %ld, \"mean_us\": %ld, \"sent\": %ld, \"opened\": %d, \"connects\": %ld, "
	       "\"late\": %ld, \"stopped\": %s, \"conforming\": %d, \"kinds\": {",
	       done_nr, byte_nr, seconds, error_nr - errors[ERR_status], errors[ERR_status],
	       percentile_us(0.5), percentile_us(0.9), percentile_us(0.99), latency_max_us,
	       latency_nr ? latency_sum_us / latency_nr : 0, sent_nr, opened_nr, used_nr,
	       opt.rate > 0 ? (long)(seconds * opt.rate) - issued : 0,
	       stopped ? "true" : "false", opt.conform_bps > 0 ? conforming() : 0);
	for (int i = 0; i < ERR_NR; i++) {
		if (!errors[i])
			continue;
		printf("%s\"%s\": %ld", more ? ", " : "", error_names[i], errors[i]);
		more = true;
	}
	printf("}, \"wrong_statuses\": {");
	more = false;
	for (int i = 0; i <= STATUS_MAX; i++) {
		if (!wrong_statuses[i])
			continue;
		printf("%s\"%d\": %ld", more ? ", " : "", i, wrong_statuses[i]);
		more = true;
	}
	printf("}}\n");
}

/* --- the command line ----------------------------------------------------- */

/* A word of a list; "-" or nothing: NULL. */
static char *word_keep(const char *word)
{
	return word && *word && strcmp(word, "-") ? strdup(word) : NULL;
}

/* CRC[@FIRST+LEN/EVERY*TIMES] */
static bool crc_read(struct target *t, const char *text)
{
	struct digits d;
	char *end;

	t->crc = strtoul(text, &end, 16);
	if (end == text || !*end)
		return end > text;
	if (sscanf(end, "@%ld+%ld/%ld*%ld", &d.first, &d.len, &d.every, &d.times) != 4 ||
	    d.first < 0 || d.len < 1 || d.every < d.len || d.times < 1)
		return false;
	t->digits = malloc(sizeof(d));
	if (!t->digits)
		die("memory");
	*t->digits = d;
	return true;
}

static bool target_add(const char *path, double weight, long body_len, const char *crc,
		       const char *cookie, const char *post)
{
	struct target *t;

	if (!(target_nr & (target_nr + 1)))
		targets = realloc(targets, (2 * target_nr + 2) * sizeof(*targets));
	if (!targets)
		die("memory");
	t = &targets[target_nr];
	*t = (struct target){ .path = strdup(path), .body_len = body_len,
			      .cookie = word_keep(cookie), .post = word_keep(post),
			      .crc_known = crc && strcmp(crc, "-") };
	t->up_to = weight + (target_nr ? targets[target_nr - 1].up_to : 0);
	target_nr++;
	return !t->crc_known || crc_read(t, crc);
}

static void list_read(const char *file)
{
	static char path[2048], crc[64], cookie[256], post[1024];
	FILE *f = fopen(file, "re");
	double weight;
	long body_len, line_nr = 0;
	char *line = NULL;
	size_t room = 0;
	bool ok = true;

	if (!f)
		die(file);
	while (ok && getline(&line, &room, f) > 0) {
		*cookie = *post = 0;
		line_nr++;
		ok = sscanf(line, "%lf %2047s %ld %63s %255s %1023s", &weight, path,
			    &body_len, crc, cookie, post) >= 4 &&
		     target_add(path, weight, body_len, crc, cookie, post);
	}
	free(line);
	fclose(f);
	if (!ok || !target_nr) {
		fprintf(stderr, "load: %s: line %ld: want `weight path length crc32|- [cookie|-] [post]`\n",
			file, line_nr);
		exit(2);
	}
}

static void on_signal(int signum)
{
	(void)signum;
	interrupted = 1;
}

__attribute__((noreturn)) static void usage(int code)
{
	fprintf(code ? stderr : stdout,
		"usage: load [option ...] HOST PORT\n\n"
		"  --connections N      slots, opened before the measure (1)\n"
		"  --active N           requests in flight (all slots)\n"
		"  --calls N | MIN-MAX  requests on one connection (no end)\n"
		"  --single SHARE       of the connections that carry only one\n"
		"  --rate R             requests a second are due, latency counts from then,\n"
		"                       to the end for what has no reply by then\n"
		"  --line BPS           bits a second that each connection reads\n"
		"  --conform BPS        count connections at least as fast\n"
		"  --list FILE          lines of: weight path length crc32|- [cookie|- [body]],\n"
		"                       where a body is POSTed, and # is any digit; with\n"
		"                       crc32@FIRST+LEN/EVERY*TIMES digits of a reply in LEN bytes\n"
		"                       from FIRST on, and so on EVERY bytes, count as 0\n"
		"  --once               each line of the list once, in order\n"
		"  --path PATH          what to ask for without a list (/)\n"
		"  --header LINE        one more header field\n"
		"  --expect STATUS      any other is an error (200)\n"
		"  --offsets            from a random byte on, by Range: --expect 206\n"
		"  --no-verify          do not check the bytes\n"
		"  --source A,B         addresses to connect from\n"
		"  --seconds S          (1)\n"
		"  --opening S          time to open all connections (60)\n"
		"  --wait               say `ready` then, and begin when stdin ends\n"
		"  --timeout S          for one request (8; without --rate and --line also those are\n"
		"                       late that the end finds without a byte for half of the run)\n");
	exit(code);
}

static bool listens(const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ret = fd >= 0 && !connect(fd, a->ai_addr, a->ai_addrlen);

	if (fd >= 0)
		close(fd);
	return ret;
}

/* Of a name's several addresses the first where somebody listens; else the last. */
static socklen_t resolve(const char *host, const char *port, struct sockaddr_storage *ret_to)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found, *a;
	int err = getaddrinfo(host, port, &hints, &found);
	socklen_t len;

	if (err) {
		fprintf(stderr, "load: %s: %s\n", host, gai_strerror(err));
		exit(1);
	}
	for (a = found; a->ai_next && !listens(a);)
		a = a->ai_next;
	len = a->ai_addrlen;
	memcpy(ret_to, a->ai_addr, len);
	freeaddrinfo(found);
	return len;
}

static void sources_set(char *text)
{
	for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
		if (opt.source_nr == SOURCE_MAX)
			usage(2);
		resolve(word, NULL, &opt.sources[opt.source_nr++]);
	}
}

static void header_add(const char *line)
{
	char *text = NULL;

	if (asprintf(&text, "%s%s\r\n", opt.headers, line) < 0)
		die("memory");
	opt.headers = text;
}

static void option_set(int o, char *arg)
{
	switch (o) {
	case 'c':	opt.connections = atoi(arg); break;
	case 'a':	opt.active = atoi(arg); break;
	case 'n':
		opt.calls_min = opt.calls_max = atoi(arg);
		if (strchr(arg, '-'))
			opt.calls_max = atoi(strchr(arg, '-') + 1);
		break;
	case '1':	opt.single = atof(arg); break;
	case 'r':	opt.rate = atof(arg); break;
	case 'l':	opt.line_bps = atof(arg); break;
	case 'C':	opt.conform_bps = atof(arg); break;
	case 'f':	opt.list = arg; break;
	case 'o':	opt.once = true; break;
	case 'p':	opt.path = arg; break;
	case 'H':	header_add(arg); break;
	case 'e':	opt.expect = atoi(arg); break;
	case 'V':	opt.verify = false; break;
	case 'F':	opt.offsets = true; break;
	case 's':	sources_set(arg); break;
	case 't':	opt.seconds = atof(arg); break;
	case 'w':	opt.wait = true; break;
	case 'O':	opt.opening_s = atof(arg); break;
	case 'T':	opt.timeout_s = atof(arg); break;
	default:	usage(o == 'h' ? 0 : 2);
	}
}

static void options_read(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "connections", 1, 0, 'c' }, { "active", 1, 0, 'a' }, { "calls", 1, 0, 'n' },
		{ "single", 1, 0, '1' }, { "rate", 1, 0, 'r' }, { "line", 1, 0, 'l' },
		{ "conform", 1, 0, 'C' }, { "list", 1, 0, 'f' }, { "once", 0, 0, 'o' },
		{ "path", 1, 0, 'p' }, { "header", 1, 0, 'H' }, { "expect", 1, 0, 'e' },
		{ "no-verify", 0, 0, 'V' }, { "source", 1, 0, 's' }, { "seconds", 1, 0, 't' },
		{ "offsets", 0, 0, 'F' }, { "opening", 1, 0, 'O' }, { "wait", 0, 0, 'w' },
		{ "timeout", 1, 0, 'T' }, { "help", 0, 0, 'h' }, { 0 }
	};
	int o;

	while ((o = getopt_long(argc, argv, "", longs, NULL)) != -1)
		option_set(o, optarg);
	if (argc - optind != 2 || opt.connections < 1 || opt.seconds <= 0 ||
	    opt.calls_min > opt.calls_max || (opt.calls_max && opt.calls_min < 1))
		usage(2);
	opt.to_len = resolve(argv[optind], argv[optind + 1], &opt.to);
	snprintf(opt.authority, sizeof(opt.authority), strchr(argv[optind], ':') ? "[%s]:%s" : "%s:%s",
		 argv[optind], argv[optind + 1]);
	if (opt.active < 1 || opt.active > opt.connections)
		opt.active = opt.connections;
}

int main(int argc, char **argv)
{
	int opened_nr;

	options_read(argc, argv);
	if (opt.list)
		list_read(opt.list);
	else
		target_add(opt.path, 1, -1, NULL, NULL, NULL);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	seed ^= (uint64_t)now_ns();
	conns = calloc(opt.connections, sizeof(*conns));
	queue = calloc(opt.connections, sizeof(*queue));
	sleepers = calloc(opt.connections, sizeof(*sleepers));
	epfd = epoll_create1(EPOLL_CLOEXEC);
	if (!conns || !queue || !sleepers || epfd < 0)
		die("memory");
	for (int i = 0; i < opt.connections; i++)
		conns[i].fd = -1;
	open_all();
	opened_nr = opened;
	if (opt.wait)
		wait_for_go();
	if (!stopped)
		run();
	report(start_ns ? (now_ns() < end_ns ? now_ns() : end_ns) / 1e9 - start_ns / 1e9 : 0,
	       opened_nr);
	return 0;
}
