// SPDX-License-Identifier: GPL-2.0
/*
 * A module's fetch: a GET to the daemon's own listener, so that any tier may
 * answer. Connections are reused. Nothing waits; the module gets the result
 * from the loop, never inside tbg_request_fetch().
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/framing.h"
#include "upstream/pool_command.h"
#include "os/loop.h"
#include "module.h"
#include "http/response.h"

#define BODY_MAX	(16u << 20)
#define TARGET_MAX	8000
#define DEPTH_MAX	3		/* modules that fetch from each other */
#define IDLE_MAX	8		/* connections kept for reuse */
#define PIECE		(64 << 10)

struct tbg_lookup {
	struct tbg_request *r;
	int fd;
	bool reused, framed;
	unsigned int interims;
	struct tbg_lines out;
	size_t out_off;
	struct tbg_lines in;		/* the head, then the body without framing */
	struct tbg_response head;
	struct tbg_fields fields;	/* of the head */
	struct tbg_body_decoder decoder;
};

static int idle[IDLE_MAX];
static unsigned int idle_nr;

static void on_event(void *arg, uint32_t events);

/* --- connections --------------------------------------------------------- */

static void forget(int fd)
{
	tbg_loop_remove(tbg_module_loop(), fd);
	close(fd);
}

/* The daemon has closed an idle connection. */
static void on_idle(void *arg, uint32_t events)
{
	int fd = (intptr_t)arg;

	for (unsigned int i = 0; i < idle_nr; i++)
		if (idle[i] == fd)
			idle[i--] = idle[--idle_nr];
	forget(fd);
}

static void keep(int fd)
{
	struct tbg_loop *l = tbg_module_loop();

	tbg_loop_remove(l, fd);
	if (idle_nr == IDLE_MAX ||
	    tbg_loop_add(l, fd, EPOLLIN, on_idle, (void *)(intptr_t)fd))
		close(fd);
	else
		idle[idle_nr++] = fd;
}

static int connect_new(void)
{
	const struct sockaddr_storage *a = &tbg_module_command()->fetch;
	socklen_t len = a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						 : sizeof(struct sockaddr_in);
	int fd = socket(a->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1, err;

	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!connect(fd, (const struct sockaddr *)a, len) || errno == EINPROGRESS)
		return fd;
	err = -errno;
	close(fd);
	return err;
}

static int connect_any(struct tbg_lookup *l, bool fresh)
{
	int err;

	l->reused = !fresh && idle_nr;
	l->fd = l->reused ? idle[--idle_nr] : connect_new();
	if (l->fd < 0)
		return l->fd;
	if (l->reused)
		tbg_loop_remove(tbg_module_loop(), l->fd);
	err = tbg_loop_add(tbg_module_loop(), l->fd, EPOLLIN | EPOLLOUT, on_event, l);
	if (!err)
		return 0;
	close(l->fd);
	l->fd = -1;
	return err;
}

/* --- the end ------------------------------------------------------------- */

static void lookup_free(struct tbg_lookup *l)
{
	if (l->fd >= 0)
		forget(l->fd);
	tbg_lines_free(&l->out);
	tbg_lines_free(&l->in);
	tbg_fields_free(&l->fields);
	tbg_body_decoder_end(&l->decoder);
	free(l);
}

void tbg_lookup_cancel(struct tbg_lookup *l)
{
	lookup_free(l);
}

static void done(struct tbg_lookup *l, int error)
{
	struct tbg_fetched f = { .error = error };

	if (!error) {
		f.status = l->head.status;
		f.fields = l->in.text + l->head.fields_off;
		f.fields_len = l->head.len - 2 - l->head.fields_off;
		f.body = l->in.text + l->head.len;
		f.body_len = l->in.len - l->head.len;
		if (!l->head.close && l->decoder.framing != TBG_FRAMING_CLOSE) {
			keep(l->fd);
			l->fd = -1;
		}
	}
	tbg_module_fetched(l->r, &f);
	lookup_free(l);
}

/* --- in and out ---------------------------------------------------------- */

static void frame_begin(struct tbg_lookup *l)
{
	const struct tbg_response *h = &l->head;

	l->framed = true;
	if (tbg_response_bodiless(h->status, TBG_METHOD_GET))
		tbg_body_decoder_begin(&l->decoder, TBG_FRAMING_NONE, 0);
	else if (h->chunked)
		tbg_body_decoder_begin(&l->decoder, TBG_FRAMING_CHUNKED, 0);
	else if (h->has_length)
		tbg_body_decoder_begin(&l->decoder, TBG_FRAMING_LENGTH, h->content_length);
	else
		tbg_body_decoder_begin(&l->decoder, TBG_FRAMING_CLOSE, 0);
}

