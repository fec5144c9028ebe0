/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a fetch does differently for each protocol that upstreams speak: one table of
 * operations a protocol. fetch.c and its parts call these and know no protocol by name.
 * To add one: a row in TBG_PROTOCOL_LIST (upstream.h), a table, its entry in
 * tbg_protocol_ops_of().
 */
#ifndef TBG_USERD_PROXY_PROTOCOL_H
#define TBG_USERD_PROXY_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/request.h"

struct tbg_forward;
struct tbg_transfer;

struct tbg_protocol_ops {
	/*
	 * Programs answer: there is no hop between them and us (no Via), they send no
	 * interim responses, may send a body to a HEAD, and run on when nobody waits.
	 */
	bool runs_programs;
	size_t body_piece_max;		/* bytes of a request's body that are framed at once */

	/* The request's head to x->up_head, with the end of its body if it has none. */
	void (*head)(struct tbg_transfer *x, const struct tbg_forward *f);
	/* What stands around len bytes of its body, to x->up_pre and x->up_post. */
	void (*body)(struct tbg_transfer *x, size_t len, bool done);
	/* Informs the server that nobody waits any more, if the protocol allows it now. */
	void (*abandon)(struct tbg_transfer *x);

	/* A request has been made: a response may come. */
	void (*response_begin)(struct tbg_transfer *x);
	/*
	 * Of len bytes that have come behind x->o->head[head_len]: *ret_data of them
	 * belong to the head or what follows it, *ret_used are dealt with. BAD: the
	 * server has given up, or breaks the protocol.
	 */
	enum tbg_parsed (*head_receive)(struct tbg_transfer *x, size_t len, size_t *ret_used,
					size_t *ret_data);
	/* The head in x->o->head to x->r and x->resp_fields. */
	enum tbg_parsed (*head_parse)(struct tbg_transfer *x);
	/*
	 * Whether the final head and what has come with it are of one response; sets its
	 * length where only its end tells that.
	 */
	bool (*length_agrees)(struct tbg_transfer *x);
	/* Behind the head: how the body is framed. */
	void (*body_begin)(struct tbg_transfer *x, uint8_t framing, uint64_t length);
	/*
	 * Whether len bytes behind a response begin another one. They are dropped with
	 * the connection (RFC 9112 6.3), and the response is not stored; where they do,
	 * the first was made by who may have made up both.
	 */
	bool (*is_response)(const uint8_t *b, size_t len);
};

extern const struct tbg_protocol_ops tbg_protocol_http, tbg_protocol_fastcgi;

/* protocol: enum tbg_protocol */
const struct tbg_protocol_ops *tbg_protocol_ops_of(uint8_t protocol);

#endif
