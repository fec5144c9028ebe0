/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a request tells of itself, believed only if a trusted proxy has sent it: the
 * client that the proxy serves, and the request's id. For upstreams and the log.
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
#define TBG_REQUEST_ID_MAX	128	/* of one that is taken over */

struct tbg_forwarded {
	char client[INET6_ADDRSTRLEN];	/* "": the peer itself */
	char id[TBG_REQUEST_ID_MAX + 1];
};

/* Whether the location trusts a peer, given as the text of its address. */
bool tbg_trusts(const struct tbg_location *l, const char *peer);

/* Unique, not secret. Any thread. */
void tbg_request_id_make(char ret[TBG_REQUEST_ID_MADE + 1]);
/* Whether a proxy's may be taken over: 1 to TBG_REQUEST_ID_MAX visible bytes. */
bool tbg_request_id_valid(struct tbg_slice id);

/* The site of a request, by its head as received. Never NULL: that of hosts nobody has. */
const struct tbg_site *tbg_forwarded_site(const struct tbg_sites *sites, const char *head,
					  size_t len);

/* head: of the request, as received. A request that tells no id is given one. */
void tbg_forwarded_read(struct tbg_forwarded *ret, const struct tbg_sites *sites, const char *head,
		   size_t len, const char *peer);

#endif
