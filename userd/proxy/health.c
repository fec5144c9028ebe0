// SPDX-License-Identifier: GPL-2.0
/*
 * A check is a transfer without a client: a request to one server on a connection of
 * its own. The head of the response decides. The time limits are those of other
 * requests, or one interval if that is less.
 */
#include <stdio.h>
#include <string.h>

#include "proxy/fetch.h"
#include "proxy/health.h"
#include "proxy/transfer.h"

#define HEAD_MAX 1024
#define LIMIT_MS 1000	/* at least, to allow for one slow answer */

static void check_begin(struct tbg_worker *w, struct tbg_backend *b)
{
	struct tbg_message m = { 0 };
	struct tbg_transfer *x;
	char head[HEAD_MAX];
	int n;

	n = snprintf(head, sizeof(head), "GET %s HTTP/1.1\r\nHost: %s\r\n"
		     "User-Agent: toboggan\r\n\r\n",
		     b->upstream->settings.health_path, b->authority);
	b->checked_ms = w->now_ms;
	if (n >= HEAD_MAX || tbg_message_parse(&m, (uint8_t *)head, n, HEAD_MAX,
					       w->path) != TBG_PARSED_DONE)
		return;
	x = tbg_transfer_check(w, &m, head, b);
	if (!x)
		return;
	b->checking = true;
	tbg_transfer_go_on(x, TBG_TRANSFER_CONNECT);
	tbg_transfer_release(x);
}

static void upstream_check(struct tbg_worker *w, struct tbg_upstream *u)
{
	for (unsigned int i = 0; i < u->nr; i++) {
		struct tbg_backend *b = &u->backends[i];

		if (!b->checking && (!b->checked_ms || w->now_ms - b->checked_ms >=
						       u->settings.health_ms))
			check_begin(w, b);
	}
}

void tbg_health_tick(struct tbg_worker *w)
{
	const struct tbg_sites *sites = w->sites;

	if (w->id || w->draining)
		return;
	for (unsigned int i = 0; i < sites->upstreams_nr; i++)
		if (sites->upstreams[i]->settings.health_path)
			upstream_check(w, sites->upstreams[i]);
}

void tbg_health_found(struct tbg_transfer *x, unsigned int status)
{
	x->checks->checking = false;
	tbg_backend_found(x->checks, status, x->w->now_ns);
}

uint32_t tbg_health_limit_ms(const struct tbg_upstream *u)
{
	return u->settings.health_ms > LIMIT_MS ? u->settings.health_ms : LIMIT_MS;
}
