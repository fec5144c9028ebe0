// SPDX-License-Identifier: GPL-2.0
/*
 * Dates (userd/os/clock.c): the three formats of RFC 9110 5.6.7 literally, the calendar
 * compared with libc's, and the ring that the kernel tiers read.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "../lib/ktap.h"
#include "os/clock.h"

static const struct {
	const char *text;
	int64_t second;
} good[] = {
	{ "Sun, 06 Nov 1994 08:49:37 GMT", 784111777 },
	{ "Sunday, 06-Nov-94 08:49:37 GMT", 784111777 },
	{ "Sun Nov  6 08:49:37 1994", 784111777 },
	{ "Wed Nov 16 08:49:37 1994", 784975777 },
	{ "Thu, 01 Jan 1970 00:00:00 GMT", 0 },
	{ "Wed, 31 Dec 1969 23:59:59 GMT", -1 },
	{ "Tue, 29 Feb 2000 12:00:00 GMT", 951825600 },
	{ "Thu, 29 Feb 2024 23:59:59 GMT", 1709251199 },
	{ "Fri, 01 Mar 2024 00:00:00 GMT", 1709251200 },
	{ "Tue, 19 Jan 2038 03:14:08 GMT", 2147483648 },
	{ "Sun, 07 Feb 2106 06:28:16 GMT", 4294967296 },
	{ "Fri, 31 Dec 9999 23:59:59 GMT", 253402300799 },
	{ "Sat, 31 Dec 2016 23:59:60 GMT", 1483228800 },
	{ "Saturday, 01-Jan-00 00:00:00 GMT", 946684800 },
	{ "Mon Feb 29 00:00:00 2016", 1456704000 },
	{ "Mon, 06 Nov 1994 08:49:37 GMT", 784111777 },	/* was a Sunday */
	{ "Monday, 06-Nov-94 08:49:37 GMT", 784111777 },
	{ "Mon Nov  6 08:49:37 1994", 784111777 },
};

static const char *const bad[] = {
	"", "S", "Sun", "Sun,", "Sun, ", "GMT", "0", "784111777",
	"Sun, 06 Nov 1994 08:49:37 UTC",	/* zone */
	"Sun, 06 Nov 1994 08:49:37 gmt",	/* case */
	"sun, 06 Nov 1994 08:49:37 GMT",
	"Sun, 06 nov 1994 08:49:37 GMT",
	"SUN, 06 NOV 1994 08:49:37 GMT",
	"Xxx, 06 Nov 1994 08:49:37 GMT",
	"Sun, 6 Nov 1994 08:49:37 GMT",		/* number of digits */
	"Sun,  6 Nov 1994 08:49:37 GMT",
	"Sun, 06 Nov 94 08:49:37 GMT",
	"Sun, 06 Nov 1994 8:49:37 GMT",
	"Sun, 06 Nov 1994 08:49 GMT",
	"Sun, 06 Nov 1994 08:49:37",
	"Sun, 06 Nov 1994 08:49:37 GMT ",	/* surrounding text */
	"Sun, 06 Nov 1994 08:49:37 GMTx",
	" Sun, 06 Nov 1994 08:49:37 GMT",
	"Sun 06 Nov 1994 08:49:37 GMT",
	"Sun, 06  Nov 1994 08:49:37 GMT",
	"Sun, 00 Nov 1994 08:49:37 GMT",	/* no such day or time */
	"Thu, 31 Nov 1994 08:49:37 GMT",
	"Wed, 29 Feb 2023 00:00:00 GMT",
	"Thu, 29 Feb 1900 00:00:00 GMT",
	"Mon, 29 Feb 2100 00:00:00 GMT",
	"Sun, 06 Nov 1994 24:00:00 GMT",
	"Sun, 06 Nov 1994 08:60:00 GMT",
	"Sun, 06 Nov 1994 08:49:61 GMT",
	"Sun, +6 Nov 1994 08:49:37 GMT",
	"Sun, 06 Nov -994 08:49:37 GMT",
	"Sunday, 06-Nov-1994 08:49:37 GMT",	/* RFC 850 with four digits */
	"Sunday, 06 Nov 94 08:49:37 GMT",
	"Sun, 06-Nov-94 08:49:37 GMT",
	"Sunda, 06-Nov-94 08:49:37 GMT",
	"Sun Nov 6 08:49:37 1994",		/* asctime without its space */
	"Sun Nov 06 08:49:37 94",
	"Sun Nov  6 08:49:37 1994 GMT",
	"Sunday Nov  6 08:49:37 1994",
	"Sun, 06 Nov 1994 08:49:37 +0000",
};

