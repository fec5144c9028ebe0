/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The one table of header names, with the rules for each when a head is read,
 * forwarded, stored or generated. A rule about names is a flag here; tbg_names_with()
 * gives the set of names with a flag, and compiles to a constant. Included by
 * http/header.h alone.
 */
#ifndef TBG_USERD_HTTP_FIELD_NAMES_H
#define TBG_USERD_HTTP_FIELD_NAMES_H

#include <stdbool.h>
#include <stdint.h>

enum tbg_name_flag {
	TBG_HOP = 1 << 0,	/* hop by hop (RFC 9110 7.6.1): neither stored nor sent on */
	TBG_FRAMING = 1 << 1,	/* about framing or the connection: the daemon writes its own */
	TBG_ONCE = 1 << 2,	/* a request that repeats it is refused */
	TBG_CGI_ONCE = 1 << 3,	/* a program's answer that repeats it is refused (RFC 3875 6.3) */
	TBG_LIST = 1 << 4,	/* of a request: its lines are one list (RFC 9110 5.3) */
	TBG_CONDITION = 1 << 5,	/* of a request (RFC 9110 13.1) */
	TBG_OF_ORIGIN = 1 << 6,	/* a condition that only the origin evaluates */
	TBG_ADDED = 1 << 7,	/* of a request to an upstream: the daemon writes it */
	TBG_CONTENT = 1 << 8,	/* of the content of one message (RFC 9530 2, RFC 9110 14.4) */
	TBG_NO_TRAILER = 1 << 9,	/* with HOP, CONDITION, ADDED, FRAME: RFC 9110 6.5.1 */
	TBG_SET_HERE = 1 << 10,	/* with FRAME: the setting `headers` may not set it */
	TBG_WIRE = 1 << 11,	/* may change a GET's answer: bpf/core/request.h must know it */
};

/*
 * Field of a module's fetch: the mark, '-', the number of modules that fetch from each
 * other.
 */
#define TBG_DEPTH_FIELD	"X-Toboggan-Depth"

