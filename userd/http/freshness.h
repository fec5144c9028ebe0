/* SPDX-License-Identifier: GPL-2.0 */
/*
 * RFC 9111 (and RFC 5861, RFC 9213) as a shared cache reads it: what
 * may be stored, how long it is fresh, how old it is, whether it may answer a
 * request. Pure functions of heads and times; who calls them keeps the objects.
 *
 * Times are seconds since 1970 of the wall clock where a Date is compared, and
 * nanoseconds of CLOCK_MONOTONIC where time passes.
 */
#ifndef TBG_USERD_POLICY_H
#define TBG_USERD_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/header.h"
#include "http/request.h"

#define TBG_SECONDS_MAX	INT32_MAX	/* delta-seconds beyond are this (1.2.2) */

/* Cache-Control of a request or a response, all its lines together. */
struct tbg_cc {
	bool present;
	bool no_store, no_cache, public_, private_;
	bool must_revalidate, proxy_revalidate, must_understand;
	bool only_if_cached;
	bool no_cache_fields, private_fields;	/* qualified with names */
	/* seconds; -1: absent */
	int64_t max_age, s_maxage, max_stale, min_fresh;
	int64_t stale_while_revalidate, stale_if_error;
};

/*
 * Takes every line of CDN-Cache-Control (RFC 9213), which counts instead of
 * Cache-Control and Expires. False, and *cc as it was: there is none that is to be
 * taken for one.
 */
bool tbg_cc_targeted(struct tbg_cc *cc, const struct tbg_fields *fields);

/* What a request says that matters to a cache. */
struct tbg_request_directives {
	struct tbg_cc cc;
	bool get, head;
	bool content;		/* whose answer is for nobody else (9110 9.3.1) */
	bool represents;	/* POST, answered as a GET would be (9110 9.3.3) */
	bool authorization;
	bool cookie;
	bool range;
	bool conditional;	/* any of the five preconditions */
	bool origin_condition;	/* one that only the origin may evaluate (4.3.2) */
	bool no_cache;		/* Pragma counted in (5.4) */
	/* what the location allows, which tbg_request_directives_read() sets to nothing */
	bool client_stale;	/* max-stale and stale-if-error of requests count */
	bool store_cookies;	/* a response with Set-Cookie may be stored */
	bool heuristic;		/* Last-Modified alone gives a lifetime (4.2.2) */
};

/* From a request's field lines. */
void tbg_request_directives_read(struct tbg_request_directives *w, unsigned int method,
				 const struct tbg_fields *fields);

/* What a stored or storable response says. */
struct tbg_response_directives {
	struct tbg_cc cc;
	uint16_t status;
	bool has_validator;	/* ETag or Last-Modified that a 304 can be about (9110 15.4.5) */
	bool vary_any;		/* Vary: * */
	bool has_vary;
	bool set_cookie;
	bool explicit_life;	/* lifetime is the origin's word */
	int64_t date_s;		/* Date, or when it came */
	bool has_date;
	int64_t lifetime_s;	/* freshness_lifetime (4.2.1) */
	int64_t initial_age_s;	/* corrected_initial_age (4.2.3) */
	uint64_t range_from, range_len, size;	/* of a 206's range; size 0: no single range */
	uint64_t received_ns;	/* when that age was right */
	uint64_t delay_ns;	/* of its coming */
};

/*
 * From a response's field lines, which came at now_s/now_ns, delay_ns after
 * its request was sent.
 */
void tbg_response_directives_read(struct tbg_response_directives *t, unsigned int status,
				  const struct tbg_fields *fields, int64_t now_s, uint64_t now_ns,
				  uint64_t delay_ns);

/*
 * The same, of the answer to that request: what one with cookies got may be his alone,
 * and has a lifetime only by the origin's word, be it "public"; and so has all where the
 * location wants no other.
 */
void tbg_response_directives_of(struct tbg_response_directives *t,
				const struct tbg_request_directives *w);

/* May a shared cache store the response to that request (3)? */
bool tbg_response_directives_storable(const struct tbg_response_directives *t,
				      const struct tbg_request_directives *w);

/* current_age (4.2.3), and what of the lifetime is left (negative: stale). */
int64_t tbg_response_directives_age(const struct tbg_response_directives *t, uint64_t now_ns);
int64_t tbg_response_directives_ttl(const struct tbg_response_directives *t, uint64_t now_ns);

/* On the monotonic clock: when its age was 0 (may wrap), and when it is stale. */
uint64_t tbg_response_directives_born_ns(const struct tbg_response_directives *t);
uint64_t tbg_response_directives_expires_ns(const struct tbg_response_directives *t);

/*
 * From when on a request has it fetched again behind its answer, so that none
 * waits: the last tenth of its life, at least the last second or quarter. again: it
 * is such a refresh itself, and what it has left counts, or one that comes old would
 * be refreshed for ever.
 */
uint64_t tbg_response_directives_refresh_ns(const struct tbg_response_directives *t, bool again);

enum tbg_reuse {
	TBG_REUSE,		/* answer with it (4) */
	TBG_REUSE_REFRESH,	/* answer, and validate behind it (5861 3) */
	TBG_REUSE_VALIDATE,	/* ask first (4.3) */
};

enum tbg_reuse tbg_response_directives_reuse(const struct tbg_response_directives *t,
			       const struct tbg_request_directives *w, uint64_t now_ns);

/*
 * Whether it answers only the request that it was fetched for, and any other one after
 * validation alone, those that wait for it included: no-cache, no lifetime of its own
 * (it is stored to be validated), or stale with a directive against stale use (4.2.4).
 */
bool tbg_response_directives_for_one(const struct tbg_response_directives *t, uint64_t now_ns);

/*
 * May a stale response answer although the upstream failed? told: it answered,
 * with an error (5861 4); otherwise it could not be reached (4.2.4): for a day at
 * most, or as long as a response's own stale-if-error says. A response without a
 * lifetime of its own answers only as its own stale-if-error allows.
 */
bool tbg_response_directives_error_stale(const struct tbg_response_directives *t,
			   const struct tbg_request_directives *w,
			   bool told, uint64_t now_ns);

/* Whether a response to a request of that method withdraws what is stored (4.4). */
bool tbg_method_invalidates(unsigned int method, unsigned int status);

/* Idempotent (RFC 9110 9.2.2): may be sent again. */
bool tbg_method_idempotent(unsigned int method);

/* Whether a field name is in no-cache="…" or private="…" of these lines. */
bool tbg_cc_names(const struct tbg_fields *fields, const char *directive,
		  struct tbg_slice name);

#endif
