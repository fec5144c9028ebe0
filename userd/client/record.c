// SPDX-License-Identifier: GPL-2.0
/*
 * Reports each request exactly once to the log and to monitoring, however it ends.
 * Called when an answer is queued or its last byte has been sent.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "os/clock.h"
#include "os/endpoints.h"
#include "client/connection.h"
#include "log/access.h"
#include "site/forwarded.h"
#include "client/internal.h"

#define STATUS_LEFT	499		/* logged if the client left before the answer */

const struct sockaddr_storage *tbg_conn_peer(struct tbg_conn *c)
{
	socklen_t len = sizeof(*c->peer);

	if (c->peer)
		return c->peer;
	c->peer = calloc(1, sizeof(*c->peer));
	if (c->peer && getpeername(c->fd, (struct sockaddr *)c->peer, &len)) {
		free(c->peer);
		c->peer = NULL;
	}
	return c->peer;
}

static void end_read(char text[TBG_END_TEXT], uint16_t *port,
		     const struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *six = (const void *)a;
	const struct sockaddr_in *four = (const void *)a;

	if (a && a->ss_family == AF_INET) {
		inet_ntop(AF_INET, &four->sin_addr, text, TBG_END_TEXT);
		*port = ntohs(four->sin_port);
	} else if (a && a->ss_family == AF_INET6) {
		inet_ntop(AF_INET6, &six->sin6_addr, text, TBG_END_TEXT);
		*port = ntohs(six->sin6_port);
	} else {
		strcpy(text, "unknown");
	}
}

const struct tbg_endpoints *tbg_conn_endpoints(struct tbg_conn *c)
{
	static const struct tbg_endpoints unknown = { .peer = "unknown", .local = "unknown" };
	struct sockaddr_storage local = { .ss_family = AF_UNSPEC };
	socklen_t len = sizeof(local);

	if (c->endpoints || !(c->endpoints = malloc(sizeof(*c->endpoints))))
		return c->endpoints ?: &unknown;
	*c->endpoints = unknown;
	getsockname(c->fd, (struct sockaddr *)&local, &len);
	end_read(c->endpoints->local, &c->endpoints->local_port, &local);
	end_read(c->endpoints->peer, &c->endpoints->peer_port, tbg_conn_peer(c));
	return c->endpoints;
}

/* The log record of a file, written when the number of bytes sent is known. */
struct tbg_unlogged {
	unsigned int status;
	enum tbg_metric_method method;
	uint32_t vhost;
	const char *reason;
	uint64_t body, begin_ns;
	size_t req_len;
	char req[];
};

/* Returns when the current request began to arrive, and forgets it. */
static uint64_t begin_take(const struct tbg_worker *w, struct tbg_conn *c)
{
	uint64_t ret = c->active ? c->active->begin_ns : 0;

	if (ret)
		c->active->begin_ns = 0;
	return ret ?: w->now_ns;
}

/* Returns the bytes sent for the answer that is logged now: body, head and framing. */
static uint64_t sent_take(struct tbg_conn *c, uint64_t body)
{
	uint32_t more = c->written - c->noted - (uint32_t)body;

	c->noted = c->written;
	/* negative: the answer has not begun */
	return more > INT32_MAX ? body : body + more;
}

/* Reports one request to monitoring and to the log. */
static void request_note(struct tbg_worker *w, uint32_t vhost, const struct tbg_site *site,
			 enum tbg_metric_method method, struct tbg_log_record *r)
{
	tbg_metrics_count(&w->metrics, vhost, method, r->status, r->body, r->took_ns);
	tbg_server_log(w->s, w->sites, site, r);
}

