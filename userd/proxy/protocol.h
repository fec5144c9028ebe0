/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The differences between the protocols of upstreams: one table of operations per
 * protocol. fetch.c and its parts call these and name no protocol. To add one: a row in
 * TBG_PROTOCOL_LIST (upstream.h), a table, and its entry in tbg_protocol_ops_of().
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
	 * Programs answer. They are no HTTP hop (no Via), send no interim responses,
	 * may send a body to a HEAD, and continue to run when no client waits.
	 */
	bool runs_programs;
	size_t body_piece_max;		/* largest piece of a request's body in one frame */

	/* Makes the request's head in x->up_head, with the end of its body if it has none. */
	void (*head)(struct tbg_transfer *x, const struct tbg_forward *f);
	/* Makes the framing of len body bytes: x->up_pre before and x->up_post after them. */
	void (*body)(struct tbg_transfer *x, size_t len, bool done);
	/* Informs the server that no client waits any more, if the protocol allows it now. */
	void (*abandon)(struct tbg_transfer *x);

	/* The request's head is complete: prepares for a response. */
	void (*response_begin)(struct tbg_transfer *x);
	/*
	 * Handles len bytes received at x->o->head[head_len]. *ret_data of them belong
	 * to the head or follow it; *ret_used are consumed. BAD: the server has given
	 * up or violates the protocol.
	 */
	enum tbg_parsed (*head_receive)(struct tbg_transfer *x, size_t len, size_t *ret_used,
					size_t *ret_data);
	/* Parses the head in x->o->head into x->r and x->resp_fields. */
	enum tbg_parsed (*head_parse)(struct tbg_transfer *x);
	/*
	 * Returns whether the data received with the final head fits its length. Sets
	 * the length if only the end of the response defines it.
	 */
	bool (*length_agrees)(struct tbg_transfer *x);
	/* Sets the framing of the body, after the head. */
	void (*body_begin)(struct tbg_transfer *x, uint8_t framing, uint64_t length);
	/*
	 * Returns whether len bytes after a response begin another response. They are
	 * dropped with the connection (RFC 9112 6.3), and the response is not stored:
	 * an attacker who can insert a second response may have made the first, too.
	 */
	bool (*is_response)(const uint8_t *b, size_t len);
};

extern const struct tbg_protocol_ops tbg_protocol_http, tbg_protocol_fastcgi;

/* protocol: enum tbg_protocol */
const struct tbg_protocol_ops *tbg_protocol_ops_of(uint8_t protocol);

#endif
