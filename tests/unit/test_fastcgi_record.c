// SPDX-License-Identifier: GPL-2.0
/*
 * FastCGI records (userd/fastcgi/record.c): encoded records are decoded again, in any
 * pieces; padding is skipped; invalid records are refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ktap.h"
#include "fastcgi/record.h"

/*
 * Returns the records of b as text, read step bytes at a time from copies of exact
 * size: parts of one stream are joined, "STDOUT.1 abc|"; "!" marks an error.
 */
static char *read_all(const void *b, size_t len, size_t step)
{
	static char text[1 << 18];
	struct tbg_fcgi_record_reader rd = { 0 };
	enum tbg_parsed p = TBG_PARSED_MORE;
	int joins = 0;
	char *at = text;

	*at = 0;
	for (size_t from = 0; from < len && p != TBG_PARSED_BAD; from += step) {
		size_t n = len - from < step ? len - from : step, off = 0, used;
		uint8_t *copy = malloc(n);
		struct tbg_fcgi_record r;

		memcpy(copy, (const char *)b + from, n);
		while (off < n) {
			p = tbg_fcgi_record_next(&rd, copy + off, n - off, &used, &r);
			off += used;
			if (p != TBG_PARSED_DONE)
				break;
			if (!joins)
				at += sprintf(at, "%u.%u ", r.type, r.id);
			at += sprintf(at, "%.*s", (int)r.len, (char *)r.data ?: "");
			if (r.type == TBG_FCGI_RECORD_BEGIN)
				at += sprintf(at, "%u %u", r.role, r.flags);
			if (r.type == TBG_FCGI_RECORD_END)
				at += sprintf(at, "%u %u", r.app_status, r.status);
			if (r.type == TBG_FCGI_RECORD_UNKNOWN)
				at += sprintf(at, "%u", r.unknown);
			joins = r.left;
			if (!joins)
				at += sprintf(at, "|");
		}
		free(copy);
	}
	if (p == TBG_PARSED_BAD)
		at += sprintf(at, "!");
	else if (!tbg_fcgi_record_between(&rd))
		at += sprintf(at, "...");
	return text;
}

static bool reads(const void *b, size_t len, const char *want)
{
	for (size_t step = 1; step <= len; step = step < 20 ? step + 1 : 2 * step)
		if (strcmp(read_all(b, len, step), want)) {
			ktap_note("step %zu: %s", step, read_all(b, len, step));
			return false;
		}
	return !strcmp(read_all(b, len, len), want);
}

KTAP_TEST(t_numbers_are_the_specification_s)
{
	KTAP_EQ(TBG_FCGI_RECORD_BEGIN, 1);
	KTAP_EQ(TBG_FCGI_RECORD_STDERR, 7);
	KTAP_EQ(TBG_FCGI_RECORD_UNKNOWN, 11);
}

KTAP_TEST(t_fixed_records_there_and_back)
{
	uint8_t b[16];

	tbg_fcgi_record_begin(b, 258, TBG_ROLE_RESPONDER, TBG_FCGI_RECORD_KEEP_CONN);
	KTAP_CHECK(!memcmp(b, "\1\1\1\2\0\10\0\0\0\1\1\0\0\0\0\0", 16));
	KTAP_CHECK(reads(b, 16, "1.258 1 1|"));
	tbg_fcgi_record_end(b, 1, 0x80000001, TBG_FCGI_RECORD_OVERLOADED);
	KTAP_CHECK(!memcmp(b, "\1\3\0\1\0\10\0\0\200\0\0\1\2\0\0\0", 16));
	KTAP_CHECK(reads(b, 16, "3.1 2147483649 2|"));
	tbg_fcgi_record_unknown(b, 77);
	KTAP_CHECK(reads(b, 16, "11.0 77|"));
	tbg_fcgi_record_header(b, TBG_FCGI_RECORD_ABORT, 65535, 0, 0);
	KTAP_CHECK(reads(b, 8, "2.65535 |"));
}

KTAP_TEST(t_padding_is_passed_over)
{
	KTAP_CHECK(reads("\1\6\0\1\0\3\5\0abcxxxxx\1\6\0\1\0\0\0\0", 24, "6.1 abc|6.1 |"));
	KTAP_CHECK(reads("\1\6\0\1\0\0\2\0xx\1\7\0\1\0\1\0\0e", 19, "6.1 |7.1 e|"));
	KTAP_CHECK(reads("\1\3\0\1\0\10\1\0\0\0\0\0\0\0\0\0x", 17, "3.1 0 0|"));
	/* an END without its padding is incomplete */
	KTAP_CHECK(reads("\1\3\0\1\0\10\1\0\0\0\0\0\0\0\0\0", 16, "..."));
	KTAP_CHECK(reads("\1\6\0\1\0\1\1\0a", 9, "6.1 a|..."));
}