/* Returns 0: continue; 1: complete; or negative errno. from: offset of the new bytes. */
static int body_take(struct tbg_lookup *l, size_t from)
{
	size_t used, data, len = l->in.len - from;
	enum tbg_parsed p = tbg_body_decoder_eat(&l->decoder, (uint8_t *)l->in.text + from,
					  len, &used, &data);

	l->in.len = from + data;
	if (p == TBG_PARSED_BAD || used < len)
		return -EBADMSG;
	if (l->in.len - l->head.len > BODY_MAX)
		return -EFBIG;
	return p == TBG_PARSED_DONE;
}

/* Skips a head with a status of 1xx. False: too many, or 101. */
static bool interim_drop(struct tbg_lookup *l)
{
	if (l->head.status == 101 || ++l->interims > TBG_INTERIMS_MAX)
		return false;
	l->in.len -= l->head.len;
	memmove(l->in.text, l->in.text + l->head.len, l->in.len);
	l->head = (struct tbg_response){ 0 };
	return true;
}

static int take(struct tbg_lookup *l, size_t from)
{
	enum tbg_parsed p;

	if (l->framed)
		return body_take(l, from);
	do
		p = tbg_response_parse(&l->head, &l->fields, (const uint8_t *)l->in.text,
				       l->in.len);
	while (p == TBG_PARSED_DONE && l->head.status < 200 && interim_drop(l));
	if (p == TBG_PARSED_MORE)
		return 0;
	if (p == TBG_PARSED_BAD || l->head.status < 200)
		return -EBADMSG;
	frame_begin(l);
	return body_take(l, l->head.len);
}

/* The connection has ended: either with the answer, or because it was kept too long. */
static void ended(struct tbg_lookup *l)
{
	int err;

	if (l->framed && tbg_body_decoder_closes(&l->decoder)) {
		done(l, 0);
		return;
	}
	if (!l->reused || l->in.len) {
		done(l, -ECONNRESET);
		return;
	}
	forget(l->fd);
	l->out_off = 0;
	err = connect_any(l, true);
	if (err)
		done(l, err);
}

static void receive(struct tbg_lookup *l)
{
	static uint8_t b[PIECE];
	ssize_t n = recv(l->fd, b, sizeof(b), MSG_DONTWAIT);
	size_t from = l->in.len;
	int err;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		ended(l);
		return;
	}
	tbg_lines_put(&l->in, b, n);
	err = l->in.failed ? -ENOMEM : take(l, from);
	if (err)
		done(l, err < 0 ? err : 0);
}

static void on_event(void *arg, uint32_t events)
{
	struct tbg_lookup *l = arg;
	size_t left = l->out.len - l->out_off;
	ssize_t n;

	if (left && events & EPOLLOUT) {
		n = send(l->fd, l->out.text + l->out_off, left, MSG_NOSIGNAL);
		if (n > 0)
			l->out_off += n;
		if (l->out_off == l->out.len)
			tbg_loop_change(tbg_module_loop(), l->fd, EPOLLIN);
	}
	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
		receive(l);
}

/* --- the request --------------------------------------------------------- */

/* No bytes that would end the line or its word. */
static bool word(const char *text, size_t max)
{
	size_t len = strlen(text);

	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return false;
	return len && len <= max;
}

static unsigned int depth_of(const struct tbg_request *r)
{
	const char *v = tbg_request_field(r, TBG_DEPTH_FIELD);
	const char *mark = tbg_module_command()->mark;
	size_t len = strlen(mark);

	/* a client may send any value */
	return v && !strncmp(v, mark, len) && v[len] == '-' ? strtoul(v + len + 1, NULL, 10) : 0;
}

int tbg_request_fetch(struct tbg_request *r, const char *target,
		      const char *host, unsigned int flags)
{
	struct tbg_lookup *l;
	int err;

	host = host ?: tbg_request_host(r) ?: "localhost";
	if (*target != '/' || !word(target, TARGET_MAX) || !word(host, 255))
		return -EINVAL;
	if (r->lookup || r->ended)
		return -EBUSY;
	if (depth_of(r) >= DEPTH_MAX)
		return -ELOOP;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->r = r;
	tbg_lines_add(&l->out, "GET %s HTTP/1.1\r\nHost: %s\r\n" TBG_DEPTH_FIELD ": %s-%u\r\n%s\r\n",
		      target, host, tbg_module_command()->mark, depth_of(r) + 1,
		      flags & TBG_FETCH_CACHED ? "Cache-Control: only-if-cached\r\n" : "");
	l->fd = -1;
	err = l->out.failed ? -ENOMEM : connect_any(l, false);
	if (err) {
		lookup_free(l);
		return err;
	}
	r->lookup = l;
	return 0;
}
