/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The head of an upstream's response (RFC 9112, client side), or of a CGI
 * program's (RFC 3875, 6). Called by the fetch with the bytes that a
 * connection has received; strict, because what it accepts is forwarded to a
 * client and may be stored.
 *
 * Pure but for the memory of the fields: nothing read beyond the bytes given.
 */
#ifndef TBG_USERD_HTTP_RESPONSE_H
#define TBG_USERD_HTTP_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/header.h"
#include "http/request.h"

#define TBG_RESPONSE_HEAD_MAX	(32 << 10)	/* bytes of one head */
#define TBG_RESPONSE_FIELDS_MAX	256
#define TBG_KEEP_MAX_S		(24 * 3600)	/* longest Keep-Alive timeout that is believed */
#define TBG_INTERIMS_MAX	32		/* 1xx responses before a final one */

/*
 * Zero it, then call tbg_response_parse() repeatedly with the same bytes and
 * more after them; scanned bytes are not scanned again.
 */
struct tbg_response {
	/* progress */
	uint32_t line_off, scan_off;
	/* result */
	uint16_t status;		/* 100..599 */
	uint8_t minor;			/* HTTP/1.minor, 0 or 1 */
	bool close;			/* the connection ends with this response */
	bool chunked;
	bool has_length;
	bool local;			/* a CGI program's local redirect to `location` */
	uint32_t keep_s;		/* Keep-Alive timeout of the server; 0: unknown */
	uint64_t content_length;
	struct tbg_text reason;		/* len 0: none */
	struct tbg_text location;	/* for local: a path and possibly a query */
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
 * The same for a CGI program's response: no status line, at least one field.
 * The status is that of Status, else of Location. Once DONE, a Status line has
 * been moved before all others. Fields about the connection (close, chunked)
 * are ignored.
 */
enum tbg_parsed tbg_response_parse_cgi(struct tbg_response *r, struct tbg_fields *fields,
				       uint8_t *b, size_t len);

/* Whether a response with this status to this method has no body. */
bool tbg_response_bodiless(unsigned int status, unsigned int method);

#endif
