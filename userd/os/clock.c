// SPDX-License-Identifier: GPL-2.0
/*
 * The ring of Date texts and the calendar of HTTP dates. The control thread writes the
 * ring; workers and BPF programs read it. A text depends only on its second, so an
 * entry is either correct or belongs to another second. A retransmitted reply finds the
 * same text for at least TBG_DATE_RING - TBG_DATE_AHEAD seconds, unless the clock was
 * set.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "os/clock.h"

#define DRIFT_NS 1000000	/* change of real_ns that is published */

struct tbg_clock {
	struct tbg_knob *knob;
	bool ours;
	uint32_t ahead;		/* seconds filled in advance */
};

static const char days[7][10] = {
	"Sunday", "Monday", "Tuesday", "Wednesday",
	"Thursday", "Friday", "Saturday",
};

static const char months[12][4] = {
	"Jan", "Feb", "Mar", "Apr", "May", "Jun",
	"Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
};

static uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return ts.tv_sec * TBG_NS_PER_S + ts.tv_nsec;
}

uint64_t tbg_mono_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* Returns the days since 1970-01-01 of a date in the proleptic Gregorian calendar. */
static int64_t days_of(int64_t year, int month, int day)
{
	int64_t y = month <= 2 ? year - 1 : year;
	int64_t era = (y >= 0 ? y : y - 399) / 400;
	int64_t of_era = y - era * 400;
	int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 +
			  day - 1;

	return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 +
	       of_year - 719468;
}

static void put2(char *at, int v)
{
	at[0] = '0' + v / 10;
	at[1] = '0' + v % 10;
}

/* For years 0 to 9999; other times are changed to the nearest one in that range. */
void tbg_date_format(int64_t second, char ret[30])
{
	const int64_t first = -62167219200, last = 253402300799;
	int64_t day, era, of_era, y, of_year;
	int s, m, month, mday;

	if (second < first)
		second = first;
	if (second > last)
		second = last;
	s = (second % 86400 + 86400) % 86400;
	day = (second - s) / 86400 + 719468;	/* since 0000-03-01 */
	era = (day >= 0 ? day : day - 146096) / 146097;
	of_era = day - era * 146097;
	y = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	of_year = of_era - (365 * y + y / 4 - y / 100);
	m = (5 * of_year + 2) / 153;		/* from March */
	mday = of_year - (153 * m + 2) / 5 + 1;
	month = m < 10 ? m + 2 : m - 10;	/* 0: January */
	y += era * 400 + (month < 2);

	memcpy(ret, "Ddd, 00 Mmm 0000 00:00:00 GMT", 30);
	memcpy(ret, days[((day + 3) % 7 + 7) % 7], 3);
	put2(ret + 5, mday);
	memcpy(ret + 8, months[month], 3);
	put2(ret + 12, y / 100);
	put2(ret + 14, y % 100);
	put2(ret + 17, s / 3600);
	put2(ret + 20, s / 60 % 60);
	put2(ret + 23, s % 60);
}

/* The rest of a text that is being parsed. ok becomes false at the first error. */
struct scan {
	const char *at, *end;
	bool ok;
};

static void scan_text(struct scan *s, const char *text)
{
	for (; *text && s->ok; text++)
		s->ok = s->at < s->end && *s->at++ == *text;
}

static int scan_digits(struct scan *s, int nr)
{
	int v = 0;

	s->ok = s->ok && s->end - s->at >= nr;
	for (int i = 0; s->ok && i < nr; i++, s->at++) {
		s->ok = *s->at >= '0' && *s->at <= '9';
		v = v * 10 + (*s->at - '0');
	}
	return v;
}

/* The day of asctime: two digits, or a space and one digit. */
static int scan_day(struct scan *s)
{
	if (s->ok && s->end > s->at && *s->at == ' ') {
		s->at++;
		return scan_digits(s, 1);
	}
	return scan_digits(s, 2);
}

static int scan_month(struct scan *s)
{
	if (!s->ok || s->end - s->at < 3) {
		s->ok = false;
		return 0;
	}
	for (int m = 0; m < 12; m++)
		if (!memcmp(s->at, months[m], 3)) {
			s->at += 3;
			return m + 1;
		}
	s->ok = false;
	return 0;
}

/* Accepts the name of a day, complete or its first three letters. */
static void scan_weekday(struct scan *s, bool *ret_whole)
{
	size_t left = s->end - s->at, len;
	int d = 0;

	while (d < 7 && (left <= 3 || memcmp(s->at, days[d], 3)))
		d++;
	s->ok = d < 7;
	*ret_whole = false;
	if (!s->ok)
		return;
	len = strlen(days[d]);
	*ret_whole = left > len && !memcmp(s->at, days[d], len);
	s->at += *ret_whole ? len : 3;
}

/* For comparisons only: assumes 31 days in every month. */
static int seconds_into(int month, int day, int h, int m, int sec)
{
	return ((month * 31 + day) * 24 + h) * 3600 + m * 60 + sec;
}

/*
 * Completes a two-digit year: a timestamp more than 50 years ahead, even by a second,
 * belongs to the past century (RFC 9110 5.6.7). into_s: seconds_into() of the
 * timestamp.
 */
