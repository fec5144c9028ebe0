// SPDX-License-Identifier: GPL-2.0
/*
 * Connections, records and their order. A struct tbg_gateway_request lives as
 * long as its connection and serves one request after the other; the answerer
 * sees the begin and the end of each. A callback may end its own request, so
 * callers hold a reference during the call.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "os/loop.h"
#include "http/status.h"
#include "gateway/responder.h"

#define RECEIVE   (128 << 10)	/* bytes at a time */
#define FAIL_ROOM 200		/* bytes of the record for a failure */

static void on_listener(void *arg, uint32_t events);

static size_t bytes_left(const struct tbg_bytes *b)
{
	return b->l.len - b->off;
}

/* Whether descriptors had run out. */
static void listen_again(struct tbg_serve *s)
{
	if (!s->listening)
		s->listening = !tbg_loop_add(s->loop, s->listen_fd,
					     EPOLLIN | EPOLLEXCLUSIVE,
					     on_listener, s);
}

static void listen_not(struct tbg_serve *s)
{
	if (s->listening)
		tbg_loop_remove(s->loop, s->listen_fd);
	s->listening = false;
}

/* --- a request's life ---------------------------------------------------- */

static void request_forget(struct tbg_gateway_request *v)
{
	tbg_lines_free(&v->pairs);
	tbg_lines_free(&v->body.l);
	free(v->text);
	free(v->params);
	v->text = NULL;
	v->params = NULL;
	v->params_nr = 0;
	v->pairs = (struct tbg_lines){ 0 };
	v->body = (struct tbg_bytes){ 0 };
	v->begun = v->known = v->ended = v->input_over = false;
	v->output_begun = v->starved = false;
	v->own = NULL;
}

static void release(struct tbg_gateway_request *v)
{
	struct tbg_serve *s = v->s;

	if (--v->holds || !v->dead)
		return;
	LIST_REMOVE(v, link);
	s->connections_nr--;
	request_forget(v);
	tbg_lines_free(&v->values);
	tbg_lines_free(&v->out.l);
	free(v);
	if (!s->retiring)
		listen_again(s);
	else if (!s->connections_nr)
		tbg_loop_stop(s->loop);
}

/* The answerer is done with it, or the request was aborted. */
static void gone(struct tbg_gateway_request *v)
{
	bool known = v->known && !v->ended;

	v->ended = true;
	if (known)
		v->s->answerer->gone(v);
}

static void drop(struct tbg_gateway_request *v)
{
	if (v->dead)
		return;
	v->dead = true;
	v->holds++;
	gone(v);
	tbg_loop_remove(v->s->loop, v->fd);
	close(v->fd);
	v->fd = -1;
	release(v);
}

/* Sets the events that the loop polls for. */
static void wait_for(struct tbg_gateway_request *v)
{
	uint32_t events = 0;

	if (v->dead)
		return;
	if (bytes_left(&v->out) || v->starved)
		events |= EPOLLOUT;
	if (!v->closing && !v->last && bytes_left(&v->body) < TBG_GATEWAY_REQUEST_BODY)
		events |= EPOLLIN;
	if (events != v->events && !tbg_loop_change(v->s->loop, v->fd, events))
		v->events = events;
}

/* --- out ----------------------------------------------------------------- */

static void flush(struct tbg_gateway_request *v)
{
	bool full = bytes_left(&v->out) >= TBG_GATEWAY_REQUEST_OUT;
	ssize_t n;

	while (!v->dead && bytes_left(&v->out)) {
		n = send(v->fd, v->out.l.text + v->out.off, bytes_left(&v->out),
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0)
			drop(v);
		else
			v->out.off += n;
	}
	if (!bytes_left(&v->out))
		v->out.off = v->out.l.len = 0;
	v->starved |= full && bytes_left(&v->out) < TBG_GATEWAY_REQUEST_OUT;
}

