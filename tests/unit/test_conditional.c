// SPDX-License-Identifier: GPL-2.0
/*
 * bpf/core/conditional.h and fresh.h: RFC 9110 13.2.2, and the cases that are passed
 * up.
 */
#include <stdlib.h>

#include "ktap.h"
#include "head.h"
#include "core/conditional.h"
#include "core/fresh.h"
#include "os/clock.h"

#define ETAG	"\"5f3-1a2b\""
#define DATE	"Sun, 06 Nov 1994 08:49:37 GMT"
#define PASS	(-TBG_WHY_CONDITION)

static struct tbg_head *head;
static uint8_t etag[40] = ETAG;
static const int64_t modified_s = 784111777;	/* DATE */

/* Returns the result for these two values; NULL: no such field. */
static int judge(const char *inm, const char *ims, size_t at)
{
	struct tbg_req req = { 0 };
	int ret = 0;

	if (!head)
		head = head_new();
	for (int rest = 0; rest < HEAD_REST_NR; rest++) {
		int got;

		head_fill(head, "", 0, rest);
		if (inm) {
			req.inm_off = at;
			req.inm_len = strlen(inm);
			memcpy(head->b + at, inm, req.inm_len);
			memcpy(head->b + at + req.inm_len, "\r\n", 2);
		}
		if (ims) {
			req.ims_off = at + 200;
			req.ims_len = strlen(ims);
			memcpy(head->b + req.ims_off, ims, req.ims_len);
			memcpy(head->b + req.ims_off + req.ims_len, "\r\n", 2);
		}
		got = tbg_condition(head, &req, etag, sizeof(ETAG) - 1, modified_s);
		if (rest && got != ret)
			ktap_fail("%s %s: what follows the value counts",
				  inm ?: "", ims ?: "");
		ret = got;
	}
	return ret;
}

static const struct {
	const char *inm, *ims;
	int want;
} table[] = {
	{ NULL, NULL, 200 },
	{ ETAG, NULL, 304 },
	{ "W/" ETAG, NULL, 304 },
	{ "\"5f3-1a2c\"", NULL, 200 },
	{ "W/\"5f3-1a2c\"", NULL, 200 },
	{ "\"5f3-1a2\"", NULL, 200 },
	{ "\"5f3-1a2bc\"", NULL, 200 },
	{ "\"\"", NULL, 200 },
	{ "W/\"\"", NULL, 200 },
	{ "\"0123456789012345678901234567890123456789012345678901234567890_\"", NULL, 200 },
	{ "\"0123456789012345678901234567890123456789012345678901234567890__\"", NULL, PASS },
	{ "\"012345678901234567890123456789012345678901234567890123456789012_\"", NULL, PASS },
	{ "*", NULL, 304 },
	{ "*, " ETAG, NULL, PASS },
	{ "**", NULL, PASS },
	{ "\"", NULL, PASS },
	{ "W", NULL, PASS },
	{ "W/", NULL, PASS },
	{ "W/\"", NULL, PASS },
	{ "w/" ETAG, NULL, PASS },
	{ "W " ETAG, NULL, PASS },
	{ "5f3-1a2b", NULL, PASS },
	{ "\"5f3-1a2b", NULL, PASS },
	{ "5f3-1a2b\"", NULL, PASS },
	{ ETAG ", \"b\"", NULL, 304 },
	{ ETAG "," ETAG, NULL, 304 },
	{ "\"a\", " ETAG, NULL, 304 },
	{ "\"a\",\"b\",W/" ETAG, NULL, 304 },
	{ "\"a\" ,, , " ETAG, NULL, 304 },
	{ "\"a\",         ,         " ETAG, NULL, 304 },
	{ ", \"a\"", NULL, 200 },
	{ "\"a\", \"b\", W/\"c\",", NULL, 200 },
	{ ",", NULL, 200 },
	{ ETAG " ", NULL, 304 },
	{ "\"a\"       ," ETAG, NULL, 304 },
	{ "\"a\"        ," ETAG, NULL, PASS },
	{ "\"a\" " ETAG, NULL, PASS },
	{ "\"a\"; " ETAG, NULL, PASS },
	{ "\"a\", x, " ETAG, NULL, PASS },
	{ "\"a\", \"b", NULL, PASS },
	/* a match counts, whatever follows it */
	{ ETAG ", x", NULL, 304 },
	{ ETAG " x", NULL, PASS },
	{ "\"5f3 1a2b\"", NULL, PASS },
	{ "\"5f3\"1a2b\"", NULL, PASS },
	/* If-None-Match alone decides, whatever the date */
	{ ETAG, "Mon, 07 Nov 1994 08:49:37 GMT", 304 },
	{ "\"x\"", DATE, 200 },
	{ "*", DATE, 304 },
	{ NULL, DATE, 304 },
	{ NULL, "Sun, 06 Nov 1994 08:49:36 GMT", 200 },
	{ NULL, "Sun, 06 Nov 1994 08:49:38 GMT", 304 },
	{ NULL, "Sat, 06 Nov 2094 08:49:37 GMT", 304 },
	{ NULL, "Thu, 01 Jan 1970 00:00:00 GMT", 200 },
	{ NULL, "Sat, 06 Nov 1994 08:49:37 GMT", PASS },
	{ NULL, "Sun, 06 Nov 1994 24:49:37 GMT", PASS },
	{ NULL, "Sun, 06 Nov 1994 08:60:37 GMT", PASS },
	{ NULL, "Sun, 06 Nov 1994 08:49:61 GMT", PASS },
	{ NULL, "Sun, 06 Nov 1994 08:49:3: GMT", PASS },
	{ NULL, "Sun, 06 nov 1994 08:49:37 GMT", PASS },
	{ NULL, "Sun  06 Nov 1994 08:49:37 GMT", PASS },
	{ NULL, "Sun, 06 Nov 1994 08:49:37 GMt", PASS },
	{ NULL, "Sun, 06 Nov 1994 08:49:37 GMT ", PASS },
	{ NULL, "Sun, 06 Nov 1994 08:49:37 GM", PASS },
	{ NULL, "Sunday, 06-Nov-94 08:49:37 GMT", PASS },
	{ NULL, "x", PASS },
};

