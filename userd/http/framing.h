/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The framing of a body taken off where it lies (RFC 9112 6 and 7): the one decoder of
 * requests and of responses, whoever reads them. Strict: a chunk line that is not exactly
 * right ends the message. Pure but for the memory of the trailer.
 */
#ifndef TBG_HTTP_FRAMING_H
#define TBG_HTTP_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/header.h"
#include "http/request.h"

#define TBG_TRAILER_MAX 4096	/* bytes of trailer fields that are kept */
#define TBG_FRAMING_MAX 4096	/* bytes of extensions, trailers and endless sizes */

enum tbg_framing {
	TBG_FRAMING_NONE,
	TBG_FRAMING_LENGTH,
	TBG_FRAMING_CHUNKED,
	TBG_FRAMING_CLOSE,	/* to the end of the connection */
	TBG_FRAMING_RECORDS,	/* of another protocol, which has the decoder of them */
};

struct tbg_body_decoder {
	uint64_t left;		/* LENGTH, or of this chunk */
	uint8_t framing;	/* enum tbg_framing */
	uint8_t state;
	uint8_t digits;
	bool request;		/* of a client: no blanks behind a size */
	bool keeps;		/* the trailer: the body is wanted */
	uint32_t framing_len;	/* bytes of extensions, trailers, endless sizes so far */
	uint32_t trailer_len;
	char *trailer;		/* the trailer section's lines, checked */
	/* of RECORDS */
	void *records;		/* their state, the caller's */
	enum tbg_parsed (*records_eat)(void *records, uint8_t *b, size_t len,
				       size_t *ret_used, size_t *ret_data);
};

/* Of a response. */
void tbg_body_decoder_begin(struct tbg_body_decoder *f, enum tbg_framing framing,
			    uint64_t length);
/*
 * Of a response in records of another protocol: eat as tbg_body_decoder_eat(), which does
 * not call it again once it was DONE.
 */
void tbg_body_decoder_begin_records(struct tbg_body_decoder *f, void *records,
				    enum tbg_parsed (*eat)(void *records, uint8_t *b, size_t len,
							   size_t *ret_used,
							   size_t *ret_data));
/* Of a request; m: a message that tbg_message_parse() is DONE with. */
void tbg_body_decoder_begin_request(struct tbg_body_decoder *f, const struct tbg_message *m);
void tbg_body_decoder_end(struct tbg_body_decoder *f);	/* frees what it holds */

/*
 * Takes the framing off b[len]: the first *ret_data bytes are content then,
 * the first *ret_used have been dealt with, and those behind these are as they
 * were. DONE: the message ends there (never with CLOSE).
 */
enum tbg_parsed tbg_body_decoder_eat(struct tbg_body_decoder *f, uint8_t *b, size_t len,
				     size_t *ret_used, size_t *ret_data);

/* The same for a body that nobody wants: nothing moves, *ret_data bytes were content. */
enum tbg_parsed tbg_body_decoder_skip(struct tbg_body_decoder *f, const uint8_t *b, size_t len,
				      size_t *ret_used, size_t *ret_data);

/* Whether content of that length so far is too much with what is known to come. */
static inline bool tbg_body_exceeds(uint64_t len, uint64_t comes, uint64_t max)
{
	return len > max || comes > max - len;
}

/* Content bytes that are known to come of a chunk: its size has been read. */
uint64_t tbg_body_decoder_comes(const struct tbg_body_decoder *f);

/* Whether the message has ended. */
bool tbg_body_decoder_ended(const struct tbg_body_decoder *f);

/* Whether the end of the connection is the end of the message here. */
bool tbg_body_decoder_closes(const struct tbg_body_decoder *f);

#endif
