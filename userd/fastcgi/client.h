/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs for the fetch where an upstream speaks FastCGI: the request's
 * head and body as records, what the program says to its error output, and
 * leaving before it has ended. Answers are http/framing.c's and response.c's.
 */
#ifndef TBG_USERD_FASTCGI_H
#define TBG_USERD_FASTCGI_H

#include <stdbool.h>
#include <stddef.h>

#include "proxy/forward.h"
#include "proxy/transfer.h"

static inline bool tbg_speaks_fastcgi(const struct tbg_transfer *x)
{
	return x->upstream->terms.protocol == TBG_PROTOCOL_FASTCGI;
}

/* The request to x->up_head, with the end of its body if it has none. */
void tbg_fastcgi_head(struct tbg_transfer *x, const struct tbg_forward *f);

/* What stands around len bytes of the body: fails where tbg_lines do. */
void tbg_fastcgi_body(struct tbg_lines *pre, struct tbg_lines *post, size_t len,
		      bool done);

/* One line of a server, a program or a module to the log, or about it. */
void tbg_fastcgi_say(const struct tbg_transfer *x, const char *b, size_t len);

/* What it says itself, line by line; all: also a line that has not ended. */
void tbg_fastcgi_errors(struct tbg_transfer *x, bool all);

/* Tells the server that nobody waits any more, as far as it can be told now. */
void tbg_fastcgi_abort(struct tbg_transfer *x);

#endif