KTAP_TEST(t_dates_in_three_formats)
{
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		int64_t second = 12345;

		if (tbg_date_parse(good[i].text, strlen(good[i].text),
				   &second) ||
		    second != good[i].second)
			ktap_fail("%s: %lld, not %lld", good[i].text,
				  (long long)second,
				  (long long)good[i].second);
	}
}

KTAP_TEST(t_bad_dates_are_refused)
{
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		size_t len = strlen(bad[i]);
		char *exact = malloc(len + !len);	/* no byte after it */
		int64_t second = 12345;
		int err;

		memcpy(exact, bad[i], len);
		err = tbg_date_parse(exact, len, &second);
		if (err != -EINVAL || second != 12345)
			ktap_fail("\"%s\": %d", bad[i], err);
		free(exact);
	}
}

KTAP_TEST(t_dates_cut_short_are_refused)
{
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		for (size_t len = 0; len < strlen(good[i].text); len++) {
			char *exact = malloc(len + !len);
			int64_t second;

			memcpy(exact, good[i].text, len);
			if (!tbg_date_parse(exact, len, &second))
				ktap_fail("%.*s", (int)len, exact);
			free(exact);
		}
}

/* Returns the year of t's date in RFC 850 format, minus 1900; -1: refused. */
static int year_of_850(time_t t)
{
	char text[64];
	int64_t second = 0;
	struct tm tm;

	gmtime_r(&t, &tm);
	strftime(text, sizeof(text), "%A, %d-%b-%y %H:%M:%S GMT", &tm);
	if (tbg_date_parse(text, strlen(text), &second))
		return -1;
	t = second;
	gmtime_r(&t, &tm);
	return tm.tm_year;
}

KTAP_TEST(t_two_digit_years_lie_at_most_50_years_ahead)
{
	time_t now = time(NULL);
	struct tm tm;

	for (int i = -49; i <= 49; i++) {
		gmtime_r(&now, &tm);
		tm.tm_year += i;
		tm.tm_mday = tm.tm_mon == 1 && tm.tm_mday == 29 ? 28 : tm.tm_mday;
		KTAP_EQ(year_of_850(timegm(&tm)), tm.tm_year);
	}
}

KTAP_TEST(t_two_digit_year_is_judged_by_the_whole_timestamp)
{
	time_t now = time(NULL);
	struct tm tm;

	gmtime_r(&now, &tm);
	if (tm.tm_mon == 1 && tm.tm_mday == 29)
		return;			/* this day does not exist 50 years later */
	/* an hour less and an hour more than 50 years from now */
	for (int i = -1; i <= 1; i += 2) {
		struct tm then = tm, want;
		time_t t;

		then.tm_year += 50;
		then.tm_hour += i;
		t = timegm(&then);
		gmtime_r(&t, &want);
		KTAP_EQ(year_of_850(t), want.tm_year - (i > 0 ? 100 : 0));
	}
}

KTAP_TEST(t_calendar_agrees_with_libc)
{
	/* 400 years, day by day, with a changing time of day */
	for (int64_t day = -80000; day < 80000; day++) {
		int64_t second = day * 86400 + (day & 0xffff) % 86400, back;
		time_t t = second;
		char ours[30], libc[64];
		struct tm tm;

		tbg_date_format(second, ours);
		gmtime_r(&t, &tm);
		strftime(libc, sizeof(libc), "%a, %d %b %Y %H:%M:%S GMT", &tm);
		KTAP_CHECK(!strcmp(ours, libc));
		KTAP_CHECK(!tbg_date_parse(ours, TBG_DATE_LEN, &back));
		KTAP_EQ(back, second);
	}
}

KTAP_TEST(t_far_dates_stay_29_bytes)
{
	static const int64_t far[] = {
		INT64_MIN, INT64_MAX, -62167219201, 253402300800,
	};
	char text[30];

	for (size_t i = 0; i < sizeof(far) / sizeof(*far); i++) {
		tbg_date_format(far[i], text);
		KTAP_EQ(strlen(text), TBG_DATE_LEN);
		KTAP_CHECK(!strcmp(text, i % 2 ?
				   "Fri, 31 Dec 9999 23:59:59 GMT" :
				   "Sat, 01 Jan 0000 00:00:00 GMT"));
	}
}

