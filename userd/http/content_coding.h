/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Content codings (RFC 9110 8.4.1): their names, the choice by
 * Accept-Encoding, and compression of a text. No I/O.
 */
#ifndef TBG_USERD_HTTP_CONTENT_CODING_H
#define TBG_USERD_HTTP_CONTENT_CODING_H

#include <stdbool.h>
#include <stddef.h>

#include "abi/cache.h"
#include "http/reply.h"

#define TBG_ENCODINGS_ALL ((1u << TBG_ENCODING_NR) - 2)	/* all but identity */

/* "gzip", "gz"; of identity "identity", "". */
const char *tbg_encoding_name(enum tbg_encoding e);
const char *tbg_encoding_suffix(enum tbg_encoding e);

/* The encoding with this name; TBG_ENCODING_NR: unknown. */
enum tbg_encoding tbg_encoding_named(const char *name);

/*
 * The encoding in have (one bit each) that this Accept-Encoding selects; text NULL: no
 * such field.
 */
enum tbg_encoding tbg_encode_choose(const struct tbg_slice *accept,
				    unsigned int have);

/* Whether content of this media type is worth compressing. */
bool tbg_encode_type(const char *type);

/*
 * Compresses the len bytes of in into ret[room]. Returns the length, -E2BIG if
 * ret is too small, or -ENOMEM.
 */
int tbg_encode(enum tbg_encoding e, const void *in, size_t len, void *ret,
	       size_t room);

#endif
