/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sends a transfer's answer to its client: a head, then the bytes of a chain as they
 * arrive, with the framing that the client's HTTP version allows.
 */
#ifndef TBG_USERD_PROXY_DELIVER_H
#define TBG_USERD_PROXY_DELIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proxy/transfer.h"

struct tbg_response_plan {
	unsigned int status;
	const char *reason;
	size_t reason_len;
	const char *fields;		/* field lines, including Date */
	size_t fields_len;
	const struct tbg_fields *received; /* or: fields of a response as received, */
	const char *date;		/* passed on with this Date if they have none */
	int64_t length;			/* of the body, or that a GET would have; -1: unknown */
	int64_t age_s;			/* -1: as in the fields */
	const char *range;		/* Content-Range, or NULL */
	const struct tbg_location *location;	/* adds fields; NULL: none */
	struct tbg_byte_chain *source;	/* body; a reference is taken */
	uint64_t from, limit;		/* part of the body to send */
	bool ended;			/* the body is complete */
	bool made_here;			/* by a local program: no Via */
	bool older;			/* received as HTTP/1.0 */
};

#define TBG_CACHE_STATUS "Cache-Status: toboggan"

/*
 * Makes status line and fields, except for Cache-Status and those that depend on the
 * connection. *ret_age_off: offset of Age's digits if age_s is given.
 */
void tbg_deliver_head(struct tbg_lines *l, const struct tbg_response_plan *d,
		      uint32_t *ret_age_off);

/* Turns the plan into a 304. */
void tbg_deliver_not_modified(struct tbg_response_plan *d);

/* Begins the answer. tbg_deliver_push() sends it. */
void tbg_deliver_begin(struct tbg_transfer *x, const struct tbg_response_plan *d);

/* Sets the complete body of an answer without a source. */
void tbg_deliver_whole(struct tbg_transfer *x, const void *b, size_t len);

/* Answers with a status and the page that the location has for it, or a short text. */
void tbg_deliver_error(struct tbg_transfer *x, unsigned int status);

/* Sends an interim response (1xx) before the answer. */
void tbg_deliver_interim(struct tbg_transfer *x, unsigned int status,
			 const char *reason, size_t reason_len,
			 const char *fields, size_t len);

/*
 * Sends what can be sent, in tbg_deliver_due(), together with data for other clients.
 * This may end the transfer.
 */
void tbg_deliver_push(struct tbg_transfer *x);

/* Sends for all transfers at the end of a round, or when w->due_nr is large. */
void tbg_deliver_due(struct tbg_worker *w);

/* The source is complete. */
void tbg_deliver_end(struct tbg_transfer *x);

/*
 * Discards the answer as if it had not begun. Returns false if some of its bytes were
 * sent, or if it is a tunnel.
 */
bool tbg_deliver_retract(struct tbg_transfer *x);

/* The body will not be completed: makes this visible to the client. */
void tbg_deliver_break(struct tbg_transfer *x);

/*
 * Returns whether the client's socket accepts nothing now. writable() is called later,
 * see client/answerer.h.
 */
bool tbg_deliver_blocked(const struct tbg_transfer *x);

/* Returns the number of bytes that wait for the client. */
uint64_t tbg_deliver_backlog(const struct tbg_transfer *x);

/* Makes this transfer the only reader of the source: bytes that were sent are freed. */
void tbg_deliver_consume(struct tbg_transfer *x);

#endif
