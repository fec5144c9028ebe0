/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The head of an upstream's response (RFC 9112, client side), or of a CGI
 * program's (RFC 3875, 6). Called by the fetch for what a connection has
 * received; strict, because whatever it lets pass is sent on to a client and
 * may be stored.
 *
 * Pure but for the memory of the fields: nothing read beyond the bytes given.
 */
#ifndef TBG_USERD_RESPONSE_H
#define TBG_USERD_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/header.h"
#include "http/request.h"

#define TBG_RESPONSE_HEAD_MAX	(32 << 10)	/* bytes of one head */
#define TBG_RESPONSE_FIELDS_MAX	256
#define TBG_KEEP_MAX_S		(24 * 3600)	/* that is believed */
#define TBG_INTERIMS_MAX	32		/* 1xx responses ahead of one */

/*
 * Zero it, then hand it to tbg_response_parse() again and again with the same
 * bytes and more behind them; bytes already looked at are not scanned again.
 */
struct tbg_response {
	/* progress */
	uint32_t line_off, scan_off;
	/* result */
	uint16_t status;		/* 100..599 */
	uint8_t minor;			/* HTTP/1.minor, 0 or 1 */
	bool close;			/* the connection ends with it */
	bool chunked;
	bool has_length;
	bool local;			/* a CGI program wants `location` answered */
	uint32_t keep_s;		/* of idleness, before the server ends it; 0: not told */
	uint64_t content_length;
	struct tbg_text reason;		/* len 0: none */
	struct tbg_text location;	/* of local: a path, and a query if any */
	uint32_t fields_off;		/* first field line */
	uint32_t len;			/* of the head, empty line included */
};

/*
 * DONE, MORE, or BAD: malformed, contradictory, longer than the limit, or no memory.
 * fields: once DONE its field lines, which point into b.
 */
enum tbg_parsed tbg_response_parse(struct tbg_response *r, struct tbg_fields *fields,
				   const uint8_t *b, size_t len);

/*
 * The same for a CGI program's: no status line, at least one field. Status, and
 * Location without it, give the status. Once DONE, a Status line stands in
 * front of all others and the fields behind it. What it says of the connection
 * is none of its business: neither close nor chunked.
 */
enum tbg_parsed tbg_response_parse_cgi(struct tbg_response *r, struct tbg_fields *fields,
				       uint8_t *b, size_t len);

/* Whether a response of this status to this method is without a body. */
bool tbg_response_bodiless(unsigned int status, unsigned int method);

#endif
