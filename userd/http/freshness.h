/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The rules of RFC 9111 (and RFC 5861, RFC 9213) for a shared cache: what may
 * be stored, how long it is fresh, how old it is, whether it may answer a
 * request. Pure functions of heads and times; callers keep the objects.
 *
 * Times are seconds since 1970 of the wall clock where a Date is compared, and
 * nanoseconds of CLOCK_MONOTONIC where time passes.
 */
#ifndef TBG_USERD_HTTP_FRESHNESS_H
#define TBG_USERD_HTTP_FRESHNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/header.h"
#include "http/request.h"

#define TBG_SECONDS_MAX	INT32_MAX	/* larger delta-seconds count as this (1.2.2) */

/* Cache-Control of a request or a response, all lines combined. */
struct tbg_cc {
	bool present;
	bool no_store, no_cache, public_, private_;
	bool must_revalidate, proxy_revalidate, must_understand;
	bool only_if_cached;
	bool no_cache_fields, private_fields;	/* qualified with names */
	/* in seconds; -1: absent */
	int64_t max_age, s_maxage, max_stale, min_fresh;
	int64_t stale_while_revalidate, stale_if_error;
};

/* The directives of a request. */
struct tbg_request_directives {
	struct tbg_cc cc;
	bool get, head;
	bool content;		/* its answer is for no other request (9110 9.3.1) */
	bool represents;	/* a POST whose answer is also that of a GET (9110 9.3.3) */
	bool authorization;
	bool cookie;
	bool range;
	bool conditional;	/* any of the five preconditions */
	bool origin_condition;	/* a condition that only the origin may evaluate (4.3.2) */
	bool no_cache;		/* Cache-Control or Pragma (5.4) */
	/* what the location allows; tbg_request_directives_read() clears it */
	bool client_stale;	/* max-stale and stale-if-error of requests are obeyed */
	bool store_cookies;	/* a response with Set-Cookie may be stored */
	bool heuristic;		/* Last-Modified alone gives a lifetime (4.2.2) */
};

/* From a request's field lines. */
void tbg_request_directives_read(struct tbg_request_directives *w, unsigned int method,
				 const struct tbg_fields *fields);

/* The directives of a stored or storable response. */
struct tbg_response_directives {
	struct tbg_cc cc;
	uint16_t status;
	bool has_validator;	/* ETag or Last-Modified that a 304 can be about (9110 15.4.5) */
	bool vary_any;		/* Vary: * */
	bool has_vary;
	bool set_cookie;
	bool explicit_life;	/* the lifetime is explicit */
	int64_t date_s;		/* Date, or the time of receipt */
	bool has_date;
	int64_t lifetime_s;	/* freshness_lifetime (4.2.1) */
	int64_t initial_age_s;	/* corrected_initial_age (4.2.3) */
	uint64_t range_from, range_len, size;	/* of a 206's range; size 0: no single range */
	uint64_t received_ns;	/* the time for which initial_age_s is correct */
	uint64_t delay_ns;	/* between request and response */
};

/*
 * Reads a response's field lines, received at now_s/now_ns, delay_ns after
 * the request was sent.
 */
void tbg_response_directives_read(struct tbg_response_directives *t, unsigned int status,
				  const struct tbg_fields *fields, int64_t now_s, uint64_t now_ns,
				  uint64_t delay_ns);

/*
 * Adapts it to the request that was answered: the answer to a request with cookies may
 * be personal, so it has a lifetime only if the origin permits it, at least by "public".
 * The same holds for all answers unless the location allows a heuristic lifetime.
 */
void tbg_response_directives_of(struct tbg_response_directives *t,
				const struct tbg_request_directives *w);

/* Whether a shared cache may store the response to this request (3). */
bool tbg_response_directives_storable(const struct tbg_response_directives *t,
				      const struct tbg_request_directives *w);

/* current_age (4.2.3), and the rest of the lifetime (negative: stale). */
int64_t tbg_response_directives_age(const struct tbg_response_directives *t, uint64_t now_ns);
int64_t tbg_response_directives_ttl(const struct tbg_response_directives *t, uint64_t now_ns);

/* On the monotonic clock: when its age was 0 (may wrap), and when it becomes stale. */
uint64_t tbg_response_directives_born_ns(const struct tbg_response_directives *t);
uint64_t tbg_response_directives_expires_ns(const struct tbg_response_directives *t);

/*
 * The time from which a request triggers a refresh after its answer, so that no
 * request has to wait: the last tenth of the lifetime, at least the last second or
 * quarter. again: the response is such a refresh itself; then the rest of its
 * lifetime counts, or a response that is old on arrival would be refreshed for ever.
 */
uint64_t tbg_response_directives_refresh_ns(const struct tbg_response_directives *t, bool again);

enum tbg_reuse {
	TBG_REUSE,		/* answer with it (4) */
	TBG_REUSE_REFRESH,	/* answer, and validate afterwards (5861 3) */
	TBG_REUSE_VALIDATE,	/* validate first (4.3) */
};

enum tbg_reuse tbg_response_directives_reuse(const struct tbg_response_directives *t,
			       const struct tbg_request_directives *w, uint64_t now_ns);

/*
 * Whether it answers only the request that fetched it, while others, even those that
 * wait for it, need a validation: no-cache, no lifetime (it is stored to be
 * validated), or stale with a directive against stale use (4.2.4).
 */
bool tbg_response_directives_for_one(const struct tbg_response_directives *t, uint64_t now_ns);

/*
 * Whether a stale response may answer because the upstream failed. answered: with an
 * error (5861 4); else it was not reachable (4.2.4). The limit
 * is a day, or the response's stale-if-error. A response without a lifetime needs
 * a stale-if-error.
 */
bool tbg_response_directives_error_stale(const struct tbg_response_directives *t,
					 const struct tbg_request_directives *w,
					 bool answered, uint64_t now_ns);

/* Whether a successful request of this method invalidates stored responses (4.4). */
bool tbg_method_invalidates(unsigned int method, unsigned int status);

/* Whether the method is idempotent (RFC 9110 9.2.2), so that a request may be sent again. */
bool tbg_method_idempotent(unsigned int method);

/* Whether no-cache="…" or private="…" in these lines names the field. */
bool tbg_cc_names(const struct tbg_fields *fields, const char *directive,
		  struct tbg_slice name);

#endif
