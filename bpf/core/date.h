/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The seconds of an IMF-fixdate (RFC 9110 5.6.7), for conditions that compare
 * dates. A strict subset of tbg_date_parse() (userd/os/clock.c), with the same
 * result. The two obsolete formats, and dates with the wrong name of the day,
 * are for the daemon alone.
 */
#ifndef TBG_CORE_DATE_H
#define TBG_CORE_DATE_H

#include "span.h"

#define TBG_THREE(a, b, c) TBG_CHARS(a, b, c, 0, 0, 0, 0, 0)

/* The month 1 to 12 of three letters; 0: not a month. */
__tbg_inline __u32 tbg_date_month(__u64 name)
{
	switch (name) {
	case TBG_THREE('J', 'a', 'n'): return 1;
	case TBG_THREE('F', 'e', 'b'): return 2;
	case TBG_THREE('M', 'a', 'r'): return 3;
	case TBG_THREE('A', 'p', 'r'): return 4;
	case TBG_THREE('M', 'a', 'y'): return 5;
	case TBG_THREE('J', 'u', 'n'): return 6;
	case TBG_THREE('J', 'u', 'l'): return 7;
	case TBG_THREE('A', 'u', 'g'): return 8;
	case TBG_THREE('S', 'e', 'p'): return 9;
	case TBG_THREE('O', 'c', 't'): return 10;
	case TBG_THREE('N', 'o', 'v'): return 11;
	case TBG_THREE('D', 'e', 'c'): return 12;
	}
	return 0;
}

/* The day of the week, Sunday 0 to 6; 7: not a day. */
__tbg_inline __u32 tbg_date_weekday(__u64 name)
{
	switch (name) {
	case TBG_THREE('S', 'u', 'n'): return 0;
	case TBG_THREE('M', 'o', 'n'): return 1;
	case TBG_THREE('T', 'u', 'e'): return 2;
	case TBG_THREE('W', 'e', 'd'): return 3;
	case TBG_THREE('T', 'h', 'u'): return 4;
	case TBG_THREE('F', 'r', 'i'): return 5;
	case TBG_THREE('S', 'a', 't'): return 6;
	}
	return 7;
}

/* Value of the two digits at byte i of w. */
__tbg_inline __u32 tbg_date_two(__u64 w, __u32 i)
{
	return (w >> i * 8 & 15) * 10 + (w >> (i * 8 + 8) & 15);
}

/* Whether all bytes of w that are 0xff in mask are digits. */
__tbg_inline int tbg_date_digits(__u64 w, __u64 mask)
{
	__u64 x = (w ^ 0x30 * TBG_ONES) & mask;

	return !((x | (x + 0x76 * TBG_ONES)) & TBG_MARKS);
}

/* Days from 0000-03-01 to a day of the years 1 to 9999. */
__tbg_inline __u32 tbg_date_days(__u32 year, __u32 month, __u32 day)
{
	__u32 from_march = month > 2 ? month - 3 : month + 9;

	year -= month <= 2;
	return year * 365 + year / 4 - year / 100 + year / 400 +
	       (153 * from_march + 2) / 5 + day - 1;
}

__tbg_inline __u32 tbg_date_month_days(__u32 year, __u32 month)
{
	if (month == 2)
		return 28 + ((!(year & 3) && year % 100) || !(year % 400));
	return 30 + ((month + (month >> 3)) & 1);
}

/*
 * Parses the date in the len bytes at off into *ret_s, seconds since 1970.
 * Returns 1, or 0 for another format or a day that does not exist.
 */
__tbg_inline int tbg_date_load(const struct tbg_head *h, __u64 off, __u32 len,
			       __s64 *ret_s)
{
	__u64 w0, w1, w2, w3, month;
	__u32 year, day, days, seconds;

	tbg_keep(off);
	if (len != TBG_DATE_LEN || off >= TBG_REQ_MAX)
		return 0;
	w0 = tbg_word(h->b + off);	/* "Sun, 06 " */
	w1 = tbg_word(h->b + off + 8);	/* "Nov 1994" */
	w2 = tbg_word(h->b + off + 16);	/* " 08:49:3" */
	w3 = tbg_word(h->b + off + 24);	/* "7 GMT" */
	if ((w0 & 0xff0000ffff000000) != TBG_CHARS(0, 0, 0, ',', ' ', 0, 0, ' ') ||
	    (w1 & 0x00000000ff000000) != TBG_CHARS(0, 0, 0, ' ', 0, 0, 0, 0) ||
	    (w2 & 0x00ff0000ff0000ff) != TBG_CHARS(' ', 0, 0, ':', 0, 0, ':', 0) ||
	    (w3 & 0x000000ffffffff00) != TBG_CHARS(0, ' ', 'G', 'M', 'T', 0, 0, 0) ||
	    !tbg_date_digits(w0, 0x00ffff0000000000) ||
	    !tbg_date_digits(w1, 0xffffffff00000000) ||
	    !tbg_date_digits(w2, 0xff00ffff00ffff00) ||
	    !tbg_date_digits(w3, 0xff))
		return 0;
	month = tbg_opaque(tbg_date_month(w1 & 0xffffff), w1);
	year = tbg_date_two(w1, 4) * 100 + tbg_date_two(w1, 6);
	day = tbg_date_two(w0, 5);
	if (!month || month > 12 || !year || !day ||
	    day > tbg_date_month_days(year, month))
		return 0;
	days = tbg_date_days(year, month, day);
	/* 0000-03-01 was a Wednesday */
	if (tbg_opaque(tbg_date_weekday(w0 & 0xffffff), w0) != (days + 3) % 7)
		return 0;
	seconds = (w2 >> 56 & 15) * 10 + (w3 & 15);
	if (tbg_date_two(w2, 1) > 23 || tbg_date_two(w2, 4) > 59 || seconds > 60)
		return 0;
	*ret_s = ((__s64)days - 719468) * 86400 + tbg_date_two(w2, 1) * 3600 +
		 tbg_date_two(w2, 4) * 60 + seconds;
	return 1;
}

#endif
