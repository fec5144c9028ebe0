// SPDX-License-Identifier: GPL-2.0
/*
 * Decodes the body as it arrives and appends it to a spool, after checking the limits.
 * The client's trailer fields are dropped: the request is forwarded with a length.
 */
#include <errno.h>
#include <stdlib.h>

#include "client/connection.h"
#include "upstream/pool_command.h"
#include "proxy/deliver.h"
#include "proxy/request_body.h"
#include "store/spool.h"
#include "proxy/transfer.h"

#define SMALL_MAX (16 << 10)	/* limit of a body that is buffered so that it can be sent again */

static bool needs_length(const struct tbg_transfer *x)
{
	return tbg_protocol_needs_length(x->upstream->settings.protocol);
}

/* A request whose body is buffered can be sent to another server, if its method allows. */
static bool repeatable(const struct tbg_message *m)
{
	return !m->chunked && m->content_length <= SMALL_MAX && !m->expect_continue &&
	       tbg_method_idempotent(m->method);
}

/*
 * Returns whether the request occupies one of few programs while it runs: a client that
 * sends its body slowly must not block it.
 */
static bool takes_place(const struct tbg_transfer *x)
{
	return x->upstream->command && x->upstream->command->kind == TBG_POOL_CGI;
}

bool tbg_request_body_wanted(const struct tbg_transfer *x, const struct tbg_location *l)
{
	if (!x->m.chunked && !x->m.content_length)
		return false;
	return l->body_buffer >= 0 ||
	       (l->body_buffer == TBG_BODY_AS_NEEDED &&
		((x->m.chunked && needs_length(x)) || repeatable(&x->m) || takes_place(x)));
}

bool tbg_request_body_lacks_length(const struct tbg_transfer *x,
			     const struct tbg_location *l)
{
	return x->m.chunked && needs_length(x) && l->body_buffer == TBG_BODY_STREAMED;
}

/* Answers with an error. The rest of the body is never read, so the connection ends. */
static enum tbg_transfer_phase refuse(struct tbg_transfer *x, unsigned int status)
{
	tbg_deliver_error(x, status);
	tbg_deliver_push(x);
	return TBG_TRANSFER_DONE;
}

enum tbg_transfer_phase tbg_request_body_begin(struct tbg_transfer *x,
					       const struct tbg_location *l)
{
	const struct tbg_message *m = &x->m;

	x->spool = tbg_spool_new(l->body_buffer >= 0 ? l->body_buffer : TBG_SPOOL_USUAL,
				 l->body_folder);
	if (!x->spool)
		return refuse(x, 503);
	tbg_body_decoder_begin_request(&x->up_decoder, m);
	if (m->expect_continue) {
		tbg_deliver_interim(x, 100, "Continue", 8, "", 0);
		tbg_deliver_push(x);
	}
	return TBG_TRANSFER_BODY;
}

unsigned int tbg_request_body_eat(struct tbg_transfer *x, enum tbg_parsed *ret)
{
	unsigned int status = 0;
	size_t used = 0, data = 0;
	uint32_t len;
	uint8_t *b = tbg_conn_input_take(x->c, &len);

	*ret = TBG_PARSED_MORE;
	if (!b)
		return 0;
	*ret = tbg_body_decoder_eat(&x->up_decoder, b, len, &used, &data);
	x->answerer.taken += used;
	x->body_len += data;
	if (*ret == TBG_PARSED_BAD)
		status = 400;
	else if (tbg_transfer_exceeds(x))
		status = 413;
	else if (tbg_spool_add(x->spool, b, data) ||
		 !tbg_conn_input_back(x->c, b + used, len - used))
		status = 503;
	free(b);
	return status;
}

/* The body is complete: the request now has a length, or no body. */
static enum tbg_transfer_phase done(struct tbg_transfer *x)
{
	tbg_upload_enter(x, TBG_UPLOAD_END);
	x->m.chunked = false;
	x->m.has_length = true;
	x->m.content_length = x->spool->len;
	if (!x->spool->len) {
		tbg_spool_free(x->spool);
		x->spool = NULL;
	}
	return tbg_transfer_decide(x);
}

enum tbg_transfer_phase tbg_request_body_input(struct tbg_transfer *x)
{
	enum tbg_parsed p;
	unsigned int status = tbg_request_body_eat(x, &p);

	if (status)
		return refuse(x, status);
	if (p == TBG_PARSED_DONE)
		return done(x);
	if (x->c->eof)
		tbg_conn_kill(x->w, x->c);	/* end of input within its body */
	else
		tbg_conn_input_more(x->w, x->c);
	return x->phase;			/* DONE if the client was disconnected */
}
