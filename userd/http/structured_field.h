/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Dictionaries of Structured Fields (RFC 8941 3.2), member by member. Strict: a
 * field with any error is ignored, as the RFC requires. No I/O.
 */
#ifndef TBG_USERD_HTTP_STRUCTURED_FIELD_H
#define TBG_USERD_HTTP_STRUCTURED_FIELD_H

#include <stddef.h>

#include "http/reply.h"

enum tbg_member_type {
	TBG_MEMBER_TRUE,	/* also without a value */
	TBG_MEMBER_FALSE,
	TBG_MEMBER_INTEGER,
	TBG_MEMBER_STRING,	/* text: the bytes between the quotes */
	TBG_MEMBER_OTHER,	/* decimal, token, bytes, inner list */
};

struct tbg_member {
	struct tbg_slice name, text;
	enum tbg_member_type type;
};

/*
 * Reads the member at *at, which starts at 0, and skips its parameters. Returns
 * 1, 0 at the end, or -1: not a dictionary.
 */
int tbg_member_next(struct tbg_slice dictionary, size_t *at,
		    struct tbg_member *ret);

#endif
