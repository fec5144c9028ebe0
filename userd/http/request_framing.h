/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The content of a request, taken out of its framing (RFC 9112 6 and 7.1):
 * Content-Length, or chunked with extensions and trailers, which are checked
 * and dropped. Called with what comes behind a head, in whatever pieces it
 * comes; content is pointed at where it lies, never copied.
 *
 * Pure: no allocation, no state but the caller's, nothing read beyond the
 * bytes given. Line ends are CRLF: a lone LF is where parsers part.
 */
#ifndef TBG_USERD_BODY_H
#define TBG_USERD_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/request.h"

#define TBG_BODY_FRAMING_MAX 4096 /* of one body, but for line ends and sizes */

struct tbg_body {
	uint64_t left;		/* content bytes of the length or chunk */
	uint64_t content;	/* content bytes so far */
	uint64_t taken;		/* bytes so far, framing included */
	uint32_t framing;	/* bytes of extensions, trailers, endless sizes so far */
	uint8_t state;
	uint8_t digits;
};

/* Content bytes that are known to come of a chunk: its size is told. */
uint64_t tbg_body_comes(const struct tbg_body *body);

/* Whether content of that length so far is too much with what is known to come. */
static inline bool tbg_body_exceeds(uint64_t len, uint64_t comes, uint64_t max)
{
	return len > max || comes > max - len;
}

/* m: a message that tbg_message_parse() is DONE with. */
void tbg_body_begin(struct tbg_body *body, const struct tbg_message *m);

/*
 * Takes *ret_used of the len bytes at b, up to and including the next run of
 * content, which is *ret_data (off counts from b; len 0: none).
 *
 *	MORE	call again: with the rest of b if *ret_used < len, else with
 *		what comes next
 *	DONE	the body is over; behind *ret_used is the next request
 *	BAD	the framing is wrong: 400, and nothing behind it means anything
 *
 * DONE may come with a last run of content, BAD never does.
 */
enum tbg_parsed tbg_body_read(struct tbg_body *body, const uint8_t *b,
			      size_t len, size_t *ret_used,
			      struct tbg_text *ret_data);

/* The same for a body that nobody wants: as far as len bytes go. */
enum tbg_parsed tbg_body_skip(struct tbg_body *body, const uint8_t *b,
			      size_t len, size_t *ret_used);

#endif