static bool record(struct tbg_gateway_request *v, uint8_t type, const void *b, size_t len)
{
	if (v->dead || v->closing || v->out.l.failed)
		return false;
	if (v->out.off > TBG_GATEWAY_REQUEST_OUT / 2) {	/* sent bytes make room */
		v->out.l.len -= v->out.off;
		memmove(v->out.l.text, v->out.l.text + v->out.off, v->out.l.len);
		v->out.off = 0;
	}
	tbg_fcgi_record_put(&v->out.l, type, v->id, b, len);
	return !v->out.l.failed;
}

size_t tbg_gateway_request_room(const struct tbg_gateway_request *v)
{
	size_t left = bytes_left(&v->out);

	return left < TBG_GATEWAY_REQUEST_OUT ? TBG_GATEWAY_REQUEST_OUT - left : 0;
}

bool tbg_gateway_request_send(struct tbg_gateway_request *v, const void *b, size_t len)
{
	v->output_begun |= len;
	return record(v, TBG_FCGI_RECORD_STDOUT, b, len);
}

void tbg_gateway_request_complain(struct tbg_gateway_request *v, const void *b, size_t len)
{
	record(v, TBG_FCGI_RECORD_STDERR, b, len);
}

void tbg_gateway_request_flush(struct tbg_gateway_request *v)
{
	v->holds++;
	flush(v);
	wait_for(v);
	release(v);
}

/*
 * Retires a connection that waits for a request. It is not closed at once,
 * because a request may be under way: the daemon cannot send any more from now
 * on, and what it has sent before is answered.
 */
