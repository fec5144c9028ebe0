/* SPDX-License-Identifier: GPL-2.0 */
/*
 * FastCGI records (FastCGI 1.0, 3 and 8), both ways: taken apart as they come
 * in, and written. Used by the daemon as a client of FastCGI servers, and by
 * the servers that it runs itself. What a record means in its place is theirs.
 *
 * Pure but for the memory of struct tbg_lines; nothing read beyond the bytes
 * given.
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

/* FastCGI 1.0, 8. id 0 is for management records: GET_VALUES and what answers. */
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

#define TBG_FCGI_RECORD_KEEP_CONN 1		/* of BEGIN's flags */

/*
 * The byte of a header that FastCGI reserves, and nobody looks at: 1 of an answer
 * that our gateway makes in place of a program's. No program writes headers.
 */
#define TBG_FCGI_RECORD_MARK		7

/* What an END says of the protocol, not of the application. */
enum tbg_fcgi_record_status {
	TBG_FCGI_RECORD_COMPLETE,
	TBG_FCGI_RECORD_CANT_MPX_CONN,
	TBG_FCGI_RECORD_OVERLOADED,
	TBG_FCGI_RECORD_UNKNOWN_ROLE,
};

/* Where in the records a connection is. Zero it at its begin. */
struct tbg_fcgi_record_reader {
	uint8_t header[TBG_FCGI_RECORD_HEADER], body[TBG_FCGI_RECORD_BODY];
	uint8_t header_len, body_len;	/* bytes that are there */
	uint16_t left;			/* content still to come */
	uint8_t padding;		/* and what follows it */
};

/*
 * What a reader yields: a run of a record's content, or with len 0 a record
 * that is empty, or BEGIN, END or UNKNOWN, complete with its padding.
 */
struct tbg_fcgi_record {
	uint8_t type;			/* enum tbg_fcgi_record_type, or none of them */
	uint16_t id;
	const uint8_t *data;		/* in the caller's bytes */
	uint32_t len;
	uint32_t left;			/* content of the same record behind it */
	bool marked;			/* see TBG_FCGI_RECORD_MARK */
	/* of BEGIN */
	uint16_t role;
	uint8_t flags;
	/* of END */
	uint32_t app_status;
	uint8_t status;			/* enum tbg_fcgi_record_status, or none of them */
	/* of UNKNOWN: the type that the sender does not know */
	uint8_t unknown;
};

/*
 * Takes *ret_used of the len bytes at b.
 *
 *	DONE	*ret is the next; call again with the rest, if there is any
 *	MORE	all bytes are taken, and there is no next yet
 *	BAD	not version 1, or a fixed record of another length
 */
enum tbg_parsed tbg_fcgi_record_next(struct tbg_fcgi_record_reader *rd, const uint8_t *b,
				size_t len, size_t *ret_used,
				struct tbg_fcgi_record *ret);

/* Whether the last byte taken was the last of a record. */
bool tbg_fcgi_record_between(const struct tbg_fcgi_record_reader *rd);

/* One record's header: len bytes of content follow, then the padding. */
void tbg_fcgi_record_header(uint8_t ret[TBG_FCGI_RECORD_HEADER], uint8_t type, uint16_t id,
		       uint16_t len, uint8_t padding);

/* Records of a fixed form, whole. An ABORT is its header, with no content. */
void tbg_fcgi_record_begin(uint8_t ret[TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY],
		      uint16_t id, uint16_t role, uint8_t flags);
void tbg_fcgi_record_end(uint8_t ret[TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY],
		    uint16_t id, uint32_t app_status, uint8_t status);
void tbg_fcgi_record_unknown(uint8_t ret[TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY],
			uint8_t type);

/*
 * Content of any length as records, as many as it takes; none if it is empty:
 * an empty record ends a stream, and is tbg_fcgi_record_header()'s.
 */
void tbg_fcgi_record_put(struct tbg_lines *l, uint8_t type, uint16_t id,
		    const void *data, size_t len);

/*
 * Name-value pairs, the content of PARAMS, GET_VALUES and its RESULT. Next:
 * DONE with one more from *at on (0 first), MORE at the end of b, BAD if the
 * pair goes beyond it.
 */
void tbg_pair_put(struct tbg_lines *l, struct tbg_slice name,
		  struct tbg_slice value);
enum tbg_parsed tbg_pair_next(const uint8_t *b, size_t len, size_t *at,
			      struct tbg_slice *ret_name,
			      struct tbg_slice *ret_value);

#endif
