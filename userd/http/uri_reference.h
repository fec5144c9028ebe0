/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a Location or Content-Location field refers to (RFC 3986 5.2), as far as
 * it is a URI that a response may be stored for. Pure but for the text it makes.
 */
#ifndef TBG_USERD_REFCOUNT_H
#define TBG_USERD_REFCOUNT_H

#include <stdbool.h>
#include <stddef.h>

#include "http/header.h"

/*
 * reference, seen from base: an authority in small letters of path_off bytes,
 * then a target in origin form; https: its scheme, else http. *ret becomes a URI of
 * the same kind and authority, and has to be freed. False: it is another authority's, or another
 * scheme's, or there is no memory.
 */
bool tbg_uri_reference_resolve(struct tbg_lines *ret, struct tbg_slice base, bool https,
			   size_t path_off, struct tbg_slice reference);

#endif
