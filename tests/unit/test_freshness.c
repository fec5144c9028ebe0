// SPDX-License-Identifier: GPL-2.0
/*
 * RFC 9111 as pure functions (userd/http/freshness.c): which responses are stored, for
 * how long, how old they are, and which requests they may answer. One table per rule;
 * rules that need a daemon are in tests/net/cache/t_rules9111.py, those about time in
 * t_cache9111.py.
 */
#include <stdlib.h>
#include <string.h>

#include "os/clock.h"
#include "ktap.h"
#include "http/freshness.h"

#define NOW_S	1800000000ll
#define SEC	1000000000ull
#define NOW_NS	(5000 * SEC)

static const char *dated(const char *format, int64_t offset_s)
{
	static char text[8][512];
	static int nr;
	char date[30], *to = text[nr++ % 8];

	tbg_date_format(NOW_S + offset_s, date);
	snprintf(to, sizeof(text[0]), format, date);
	return to;
}

/* Gives a lifetime of a day; has exceeded it. */
#define LONG_AGO "Last-Modified: Sat, 01 Jan 2000 00:00:00 GMT\r\n"
#define GUESSED LONG_AGO "Age: 86430\r\n"

/* Valid until the next call. */
static const struct tbg_fields *fields_of(const char *text)
{
	static struct tbg_fields f;

	if (tbg_fields_read(&f, text, strlen(text)) < 0)
		abort();
	return &f;
}

static void directives_of(struct tbg_response_directives *t, unsigned int status,
			  const char *fields)
{
	tbg_response_directives_read(t, status, fields_of(fields), NOW_S, NOW_NS, 0);
}

static int64_t lifetime(const char *fields)
{
	struct tbg_response_directives t;

	directives_of(&t, 200, fields);
	return t.lifetime_s;
}

