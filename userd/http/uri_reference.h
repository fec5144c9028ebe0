/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Resolves the reference in a Location or Content-Location field (RFC 3986 5.2),
 * if a response may be stored under the resulting URI. No I/O; allocates the
 * result.
 */
#ifndef TBG_USERD_HTTP_URI_REFERENCE_H
#define TBG_USERD_HTTP_URI_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>

#include "http/header.h"

/*
 * Resolves a reference against base: an authority in lower case of path_off bytes, then a
 * target in origin form; https: its scheme, else http. *ret receives a URI in the same
 * form and with the same authority; the caller frees it. False: another authority or
 * scheme, or no memory.
 */
bool tbg_uri_reference_resolve(struct tbg_lines *ret, struct tbg_slice base, bool https,
			   size_t path_off, struct tbg_slice reference);

#endif