static int year_of_two_digits(int yy, int into_s)
{
	struct timespec ts;
	struct tm tm;
	int year, now_s;

	clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	now_s = seconds_into(tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
	tm.tm_year += 1900;
	year = tm.tm_year / 100 * 100 + yy;
	return year - 50 > tm.tm_year || (year - 50 == tm.tm_year && into_s > now_s) ?
	       year - 100 : year;
}

static int month_days(int year, int month)
{
	static const uint8_t nr[12] = {
		31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31
	};
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

	return nr[month - 1] + (month == 2 && leap);
}

/*
 * Accepts IMF-fixdate, RFC 850 and asctime formats exactly, including case and spaces.
 * A date that does not exist is -EINVAL, so that its condition is ignored. A wrong day
 * of the week is accepted, as other servers do (RFC 9110 5.6.7: be robust): otherwise
 * an If-Unmodified-Since would be ignored.
 */
int tbg_date_parse(const char *text, size_t len, int64_t *ret_second)
{
	struct scan s = { text, text + len, true };
	int day, month, year = 0, h, m, sec;
	bool whole, asctime = false;

	scan_weekday(&s, &whole);
	if (whole) {
		scan_text(&s, ", ");
		day = scan_digits(&s, 2);
		scan_text(&s, "-");
		month = scan_month(&s);
		scan_text(&s, "-");
		year = scan_digits(&s, 2);
	} else if (s.ok && *s.at == ',') {
		scan_text(&s, ", ");
		day = scan_digits(&s, 2);
		scan_text(&s, " ");
		month = scan_month(&s);
		scan_text(&s, " ");
		year = scan_digits(&s, 4);
	} else {
		asctime = true;
		scan_text(&s, " ");
		month = scan_month(&s);
		scan_text(&s, " ");
		day = scan_day(&s);
	}
	scan_text(&s, " ");
	h = scan_digits(&s, 2);
	scan_text(&s, ":");
	m = scan_digits(&s, 2);
	scan_text(&s, ":");
	sec = scan_digits(&s, 2);
	scan_text(&s, " ");
	if (asctime)
		year = scan_digits(&s, 4);
	else
		scan_text(&s, "GMT");
	if (whole)
		year = year_of_two_digits(year, seconds_into(month, day, h, m, sec));

	if (!s.ok || s.at != s.end || day < 1 || h > 23 || m > 59 ||
	    sec > 60 || day > month_days(year, month))
		return -EINVAL;
	*ret_second = days_of(year, month, day) * 86400 + h * 3600 + m * 60 + sec;
	return 0;
}

static void ring_fill(struct tbg_knob *knob, uint32_t second)
{
	struct tbg_date *d = &knob->date[second % TBG_DATE_RING];
	char text[sizeof(d->text)] = { 0 };

	if (d->second == second)
		return;
	tbg_date_format(second, text);
	/* Invalidate the entry (readers check the second), write it, validate it. */
	__atomic_store_n(&d->second, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	memcpy(d->text, text, sizeof(text));
	__atomic_store_n(&d->second, second, __ATOMIC_RELEASE);
}

void tbg_clock_tick(struct tbg_clock *c, uint64_t now_ns)
{
	struct tbg_knob *knob = c->knob;
	uint64_t real = clock_ns(CLOCK_REALTIME);
	uint64_t offset = real - clock_ns(CLOCK_MONOTONIC);
	int64_t drift = (int64_t)(offset - knob->real_ns);
	uint32_t second = real / TBG_NS_PER_S;

	/* One second back: the coarse clock may be one tick late. */
	for (uint32_t i = 0; i < c->ahead + 2; i++)
		ring_fill(knob, second - 1 + i);
	if (drift > DRIFT_NS || drift < -DRIFT_NS)
		__atomic_store_n(&knob->real_ns, offset, __ATOMIC_RELEASE);
}

const char *tbg_clock_date(const struct tbg_clock *c)
{
	static _Thread_local char own[2][30];
	static _Thread_local unsigned int turn;
	const struct tbg_date *d;
	struct timespec ts;
	char *text;

	clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	d = &c->knob->date[(uint32_t)ts.tv_sec % TBG_DATE_RING];
	if (__atomic_load_n(&d->second, __ATOMIC_ACQUIRE) ==
	    (uint32_t)ts.tv_sec)
		return (const char *)d->text;

	/* The clock was set, or the control thread was delayed. */
	text = own[turn++ % 2];
	tbg_date_format(ts.tv_sec, text);
	return text;
}

int tbg_clock_open(struct tbg_clock **ret, struct tbg_knob *knob, unsigned int ahead_ms)
{
	struct tbg_clock *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->ours = !knob;
	c->ahead = ahead_ms < TBG_DATE_AHEAD * 1000 ? ahead_ms / 1000 : TBG_DATE_AHEAD;
	c->knob = knob ? knob : calloc(1, sizeof(*knob));
	if (!c->knob) {
		free(c);
		return -ENOMEM;
	}
	tbg_clock_tick(c, tbg_mono_ns());
	*ret = c;
	return 0;
}

void tbg_clock_close(struct tbg_clock *c)
{
	if (!c)
		return;
	if (c->ours)
		free(c->knob);
	free(c);
}