static unsigned int ring_wrong(const struct tbg_knob *knob, uint32_t from,
			       uint32_t nr)
{
	unsigned int wrong = 0;

	for (uint32_t s = from; s < from + nr; s++) {
		const struct tbg_date *d = &knob->date[s % TBG_DATE_RING];
		char text[30];

		tbg_date_format(s, text);
		wrong += d->second != s || memcmp(d->text, text, 30);
	}
	return wrong;
}

KTAP_TEST(t_ring_is_filled_ahead)
{
	static struct tbg_knob knob;
	struct tbg_clock *c;
	uint32_t now;
	int64_t real;
	struct timespec ts;

	KTAP_CHECK(!tbg_clock_open(&c, &knob, TBG_DATE_AHEAD * 1000));
	now = time(NULL);
	KTAP_EQ(ring_wrong(&knob, now, TBG_DATE_AHEAD - 1), 0);
	clock_gettime(CLOCK_REALTIME, &ts);
	real = ts.tv_sec * 1000000000ll + ts.tv_nsec;
	real -= (int64_t)(tbg_mono_ns() + knob.real_ns);
	KTAP_CHECK(real < 2000000 && real > -2000000);
	tbg_clock_close(c);
}

KTAP_TEST(t_ring_keeps_what_it_has)
{
	static struct tbg_knob knob, before;
	struct tbg_clock *c;
	uint32_t now;

	KTAP_CHECK(!tbg_clock_open(&c, &knob, TBG_DATE_AHEAD * 1000));
	/* past seconds, as after a longer run of the daemon */
	now = time(NULL);
	for (uint32_t s = now - 128; s < now - 2; s++) {
		struct tbg_date *d = &knob.date[s % TBG_DATE_RING];

		tbg_date_format(s, (char *)d->text);
		d->second = s;
	}
	before = knob;
	tbg_clock_tick(c, tbg_mono_ns());
	KTAP_EQ(ring_wrong(&knob, now - 128, 126), 0);
	KTAP_CHECK(before.real_ns == knob.real_ns);
	tbg_clock_close(c);
}

KTAP_TEST(t_step_of_the_clock_is_followed)
{
	static struct tbg_knob knob;
	struct tbg_clock *c;
	uint64_t right;

	KTAP_CHECK(!tbg_clock_open(&c, &knob, TBG_DATE_AHEAD * 1000));
	right = knob.real_ns;
	/* as if the clock had been wrong by an hour in either direction */
	for (int i = -1; i <= 1; i += 2) {
		knob.real_ns = right + i * 3600000000000ll;
		for (uint32_t s = 0; s < TBG_DATE_RING; s++) {
			tbg_date_format(time(NULL) + i * 3600 + s,
					(char *)knob.date[s].text);
			knob.date[s].second = time(NULL) + i * 3600 + s;
		}
		tbg_clock_tick(c, tbg_mono_ns());
		KTAP_CHECK(llabs((int64_t)(knob.real_ns - right)) < 2000000);
		KTAP_EQ(ring_wrong(&knob, time(NULL), TBG_DATE_AHEAD - 1), 0);
	}
	tbg_clock_close(c);
}

KTAP_TEST(t_date_of_now)
{
	int64_t before = time(NULL) - 1, second;
	static struct tbg_knob knob;
	struct tbg_clock *c;

	KTAP_CHECK(!tbg_clock_open(&c, &knob, TBG_DATE_AHEAD * 1000));
	for (int i = 0; i < 2; i++) {
		const char *text = tbg_clock_date(c);

		KTAP_CHECK(!tbg_date_parse(text, TBG_DATE_LEN, &second));
		KTAP_CHECK(second >= before && second <= time(NULL));
		/* again, as if the control thread had been delayed */
		memset(knob.date, 0, sizeof(knob.date));
	}
	tbg_clock_close(c);
	KTAP_CHECK(!tbg_clock_open(&c, NULL, TBG_DATE_AHEAD * 1000));
	KTAP_CHECK(!tbg_date_parse(tbg_clock_date(c), TBG_DATE_LEN, &second));
	tbg_clock_close(c);
}

KTAP_MAIN()