KTAP_TEST(t_lifetime)
{
	static const struct {
		const char *fields;
		int64_t want;
	} rows[] = {
		{ "Cache-Control: max-age=60\r\n", 60 },
		{ "cache-control:MAX-AGE=\"60\"\r\n", 60 },
		{ "Cache-Control: max-age=060\r\n", 60 },
		{ "Cache-Control: a=\"x, max-age=9\", max-age=60\r\n", 60 },
		{ "Cache-Control: max-age=60, s-maxage=30\r\n", 30 },
		{ "Cache-Control: s-maxage=90\r\nCache-Control: max-age=60\r\n", 90 },
		{ "Cache-Control: max-age=99999999999999999999\r\n", TBG_SECONDS_MAX },
		{ "Cache-Control: max-age=60, max-age=10\r\n", 10 },
		{ "Cache-Control: max-age=10, max-age=60\r\n", 10 },
		{ "Cache-Control: max-age=x\r\n", 0 },
		{ "Cache-Control: max-age=60x\r\n", 0 },
		{ "Cache-Control: max-age=-60\r\n", 0 },
		{ "Cache-Control: max-age=6.0\r\n", 0 },
		{ "Cache-Control: max-age\r\n", 0 },
		{ "Cache-Control: max-age =60\r\n", 0 },
		{ "Cache-Control: max-age= 60\r\n", 0 },
		{ "Cache-Control: xmax-age=60\r\n", 0 },
		{ "Expires: 0\r\n", 0 },
		{ "", 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		if (lifetime(rows[i].fields) != rows[i].want)
			ktap_note("%s", rows[i].fields);
		KTAP_EQ(lifetime(rows[i].fields), rows[i].want);
	}
}

KTAP_TEST(t_lifetime_from_expires_and_last_modified)
{
	char fields[256];

	KTAP_EQ(lifetime(dated("Expires: %s\r\n", 60)), 60);
	KTAP_EQ(lifetime(dated("Expires: %s\r\n", -60)), 0);
	KTAP_EQ(lifetime("Expires: Fri, 31 Dec 9999 23:59:59 GMT\r\n"), TBG_SECONDS_MAX);
	KTAP_EQ(lifetime(dated("Expires: %s\r\nCache-Control: max-age=5\r\n", 60)), 5);
	sprintf(fields, "%s%s", dated("Date: %s\r\n", -100), dated("Expires: %s\r\n", 60));
	KTAP_EQ(lifetime(fields), 160);
	sprintf(fields, "%s%s", dated("Expires: %s\r\n", 60), dated("Expires: %s\r\n", 20));
	KTAP_EQ(lifetime(fields), 20);
	KTAP_EQ(lifetime(dated("Last-Modified: %s\r\n", -1000)), 100);
	KTAP_EQ(lifetime(dated("Last-Modified: %s\r\n", 1000)), 0);
	KTAP_EQ(lifetime(dated("Last-Modified: %s\r\n", -100000000)), 24 * 3600);
	KTAP_EQ(lifetime(dated("Last-Modified: %s\r\nSet-Cookie: a\r\n", -1000)), 0);
}

static int64_t age(const char *fields, uint64_t delay_ns, uint64_t after_ns)
{
	struct tbg_response_directives t;

	tbg_response_directives_read(&t, 200, fields_of(fields), NOW_S, NOW_NS, delay_ns);
	return tbg_response_directives_age(&t, NOW_NS + after_ns);
}

KTAP_TEST(t_age)
{
	char fields[256];

	KTAP_EQ(age("", 0, 0), 0);
	KTAP_EQ(age("Age: 7\r\n", 0, 0), 7);
	KTAP_EQ(age("Age: 7\r\n", 2 * SEC, 0), 9);
	KTAP_EQ(age("Age: 7\r\n", 2 * SEC - 1, 3 * SEC - 1), 10);
	KTAP_EQ(age(dated("Date: %s\r\n", -50), 0, 5 * SEC), 55);
	KTAP_EQ(age(dated("Date: %s\r\n", 50), 0, 5 * SEC), 5);
	sprintf(fields, "%sAge: 7\r\n", dated("Date: %s\r\n", -50));
	KTAP_EQ(age(fields, 0, 0), 50);
	sprintf(fields, "%sAge: 70\r\n", dated("Date: %s\r\n", -50));
	KTAP_EQ(age(fields, 0, 0), 70);
	KTAP_EQ(age("Age: 1, 9\r\n", 0, 0), 1);
	KTAP_EQ(age("Age: 1\r\nAge: 9\r\n", 0, 0), 1);
	KTAP_EQ(age("Age: x\r\n", 0, 0), 0);
	KTAP_EQ(age("Age: -1\r\n", 0, 0), 0);
	KTAP_EQ(age("Age: 99999999999999\r\n", 0, 0), TBG_SECONDS_MAX);
}

/* RFC 9213: a dictionary, parsed strictly, replaces the other fields. */
KTAP_TEST(t_targeted_lifetime)
{
	static const struct {
		const char *fields;
		int64_t want;
	} rows[] = {
		{ "CDN-Cache-Control: max-age=60\r\nCache-Control: max-age=1\r\n", 60 },
		{ "CDN-Cache-Control: max-age=60\r\nCache-Control: max-age=900\r\n", 60 },
		{ "CDN-Cache-Control: max-age=60;a=1;b, foo=bar\r\n", 60 },
		{ "CDN-Cache-Control: a=(1 2;x \"y\"), b=:YQ==:, c=?0, d=1.5, max-age=60\r\n", 60 },
		{ "CDN-Cache-Control: foo\r\nCDN-Cache-Control: max-age=60\r\n", 60 },
		{ "CDN-Cache-Control: s-maxage=60, max-age=9\r\n", 60 },
		{ "CDN-Cache-Control: max-age=0, max-age=60\r\n", 60 },
		{ "CDN-Cache-Control: max-age=60, max-age=0\r\n", 0 },
		{ "CDN-Cache-Control: max-age=999999999999\r\n", TBG_SECONDS_MAX },
		{ "CDN-Cache-Control: max-age=0\r\nCache-Control: max-age=60\r\n", 0 },
		{ "CDN-Cache-Control: max-age=-1\r\nCache-Control: max-age=60\r\n", 0 },
		/* of the wrong type: ignored */
		{ "CDN-Cache-Control: max-age=\"9\"\r\nCache-Control: max-age=60\r\n", 0 },
		/* not a dictionary: the other fields count */
		{ "CDN-Cache-Control: \r\nCache-Control: max-age=60\r\n", 60 },
		{ "CDN-Cache-Control: max-age=9,\r\nCache-Control: max-age=60\r\n", 60 },
		{ "CDN-Cache-Control: Max-Age=9\r\nCache-Control: max-age=60\r\n", 60 },
		{ "CDN-Cache-Control: max-age= 9\r\nCache-Control: max-age=60\r\n", 60 },
		{ "CDN-Cache-Control: max-age=9 x\r\nCache-Control: max-age=60\r\n", 60 },
		{ "CDN-Cache-Control: max-age=9, \"a\r\nCache-Control: max-age=60\r\n", 60 },
		{ "CDN-Cache-Control: max-age=1234567890123456\r\nCache-Control: max-age=60\r\n", 60 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		if (lifetime(rows[i].fields) != rows[i].want)
			ktap_note("%s", rows[i].fields);
		KTAP_EQ(lifetime(rows[i].fields), rows[i].want);
	}
	KTAP_EQ(lifetime(dated("CDN-Cache-Control: foo\r\nExpires: %s\r\n", 60)), 0);
}

KTAP_TEST(t_expiry_and_refresh)
{
	struct tbg_response_directives t;
	const char *f = "Cache-Control: max-age=100\r\nAge: 30\r\n";

	tbg_response_directives_read(&t, 200, fields_of(f), NOW_S, NOW_NS, 0);
	KTAP_EQ(tbg_response_directives_born_ns(&t), NOW_NS - 30 * SEC);
	KTAP_EQ(tbg_response_directives_expires_ns(&t), NOW_NS + 70 * SEC);
	KTAP_EQ(tbg_response_directives_refresh_ns(&t, false), NOW_NS + 60 * SEC);
	KTAP_EQ(tbg_response_directives_refresh_ns(&t, true), NOW_NS + 63 * SEC);
	/* a fraction of a second in transit does not change Age, but counts as time */
	tbg_response_directives_read(&t, 200, fields_of(f), NOW_S, NOW_NS, SEC / 4);
	KTAP_EQ(tbg_response_directives_age(&t, NOW_NS), 30);
	KTAP_EQ(tbg_response_directives_expires_ns(&t), NOW_NS + 70 * SEC - SEC / 4);
	/* a slow upstream is asked earlier */
	tbg_response_directives_read(&t, 200, fields_of(f), NOW_S, NOW_NS, 8 * SEC);
	KTAP_EQ(tbg_response_directives_refresh_ns(&t, false), NOW_NS + (62 - 16) * SEC);
	tbg_response_directives_read(&t, 200, fields_of(f), NOW_S, NOW_NS, 22 * SEC);
	KTAP_EQ(tbg_response_directives_refresh_ns(&t, false), NOW_NS + (48 - 42) * SEC);
	tbg_response_directives_read(&t, 200, fields_of(f), NOW_S, NOW_NS, 33 * SEC);
	KTAP_EQ(tbg_response_directives_refresh_ns(&t, false), NOW_NS);
	/* and one with short lifetimes */
	tbg_response_directives_read(&t, 200, fields_of("Cache-Control: max-age=5\r\n"), NOW_S, NOW_NS, 0);
	KTAP_EQ(tbg_response_directives_refresh_ns(&t, false), NOW_NS + 4 * SEC);
	tbg_response_directives_read(&t, 200, fields_of("Cache-Control: max-age=2\r\n"), NOW_S, NOW_NS, 0);
	KTAP_EQ(tbg_response_directives_refresh_ns(&t, false), NOW_NS + 3 * SEC / 2);
	f = "Cache-Control: max-age=100\r\nAge: 100\r\n";
	tbg_response_directives_read(&t, 200, fields_of(f), NOW_S, NOW_NS, 0);
	KTAP_EQ(tbg_response_directives_expires_ns(&t), 0);
}

/* A step of the wall clock makes no response younger. */
KTAP_TEST(t_age_follows_the_monotonic_clock)
{
	struct tbg_response_directives t;

	directives_of(&t, 200, "Cache-Control: max-age=10\r\n");
	KTAP_EQ(tbg_response_directives_ttl(&t, NOW_NS), 10);
	KTAP_EQ(tbg_response_directives_ttl(&t, NOW_NS + 10 * SEC), 0);
	KTAP_EQ(tbg_response_directives_ttl(&t, NOW_NS - 10 * SEC), 10);
}

static bool storable(unsigned int status, const char *fields, unsigned int method,
		     const char *request)
{
	struct tbg_response_directives t;
	struct tbg_request_directives w;

	directives_of(&t, status, fields);
	tbg_request_directives_read(&w, method, fields_of(request));
	return tbg_response_directives_storable(&t, &w);
}

#define CC "Cache-Control: max-age=60"
#define AUTH "Authorization: x\r\n"
#define EIGHT "a,b,c,d,e,f,g,h,"
#define RANGE "Range: bytes=0-1\r\n"
#define PART(text) "\r\nContent-Range: bytes " text "\r\n"

struct storable_row {
	bool want;
	unsigned int status;
	const char *fields, *request;
};

static void storable_check(const struct storable_row *rows, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		bool got = storable(rows[i].status, rows[i].fields, TBG_METHOD_GET,
				    rows[i].request);

		if (got != rows[i].want)
			ktap_note("%u %s%s", rows[i].status, rows[i].fields, rows[i].request);
		KTAP_EQ(got, rows[i].want);
	}
}

/* RFC 9111 3 */
KTAP_TEST(t_directives_say_what_is_stored)
{
	static const struct storable_row rows[] = {
		{ true, 200, CC "\r\n", "" },
		{ true, 599, CC "\r\n", "" },
		{ true, 302, CC "\r\n", "" },
		{ false, 302, LONG_AGO, "" },
		{ true, 404, LONG_AGO, "" },
		{ true, 451, LONG_AGO, "" },
		{ false, 304, CC "\r\n", "" },
		{ false, 412, CC "\r\n", "" },
		{ false, 416, CC "\r\n", "" },
		{ false, 100, CC "\r\n", "" },
		{ false, 200, CC ", no-store\r\n", "" },
		{ false, 200, CC ", private\r\n", "" },
		{ true, 200, CC ", private=\"x\"\r\n", "" },
		{ false, 200, CC ", private=\"x\r\n", "" },
		{ false, 200, CC ", private=\"x\\\"\r\n", "" },
		{ false, 200, CC ", private=\"\r\n", "" },
		{ true, 200, CC ", private=\"x, \\\"y\"\r\n", "" },
		{ true, 200, CC ", no-store, must-understand\r\n", "" },
		{ true, 451, CC ", no-store, must-understand\r\n", "" },
		{ false, 599, CC ", no-store, must-understand\r\n", "" },
		{ false, 599, CC ", must-understand\r\n", "" },
		{ false, 200, CC "\r\n", "Cache-Control: no-store\r\n" },
	};

	storable_check(rows, sizeof(rows) / sizeof(*rows));
	KTAP_CHECK(!storable(200, CC "\r\n", TBG_METHOD_HEAD, ""));
	KTAP_CHECK(!storable(200, CC "\r\n", TBG_METHOD_POST, ""));
}

/* RFC 9111 3.3: only if the request had a Range, and one valid Content-Range */
KTAP_TEST(t_one_valid_range_is_stored)
{
	static const struct storable_row rows[] = {
		{ false, 206, CC "\r\n", RANGE },
		{ false, 206, CC PART("0-1/9"), "" },
		{ true, 206, CC PART("0-1/9"), RANGE },
		{ true, 206, CC PART("8-8/9"), RANGE },
		{ true, 206, CC ", no-store, must-understand" PART("0-1/9"), RANGE },
		{ false, 206, "ETag: \"1\"" PART("0-1/9"), RANGE },
		{ false, 206, CC PART("0-9/9"), RANGE },
		{ false, 206, CC PART("1-0/9"), RANGE },
		{ false, 206, CC PART("0-1/*"), RANGE },
		{ false, 206, CC PART("*/9"), RANGE },
		{ false, 206, CC PART("-1/9"), RANGE },
		{ false, 206, CC PART("0-/9"), RANGE },
		{ false, 206, CC PART("0-1"), RANGE },
		{ false, 206, CC PART("0-1/9/9"), RANGE },
		{ false, 206, CC PART("0-1/99999999999999999999"), RANGE },
		{ false, 206, CC PART("") , RANGE },
		{ false, 206, CC "\r\nContent-Range: lines 0-1/9\r\n", RANGE },
		{ false, 206, CC PART("0-1/9") "Content-Range: bytes 0-1/9\r\n", RANGE },
		{ false, 206, CC PART("x") "Content-Range: bytes 0-1/9\r\n", RANGE },
	};

	storable_check(rows, sizeof(rows) / sizeof(*rows));
}

KTAP_TEST(t_vary_limits_what_is_stored)
{
	static const struct storable_row rows[] = {
		{ false, 200, CC "\r\nVary: *\r\n", "" },
		{ false, 200, CC "\r\nVary: a, *\r\n", "" },
		{ false, 200, CC "\r\nVary: x-forwarded-for\r\n", "" },
		{ true, 200, CC "\r\nVary: X-Forwarded-Proto\r\n", "" },
		{ true, 200, CC "\r\nVary: a\r\n", "" },
		{ true, 200, CC "\r\nVary: " EIGHT EIGHT "\r\nVary: " EIGHT EIGHT "\r\n", "" },
		{ false, 200, CC "\r\nVary: " EIGHT EIGHT "\r\nVary: a, " EIGHT EIGHT "\r\n", "" },
	};

	storable_check(rows, sizeof(rows) / sizeof(*rows));
}

/* RFC 9111 3.5 */
KTAP_TEST(t_authorized_answers_are_stored_if_allowed)
{
	static const struct storable_row rows[] = {
		{ false, 200, CC "\r\n", AUTH },
		{ true, 200, CC ", public\r\n", AUTH },
		{ true, 200, CC ", must-revalidate\r\n", AUTH },
		{ true, 200, "Cache-Control: s-maxage=60\r\n", AUTH },
		{ false, 200, CC ", proxy-revalidate\r\n", AUTH },
	};

	storable_check(rows, sizeof(rows) / sizeof(*rows));
}

/* Without a lifetime: stored if it can be validated, or may be used when stale. */
KTAP_TEST(t_stale_answers_are_stored_if_usable)
{
	static const struct storable_row rows[] = {
		{ false, 200, "", "" },
		{ true, 200, "ETag: \"1\"\r\n", "" },
		{ false, 403, "ETag: \"1\"\r\n", "" },
		{ false, 404, "ETag: \"1\"\r\n", "" },
		{ false, 200, "Cache-Control: max-age=0\r\n", "" },
		{ true, 200, "Cache-Control: max-age=0\r\nETag: \"1\"\r\n", "" },
		{ true, 200, "Cache-Control: max-age=0, stale-while-revalidate=1\r\n", "" },
		{ true, 200, "Cache-Control: max-age=0, stale-if-error=1\r\n", "" },
		{ false, 200, "Cache-Control: stale-if-error=1\r\n", "" },
		{ false, 200, "Cache-Control: max-age=0, stale-if-error=0\r\n", "" },
		{ false, 200, "Cache-Control: s-maxage=0, stale-if-error=1\r\n", "" },
		{ false, 200, "Cache-Control: max-age=0, stale-if-error=1, no-cache\r\n", "" },
		{ true, 203, "Cache-Control: max-age=0\r\nETag: \"1\"\r\n", "" },
		{ false, 301, "Cache-Control: max-age=0\r\nETag: \"1\"\r\n", "" },
	};

	storable_check(rows, sizeof(rows) / sizeof(*rows));
}

KTAP_TEST(t_cookies_are_not_stored)
{
	static const struct storable_row rows[] = {
		{ false, 200, CC "\r\nSet-Cookie: a\r\n", "" },
		{ false, 200, CC ", public\r\nset-cookie: a\r\n", "" },
		{ false, 200, "CDN-Cache-Control: max-age=60\r\nSet-Cookie: a\r\n", "" },
		{ false, 200, CC ", private=\"x\"\r\nSet-Cookie: a\r\n", "" },
		/* the stored response does not contain the cookie */
		{ true, 200, CC ", private=\"set-cookie\"\r\nSet-Cookie: a\r\n", "" },
		{ true, 200, CC ", no-cache=\"x, Set-Cookie\"\r\nSet-Cookie: a\r\n", "" },
		{ false, 200, "ETag: \"1\"\r\nSet-Cookie: a\r\n", "" },
	};

	storable_check(rows, sizeof(rows) / sizeof(*rows));
}

/* Where the location allows it, and with an explicit lifetime: that makes it shared. */
KTAP_TEST(t_cookies_are_stored_where_that_is_allowed)
{
	static const struct {
		bool want;
		const char *fields;
	} rows[] = {
		{ true, "Cache-Control: max-age=60\r\nSet-Cookie: a\r\n" },
		{ true, "Cache-Control: s-maxage=60\r\nSet-Cookie: a\r\n" },
		{ false, "Cache-Control: max-age=0\r\nETag: \"1\"\r\nSet-Cookie: a\r\n" },
		{ false, "Expires: 0\r\nETag: \"1\"\r\nSet-Cookie: a\r\n" },
		{ false, "ETag: \"1\"\r\nSet-Cookie: a\r\n" },
		{ false, "Cache-Control: max-age=0, stale-if-error=9\r\nSet-Cookie: a\r\n" },
		{ false, "Cache-Control: max-age=60, private\r\nSet-Cookie: a\r\n" },
	};
	struct tbg_response_directives t;
	struct tbg_request_directives w;

	tbg_request_directives_read(&w, TBG_METHOD_GET, fields_of(""));
	w.store_cookies = true;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		directives_of(&t, 200, rows[i].fields);
		KTAP_EQ(tbg_response_directives_storable(&t, &w), rows[i].want);
	}
}

