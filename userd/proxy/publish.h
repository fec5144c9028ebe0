/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Publishes responses of upstreams to the kernel tiers: small fresh responses that may
 * answer any request for their URI, or any with that Accept-Encoding. Called by workers
 * when they store a response and whenever a stored one answers. A published object
 * never outlives the stored response (store/responses.h).
 */
#ifndef TBG_USERD_PROXY_PUBLISH_H
#define TBG_USERD_PROXY_PUBLISH_H

#include <stdbool.h>
#include <stdint.h>

#include "core/key.h"
#include "store/responses.h"

struct tbg_cache;
struct tbg_site;
struct tbg_store;

/* Returns why a stored response cannot be published; NULL: it can. */
const char *tbg_publish_doubt(const struct tbg_stored *one,
			      const struct tbg_uri *u);

/*
 * Makes the text by which the kernel tiers find the object for a request with these
 * field lines (core/key.h). Returns its length; -1: they would not look it up.
 */
int tbg_publish_text(const struct tbg_stored *one, const struct tbg_uri *u,
		     const char *req, size_t req_len, char ret[TBG_URI_MAX]);

/*
 * Publishes a stored response for requests like this one, if there are kernel tiers.
 * The object lives while the response is usable and its Age has the same number of
 * digits.
 */
void tbg_publish(struct tbg_cache *cache, struct tbg_store *store,
		 const struct tbg_site *site, const struct tbg_uri *u, struct tbg_stored *one,
		 const char *req, size_t req_len, uint64_t now_ns);

#endif
