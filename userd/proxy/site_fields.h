/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The fields that a location adds to what an upstream answers. Called where a
 * head is made, for the client and for the kernel tiers: the store keeps what the
 * upstream sent, and judges freshness by that alone.
 */
#ifndef TBG_USERD_PROXY_SITE_FIELDS_H
#define TBG_USERD_PROXY_SITE_FIELDS_H

#include <stdbool.h>
#include <stddef.h>

#include "http/header.h"
#include "site/site.h"

struct tbg_site_fields {
	char lines[TBG_FIELDS_MAX + 1];
	size_t len;
	bool control;		/* Cache-Control is one of them */
};

/* location NULL: none. fields: the lines of the response. */
void tbg_site_fields_make(struct tbg_site_fields *ret, const struct tbg_location *location,
			  unsigned int status, const char *fields, size_t len);

/* Of an error of the daemon's own. */
void tbg_site_fields_error(struct tbg_site_fields *ret, const struct tbg_location *location,
			   unsigned int status, const char *type);

/* Whether one of them stands in place of a field of the response. */
bool tbg_site_fields_replace(const struct tbg_site_fields *f, struct tbg_slice name);

#endif