/* Requests that wait for it, or come later, are not the one that fetched it. */
KTAP_TEST(t_what_has_no_lifetime_is_for_one)
{
	static const struct {
		bool want;
		const char *fields;
	} rows[] = {
		{ true, "ETag: \"1\"\r\n" },
		{ true, "Cache-Control: max-age=0\r\nETag: \"1\"\r\n" },
		{ true, "Expires: 0\r\nETag: \"1\"\r\n" },
		{ true, "Expires: Thu, 01 Jan 1981 00:00:00 GMT\r\nETag: \"1\"\r\n" },
		{ true, "Cache-Control: max-age=0, stale-if-error=60\r\n" },
		{ true, "Cache-Control: no-cache, max-age=60\r\n" },
		{ true, "Cache-Control: max-age=60, must-revalidate\r\nAge: 90\r\n" },
		{ false, "Cache-Control: max-age=60\r\n" },
		{ false, "Cache-Control: max-age=60\r\nAge: 90\r\n" },
		{ false, "Cache-Control: max-age=0, stale-while-revalidate=60\r\n" },
	};
	struct tbg_response_directives t;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		directives_of(&t, 200, rows[i].fields);
		KTAP_EQ(tbg_response_directives_for_one(&t, NOW_NS), rows[i].want);
	}
}

