/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Heads on their way through a gateway (RFC 9110 7.6): the request's to the
 * upstream, the response's to the client and into the store. Pure but for the
 * text they make.
 */
#ifndef TBG_USERD_FORWARD_H
#define TBG_USERD_FORWARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/header.h"
#include "http/framing.h"

/* A request to be sent on. Texts point into the client's head but for peer. */
struct tbg_forward {
	struct tbg_slice method, target;
	struct tbg_slice host;		/* of the client's request; len 0: none */
	const struct tbg_fields *fields; /* the client's, without claims that are not believed */
	const char *peer;		/* the client's address, IPv6 without [ ] */
	const char *authority;		/* the server's own, without a host */
	enum tbg_framing framing;
	uint64_t length;		/* of FRAMING_LENGTH */
	bool has_length;		/* "Content-Length: 0" was said */
	bool minor;			/* the client's HTTP/1.minor */
	const char *via;		/* our name, for Via */
	struct tbg_slice id;		/* X-Request-ID; len 0: none */
	bool upgrade;			/* pass Upgrade on */
	bool expect;			/* pass Expect on */
	bool unconditional;		/* without the client's conditions and range */
	bool refreshes;			/* for no client: without what that says to caches */
	bool depth;			/* pass the mark of modules' fetches on */
	struct tbg_slice etag, modified;	/* conditions of our own; len 0: none */
	struct tbg_slice range, if_range;	/* a part of our own */
};

/* Whether Connection names more fields than any client has use for. */
bool tbg_forward_names_many(const struct tbg_fields *fields);

/*
 * Whether a field of the request concerns this connection alone, or is ours to
 * say or to evaluate. connection: tbg_forward_connection(), whether a Connection
 * field names others.
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
 * The client's scheme and host as a proxy before us says, of fields without claims that
 * are not believed: whether it is https; the value of X-Forwarded-Host, len 0: none.
 */
bool tbg_forward_https(const struct tbg_fields *fields);
struct tbg_slice tbg_forward_host(const struct tbg_fields *fields);

void tbg_forward_request(struct tbg_lines *ret, const struct tbg_forward *f);

/*
 * The field lines of a response that may be stored and sent on: what is about
 * this connection alone goes, Date is added (date: TBG_DATE_LEN bytes; NULL: no
 * Date) where it is missing. Lengths are the framing's business and go too. store: the
 * status that it is stored with, and what may not be stored goes as well; 0.
 */
void tbg_forward_fields(struct tbg_lines *ret, const struct tbg_fields *fields,
			const char *date, unsigned int store);

/* A stored response's fields as its 304 updates them (RFC 9111 3.2). */
void tbg_forward_update(struct tbg_lines *ret, const char *stored,
			size_t stored_len, const char *news, size_t news_len);

/*
 * The trailer fields that may be sent on, of a checked trailer section; fields are those
 * of its message's head; odd: also those of odd names.
 */
void tbg_forward_trailer(struct tbg_lines *ret, const char *lines, size_t len,
			 const struct tbg_fields *fields, bool odd);

#endif
