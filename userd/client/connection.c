// SPDX-License-Identifier: GPL-2.0
/*
 * A connection's life: begin, turns, the next action after each step, close. Its
 * requests are answered in order; each is answered before the next is parsed. Called by
 * the worker, which must not use a connection after it was freed.
 */
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/clients.h"
#include "client/connection.h"
#include "files/files.h"
#include "tiers/sock.h"
#include "tiers/wire.h"
#include "client/internal.h"

struct tbg_conn_active *tbg_conn_active_get(struct tbg_conn *c)
{
	if (!c->active) {
		c->active = malloc(sizeof(*c->active));
		if (c->active)
			*c->active = (struct tbg_conn_active){ .c = c, .fd = -1 };
	}
	return c->active;
}

static void active_free(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->active;

	tbg_conn_head_uncount(w, c);
	if (!t)
		return;
	if (t->answerer)
		t->answerer->ops->abandon(t->answerer);
	if (t->aside)
		tbg_aside_leave(t->aside);
	if (t->in_turns)
		tbg_conn_turn_leave(w, t);
	if (t->fd >= 0)
		close(t->fd);
	tbg_file_version_end(&t->fd_version);
	tbg_parts_free(t->parts);
	free(t->in);
	free(t->held);
	free(t->original);
	tbg_conn_output_drop(t);
	free(t);
	c->active = NULL;
}

/* Frees the state of an active connection when nothing is in progress. */
static void active_trim(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_conn_active *t = c->active;

	if (t && !t->in_len && !t->has_message && !t->in_body && !blocked(c) &&
	    !t->close_after)
		active_free(w, c);
}

void tbg_conn_begin(struct tbg_worker *w, struct tbg_conn *c, int fd)
{
	*c = (struct tbg_conn){ .fd = fd, .slot = -1, .sock = -1,
				.state = TBG_CONN_OPEN, .stamp_ms = w->now_ms,
				.begin_ms = w->now_ms };
	tbg_trace_note(&w->trace, w->now_ns, TBG_TRACE_ACCEPT, c, fd);
	if (!tbg_conn_admit(w, c))
		return;
	if (w->s->sock)
		c->sock = tbg_sock_claim(w->s->sock, fd);
	if (c->sock >= 0) {
		w->by_sock[c->sock] = c;
		tbg_sock_conn(w->s->sock, c->sock)->worker = w->id;
		/* now: if sock answers all of its requests, the daemon never sees one */
		tbg_conn_take_over(w, c);
	}
	if (tbg_server_logs(w->s))
		tbg_conn_peer(c);	/* now: after a reset by the client it is no longer known */
	/* now: no later event reports bytes that have already arrived */
	tbg_conn_recv_arm(w, c);
}

