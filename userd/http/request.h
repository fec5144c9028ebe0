/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The full request parser (RFC 9112, server side). Called by the worker for
 * requests that the fast grammar (bpf/core/request.h) does not accept; what
 * the fast grammar accepts is accepted here with the same method and
 * canonical path.
 *
 * Pure: no allocation, no state but the caller's, nothing read beyond the
 * bytes given. Offsets count from the start of the buffer.
 */
#ifndef TBG_USERD_HTTP_REQUEST_H
#define TBG_USERD_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TBG_TARGET_MAX	8000	/* bytes of a request target (RFC 9112 3) */

/* Known methods; any other token is answered 501 (RFC 9110 9.1). */
#define TBG_METHOD_LIST(X) \
	X(GET) X(HEAD) X(POST) X(PUT) X(DELETE) X(CONNECT) X(OPTIONS) \
	X(TRACE) X(PATCH)

enum tbg_method {
	TBG_METHOD_OTHER,
#define X(name) TBG_METHOD_##name,
	TBG_METHOD_LIST(X)
#undef X
};

enum tbg_parsed {
	TBG_PARSED_DONE,
	TBG_PARSED_MORE,	/* valid so far, but incomplete */
	TBG_PARSED_BAD,		/* invalid: see status */
};

struct tbg_text {
	uint32_t off, len;
};

/*
 * One request. Zero it, then call tbg_message_parse() repeatedly with the same
 * bytes and more after them: lines already parsed are not parsed again.
 */
struct tbg_message {
	/* progress */
	uint32_t line_off;	/* start of the line being received */
	uint32_t scan_off;	/* end of the scanned bytes */
	uint8_t state;
	/* result */
	uint8_t method;		/* enum tbg_method */
	uint8_t minor;		/* HTTP/1.minor, 0 or 1 */
	bool asterisk;		/* "*", OPTIONS without a path, CONNECT: none */
	bool raw_target;	/* contains unescaped UTF-8: 400 unless a file answers */
	bool close;		/* connection ends with the response */
	bool chunked;
	bool has_length;
	bool expect_continue;	/* of HTTP/1.1 */
	bool expect_other;	/* an unknown expectation: 417 */
	bool last_hop;		/* Max-Forwards: 0 */
	uint16_t status;	/* of TBG_PARSED_BAD */
	uint32_t head_off;	/* first byte of the request line */
	uint32_t len;		/* of the head, empty lines before it included */
	uint32_t path_len;	/* bytes in the caller's path buffer */
	uint32_t fields_nr;	/* lines of fields */
	uint64_t content_length; /* UINT64_MAX: at least that */
	struct tbg_text target, query;	/* query: after the '?' */
	bool has_query;
	struct tbg_text host;		/* authority of an absolute target wins */
	struct tbg_text inm, ims, im, ius, ae;		/* off 0: absent */
	struct tbg_text range, if_range;
	bool conn_close, conn_keep;
	uint64_t seen, repeated;	/* sets of enum tbg_name */
};

/*
 * path: TBG_TARGET_MAX + 1 bytes that receive the canonical path (percent
 * decoded, dot segments and repeated slashes removed, NUL-terminated) once
 * DONE. It must be the same buffer in every call for one message. head_max:
 * bytes of the longest head.
 */
enum tbg_parsed tbg_message_parse(struct tbg_message *m, const uint8_t *b,
				  size_t len, size_t head_max, char *path);

/*
 * Whether anything but empty lines, which are allowed before a request (RFC 9112
 * 2.2), has been received.
 */
bool tbg_message_begun(const struct tbg_message *m);

/*
 * Combines a list field on several lines (RFC 9110 5.3): writes the values of
 * all lines with this name in head (as parsed) to ret[size], with ", "
 * between them. Returns the full length; at most size bytes are written.
 */
size_t tbg_message_list(const uint8_t *head, size_t len, const char *name,
			char *ret, size_t size);

/*
 * Writes the canonical path of len bytes of raw (an absolute path without query)
 * to ret[len + 1]. An escaped slash is decoded before dot segments are removed: no
 * file name contains one. Returns the length, or -EINVAL: bad escape, encoded NUL,
 * above the root, no leading slash.
 */
int tbg_path_decode(const uint8_t *raw, size_t len, char *ret);

/* The same for a target in origin form, of any length, without its query. */
int tbg_target_path(const char *target, size_t len, char ret[TBG_TARGET_MAX + 1]);

#endif
