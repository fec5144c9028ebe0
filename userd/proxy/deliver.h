/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A transfer's way to its client: a head, then the bytes of a chain as they
 * come, framed as the client's version can read them.
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
	const char *fields;		/* lines, with a Date */
	size_t fields_len;
	const struct tbg_fields *received; /* or of a response as received: */
	const char *date;		/* they are passed on, with this if they have none */
	int64_t length;			/* of the body, or of a GET's; -1: unknown */
	int64_t age_s;			/* -1: as the fields say */
	const char *range;		/* Content-Range, or NULL */
	const struct tbg_location *location;	/* that adds fields; NULL: none does */
	struct tbg_byte_chain *source;	/* body; a reference is taken */
	uint64_t from, limit;		/* bytes of it */
	bool ended;			/* it is whole already */
	bool made_here;			/* by a program of ours: there is no hop to tell */
	bool older;			/* received as HTTP/1.0 */
};

#define TBG_CACHE_STATUS "Cache-Status: toboggan"

/*
 * Status line and fields, but for Cache-Status, and what the connection makes of
 * them. *ret_age_off: where the digits of Age are, of an answer that has an age_s.
 */
void tbg_deliver_head(struct tbg_lines *l, const struct tbg_response_plan *d,
		      uint32_t *ret_age_off);

/* Turns the plan into a 304. */
void tbg_deliver_not_modified(struct tbg_response_plan *d);

/* Begins the answer. Nothing is sent before tbg_deliver_push(). */
void tbg_deliver_begin(struct tbg_transfer *x, const struct tbg_response_plan *d);

/* All of the body of an answer without a source, which ends with it. */
void tbg_deliver_whole(struct tbg_transfer *x, const void *b, size_t len);

/* A status, with the page that its location has for it, or a short text. */
void tbg_deliver_error(struct tbg_transfer *x, unsigned int status);

/* An interim response (1xx) ahead of the answer. */
void tbg_deliver_interim(struct tbg_transfer *x, unsigned int status,
			 const char *reason, size_t reason_len,
			 const char *fields, size_t len);

/*
 * Has sent what can be sent, which may end the transfer: with what is due to other
 * clients, once the worker has seen to what has come (tbg_deliver_due()).
 */
void tbg_deliver_push(struct tbg_transfer *x);

/* At the end of a round, or when w->due_nr is many. */
void tbg_deliver_due(struct tbg_worker *w);

/* The source is whole now. */
void tbg_deliver_end(struct tbg_transfer *x);

/*
 * Takes the answer back, as if it had never begun. False: some of its bytes are sent, or
 * it is a tunnel's.
 */
bool tbg_deliver_retract(struct tbg_transfer *x);

/* It will never be: the client must not take it for whole. */
void tbg_deliver_break(struct tbg_transfer *x);

/* Whether its socket takes no more now: writable() comes, see client/answerer.h. */
bool tbg_deliver_blocked(const struct tbg_transfer *x);

/* Bytes that wait for the client. */
uint64_t tbg_deliver_backlog(const struct tbg_transfer *x);

/* Nobody else reads the source any more: what is sent is freed from now on. */
void tbg_deliver_consume(struct tbg_transfer *x);

#endif
