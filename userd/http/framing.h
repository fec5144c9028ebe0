/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Decodes the framing of a body in place (RFC 9112 6 and 7): the one decoder for requests
 * and responses. Strict: a chunk line with any error ends the message. No I/O; allocates
 * memory for the trailer.
 */
#ifndef TBG_USERD_HTTP_FRAMING_H
#define TBG_USERD_HTTP_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/header.h"
#include "http/request.h"

#define TBG_TRAILER_MAX 4096	/* bytes of trailer fields that are kept */
#define TBG_FRAMING_MAX 4096	/* bytes of extensions, trailers and leading zeros of sizes */

enum tbg_framing {
	TBG_FRAMING_NONE,
	TBG_FRAMING_LENGTH,
	TBG_FRAMING_CHUNKED,
	TBG_FRAMING_CLOSE,	/* until the connection ends */
	TBG_FRAMING_RECORDS,	/* of another protocol, which provides its decoder */
};

struct tbg_body_decoder {
	uint64_t left;		/* LENGTH, or of this chunk */
	uint8_t framing;	/* enum tbg_framing */
	uint8_t state;
	uint8_t digits;
	bool request;		/* of a request: no white space after a size */
	bool keeps;		/* keep the trailer: the body is used */
	uint32_t framing_len;	/* of TBG_FRAMING_MAX, so far */
	uint32_t trailer_len;
	char *trailer;		/* the trailer section's lines, checked */
	/* of RECORDS */
	void *records;		/* their state, the caller's */
	enum tbg_parsed (*records_eat)(void *records, uint8_t *b, size_t len,
				       size_t *ret_used, size_t *ret_data);
};

/* For a response. */
void tbg_body_decoder_begin(struct tbg_body_decoder *f, enum tbg_framing framing,
			    uint64_t length);
/*
 * For a response in records of another protocol: tbg_body_decoder_eat() calls eat, which
 * has the same meaning, until it returns DONE.
 */
void tbg_body_decoder_begin_records(struct tbg_body_decoder *f, void *records,
				    enum tbg_parsed (*eat)(void *records, uint8_t *b, size_t len,
							   size_t *ret_used,
							   size_t *ret_data));
/* For a request; m: a message for which tbg_message_parse() has returned DONE. */
void tbg_body_decoder_begin_request(struct tbg_body_decoder *f, const struct tbg_message *m);
void tbg_body_decoder_end(struct tbg_body_decoder *f);	/* frees the trailer */

/*
 * Removes the framing from b[len]: afterwards the first *ret_data bytes are
 * content, the first *ret_used bytes are consumed, and later ones are
 * unchanged. DONE: the message ends there (never with CLOSE).
 */
enum tbg_parsed tbg_body_decoder_eat(struct tbg_body_decoder *f, uint8_t *b, size_t len,
				     size_t *ret_used, size_t *ret_data);

/* The same for a body that is discarded: moves nothing; *ret_data bytes were content. */
enum tbg_parsed tbg_body_decoder_skip(struct tbg_body_decoder *f, const uint8_t *b, size_t len,
				      size_t *ret_used, size_t *ret_data);

/*
 * Whether content of this length so far, plus the rest that is already announced, is too
 * much.
 */
static inline bool tbg_body_exceeds(uint64_t len, uint64_t comes, uint64_t max)
{
	return len > max || comes > max - len;
}

/* Announced content bytes of the current chunk. */
uint64_t tbg_body_decoder_comes(const struct tbg_body_decoder *f);

/* Whether the message has ended. */
bool tbg_body_decoder_ended(const struct tbg_body_decoder *f);

/* Whether the end of the connection would end the message correctly here. */
bool tbg_body_decoder_closes(const struct tbg_body_decoder *f);

#endif