KTAP_TEST(t_conditions)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		int got = judge(table[i].inm, table[i].ims, 100);

		if (got != table[i].want)
			ktap_fail("If-None-Match %s, If-Modified-Since %s: %d, not %d",
				  table[i].inm ?: "absent", table[i].ims ?: "absent",
				  got, table[i].want);
	}
}

KTAP_TEST(t_tags_of_every_length)
{
	char tag[44];

	for (size_t n = 2; n <= 40; n++) {
		memset(tag, 0, sizeof(tag));
		memset(tag, 'e', n);
		tag[0] = tag[n - 1] = '"';
		for (size_t i = 0; i < n; i++) {
			struct tbg_req req = { .inm_off = 9, .inm_len = n };
			int got, want = i && i < n - 1 ? 200 : PASS;

			head_fill(head, "", 0, HEAD_REST_TEXT);
			memcpy(head->b + 9, tag, n);
			memcpy(head->b + 9 + n, "\r\n", 2);
			got = tbg_condition(head, &req, (uint8_t *)tag, n, modified_s);
			KTAP_EQ(got, 304);
			head->b[9 + i] = 'f';
			got = tbg_condition(head, &req, (uint8_t *)tag, n, modified_s);
			KTAP_EQ(got, want);
		}
	}
}

KTAP_TEST(t_values_at_the_very_end)
{
	struct tbg_req req = { .inm_off = TBG_REQ_MAX - 4, .inm_len = 4 };

	head_fill(head, "", 0, HEAD_REST_TEXT);
	memcpy(head->b + TBG_REQ_MAX - 4, "\"ab\"", 4);
	KTAP_EQ(tbg_condition(head, &req, (uint8_t *)"\"ab\"\0\0\0\0\0\0\0\0\0\0\0\0"
			      "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 4,
			      modified_s), 304);
	req = (struct tbg_req){ .inm_off = 0xffff, .inm_len = 0xffff };
	KTAP_EQ(tbg_condition(head, &req, etag, 10, modified_s), PASS);
	req = (struct tbg_req){ .ims_off = 0xffff, .ims_len = 29 };
	KTAP_EQ(tbg_condition(head, &req, etag, 10, modified_s), PASS);
	req = (struct tbg_req){ .ims_off = TBG_REQ_MAX - 1, .ims_len = 29 };
	KTAP_EQ(tbg_condition(head, &req, etag, 10, modified_s), PASS);
}

/* A list of nr tags that do not match, then `last`. */
static int judge_many(unsigned int nr, const char *last)
{
	char list[1700] = "";

	while (nr--)
		strcat(list, "\"x\",");
	strcat(list, last);
	return judge(list, NULL, 100);
}

KTAP_TEST(t_lists_as_long_as_we_read)
{
	KTAP_EQ(judge_many(20, ETAG), 304);
	KTAP_EQ(judge_many(20, "\"y\""), 200);
	KTAP_EQ(judge_many(TBG_TAG_STEPS / 2 - 1, ETAG), 304);
	KTAP_EQ(judge_many(TBG_TAG_STEPS, ETAG), PASS);
}

/* The daemon's calendar: every day of 800 years, and texts that are not dates. */
KTAP_TEST(t_dates_as_the_daemon_reads_them)
{
	char text[30];

	for (int64_t day = -719162; day < 400 * 365 * 2; day += 13) {
		struct tbg_req req = { .ims_off = 50, .ims_len = TBG_DATE_LEN };
		int64_t want = day * 86400 + (day * 7919 % 86400 + 86400) % 86400;
		__s64 got = 0;

		tbg_date_format(want, text);
		head_fill(head, "", 0, HEAD_REST_TEXT);
		memcpy(head->b + req.ims_off, text, TBG_DATE_LEN);
		if (!tbg_date_load(head, req.ims_off, req.ims_len, &got) || got != want)
			ktap_fail("%s: %lld, not %lld", text, (long long)got, (long long)want);
	}
}

KTAP_TEST(t_fresh_until_and_not_at_its_expiry)
{
	KTAP_CHECK(tbg_fresh(100, 99));
	KTAP_CHECK(!tbg_fresh(100, 100));
	KTAP_CHECK(!tbg_fresh(100, 101));
	KTAP_CHECK(!tbg_fresh(0, 0));
	KTAP_CHECK(tbg_fresh(~0ull, ~0ull - 1));
}

KTAP_MAIN()