static void retire(struct tbg_gateway_request *v)
{
	char c;

	if (recv(v->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0)
		shutdown(v->fd, SHUT_RD);
}

/* Ends a request; the connection waits for the next one, or is closed. */
static void end(struct tbg_gateway_request *v, uint32_t exit_status, uint8_t status)
{
	uint8_t last[2 * TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY];

	v->holds++;
	gone(v);
	tbg_fcgi_record_header(last, TBG_FCGI_RECORD_STDOUT, v->id, 0, 0);
	tbg_fcgi_record_end(last + TBG_FCGI_RECORD_HEADER, v->id, exit_status, status);
	tbg_lines_put(&v->out.l, last, sizeof(last));
	v->closing = !v->keep || v->out.l.failed;
	v->served = true;
	/* before the daemon learns that it may send the next one, but not within a body */
	if (v->s->retiring && (v->input_over || !tbg_gateway_request_param(v, "CONTENT_LENGTH")))
		retire(v);
	flush(v);
	request_forget(v);
	if (v->s->retiring && !v->dead)
		retire(v);
	if (v->closing && !bytes_left(&v->out))
		drop(v);
	wait_for(v);
	release(v);
}

void tbg_gateway_request_exit(struct tbg_gateway_request *v, uint32_t exit_status)
{
	if (v->begun && !v->dead)
		end(v, exit_status, TBG_FCGI_RECORD_COMPLETE);
}

void tbg_gateway_request_end(struct tbg_gateway_request *v)
{
	tbg_gateway_request_exit(v, 0);
}

static void cut(struct tbg_gateway_request *v)
{
	v->holds++;
	flush(v);
	drop(v);
	release(v);
}

/* Answers with a marked record, which the daemon replaces by an error page. */
static size_t fail_record(const struct tbg_gateway_request *v, unsigned int status,
			  uint8_t ret[FAIL_ROOM])
{
	const char *text = tbg_status_text(status);
	int n = snprintf((char *)ret + TBG_FCGI_RECORD_HEADER, FAIL_ROOM - TBG_FCGI_RECORD_HEADER,
			 "Status: %u %s\r\nContent-Type: text/plain\r\n\r\n%u %s\n",
			 status, text, status, text);

	tbg_fcgi_record_header(ret, TBG_FCGI_RECORD_STDOUT, v->id, n, 0);
	ret[TBG_FCGI_RECORD_MARK] = 1;
	return TBG_FCGI_RECORD_HEADER + n;
}

void tbg_gateway_request_fail(struct tbg_gateway_request *v, unsigned int status)
{
	uint8_t b[FAIL_ROOM];

	if (v->output_begun) {
		cut(v);
		return;
	}
	v->output_begun = true;
	tbg_lines_put(&v->out.l, b, fail_record(v, status, b));
	tbg_gateway_request_end(v);
}

void tbg_gateway_request_last_words(const struct tbg_gateway_request *v, unsigned int status)
{
	uint8_t b[FAIL_ROOM + 2 * TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY], *at = b;
	struct iovec iov[] = {
		{ v->out.l.text + v->out.off, bytes_left(&v->out) }, { b, 0 },
	};
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };

	if (!v->begun || v->dead || (v->output_begun && !v->ended))
		return;
	if (!v->ended)
		at += fail_record(v, status, b);
	tbg_fcgi_record_header(at, TBG_FCGI_RECORD_STDOUT, v->id, 0, 0);
	tbg_fcgi_record_end(at + TBG_FCGI_RECORD_HEADER, v->id, 0, TBG_FCGI_RECORD_COMPLETE);
	at += 2 * TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY;
	iov[1].iov_len = at - b;
	if (sendmsg(v->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return;			/* nobody to notify */
}

/* --- in ------------------------------------------------------------------ */

static bool params_take(struct tbg_gateway_request *v)
{
	const uint8_t *b = (const uint8_t *)v->pairs.text;
	struct tbg_slice name, value;
	size_t at = 0, nr = 0;
	char *to;

	while (tbg_pair_next(b, v->pairs.len, &at, &name, &value) == TBG_PARSED_DONE)
		nr++;
	if (at != v->pairs.len)
		return false;
	v->text = to = malloc(v->pairs.len + 2 * nr + 1);
	v->params = malloc((nr + 1) * sizeof(*v->params));
	if (!v->text || !v->params)
		return false;
	for (at = 0; v->params_nr < nr; v->params_nr++) {
		struct tbg_param *p = &v->params[v->params_nr];

		tbg_pair_next(b, v->pairs.len, &at, &name, &value);
		p->name = memcpy(to, name.text, name.len);
		p->name_len = name.len;
		to[name.len] = 0;
		to += name.len + 1;
		p->value = memcpy(to, value.text, value.len);
		p->len = value.len;
		to[value.len] = 0;
		to += value.len + 1;
	}
	return true;
}

const char *tbg_gateway_request_param(const struct tbg_gateway_request *v, const char *name)
{
	size_t len = strlen(name);

	for (unsigned int i = 0; i < v->params_nr; i++)
		if (v->params[i].name_len == len && !memcmp(v->params[i].name, name, len))
			return v->params[i].value;
	return NULL;
}

size_t tbg_gateway_request_read(struct tbg_gateway_request *v, void *to, size_t size)
{
	size_t n = bytes_left(&v->body);

	n = n < size ? n : size;
	if (n)
		memcpy(to, v->body.l.text + v->body.off, n);
	v->body.off += n;
	if (!bytes_left(&v->body))
		v->body.off = v->body.l.len = 0;
	wait_for(v);
	return n;
}

static bool on_begin(struct tbg_gateway_request *v, const struct tbg_fcgi_record *r)
{
	uint8_t no[TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY];

	if (v->begun && r->id != v->id) {
		tbg_fcgi_record_end(no, r->id, 0, TBG_FCGI_RECORD_CANT_MPX_CONN);
		tbg_lines_put(&v->out.l, no, sizeof(no));
		return true;
	}
	if (v->begun || !r->id)
		return false;
	v->id = r->id;
	v->begun = true;
	v->keep = r->flags & TBG_FCGI_RECORD_KEEP_CONN;
	if (r->role != TBG_ROLE_RESPONDER)
		end(v, 0, TBG_FCGI_RECORD_UNKNOWN_ROLE);
	return true;
}

static bool on_params(struct tbg_gateway_request *v, const struct tbg_fcgi_record *r)
{
	if (v->known)
		return false;
	if (r->len) {
		tbg_lines_put(&v->pairs, r->data, r->len);
		return !v->pairs.failed && v->pairs.len <= TBG_FCGI_PARAMS_MAX;
	}
	if (!params_take(v))
		return false;
	v->known = true;
	v->s->answerer->begin(v);
	return true;
}

static bool on_stdin(struct tbg_gateway_request *v, const struct tbg_fcgi_record *r)
{
	if (!v->known || v->input_over)
		return false;
	if (v->body.off > TBG_GATEWAY_REQUEST_BODY) {
		v->body.l.len -= v->body.off;
		memmove(v->body.l.text, v->body.l.text + v->body.off, v->body.l.len);
		v->body.off = 0;
	}
	v->input_over = !r->len;
	if (r->len)
		tbg_lines_put(&v->body.l, r->data, r->len);
	if (v->body.l.failed)
		return false;
	v->s->answerer->input(v);
	return true;
}

/* Answers GET_VALUES. There is one value to report: one request at a time on a connection. */
static void on_values(struct tbg_gateway_request *v, const struct tbg_fcgi_record *r)
{
	static const char name[] = "FCGI_MPXS_CONNS";
	uint8_t header[TBG_FCGI_RECORD_HEADER];
	struct tbg_lines ret = { 0 };
	struct tbg_slice asked, value;
	size_t at = 0;

	tbg_lines_put(&v->values, r->data, r->len);
	if (r->left)
		return;
	while (!ret.len && tbg_pair_next((const uint8_t *)v->values.text, v->values.len, &at,
					 &asked, &value) == TBG_PARSED_DONE)
		if (asked.len == strlen(name) && !memcmp(asked.text, name, asked.len))
			tbg_pair_put(&ret, asked, TBG_SLICE("0"));
	tbg_fcgi_record_header(header, TBG_FCGI_RECORD_GET_VALUES_RESULT, 0, ret.len, 0);
	tbg_lines_put(&v->out.l, header, sizeof(header));
	tbg_lines_put(&v->out.l, ret.text, ret.len);
	tbg_lines_free(&ret);
	v->values.len = 0;
}

static void on_management(struct tbg_gateway_request *v, const struct tbg_fcgi_record *r)
{
	uint8_t b[TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY];

	if (r->type == TBG_FCGI_RECORD_GET_VALUES) {
		on_values(v, r);
		return;
	}
	if (r->left)
		return;			/* once for each record is enough */
	tbg_fcgi_record_unknown(b, r->type);
	tbg_lines_put(&v->out.l, b, sizeof(b));
}

/* Handles a record. False: the daemon must not send it. */
static bool on_record(struct tbg_gateway_request *v, const struct tbg_fcgi_record *r)
{
	if (!r->id) {
		on_management(v, r);
		return true;
	}
	if (r->type == TBG_FCGI_RECORD_BEGIN)
		return on_begin(v, r);
	if (!v->begun || r->id != v->id)
		return true;		/* belongs to a request that was answered */
	switch (r->type) {
	case TBG_FCGI_RECORD_PARAMS:
		return on_params(v, r);
	case TBG_FCGI_RECORD_STDIN:
		return on_stdin(v, r);
	case TBG_FCGI_RECORD_ABORT:
		end(v, 0, TBG_FCGI_RECORD_COMPLETE);
		return true;
	default:
		return r->type == TBG_FCGI_RECORD_DATA;
	}
}

static void feed(struct tbg_gateway_request *v, const uint8_t *b, size_t len)
{
	struct tbg_fcgi_record r;
	enum tbg_parsed p;
	size_t used;

	while (len && !v->dead) {
		p = tbg_fcgi_record_next(&v->reader, b, len, &used, &r);
		b += used;
		len -= used;
		if (p == TBG_PARSED_BAD || (p == TBG_PARSED_DONE && !on_record(v, &r))) {
			drop(v);
			return;
		}
	}
}

/*
 * Answers complete requests, after the responder has retired or the daemon has stopped
 * writing.
 */
static void input_end(struct tbg_gateway_request *v)
{
	if (v->begun && !v->input_over) {
		drop(v);
		return;
	}
	v->last = true;
	v->keep = false;
	v->closing = !v->begun;
}

static void on_connection(void *arg, uint32_t events)
{
	static uint8_t b[RECEIVE];
	struct tbg_gateway_request *v = arg;
	ssize_t n = -1;

	v->holds++;
	errno = EAGAIN;
	if (events & (EPOLLERR | EPOLLHUP))
		errno = EPIPE;
	else if (events & EPOLLIN)
		n = recv(v->fd, b, sizeof(b), MSG_DONTWAIT);
	if (n > 0)
		feed(v, b, n);
	else if (!n)
		input_end(v);
	else if (errno != EAGAIN && errno != EINTR)
		drop(v);
	flush(v);
	if (v->starved && v->known && !v->ended) {
		v->starved = false;
		v->s->answerer->output(v);
	}
	if (!v->dead && v->closing && !bytes_left(&v->out))
		drop(v);
	wait_for(v);
	release(v);
}

/* --- connections --------------------------------------------------------- */

/* Accepts only root, our own user and the daemon's: anyone may know the name of the socket. */
static bool peer_allowed(const struct tbg_serve *s, int fd)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) &&
	       (!who.uid || who.uid == s->daemon || who.uid == geteuid());
}

