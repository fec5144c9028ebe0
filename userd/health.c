// SPDX-License-Identifier: GPL-2.0
/*
 * A check is a transfer without a client: a request of our own to one server,
 * on a connection of its own, whose response head decides. Its time limits are
 * those of every request.
 */
#include <stdio.h>
#include <string.h>

#include "fetch.h"
#include "health.h"
#include "server.h"
#include "transfer.h"

#define HEAD_MAX 1024

static void check_begin(struct tbg_worker *w, struct tbg_backend *b)
{
	struct tbg_message m = { .passed_on = true };
	struct tbg_transfer *x;
	char head[HEAD_MAX];
	int n;

	n = snprintf(head, sizeof(head), "GET %s HTTP/1.1\r\nHost: %s\r\n"
		     "User-Agent: toboggan\r\nConnection: close\r\n\r\n",
		     b->upstream->terms.health_path, b->authority);
	b->checked_ms = w->now_ms;
	if (n >= HEAD_MAX || tbg_message_parse(&m, (uint8_t *)head, n, HEAD_MAX,
					       w->path) != TBG_PARSED_DONE)
		return;
	x = tbg_transfer_check(w, &m, head, b);
	if (!x)
		return;
	b->checking = true;
	tbg_fetch_begin(x);
	tbg_transfer_release(x);
}

static void upstream_check(struct tbg_worker *w, struct tbg_upstream *u)
{
	for (unsigned int i = 0; i < u->nr; i++) {
		struct tbg_backend *b = &u->backends[i];

		if (!b->checking && (!b->checked_ms || w->now_ms - b->checked_ms >=
						       u->terms.health_ms))
			check_begin(w, b);
	}
}

void tbg_health_tick(struct tbg_worker *w)
{
	const struct tbg_sites *sites = w->sites;

	if (w->id || w->draining)
		return;
	for (unsigned int i = 0; i < sites->upstreams_nr; i++)
		if (sites->upstreams[i]->terms.health_path)
			upstream_check(w, sites->upstreams[i]);
}

void tbg_health_found(struct tbg_transfer *x, unsigned int status)
{
	const struct tbg_worker *w = x->w;
	uint64_t interval_ns = x->upstream->terms.health_ms * 1000000ull;

	x->checks->checking = false;
	/* three intervals: as long as checks go on, only they end the rest */
	tbg_backend_found(x->checks, status >= 200 && status < 400,
			  w->now_ns + 3 * interval_ns);
}
