/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What upstreams answered, for the kernel tiers: small fresh responses that any
 * request for their URI, or any with that Accept-Encoding, may be answered with.
 * Called by the workers, when they
 * store a response and whenever one of theirs answers. What is published lives
 * as long as what is stored does (store/responses.h); it must never outlive it.
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

/* Why a stored response is the daemon's alone; NULL: it need not be. */
const char *tbg_publish_doubt(const struct tbg_stored *one,
			      const struct tbg_uri *u);

/*
 * The text under which the kernel tiers find it for a request of these field
 * lines (core/key.h), and its length; -1: they would not look for it.
 */
int tbg_publish_text(const struct tbg_stored *one, const struct tbg_uri *u,
		     const char *req, size_t req_len, char ret[TBG_URI_MAX]);

/*
 * Where there are kernel tiers: for requests like this one, which it answers, as long
 * as it may and its Age has as many digits as now.
 */
void tbg_publish(struct tbg_cache *cache, struct tbg_store *store,
		 const struct tbg_site *site, const struct tbg_uri *u, struct tbg_stored *one,
		 const char *req, size_t req_len, uint64_t now_ns);

#endif
