// SPDX-License-Identifier: GPL-2.0
/*
 * Reads the replies at the speed of their line, and checks them. Called by load.c for
 * connections that are ready.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <zlib.h>

#include "load.h"

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

/* Length of the complete head; 0: more is needed, -1: not HTTP/1. */
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
	c->chunk = coding && !strncasecmp(coding, "chunked", 7) ? SIZE :
		   c->old && c->close_after && !length ? TO_CLOSE : UNCHUNKED;
	c->chunk_left = 0;
	c->body_len = c->status == 304 || c->status == 204 || c->chunk ? 0 :
		      length ? atol(length) : -1;
	return c->body_len < 0 ? -1 : end + 4 - c->head;
}

/* The bytes from `at` to the beginning or end of a run of digits; whether they are in one. */
static long stretch(const struct digits *d, long at, bool *ret_in)
{
	long nth = d && at >= d->first ? (at - d->first) / d->every : -1;
	long off = nth < 0 ? 0 : (at - d->first) % d->every;

	*ret_in = nth >= 0 && nth < d->times && off < d->len;
	return !d || nth >= d->times ? LONG_MAX :
	       nth < 0 ? d->first - at : *ret_in ? d->len - off : d->every - off;
}

/* Bytes of the body, after this many earlier ones. */
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

/* One byte of the chunks' framing; 1: the last one, -1: an invalid size. */
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
	default:			/* the line end after a chunk */
		c->chunk = line ? SIZE : END;
		return 0;
	}
}

static void chunks_take(struct conn *c, const char *data, long len)
{
	if (c->chunk == TO_CLOSE) {
		crc_take(c, data, len, c->body_len);
		c->body_len += len;
		return;
	}
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
	if (!c->target) {		/* bytes that were not requested */
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
	} else if (!got && c->target && c->body_left >= 0 && c->chunk == TO_CLOSE) {
		request_done(c);
	} else if (!got && !c->target) {
		conn_close(c);		/* an idle connection may end: not an error */
		enqueue(c);
	} else {
		conn_fail(c, got ? error_of(errno) : ERR_closed);
	}
}

/* Advances the line of each slow connection by dt. */
void tick(double dt_s)
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

void scan_timeouts(long now)
{
	for (int i = 0; i < opt.connections; i++) {
		struct conn *c = &conns[i];

		if ((c->state == CONNECTING || c->target) &&
		    now - c->sent_ns > opt.timeout_s * SECOND_NS)
			conn_fail(c, ERR_timeout);
	}
}

void conn_ready(struct conn *c, uint32_t events)
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