#define YES TBG_REUSE
#define BEHIND TBG_REUSE_REFRESH
#define ASK TBG_REUSE_VALIDATE

struct reuse_row {
	enum tbg_reuse want;
	const char *fields, *request;
};

static void reuse_check(const struct reuse_row *rows, size_t nr)
{
	struct tbg_response_directives t;
	struct tbg_request_directives w;

	for (size_t i = 0; i < nr; i++) {
		directives_of(&t, 200, rows[i].fields);
		tbg_request_directives_read(&w, TBG_METHOD_GET, fields_of(rows[i].request));
		w.client_stale = true;
		if (tbg_response_directives_reuse(&t, &w, NOW_NS) != rows[i].want)
			ktap_note("%s%s", rows[i].fields, rows[i].request);
		KTAP_EQ(tbg_response_directives_reuse(&t, &w, NOW_NS), rows[i].want);
	}
}

KTAP_TEST(t_reuse)
{
	static const struct reuse_row rows[] = {
		{ YES, "Cache-Control: max-age=60\r\n", "" },
		{ YES, "Cache-Control: max-age=60\r\nAge: 59\r\n", "" },
		{ ASK, "Cache-Control: max-age=60\r\nAge: 60\r\n", "" },
		{ ASK, "Cache-Control: max-age=60, no-cache\r\n", "" },
		{ YES, "Cache-Control: max-age=60, no-cache=\"a\"\r\n", "" },
		{ BEHIND, "Cache-Control: max-age=60, stale-while-revalidate=31\r\nAge: 90\r\n", "" },
		{ ASK, "Cache-Control: max-age=60, stale-while-revalidate=30\r\nAge: 90\r\n", "" },
		{ ASK, "Cache-Control: max-age=60, stale-while-revalidate=99, proxy-revalidate\r\n"
		  "Age: 90\r\n", "" },
		{ YES, LONG_AGO "Age: 86399\r\n", "" },
	};

	reuse_check(rows, sizeof(rows) / sizeof(*rows));
}

