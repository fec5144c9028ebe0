/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The fields that a location adds to responses of upstreams. Called where a head is
 * made, for the client or for the kernel tiers. The store keeps the fields that the
 * upstream sent, and freshness depends on those alone.
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
	bool control;		/* Cache-Control is among them */
};

/* location NULL: adds none. fields: field lines of the response. */
void tbg_site_fields_make(struct tbg_site_fields *ret, const struct tbg_location *location,
			  unsigned int status, const char *fields, size_t len);

/* The fields for an error of the daemon itself. */
void tbg_site_fields_error(struct tbg_site_fields *ret, const struct tbg_location *location,
			   unsigned int status, const char *type);

/* Returns whether one of them replaces a field of the response. */
bool tbg_site_fields_replace(const struct tbg_site_fields *f, struct tbg_slice name);

#endif
