/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Content codings (RFC 9110 8.4.1): their names, which of them a client wants,
 * and what a text becomes in one of them. Pure.
 */
#ifndef TBG_USERD_ENCODE_H
#define TBG_USERD_ENCODE_H

#include <stdbool.h>
#include <stddef.h>

#include "abi/cache.h"
#include "http/reply.h"

#define TBG_ENCODINGS_ALL ((1u << TBG_ENCODING_NR) - 2)	/* but identity */

/* "gzip", "gz"; of identity "identity", "". */
const char *tbg_encoding_name(enum tbg_encoding e);
const char *tbg_encoding_suffix(enum tbg_encoding e);

/* The encoding of a name; TBG_ENCODING_NR: none of ours. */
enum tbg_encoding tbg_encoding_named(const char *name);

/* Which of have (a bit each) answers this Accept-Encoding; text NULL: none. */
enum tbg_encoding tbg_encode_choose(const struct tbg_slice *accept,
				    unsigned int have);

/* Whether content of this media type is worth compressing. */
bool tbg_encode_type(const char *type);

/*
 * The len bytes of in in a coding, into ret[room]. Their number, or -E2BIG: no
 * room; -ENOMEM.
 */
int tbg_encode(enum tbg_encoding e, const void *in, size_t len, void *ret,
	       size_t room);

#endif
