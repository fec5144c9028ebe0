/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The secondary key of a stored response (RFC 9111 4.1): what a request says in
 * the fields that the response's Vary names, so that two requests that mean the
 * same have the same one. Pure but for the text it makes.
 */
#ifndef TBG_USERD_SECOND_H
#define TBG_USERD_SECOND_H

#include <stdbool.h>
#include <stddef.h>

#include "http/header.h"

/* head: the response's field lines; req: the request's. False: no memory. */
bool tbg_vary_make(struct tbg_lines *ret, const char *head, size_t head_len,
		     const char *req, size_t req_len);

#endif