void tbg_conn_reset_at_close(const struct tbg_conn *c)
{
	struct linger now = { .l_onoff = 1 };

	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

/*
 * Returns whether received bytes are left unread. TCP resets a connection that is
 * closed so (RFC 9293 3.6.1), but it does not count bytes that sock has passed up.
 * Without a reset, TIME_WAIT would keep the window that those bytes have left, which
 * may be zero.
 */
static bool is_unread(const struct tbg_conn *c)
{
	char b;

	return c->sock >= 0 && recv(c->fd, &b, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void conn_release(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->slot >= 0) {
		w->by_slot[c->slot] = NULL;
		tbg_conn_release(w->s->wire, c->slot);
	}
	if (is_unread(c))
		tbg_conn_reset_at_close(c);
	close(c->fd);
	if (c->sock >= 0) {
		w->by_sock[c->sock] = NULL;
		tbg_sock_release(w->s->sock, c->sock);
	}
	free(c->peer);
	free(c->endpoints);
	free(c->taken_from);
	active_free(w, c);
	if (c->client)
		tbg_client_leave(w->s->clients, c->client);
	tbg_conn_free(w, c);
}

/*
 * Returns whether the socket has unacknowledged bytes while wire translates the
 * connection's sequence numbers. Sent after wire has gone, they would carry wrong
 * numbers. SIOCOUTQ counts our FIN as one byte, hence 1.
 */
static bool has_unacknowledged(const struct tbg_worker *w, const struct tbg_conn *c)
{
	struct pollfd p = { .fd = c->fd };
	int left;

	return w->s->wire && !ioctl(c->fd, SIOCOUTQ, &left) && left > 1 &&
	       !(poll(&p, 1, 0) > 0 && p.revents & POLLERR) &&
	       tbg_conn_hit_ns(w->s->wire, c->fd, w->now_ns);
}

bool tbg_conn_is_broken(const struct tbg_worker *w, const struct tbg_conn *c)
{
	const struct tbg_sock_conn *s = tbg_conn_sock(w, c);

	return s && s->flags & TBG_SOCK_BROKEN;
}

void tbg_conn_close(struct tbg_worker *w, struct tbg_conn *c)
{
	const struct tbg_answerer *a = answerer_of(c);

	if (tbg_conn_is_broken(w, c))
		tbg_conn_reset_at_close(c);
	tbg_trace_note(&w->trace, w->now_ns, TBG_TRACE_CLOSE, c, c->fd);
	c->state = TBG_CONN_CLOSING;
	w->out_len = 0;		/* never send it on another connection */
	tbg_conn_log_held(w, c);
	if (a)
		tbg_conn_answerer_note(w, c, a);
	active_free(w, c);
	if (!c->ops) {
		conn_release(w, c);
		return;
	}
	tbg_conn_recv_stop(w, c);
}

void tbg_conn_kill(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->state == TBG_CONN_CLOSING || c->state == TBG_CONN_FREE)
		return;
	if (has_unacknowledged(w, c))		/* the socket could outlive the translation */
		tbg_conn_reset_at_close(c);
	tbg_conn_close(w, c);
}

bool tbg_conn_is_closing(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->state != TBG_CONN_CLOSING)
		return false;
	if (!c->ops)
		conn_release(w, c);
	return true;
}

void tbg_conn_finish(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->eof && !has_unacknowledged(w, c)) {
		tbg_conn_close(w, c);
		return;
	}
	shutdown(c->fd, SHUT_WR);
	active_free(w, c);
	c->state = TBG_CONN_LINGER;
	c->stamp_ms = w->now_ms;
	if (!c->receiving && !c->eof)
		tbg_conn_recv_arm(w, c);
}

void tbg_conn_end(struct tbg_worker *w, struct tbg_conn *c)
{
	if (!has_unacknowledged(w, c))
		tbg_conn_close(w, c);
	else if (c->state == TBG_CONN_OPEN)
		tbg_conn_finish(w, c);
}

void tbg_conn_settle(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->state != TBG_CONN_OPEN || !tbg_conn_flush(w, c, NULL, 0, 0))
		return;
	if (blocked(c) || turn_over(c))
		return;
	if (c->eof || (c->active && c->active->close_after))
		tbg_conn_finish(w, c);
}

void tbg_conn_after(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_answerer *a;

	tbg_conn_settle(w, c);
	a = answerer_of(c);
	if (c->state == TBG_CONN_OPEN && a)
		a->ops->input(a);
	if (c->state != TBG_CONN_OPEN)
		return;
	if (!blocked(c) && !(c->active && c->active->has_message))
		c->stamp_ms = w->now_ms;
	tbg_conn_kernel_resume(w, c);
	active_trim(w, c);
	if (turn_over(c))
		tbg_conn_turn_await(w, c);
	if (tbg_conn_is_full(c))
		tbg_conn_recv_stop(w, c);
	else
		tbg_conn_recv(w, c);
}

void tbg_conn_go_on(struct tbg_worker *w, struct tbg_conn *c)
{
	if (c->active && c->active->in_len && tbg_conn_may_eat(c))
		tbg_conn_input_eat(w, c);
	tbg_conn_after(w, c);
}

void tbg_conn_turn(struct tbg_worker *w, struct tbg_conn *c)
{
	c->active->turn_over = false;
	tbg_conn_go_on(w, c);
}
