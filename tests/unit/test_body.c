// SPDX-License-Identifier: GPL-2.0
/*
 * The body decoder (userd/http/framing.c): what is content and what is framing, what is
 * refused, and that no division into pieces changes either.
 */
#include <stdlib.h>
#include <string.h>

#include "http/framing.h"
#include "ktap.h"

#define CHUNKED UINT64_MAX	/* in place of a length */
#define MORE	TBG_PARSED_MORE
#define DONE	TBG_PARSED_DONE
#define BAD	TBG_PARSED_BAD

static const struct {
	uint64_t length;
	const char *sent;
	enum tbg_parsed verdict;
	const char *content;
	int behind;		/* bytes after the body */
} table[] = {
	{ 0, "GET", DONE, "", 3 },
	{ 4, "abcd", DONE, "abcd", 0 },
	{ 4, "abcdGET", DONE, "abcd", 3 },
	{ 4, "abc", MORE, "abc", 0 },
	{ CHUNKED, "0\r\n\r\n", DONE, "", 0 },
	{ CHUNKED, "0\r\n\r\n0\r\n\r\n", DONE, "", 5 },
	{ CHUNKED, "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nX", DONE, "abcde", 1 },
	{ CHUNKED, "A\r\n0123456789\r\n0\r\n\r\n", DONE, "0123456789", 0 },
	{ CHUNKED, "a\r\n0\r\n\r\n56789\r\n0\r\n\r\n", DONE, "0\r\n\r\n56789", 0 },
	{ CHUNKED, "0003\r\nabc\r\n000\r\n\r\n", DONE, "abc", 0 },
	{ CHUNKED, "3\r\nabc\r\n0\r\nX: y\r\nA:\r\n\r\n", DONE, "abc", 0 },
	{ CHUNKED, "3\r\nabc\r\n0\r\nContent-Length: 9\r\n\r\n", DONE, "abc", 0 },
	{ CHUNKED, "3;a\r\nabc\r\n0;b=c\r\n\r\n", DONE, "abc", 0 },
	{ CHUNKED, "3 ; a = b ;c\t;d=\"\\\";\"\r\nabc\r\n0\r\n\r\n", DONE, "abc", 0 },
	{ CHUNKED, "3\r\nab", MORE, "ab", 0 },
	{ CHUNKED, "3\r\nabc\r\n0\r\n", MORE, "abc", 0 },
	{ CHUNKED, "3\r\nabc\r\n0\r\nX: y\r\n", MORE, "abc", 0 },
	/* sizes */
	{ CHUNKED, "\r\n", BAD, "", 0 },
	{ CHUNKED, "-1\r\n", BAD, "", 0 },
	{ CHUNKED, "+1\r\na\r\n", BAD, "", 0 },
	{ CHUNKED, "0x1\r\na\r\n", BAD, "", 0 },
	{ CHUNKED, " 1\r\na\r\n", BAD, "", 0 },
	{ CHUNKED, "1 \r\na\r\n", BAD, "", 0 },
	{ CHUNKED, "1 1\r\na\r\n", BAD, "", 0 },
	{ CHUNKED, "1_0\r\na\r\n", BAD, "", 0 },
	{ CHUNKED, "10000000000000000\r\n", BAD, "", 0 },
	{ CHUNKED, "1000000000000000\r\n", BAD, "", 0 },
	{ CHUNKED, "000000000000000000001\r\na\r\n00000000000000000\r\n\r\n", DONE, "a", 0 },
	{ CHUNKED, "000000100000000000000\r\n", MORE, "", 0 },
	{ CHUNKED, "0000001000000000000000\r\n", BAD, "", 0 },
	/* extensions */
	{ CHUNKED, "1;\r\na\r\n", BAD, "", 0 },
	{ CHUNKED, "1;=\r\na\r\n", BAD, "", 0 },
	{ CHUNKED, "1;a=\r\na\r\n", BAD, "", 0 },
	{ CHUNKED, "1;a \r\na\r\n", BAD, "", 0 },
	{ CHUNKED, "1;a\nX\r\na\r\n", BAD, "", 0 },
	{ CHUNKED, "1;a\rX\r\na\r\n", BAD, "", 0 },
	{ CHUNKED, "1;a=\"\r\n\"\r\na\r\n", BAD, "", 0 },
	{ CHUNKED, "1;a=\"b\"c\r\na\r\n", BAD, "", 0 },
	{ CHUNKED, "1,a\r\na\r\n", BAD, "", 0 },
	/* line ends */
	{ CHUNKED, "1\na\n0\n\n", BAD, "", 0 },
	{ CHUNKED, "1\r\na\n0\r\n\r\n", BAD, "a", 0 },
	{ CHUNKED, "1\r\nab\r\n", BAD, "a", 0 },
	{ CHUNKED, "1\r\na0\r\n\r\n", BAD, "a", 0 },
	{ CHUNKED, "1\ra\r\n", BAD, "", 0 },
	{ CHUNKED, "0\r\n\n", BAD, "", 0 },
	{ CHUNKED, "0\r\n\rX", BAD, "", 0 },
	/* trailers */
	{ CHUNKED, "0\r\n X: y\r\n\r\n", BAD, "", 0 },
	{ CHUNKED, "0\r\n: y\r\n\r\n", BAD, "", 0 },
	{ CHUNKED, "0\r\nX : y\r\n\r\n", BAD, "", 0 },
	{ CHUNKED, "0\r\nX\r\n\r\n", BAD, "", 0 },
	{ CHUNKED, "0\r\nX: y\r\n z\r\n\r\n", BAD, "", 0 },
	{ CHUNKED, "0\r\nX: y\n\r\n", BAD, "", 0 },
	{ CHUNKED, "0\r\nX: \x01\r\n\r\n", BAD, "", 0 },
};

