/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The secondary key of a stored response (RFC 9111 4.1): the values of the fields
 * that the response's Vary names, as the request is sent on. Accept-Encoding, by which
 * nearly all vary that vary at all, is sent on in one form, however it was written.
 * Pure but for the text it makes.
 */
#ifndef TBG_USERD_SECOND_H
#define TBG_USERD_SECOND_H

#include <stdbool.h>
#include <stddef.h>

#include "http/header.h"

/* head: the response's field lines; req: the request's. False: no memory. */
bool tbg_vary_make(struct tbg_lines *ret, const char *head, size_t head_len,
		     const char *req, size_t req_len);

/*
 * The one form of all Accept-Encoding lines of a request, appended. False: there is
 * none, or what is no such list, which is sent on as it is; or there is no memory.
 */
bool tbg_vary_encoding(struct tbg_lines *ret, const char *req, size_t req_len);

#endif
