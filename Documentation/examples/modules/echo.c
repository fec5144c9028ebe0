// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sends a request's body back as it comes, whatever its length, in constant
 * memory: what cannot be sent yet is not read either. Shows the callbacks that
 * stream in both directions.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "toboggan-module.h"

struct echo {
	char b[16384];
	size_t off, len;
};

static void go_on(struct tbg_request *r, void *state)
{
	struct echo *e = tbg_request_get(r);
	ssize_t n;

	for (;;) {
		while (e->off < e->len) {
			n = tbg_response_send(r, e->b + e->off, e->len - e->off);
			if (n < 0)
				return;
			e->off += n;
			if (e->off < e->len)
				return;		/* until writable() */
		}
		n = tbg_request_read(r, e->b, sizeof(e->b));
		if (n == -EAGAIN)
			return;			/* until readable() */
		if (n <= 0)
			break;
		e->off = 0;
		e->len = n;
	}
	tbg_response_end(r);
}

static void begin(struct tbg_request *r, void *state)
{
	struct echo *e = calloc(1, sizeof(*e));
	const char *type = tbg_request_field(r, "Content-Type");

	if (!e) {
		tbg_response_status(r, 503);
		tbg_response_end(r);
		return;
	}
	tbg_request_set(r, e);
	tbg_response_field(r, "Content-Type", type ? type : "application/octet-stream");
	go_on(r, state);
}

static void end(struct tbg_request *r, void *state)
{
	free(tbg_request_get(r));
}

const struct tbg_module tbg_module = {
	.abi = TBG_MODULE_ABI,
	.request = begin,
	.readable = go_on,
	.writable = go_on,
	.end = end,
};
