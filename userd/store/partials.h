/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Parts of a representation that are stored for themselves (RFC 9111 3.3): what
 * of it a 206 has brought, and the response that two of them make (3.4). Called
 * by fetch.c and transfer.c; pure but for memory.
 */
#ifndef TBG_USERD_STORE_PARTIALS_H
#define TBG_USERD_STORE_PARTIALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/range.h"
#include "store/responses.h"

/* Bytes of the representation that a stored response is of, and where it begins. */
uint64_t tbg_partial_size(const struct tbg_stored *s);
uint64_t tbg_partial_from(const struct tbg_stored *s);

/*
 * The Range field that asks for what a stored part lacks, and in *ret_if_range
 * the entity tag that makes it good. False: that is more than one range, or
 * nothing says for certain that the rest will be of the same representation.
 */
bool tbg_partial_rest(const struct tbg_stored *partial, char ret[64],
		      struct tbg_slice *ret_if_range);

/*
 * Whether a 206 of those directives and field lines is of the same representation as
 * a stored part, without a gap between them. *ret_from, *ret_len: of both.
 */
bool tbg_partial_joins(const struct tbg_stored *partial, const struct tbg_response_directives *t,
		       const char *fields, size_t len, uint64_t *ret_from,
		       uint64_t *ret_len);

/* The bytes of both; they join. NULL: no memory. */
struct tbg_byte_chain *tbg_partial_join(const struct tbg_stored *partial,
			       const struct tbg_response_directives *t,
			       const struct tbg_byte_chain *more);

/* The body of an answer with these parts, which are read, of all of body. NULL: no memory. */
struct tbg_byte_chain *tbg_partial_several(const struct tbg_byte_chain *body, struct tbg_parts *p);

#endif
