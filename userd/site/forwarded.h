/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Information about a request from a trusted proxy: the address of the proxy's client
 * and the request id. Used for upstreams and the log. Ignored if the peer is not
 * trusted.
 */
#ifndef TBG_USERD_SITE_FORWARDED_H
#define TBG_USERD_SITE_FORWARDED_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

#include "http/reply.h"

struct tbg_location;
struct tbg_site;
struct tbg_sites;

#define TBG_REQUEST_ID_MADE	32	/* hexadecimal digits */
#define TBG_REQUEST_ID_MAX	128	/* limit for an id from a proxy */

struct tbg_forwarded {
	char client[INET6_ADDRSTRLEN];	/* "": the peer itself */
	char id[TBG_REQUEST_ID_MAX + 1];
};

/* Returns whether the location trusts a peer, given its address as text. */
bool tbg_trusts(const struct tbg_location *l, const char *peer);

/* Makes a unique, not secret, id. Any thread. */
void tbg_request_id_make(char ret[TBG_REQUEST_ID_MADE + 1]);
/* Returns whether a proxy's id is acceptable: 1 to TBG_REQUEST_ID_MAX visible bytes. */
bool tbg_request_id_valid(struct tbg_slice id);

/*
 * Returns the site of a request from its head as received; never NULL: the default site
 * for unknown hosts.
 */
const struct tbg_site *tbg_forwarded_site(const struct tbg_sites *sites, const char *head,
					  size_t len);

/* head: of the request as received. Makes an id if the request has no acceptable one. */
void tbg_forwarded_read(struct tbg_forwarded *ret, const struct tbg_sites *sites, const char *head,
		   size_t len, const char *peer);

#endif
