/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The secondary key of a stored response (RFC 9111 4.1): the values of the request
 * fields that Vary names, as they are forwarded. Accept-Encoding, the most frequent
 * one, is forwarded in a normalized form. No I/O; allocates the key.
 */
#ifndef TBG_USERD_HTTP_VARY_H
#define TBG_USERD_HTTP_VARY_H

#include <stdbool.h>
#include <stddef.h>

#include "http/header.h"

/* head: the response's field lines; req: the request's. False: no memory. */
bool tbg_vary_make(struct tbg_lines *ret, const char *head, size_t head_len,
		     const char *req, size_t req_len);

/*
 * Appends the normalized form of all Accept-Encoding lines of a request. False:
 * there is no such field, or it is invalid and forwarded unchanged, or there is no
 * memory.
 */
bool tbg_vary_encoding(struct tbg_lines *ret, const char *req, size_t req_len);

#endif