KTAP_TEST(t_requests_limit_reuse)
{
	static const struct reuse_row rows[] = {
		{ ASK, "Cache-Control: max-age=60\r\n", "Cache-Control: no-cache\r\n" },
		{ ASK, "Cache-Control: max-age=60\r\n", "Pragma: no-cache\r\n" },
		{ YES, "Cache-Control: max-age=60\r\n",
		  "Pragma: no-cache\r\nCache-Control: x\r\n" },
		{ ASK, "Cache-Control: max-age=60\r\n", "Cache-Control: max-age=0\r\n" },
		{ ASK, "Cache-Control: max-age=60\r\nAge: 9\r\n",
		  "Cache-Control: max-age=8\r\n" },
		{ YES, "Cache-Control: max-age=60\r\nAge: 9\r\n",
		  "Cache-Control: max-age=9\r\n" },
		{ ASK, "Cache-Control: max-age=60\r\nAge: 9\r\n",
		  "Cache-Control: min-fresh=52\r\n" },
		{ YES, "Cache-Control: max-age=60\r\nAge: 9\r\n",
		  "Cache-Control: min-fresh=51\r\n" },
		{ YES, "Cache-Control: max-age=60\r\nAge: 90\r\n",
		  "Cache-Control: max-stale\r\n" },
		{ YES, "Cache-Control: max-age=60\r\nAge: 90\r\n",
		  "Cache-Control: max-stale=30\r\n" },
		{ ASK, "Cache-Control: max-age=60\r\nAge: 90\r\n",
		  "Cache-Control: max-stale=29\r\n" },
		{ ASK, "Cache-Control: max-age=60, must-revalidate\r\nAge: 90\r\n",
		  "Cache-Control: max-stale\r\n" },
		{ ASK, "Cache-Control: max-age=0\r\nETag: \"1\"\r\n", "Cache-Control: max-stale\r\n" },
		{ ASK, "ETag: \"1\"\r\n", "Cache-Control: max-stale\r\n" },
		{ ASK, "Expires: 0\r\nETag: \"1\"\r\n", "Cache-Control: max-stale\r\n" },
		{ ASK, "Cache-Control: s-maxage=60\r\nAge: 90\r\n",
		  "Cache-Control: max-stale\r\n" },
		{ ASK, "Cache-Control: max-age=60, stale-while-revalidate=99\r\nAge: 90\r\n",
		  "Cache-Control: max-age=100\r\n" },
		{ YES, "Cache-Control: max-age=60, stale-while-revalidate=99\r\nAge: 90\r\n",
		  "Cache-Control: max-age=100, max-stale=30\r\n" },
		{ ASK, GUESSED, "Cache-Control: max-stale\r\n" },
	};

	reuse_check(rows, sizeof(rows) / sizeof(*rows));
}