#define TABLE_NR (sizeof(table) / sizeof(*table))

static struct tbg_body_decoder begin(uint64_t length)
{
	struct tbg_message m = { .chunked = length == CHUNKED,
				 .content_length = length == CHUNKED ? 0 : length };
	struct tbg_body_decoder body;

	tbg_body_decoder_begin_request(&body, &m);
	return body;
}

/* Decodes pieces of `piece` bytes, each in separate memory: ASan detects an overrun. */
static void row_check(size_t row, size_t piece)
{
	const char *sent = table[row].sent;
	size_t len = strlen(sent), at = 0, got = 0, used;
	struct tbg_body_decoder body = begin(table[row].length);
	enum tbg_parsed p = MORE;
	char content[64] = "";

	while (p == MORE && at < len) {
		size_t n = len - at < piece ? len - at : piece;
		uint8_t *b = malloc(n);
		struct tbg_body_decoder skipped = body;
		size_t data, skipped_used, skipped_data;
		const void *shared = body.trailer;

		memcpy(b, sent + at, n);
		if (tbg_body_decoder_skip(&skipped, b, n, &skipped_used, &skipped_data) !=
		    (p = tbg_body_decoder_eat(&body, b, n, &used, &data)) ||
		    skipped_used != used || skipped_data != data)
			ktap_fail("row %zu in pieces of %zu: skipped otherwise", row, piece);
		if (skipped.trailer != shared)
			tbg_body_decoder_end(&skipped);
		memcpy(content + got, b, data);
		got += data;
		at += used;
		free(b);
	}
	tbg_body_decoder_end(&body);
	if (p != table[row].verdict || strcmp(content, table[row].content) ||
	    (p != BAD && len - at != (size_t)table[row].behind))
		ktap_fail("row %zu in pieces of %zu: %d, content %s, %zu bytes behind",
			  row, piece, p, content, len - at);
}

KTAP_TEST(t_content_and_verdict_whatever_the_pieces)
{
	for (size_t i = 0; i < TABLE_NR; i++)
		for (size_t piece = 1; piece <= strlen(table[i].sent); piece++)
			row_check(i, piece);
}

KTAP_TEST(t_body_nobody_wants_is_passed_over)
{
	const char *sent = "3;x\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\nGET";
	struct tbg_body_decoder body = begin(CHUNKED);
	size_t used, data;

	KTAP_EQ(tbg_body_decoder_skip(&body, (const uint8_t *)sent, strlen(sent), &used, &data),
		DONE);
	KTAP_EQ(used, strlen(sent) - 3);
	KTAP_EQ(data, 5);
}

/* Extensions, trailers and zeros share one limit, however they are distributed. */
KTAP_TEST(t_framing_has_a_limit)
{
	struct tbg_body_decoder body = begin(CHUNKED);
	enum tbg_parsed p = MORE;
	size_t used, data, nr = 0;

	while (p == MORE && nr++ < TBG_FRAMING_MAX)
		p = tbg_body_decoder_skip(&body, (const uint8_t *)"1;aaaaaaa\r\nx\r\n", 14,
					  &used, &data);
	KTAP_EQ(p, BAD);
	KTAP_CHECK(nr > 500 && nr < 600);
	KTAP_CHECK(body.framing_len <= TBG_FRAMING_MAX + 1);
	body = begin(CHUNKED);
	for (p = MORE, nr = 0; p == MORE && nr < 2 * TBG_FRAMING_MAX; nr++)
		p = tbg_body_decoder_skip(&body, (const uint8_t *)"0", 1, &used, &data);
	KTAP_EQ(p, BAD);
}

KTAP_TEST(t_length_beyond_32_bits)
{
	struct tbg_body_decoder body = begin(5ull << 32);
	uint8_t *b = calloc(1, 1 << 20);
	enum tbg_parsed p = MORE;
	size_t used, data, content = 0;

	for (int i = 0; i < 5 << 12; i++) {
		KTAP_EQ(p, MORE);
		p = tbg_body_decoder_skip(&body, b, 1 << 20, &used, &data);
		content += data;
	}
	KTAP_EQ(p, DONE);
	KTAP_EQ(content, 5ull << 32);
	free(b);
}

KTAP_MAIN()
