// SPDX-License-Identifier: GPL-2.0
/*
 * The load's connections, and the requests that it sends on them. Called by load.c
 * when a request is due, and by load_reply.c when a reply is complete or has failed.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "load.h"

#define HOPELESS	1000		/* errors, if they outnumber the replies */

/* --- connections ---------------------------------------------------------- */

void enqueue(struct conn *c)
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

void conn_close(struct conn *c)
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

void count_error(enum error kind)
{
	errors[kind]++;
	error_nr++;
	if (error_nr > HOPELESS && error_nr > done_nr)
		stopped = true;
}

/* The request, if there was one, has failed; the slot is free for another. */
void conn_fail(struct conn *c, enum error kind)
{
	in_flight -= c->target != NULL;
	c->target = NULL;
	conn_close(c);
	count_error(kind);
	enqueue(c);
}

enum error error_of(int err)
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

void conn_open(struct conn *c)
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
	c->old = random_share() < opt.old;
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

/* Appends a text, with a digit for each '#'. */
static int digits_put(char *to, int len, const char *text)
{
	for (; text && *text && len < REQUEST_MAX; text++)
		to[len++] = *text == '#' ? '0' + (int)(random_share() * 10) : *text;
	return len;
}

static int request_put(char *to, struct conn *c)
{
	const struct target *t = c->target;
	int len = snprintf(to, REQUEST_MAX, "%s %s HTTP/1.%d\r\nHost: %s\r\n%s%s",
			   t->post ? "POST" : "GET", t->path, !c->old, opt.authority,
			   c->old && c->calls_left > 1 ? "Connection: keep-alive\r\n" : "",
			   opt.headers);

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

void conn_send(struct conn *c)
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

void request_start(long due_ns)
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

/* Received bytes of the current reply, or of the complete one. */
long reply_len(const struct conn *c)
{
	return c->head_len + (c->body_left < 0 ? 0 : c->body_len - c->body_left);
}

void request_done(struct conn *c)
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
