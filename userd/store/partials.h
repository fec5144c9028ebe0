/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Partial responses (RFC 9111 3.3): stores the bytes that a 206 has brought, and
 * combines two of them (3.4). Called by fetch.c and transfer.c. No I/O.
 */
#ifndef TBG_USERD_STORE_PARTIALS_H
#define TBG_USERD_STORE_PARTIALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/range.h"
#include "store/responses.h"

/* size: length of the whole representation; from: offset of the stored bytes in it. */
uint64_t tbg_partial_size(const struct tbg_stored *s);
uint64_t tbg_partial_from(const struct tbg_stored *s);

/*
 * Makes a Range field for the missing bytes of a stored part; *ret_if_range is the
 * entity tag for If-Range. Returns false if they are more than one range, or if no
 * strong validator ensures that they belong to the same representation.
 */
bool tbg_partial_rest(const struct tbg_stored *partial, char ret[64],
		      struct tbg_slice *ret_if_range);

/*
 * Returns whether a 206 with these directives and field lines is of the same
 * representation as a stored part and leaves no gap. *ret_from, *ret_len: the bytes of
 * both together.
 */
bool tbg_partial_joins(const struct tbg_stored *partial, const struct tbg_response_directives *t,
		       const char *fields, size_t len, uint64_t *ret_from,
		       uint64_t *ret_len);

/* Returns the bytes of both, which must join. NULL: no memory. */
struct tbg_byte_chain *tbg_partial_join(const struct tbg_stored *partial,
			       const struct tbg_response_directives *t,
			       const struct tbg_byte_chain *more);

/* Returns the multipart body with the parts p of body; p is consumed. NULL: no memory. */
struct tbg_byte_chain *tbg_partial_several(const struct tbg_byte_chain *body, struct tbg_parts *p);

#endif