KTAP_TEST(t_requests_accept_stale_answers_only_where_the_location_allows_it)
{
	struct tbg_response_directives t;
	struct tbg_request_directives w;

	directives_of(&t, 200, "Cache-Control: max-age=60\r\nAge: 90\r\n");
	tbg_request_directives_read(&w, TBG_METHOD_GET, fields_of("Cache-Control: max-stale\r\n"));
	KTAP_EQ(tbg_response_directives_reuse(&t, &w, NOW_NS), ASK);
	directives_of(&t, 200, "Cache-Control: max-age=60, stale-while-revalidate=99\r\nAge: 90\r\n");
	KTAP_EQ(tbg_response_directives_reuse(&t, &w, NOW_NS), BEHIND);
}

KTAP_TEST(t_stale_on_error)
{
	static const struct {
		bool answered, unreachable;
		const char *fields, *request;
	} rows[] = {
		{ false, true, "Cache-Control: max-age=60\r\nAge: 90\r\n", "" },
		{ true, true, "Cache-Control: max-age=60, stale-if-error=31\r\nAge: 90\r\n", "" },
		{ false, false, "Cache-Control: max-age=60, stale-if-error=30\r\nAge: 90\r\n", "" },
		{ false, false, "Cache-Control: max-age=60, stale-if-error=0\r\nAge: 90\r\n", "" },
		{ true, true, "Cache-Control: max-age=60\r\nAge: 90\r\n",
		  "Cache-Control: stale-if-error=31\r\n" },
		{ false, false, "Cache-Control: max-age=60, must-revalidate, stale-if-error=99\r\n"
		  "Age: 90\r\n", "" },
		{ false, false, "Cache-Control: s-maxage=60, stale-if-error=99\r\nAge: 90\r\n", "" },
		{ false, false, "Cache-Control: max-age=60, stale-if-error=99\r\nAge: 90\r\n",
		  "Cache-Control: no-cache\r\n" },
		{ false, false, "Cache-Control: max-age=60\r\nAge: 99999999\r\n", "" },
		/* stored for validation: it was not declared to be shared */
		{ false, false, "ETag: \"1\"\r\n", "" },
		{ false, false, "Cache-Control: max-age=0\r\nETag: \"1\"\r\n", "" },
		{ false, false, "Expires: 0\r\nETag: \"1\"\r\n", "Cache-Control: stale-if-error=99\r\n" },
		{ true, true, "Cache-Control: max-age=0, stale-if-error=9\r\n", "" },
		/* a heuristic lifetime that is over */
		{ false, false, GUESSED, "Cache-Control: stale-if-error=99\r\n" },
		{ false, false, GUESSED "Cache-Control: stale-if-error=99\r\n", "" },
		{ false, false, "ETag: \"1\"\r\nCache-Control: stale-if-error=99\r\n", "" },
	};
	struct tbg_response_directives t;
	struct tbg_request_directives w;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		directives_of(&t, 200, rows[i].fields);
		tbg_request_directives_read(&w, TBG_METHOD_GET, fields_of(rows[i].request));
		w.client_stale = true;
		KTAP_EQ(tbg_response_directives_error_stale(&t, &w, true, NOW_NS),
			rows[i].answered);
		KTAP_EQ(tbg_response_directives_error_stale(&t, &w, false, NOW_NS),
			rows[i].unreachable);
	}
	directives_of(&t, 200, "Cache-Control: max-age=60\r\nAge: 90\r\n");
	tbg_request_directives_read(&w, TBG_METHOD_GET, fields_of("Cache-Control: stale-if-error=99\r\n"));
	KTAP_CHECK(!tbg_response_directives_error_stale(&t, &w, true, NOW_NS));
}

KTAP_TEST(t_methods)
{
	KTAP_CHECK(tbg_method_invalidates(TBG_METHOD_POST, 200));
	KTAP_CHECK(tbg_method_invalidates(TBG_METHOD_OTHER, 302));
	KTAP_CHECK(!tbg_method_invalidates(TBG_METHOD_POST, 404));
	KTAP_CHECK(!tbg_method_invalidates(TBG_METHOD_HEAD, 200));
	KTAP_CHECK(tbg_method_idempotent(TBG_METHOD_PUT));
	KTAP_CHECK(!tbg_method_idempotent(TBG_METHOD_POST));
	KTAP_CHECK(!tbg_method_idempotent(TBG_METHOD_OTHER));
}

KTAP_MAIN()