static void request_new(struct tbg_serve *s, int fd)
{
	struct tbg_gateway_request *v = peer_allowed(s, fd) ? calloc(1, sizeof(*v)) : NULL;

	if (!v) {
		close(fd);
		return;
	}
	v->s = s;
	v->fd = fd;
	v->events = EPOLLIN;
	if (tbg_loop_add(s->loop, fd, v->events, on_connection, v)) {
		close(fd);
		free(v);
		return;
	}
	LIST_INSERT_HEAD(&s->visits, v, link);
	s->connections_nr++;
}

static void on_listener(void *arg, uint32_t events)
{
	struct tbg_serve *s = arg;
	int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0) {
		request_new(s, fd);
	} else if (errno == EMFILE || errno == ENFILE) {
		listen_not(s);
		if (!s->connections_nr)	/* whose end would resume accepting */
			tbg_serve_retire(s);
		else if (s->answerer->full)
			s->answerer->full(s);
	}
}

/* The daemon cannot be informed: it is ending, or has ended. */
static void state_notify(const struct tbg_serve *s)
{
	if (write(s->state_fd, "", 1) < 0)
		return;
}

static void on_term(void *arg, uint32_t events)
{
	tbg_serve_retire(arg);
}

int tbg_serve_open(struct tbg_serve *s)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	s->term_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->term_fd < 0)
		return -errno;
	if (tbg_loop_add(s->loop, s->term_fd, EPOLLIN | EPOLLET, on_term, s))
		return -ENOMEM;
	listen_again(s);
	if (!s->listening)
		return -ENOMEM;
	state_notify(s);
	return 0;
}

void tbg_serve_retire(struct tbg_serve *s)
{
	struct tbg_gateway_request *next;

	if (s->retiring)
		return;
	s->retiring = true;
	listen_not(s);
	state_notify(s);
	for (struct tbg_gateway_request *v = LIST_FIRST(&s->visits); v; v = next) {
		next = LIST_NEXT(v, link);
		/* a new connection was made for a request, which is still served */
		if (v->served && !v->begun && !v->closing)
			retire(v);
	}
	if (!s->connections_nr)
		tbg_loop_stop(s->loop);
}
