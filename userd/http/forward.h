/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Forwarding of heads through a gateway (RFC 9110 7.6): of requests to the
 * upstream, of responses to the client and into the store. No I/O; allocates
 * the text of the result.
 */
#ifndef TBG_USERD_HTTP_FORWARD_H
#define TBG_USERD_HTTP_FORWARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/header.h"
#include "http/framing.h"

/* A request to be forwarded. Texts point into the client's head, except peer. */
struct tbg_forward {
	struct tbg_slice method, target;
	struct tbg_slice host;		/* of the client's request; len 0: none */
	const struct tbg_fields *fields; /* the client's, without claims of untrusted proxies */
	const char *peer;		/* the client's address, IPv6 without [ ] */
	const char *authority;		/* of the server, for requests without a host */
	enum tbg_framing framing;
	uint64_t length;		/* of FRAMING_LENGTH */
	bool has_length;		/* also true for "Content-Length: 0" */
	bool minor;			/* the client's HTTP/1.minor */
	const char *via;		/* our name, for Via */
	struct tbg_slice id;		/* X-Request-ID; len 0: none */
	bool upgrade;			/* forward Upgrade */
	bool expect;			/* forward Expect */
	bool unconditional;		/* without the client's conditions and range */
	bool refreshes;			/* a refresh: omit the client's directives to caches */
	bool depth;			/* forward the mark of modules' fetches */
	struct tbg_slice etag, modified;	/* conditions added by the daemon; len 0: none */
	struct tbg_slice range, if_range;	/* range requested by the daemon */
};

/* Whether Connection names more fields than any client needs (OPTIONS_MAX). */
bool tbg_forward_names_many(const struct tbg_fields *fields);

/*
 * Whether a field of the request is not forwarded: it concerns only this
 * connection, or the daemon writes or evaluates it. connection: the result of
 * tbg_forward_connection().
 */
bool tbg_forward_connection(const struct tbg_forward *f);
bool tbg_forward_drops(const struct tbg_forward *f, const struct tbg_field_line *one,
		       bool connection);

/*
 * Whether a field name has other bytes than letters, digits and dashes: programs and
 * many servers take "X_Forwarded_Proto" for "X-Forwarded-Proto".
 */
bool tbg_forward_odd(struct tbg_slice name);

/*
 * The client's scheme and host as reported by a trusted proxy before us: whether it is
 * https; the value of X-Forwarded-Host, len 0: none.
 */
bool tbg_forward_https(const struct tbg_fields *fields);
struct tbg_slice tbg_forward_host(const struct tbg_fields *fields);

void tbg_forward_request(struct tbg_lines *ret, const struct tbg_forward *f);

/*
 * Writes the field lines of a response that are forwarded or stored. Fields of this
 * connection and of its framing (lengths) are dropped, a missing Date is added (date:
 * TBG_DATE_LEN bytes; NULL: none). store: 0, or the status that the response is stored
 * with: fields that must not be stored are dropped as well.
 */
void tbg_forward_fields(struct tbg_lines *ret, const struct tbg_fields *fields,
			const char *date, unsigned int store);

/* Writes the fields of a stored response, updated by those of a 304 (RFC 9111 3.2). */
void tbg_forward_update(struct tbg_lines *ret, const char *stored,
			size_t stored_len, const char *news, size_t news_len);

/*
 * Writes the trailer fields that are forwarded, from a checked trailer section. fields:
 * of the message's head; odd: forward odd names too.
 */
void tbg_forward_trailer(struct tbg_lines *ret, const char *lines, size_t len,
			 const struct tbg_fields *fields, bool odd);

#endif