KTAP_TEST(t_unknown_types_are_the_caller_s)
{
	KTAP_CHECK(reads("\1\143\0\0\0\2\0\0ab\1\11\0\0\0\0\0\0", 18, "99.0 ab|9.0 |"));
}

KTAP_TEST(t_what_is_no_record_is_refused)
{
	KTAP_CHECK(reads("\0\6\0\1\0\0\0\0", 8, "!"));
	KTAP_CHECK(reads("\2\6\0\1\0\0\0\0", 8, "!"));
	KTAP_CHECK(reads("HTTP/1.1", 8, "!"));
	KTAP_CHECK(reads("\1\3\0\1\0\7\0\0", 8, "!"));
	KTAP_CHECK(reads("\1\1\0\1\0\11\0\0", 8, "!"));
	KTAP_CHECK(reads("\1\13\0\0\0\0\0\0", 8, "!"));
}

KTAP_TEST(t_long_content_takes_several_records)
{
	size_t len = 2 * TBG_FCGI_RECORD_MAX + 10;
	char *data = malloc(len), *want = malloc(len + 64);
	struct tbg_lines l = { 0 };
	size_t n;

	memset(data, 'd', len);
	tbg_fcgi_record_put(&l, TBG_FCGI_RECORD_STDIN, 1, data, len);
	n = sprintf(want, "5.1 %.*s|", TBG_FCGI_RECORD_MAX, data);
	n += sprintf(want + n, "5.1 %.*s|5.1 dddddddddd|", TBG_FCGI_RECORD_MAX, data);
	KTAP_CHECK(!l.failed && l.len == len + 3 * TBG_FCGI_RECORD_HEADER);
	KTAP_CHECK(!strcmp(read_all(l.text, l.len, l.len), want));
	KTAP_CHECK(!strcmp(read_all(l.text, l.len, 4093), want));
	l.len = 0;
	tbg_fcgi_record_put(&l, TBG_FCGI_RECORD_STDIN, 1, data, 0);
	KTAP_EQ(l.len, 0);
	tbg_lines_free(&l);
	free(data);
	free(want);
}

KTAP_TEST(t_pairs_there_and_back)
{
	static char big[70000], text[128];
	static const size_t lens[] = { 0, 1, 127, 128, 255, 256, 65535, 70000 };
	struct tbg_slice name, value;
	struct tbg_lines l = { 0 };
	size_t at = 0;

	memset(big, 'b', sizeof(big));
	for (size_t i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		snprintf(text, sizeof(text), "NAME_%zu", i);
		tbg_pair_put(&l, (struct tbg_slice){ text, strlen(text) },
			     (struct tbg_slice){ big, lens[i] });
		tbg_pair_put(&l, (struct tbg_slice){ big, lens[i] }, TBG_SLICE("v"));
	}
	KTAP_CHECK(!l.failed && !memcmp(l.text, "\6\0NAME_0\0\1v", 11));
	for (size_t i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		snprintf(text, sizeof(text), "NAME_%zu", i);
		KTAP_EQ(tbg_pair_next((uint8_t *)l.text, l.len, &at, &name, &value),
			TBG_PARSED_DONE);
		KTAP_CHECK(tbg_slice_is(name, text) && value.len == lens[i]);
		KTAP_EQ(tbg_pair_next((uint8_t *)l.text, l.len, &at, &name, &value),
			TBG_PARSED_DONE);
		KTAP_CHECK(name.len == lens[i] && tbg_slice_is(value, "v"));
	}
	KTAP_EQ(tbg_pair_next((uint8_t *)l.text, l.len, &at, &name, &value),
		TBG_PARSED_MORE);
	tbg_lines_free(&l);
}

KTAP_TEST(t_pairs_that_go_beyond_their_end_are_refused)
{
	static const char pair[] = "\3\200\0\0\2abcxy";
	struct tbg_slice name, value;

	for (size_t n = 1; n < sizeof(pair); n++) {
		uint8_t *b = malloc(n);		/* exact size: ASan detects an overrun */
		size_t at = 0;

		memcpy(b, pair, n);
		KTAP_EQ(tbg_pair_next(b, n, &at, &name, &value),
			n == sizeof(pair) - 1 ? TBG_PARSED_DONE : TBG_PARSED_BAD);
		free(b);
	}
	for (int first = 0; first < 2; first++) {
		uint8_t huge[] = "\377\377\377\377\377\377\377\377abc";
		size_t at = 0;

		huge[0] = first ? 0xff : 0;
		KTAP_EQ(tbg_pair_next(huge + !first * 3, sizeof(huge) - 1 - !first * 3,
				      &at, &name, &value), TBG_PARSED_BAD);
	}
}

KTAP_MAIN()