/* X(name, text, flags): the names that the daemon looks for, at most 63. */
#define TBG_NAME_LIST(X) \
	X(ACCEPT_ENCODING, "Accept-Encoding", TBG_LIST | TBG_WIRE) \
	X(ACCEPT_RANGES, "Accept-Ranges", TBG_SET_HERE) \
	X(AGE, "Age", TBG_NO_TRAILER | TBG_SET_HERE) \
	X(ALLOW, "Allow", TBG_SET_HERE) \
	X(AUTHORIZATION, "Authorization", TBG_NO_TRAILER | TBG_WIRE) \
	X(CACHE_CONTROL, "Cache-Control", TBG_NO_TRAILER | TBG_SET_HERE | TBG_WIRE) \
	X(CACHE_STATUS, "Cache-Status", TBG_SET_HERE) \
	X(CDN_CACHE_CONTROL, "CDN-Cache-Control", 0) \
	/* no field, but an option of Connection */ \
	X(CLOSE, "Close", TBG_HOP) \
	X(CONNECTION, "Connection", TBG_HOP | TBG_FRAMING | TBG_WIRE) \
	X(CONTENT_DIGEST, "Content-Digest", TBG_CONTENT) \
	X(CONTENT_ENCODING, "Content-Encoding", TBG_NO_TRAILER | TBG_SET_HERE) \
	X(CONTENT_LENGTH, "Content-Length", TBG_FRAMING | TBG_ONCE | TBG_WIRE) \
	X(CONTENT_LOCATION, "Content-Location", TBG_SET_HERE) \
	X(CONTENT_MD5, "Content-MD5", TBG_CONTENT) \
	X(CONTENT_RANGE, "Content-Range", TBG_CONTENT | TBG_NO_TRAILER | TBG_SET_HERE) \
	X(CONTENT_TYPE, "Content-Type", TBG_CGI_ONCE | TBG_NO_TRAILER | TBG_SET_HERE) \
	X(COOKIE, "Cookie", TBG_NO_TRAILER | TBG_WIRE) \
	X(DATE, "Date", TBG_NO_TRAILER | TBG_SET_HERE) \
	X(DEPTH, TBG_DEPTH_FIELD, 0) \
	X(DIGEST, "Digest", 0) \
	X(ETAG, "ETag", TBG_SET_HERE) \
	X(EXPECT, "Expect", TBG_NO_TRAILER | TBG_WIRE) \
	X(EXPIRES, "Expires", TBG_NO_TRAILER | TBG_SET_HERE) \
	X(FORWARDED, "Forwarded", TBG_ADDED) \
	X(HOST, "Host", TBG_ONCE | TBG_ADDED | TBG_WIRE) \
	X(IF_MATCH, "If-Match", TBG_LIST | TBG_CONDITION | TBG_OF_ORIGIN | TBG_WIRE) \
	X(IF_MODIFIED_SINCE, "If-Modified-Since", TBG_CONDITION | TBG_WIRE) \
	X(IF_NONE_MATCH, "If-None-Match", TBG_LIST | TBG_CONDITION | TBG_WIRE) \
	X(IF_RANGE, "If-Range", TBG_CONDITION | TBG_WIRE) \
	X(IF_UNMODIFIED_SINCE, "If-Unmodified-Since", TBG_CONDITION | TBG_OF_ORIGIN | TBG_WIRE) \
	X(KEEP_ALIVE, "Keep-Alive", TBG_HOP | TBG_FRAMING | TBG_WIRE) \
	X(LAST_MODIFIED, "Last-Modified", TBG_SET_HERE) \
	X(LOCATION, "Location", TBG_CGI_ONCE | TBG_NO_TRAILER | TBG_SET_HERE) \
	X(MAX_FORWARDS, "Max-Forwards", TBG_NO_TRAILER | TBG_WIRE) \
	X(PRAGMA, "Pragma", TBG_NO_TRAILER | TBG_WIRE) \
	X(PROXY, "Proxy", 0) \
	X(PROXY_AUTHENTICATE, "Proxy-Authenticate", TBG_NO_TRAILER) \
	X(PROXY_AUTHENTICATION_INFO, "Proxy-Authentication-Info", 0) \
	X(PROXY_AUTHORIZATION, "Proxy-Authorization", TBG_HOP | TBG_WIRE) \
	X(PROXY_CONNECTION, "Proxy-Connection", TBG_HOP | TBG_FRAMING | TBG_WIRE) \
	X(RANGE, "Range", TBG_NO_TRAILER | TBG_WIRE) \
	X(REPR_DIGEST, "Repr-Digest", 0) \
	X(RETRY_AFTER, "Retry-After", TBG_NO_TRAILER) \
	X(SERVER, "Server", TBG_SET_HERE) \
	X(SET_COOKIE, "Set-Cookie", TBG_NO_TRAILER) \
	X(STATUS, "Status", TBG_CGI_ONCE) \
	X(SURROGATE_KEY, "Surrogate-Key", 0) \
	X(TE, "TE", TBG_HOP | TBG_FRAMING | TBG_WIRE) \
	X(TRAILER, "Trailer", TBG_FRAMING | TBG_WIRE) \
	X(TRANSFER_ENCODING, "Transfer-Encoding", TBG_HOP | TBG_FRAMING | TBG_ONCE | TBG_WIRE) \
	/* ignored by wire: an offer that may be declined (RFC 9110 7.8) */ \
	X(UPGRADE, "Upgrade", TBG_HOP | TBG_FRAMING) \
	X(VARY, "Vary", TBG_NO_TRAILER | TBG_SET_HERE) \
	X(VIA, "Via", TBG_ADDED) \
	X(WWW_AUTHENTICATE, "WWW-Authenticate", TBG_NO_TRAILER) \
	X(X_FORWARDED_FOR, "X-Forwarded-For", TBG_ADDED) \
	X(X_FORWARDED_HOST, "X-Forwarded-Host", TBG_ADDED | TBG_WIRE) \
	X(X_FORWARDED_PROTO, "X-Forwarded-Proto", TBG_ADDED | TBG_WIRE) \
	X(X_REQUEST_ID, "X-Request-ID", TBG_ADDED)

enum tbg_name {
	TBG_NAME_OTHER,
#define X(name, text, flags) TBG_NAME_##name,
	TBG_NAME_LIST(X)
#undef X
	TBG_NAME_NR
};

_Static_assert(TBG_NAME_NR <= 64, "a set of names is a word");

/* Sets of names: TBG_NAME_BIT(DATE) | TBG_NAME_BIT(AGE) */
#define TBG_NAME_BIT(name) (1ull << TBG_NAME_##name)

static inline bool tbg_name_in(enum tbg_name id, uint64_t set)
{
	return set >> id & 1;
}

/* The set of names with any of these flags. */
static inline __attribute__((always_inline, const)) uint64_t tbg_names_with(unsigned int any)
{
#define X(name, text, flags) | ((flags) & any ? TBG_NAME_BIT(name) : 0)
	return 0 TBG_NAME_LIST(X);
#undef X
}

#endif
