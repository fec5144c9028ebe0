/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Encodes and decodes FastCGI records (FastCGI 1.0, 3 and 8). Used by the daemon as a
 * client of FastCGI servers, and by the servers that it runs itself; those check the
 * order of records.
 *
 * No I/O; allocates only memory of struct tbg_lines; never reads beyond the given
 * bytes.
 */
#ifndef TBG_USERD_FASTCGI_RECORD_H
#define TBG_USERD_FASTCGI_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/header.h"
#include "http/request.h"

#define TBG_FCGI_RECORD_VERSION	1
#define TBG_FCGI_RECORD_HEADER	8
#define TBG_FCGI_RECORD_BODY		8	/* of BEGIN, END and UNKNOWN */
#define TBG_FCGI_RECORD_MAX		65535	/* bytes of content */

/* FastCGI 1.0, 8. Management records have id 0: GET_VALUES and its answers. */
#define TBG_FCGI_RECORD_LIST(X) \
	X(BEGIN, 1) X(ABORT, 2) X(END, 3) X(PARAMS, 4) X(STDIN, 5) X(STDOUT, 6) \
	X(STDERR, 7) X(DATA, 8) X(GET_VALUES, 9) X(GET_VALUES_RESULT, 10) \
	X(UNKNOWN, 11)

enum tbg_fcgi_record_type {
#define X(name, nr) TBG_FCGI_RECORD_##name = nr,
	TBG_FCGI_RECORD_LIST(X)
#undef X
};

enum tbg_fcgi_record_role {
	TBG_ROLE_RESPONDER = 1,
	TBG_ROLE_AUTHORIZER,
	TBG_ROLE_FILTER,
};

#define TBG_FCGI_RECORD_KEEP_CONN 1		/* in the flags of BEGIN */

/*
 * Index of the reserved byte of a header: 1 in an answer that the gateway makes in
 * place of a program's. Programs do not write headers, so they cannot set it.
 */
#define TBG_FCGI_RECORD_MARK		7

/* The protocol status in END; not that of the application. */
enum tbg_fcgi_record_status {
	TBG_FCGI_RECORD_COMPLETE,
	TBG_FCGI_RECORD_CANT_MPX_CONN,
	TBG_FCGI_RECORD_OVERLOADED,
	TBG_FCGI_RECORD_UNKNOWN_ROLE,
};

/* The state of a connection's decoder. Zero it before use. */
struct tbg_fcgi_record_reader {
	uint8_t header[TBG_FCGI_RECORD_HEADER], body[TBG_FCGI_RECORD_BODY];
	uint8_t header_len, body_len;	/* bytes received of header and body */
	uint16_t left;			/* remaining content */
	uint8_t padding;		/* remaining padding */
};

/*
 * The result of the decoder: a part of a record's content, or, with len 0, an empty
 * record, or a complete BEGIN, END or UNKNOWN with its padding.
 */
struct tbg_fcgi_record {
	uint8_t type;			/* enum tbg_fcgi_record_type, or another value */
	uint16_t id;
	const uint8_t *data;		/* points into the caller's bytes */
	uint32_t len;
	uint32_t left;			/* content of the same record that follows */
	bool marked;			/* see TBG_FCGI_RECORD_MARK */
	/* of BEGIN */
	uint16_t role;
	uint8_t flags;
	/* of END */
	uint32_t app_status;
	uint8_t status;			/* enum tbg_fcgi_record_status, or another value */
	/* of UNKNOWN: the type that the sender does not know */
	uint8_t unknown;
};

/*
 * Consumes *ret_used of the len bytes at b. Returns
 *
 * DONE: *ret is the next result; call again with the rest, if any
 * MORE: all bytes are consumed, without a further result
 * BAD: not version 1, or a fixed record of wrong length
 */
enum tbg_parsed tbg_fcgi_record_next(struct tbg_fcgi_record_reader *rd, const uint8_t *b,
				size_t len, size_t *ret_used,
				struct tbg_fcgi_record *ret);

/* Returns whether the last consumed byte ended a record. */
bool tbg_fcgi_record_between(const struct tbg_fcgi_record_reader *rd);

/* Makes a record's header: len bytes of content follow, then the padding. */
void tbg_fcgi_record_header(uint8_t ret[TBG_FCGI_RECORD_HEADER], uint8_t type, uint16_t id,
		       uint16_t len, uint8_t padding);

/* Make complete records of fixed form. An ABORT is a header without content. */
void tbg_fcgi_record_begin(uint8_t ret[TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY],
		      uint16_t id, uint16_t role, uint8_t flags);
void tbg_fcgi_record_end(uint8_t ret[TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY],
		    uint16_t id, uint32_t app_status, uint8_t status);
void tbg_fcgi_record_unknown(uint8_t ret[TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY],
			uint8_t type);

/*
 * Appends content of any length as one or several records; none if it is empty: an
 * empty record ends a stream and is made by tbg_fcgi_record_header().
 */
void tbg_fcgi_record_put(struct tbg_lines *l, uint8_t type, uint16_t id,
		    const void *data, size_t len);

/*
 * Name-value pairs, the content of PARAMS, GET_VALUES and its RESULT. tbg_pair_next()
 * returns DONE with the pair at *at (first 0), MORE at the end of b, BAD if the pair
 * exceeds b.
 */
void tbg_pair_put(struct tbg_lines *l, struct tbg_slice name,
		  struct tbg_slice value);
enum tbg_parsed tbg_pair_next(const uint8_t *b, size_t len, size_t *at,
			      struct tbg_slice *ret_name,
			      struct tbg_slice *ret_value);

#endif
