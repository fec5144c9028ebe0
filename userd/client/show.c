// SPDX-License-Identifier: GPL-2.0
/*
 * Describes a connection for `toboggan connections`. Called by the worker for another
 * thread. Must change nothing: unknown addresses are read from the socket and not kept.
 */
#include <netinet/in.h>
#include <sys/socket.h>

#include "client/connection.h"
#include "client/internal.h"

typedef int (*name_of)(int fd, struct sockaddr *at, socklen_t *len);

static void end_ask(int fd, name_of ask, struct tbg_prefix *ret, uint16_t *ret_port)
{
	union {
		struct sockaddr any;
		struct sockaddr_in four;
		struct sockaddr_in6 six;
	} at;
	socklen_t len = sizeof(at);

	*ret = (struct tbg_prefix){ 0 };
	*ret_port = 0;
	if (ask(fd, &at.any, &len) || !tbg_prefix_of(&at.any, ret))
		return;
	*ret_port = ntohs(at.any.sa_family == AF_INET ? at.four.sin_port : at.six.sin6_port);
}

static const char *state_text(const struct tbg_conn *c)
{
	const struct tbg_conn_active *t = c->active;

	if (c->state == TBG_CONN_LINGER)
		return "closing";
	if (c->state != TBG_CONN_OPEN)
		return "closed";
	if (!t)
		return "idle";
	if (t->out || t->fd >= 0 || t->parts)
		return "sending";
	if (t->answerer)
		return "upstream";	/* or a CGI program, or a module */
	if (t->aside || t->turn_over)
		return "preparing";
	if (t->in_body)
		return "body";
	return t->has_message && tbg_message_begun(&t->message) ? "head" : "idle";
}

void tbg_conn_show(const struct tbg_worker *w, const struct tbg_conn *c,
		   struct tbg_conn_shown *ret)
{
	const struct tbg_answerer *a = answerer_of(c);

	*ret = (struct tbg_conn_shown){
		.state = state_text(c), .socket = true, .answers = c->answers,
		.tier = c->slot >= 0 ? "wire" : c->sock >= 0 ? "sock" : "user",
		.age_ms = w->now_ms - c->begin_ms, .idle_ms = w->now_ms - c->stamp_ms,
	};
	if (c->state == TBG_CONN_OPEN && a)
		a->ops->phases(a, &ret->phases);
	end_ask(c->fd, getpeername, &ret->peer, &ret->peer_port);
	end_ask(c->fd, getsockname, &ret->local, &ret->local_port);
}