void tbg_conn_log_held(struct tbg_worker *w, struct tbg_conn *c)
{
	struct tbg_unlogged *u = c->active ? c->active->unlogged : NULL;
	struct tbg_log_record r = { .remote = c->peer, .tier = TBG_TIER_user };

	if (!u)
		return;
	c->active->unlogged = NULL;
	r.req = u->req;
	r.req_len = u->req_len;
	r.status = u->status;
	r.body = u->body - c->active->fd_left;
	r.reason = u->reason;
	r.second = time(NULL);
	r.took_ns = tbg_mono_ns() - u->begin_ns;
	r.sent = sent_take(c, r.body);
	/* find the site by the head: a reload may have freed the sites of its start */
	request_note(w, u->vhost, w->sites->logs ? tbg_forwarded_site(w->sites, r.req, r.req_len) :
		     w->sites->fallback, u->method, &r);
	free(u);
}

void tbg_conn_original(const struct tbg_conn *c, const uint8_t **req, size_t *len)
{
	if (!c->active || !c->active->original)
		return;
	*req = c->active->original;
	*len = c->active->original_len;
}

void tbg_conn_original_end(struct tbg_conn *c)
{
	if (!c->active)
		return;
	free(c->active->original);
	c->active->original = NULL;
	c->active->redirects = 0;
}

void tbg_conn_log_answer(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *req,
			 size_t req_len, unsigned int status, uint64_t body,
			 const char *reason, const struct tbg_answerer_record *by)
{
	struct tbg_log_record r = { .req = (const char *)req,
		.req_len = req_len, .status = status, .body = body,
		.tier = TBG_TIER_user, .reason = reason };

	if (tbg_server_logs(w->s))
		r.remote = tbg_conn_peer(c);
	r.second = time(NULL);
	r.took_ns = tbg_mono_ns() - begin_take(w, c);
	r.sent = sent_take(c, body);
	if (by) {
		r.request_id = by->request_id.text;
		r.request_id_len = by->request_id.len;
		r.upstream = by->upstream;
		r.upstream_ns = by->upstream_ns;
	}
	request_note(w, w->site->id, w->site, tbg_metric_method(r.req, req_len), &r);
}

void tbg_conn_log_hold(struct tbg_worker *w, struct tbg_conn *c, const uint8_t *req,
		       size_t req_len, unsigned int status, uint64_t body, const char *reason)
{
	enum tbg_metric_method method = tbg_metric_method((const char *)req, req_len);
	struct tbg_conn_active *t = tbg_conn_active_get(c);
	bool logs = tbg_server_logs(w->s);
	struct tbg_unlogged *u;

	if (!logs)
		req_len = 0;
	u = malloc(sizeof(*u) + req_len);
	if (!t || !u) {
		free(u);
		tbg_conn_log_answer(w, c, req, req_len, status, body, reason, NULL);
		return;
	}
	if (logs)
		tbg_conn_peer(c);
	*u = (struct tbg_unlogged){ .status = status, .method = method, .vhost = w->site->id,
				    .body = body, .reason = reason,
				    .begin_ns = begin_take(w, c), .req_len = req_len };
	memcpy(u->req, req, req_len);
	t->fd_left = body;
	t->unlogged = u;
}

void tbg_conn_answer_count(struct tbg_worker *w, struct tbg_conn *c, unsigned int status)
{
	tbg_stat_add(&w->stats.requests, 1);
	tbg_stat_add(&w->stats.status[status / 100 % 6], 1);
	c->used = true;
	c->answers++;
}

void tbg_conn_answerer_note(struct tbg_worker *w, struct tbg_conn *c,
			    const struct tbg_answerer *a)
{
	struct tbg_answerer_record by;
	const uint8_t *req;
	unsigned int status;
	size_t req_len;

	a->ops->record(a, &by);
	status = by.status ?: STATUS_LEFT;
	req = (const uint8_t *)by.request.text;
	req_len = by.request.len;
	tbg_conn_answer_count(w, c, status);
	w->site = tbg_site_find(w->sites, by.host.text, by.host.len);
	tbg_conn_original(c, &req, &req_len);
	tbg_conn_log_answer(w, c, req, req_len, status, by.body, by.status ? by.reason : "left",
			    &by);
}
