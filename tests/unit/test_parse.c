// SPDX-License-Identifier: GPL-2.0
/*
 * The daemon's parser (userd/http/request.c): the requirements of RFC 9112 for servers,
 * patterns of request smuggling, and that no division into pieces changes a result.
 */
#include <stdlib.h>
#include <string.h>

#include "ktap.h"
#include "http/request.h"

#define GET	"GET / HTTP/1.1\r\n"
#define H	"Host: a\r\n"

static char path[TBG_TARGET_MAX + 1];

static enum tbg_parsed parse(const char *req, size_t len, struct tbg_message *m)
{
	uint8_t *b = malloc(len ? len : 1);	/* exact size: ASan detects an overrun */
	enum tbg_parsed p;

	memset(m, 0, sizeof(*m));
	memcpy(b, req, len);
	p = tbg_message_parse(m, b, len, 16384, path);
	free(b);
	return p;
}

static const struct {
	const char *req;
	unsigned int status;	/* 0: accepted */
	const char *path;
} table[] = {
	{ GET H "\r\n", 0, "/" },
	{ "\r\n\r\n" GET H "\r\n", 0, "/" },
	{ "GET / HTTP/1.1\nHost: a\n\n", 0, "/" },
	{ "GET / HTTP/1.0\r\n\r\n", 0, "/" },
	{ "GET http://h/x?y HTTP/1.1\r\n" H "\r\n", 0, "/x" },
	{ "OPTIONS * HTTP/1.1\r\n" H "\r\n", 0, NULL },
	{ "OPTIONS http://h HTTP/1.1\r\n" H "\r\n", 0, NULL },
	{ "OPTIONS http://h?x HTTP/1.1\r\n" H "\r\n", 0, "/" },
	{ "GET /%41/./b/../c//d HTTP/1.1\r\n" H "\r\n", 0, "/A/c/d" },
	{ GET "\r\n", 400, NULL },
	{ GET H H "\r\n", 400, NULL },
	{ GET "Host: a b\r\n\r\n", 400, NULL },
	{ GET H "X : a\r\n\r\n", 400, NULL },
	{ GET H "X: a\r\n b\r\n\r\n", 400, NULL },
	{ GET H "X: a\rb\r\n\r\n", 400, NULL },
	{ GET H "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400, NULL },
	{ GET H "Content-Length: +1\r\n\r\n", 400, NULL },
	{ GET H "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, NULL },
	{ GET H "Transfer-Encoding: chunked, chunked\r\n\r\n", 400, NULL },
	{ GET H "Transfer-Encoding: gzip\r\n\r\n", 501, NULL },
	{ "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, NULL },
	{ "GET /../etc HTTP/1.1\r\n" H "\r\n", 400, NULL },
	{ "GET /%2e%2e/etc HTTP/1.1\r\n" H "\r\n", 400, NULL },
	{ "GET /a%2fb HTTP/1.1\r\n" H "\r\n", 0, "/a/b" },
	{ "GET /a%2F%2E%2e%2f/b%2Fc HTTP/1.1\r\n" H "\r\n", 0, "/b/c" },
	{ "GET /..%2fetc HTTP/1.1\r\n" H "\r\n", 400, NULL },
	{ "GET /%2e%2e%2Fetc HTTP/1.1\r\n" H "\r\n", 400, NULL },
	{ "GET /a%252fb HTTP/1.1\r\n" H "\r\n", 0, "/a%2fb" },
	{ "GET /d\303\251j\303\240?q=\342\202\254 HTTP/1.1\r\n" H "\r\n", 0, "/d\303\251j\303\240" },
	{ "GET /\360\237\230\200 HTTP/1.1\r\n" H "\r\n", 0, "/\360\237\230\200" },
	{ "GET /\351 HTTP/1.1\r\n" H "\r\n", 400, NULL },		/* Latin-1 */
	{ "GET /\303 HTTP/1.1\r\n" H "\r\n", 400, NULL },		/* truncated */
	{ "GET /\300\257 HTTP/1.1\r\n" H "\r\n", 400, NULL },	/* an overlong slash */
	{ "GET /\340\200\257 HTTP/1.1\r\n" H "\r\n", 400, NULL },
	{ "GET /\355\240\200 HTTP/1.1\r\n" H "\r\n", 400, NULL },	/* a surrogate */
	{ "GET /\364\220\200\200 HTTP/1.1\r\n" H "\r\n", 400, NULL },
	{ "GET /\302\233 HTTP/1.1\r\n" H "\r\n", 400, NULL },	/* U+009B, a control */
	{ "GET http://h\303\251/ HTTP/1.1\r\n" H "\r\n", 400, NULL },
	{ "GET /a%00 HTTP/1.1\r\n" H "\r\n", 400, NULL },
	{ "GET /%4 HTTP/1.1\r\n" H "\r\n", 400, NULL },
	{ "GET / HTTP/2.0\r\n" H "\r\n", 505, NULL },
	{ "GET  / HTTP/1.1\r\n" H "\r\n", 400, NULL },
	{ "GET / HTTP/1.1 \r\n" H "\r\n", 400, NULL },
	{ "GET /\r\n\r\n", 400, NULL },
	{ "GET https://h/ HTTP/1.1\r\n" H "\r\n", 421, NULL },
	{ "GET ftp://h/ HTTP/1.1\r\n" H "\r\n", 400, NULL },
	{ "GET http:///x HTTP/1.1\r\n" H "\r\n", 400, NULL },
	{ "GET h:80 HTTP/1.1\r\n" H "\r\n", 400, NULL },
	{ "CONNECT h:80 HTTP/1.1\r\n" H "\r\n", 0, NULL },
	{ "CONNECT [::1]:80 HTTP/1.1\r\n" H "\r\n", 0, NULL },
	{ "CONNECT h HTTP/1.1\r\n" H "\r\n", 400, NULL },
	{ "CONNECT h: HTTP/1.1\r\n" H "\r\n", 400, NULL },
	{ "CONNECT [::1] HTTP/1.1\r\n" H "\r\n", 400, NULL },
	{ GET H "Transfer-Encoding: , chunked ,\r\n\r\n", 0, NULL },
	{ GET H "Transfer-Encoding: chunked;a=b\r\n\r\n", 400, NULL },
	{ GET H "Transfer-Encoding: chunked gzip\r\n\r\n", 400, NULL },
	{ GET H "Transfer-Encoding: gzip;a=b, chunked\r\n\r\n", 501, NULL },
	{ GET H "Transfer-Encoding: chunked, gzip\r\n\r\n", 400, NULL },
	{ GET H "Content-Length: 99999999999999999999999999\r\n\r\n", 0, NULL },
	{ GET H "Content-Length: 9 9\r\n\r\n", 400, NULL },
};

#define TABLE_NR (sizeof(table) / sizeof(*table))

KTAP_TEST(t_each_request_has_its_status)
{
	for (size_t i = 0; i < TABLE_NR; i++) {
		size_t len = strlen(table[i].req);
		struct tbg_message m;
		enum tbg_parsed p = parse(table[i].req, len, &m);

		if (p != (table[i].status ? TBG_PARSED_BAD : TBG_PARSED_DONE) ||
		    (table[i].status && m.status != table[i].status) ||
		    (!table[i].status && m.len != len) ||
		    (table[i].path && strcmp(path, table[i].path)))
			ktap_fail("row %zu: %d, status %u, path %s: %.60s", i, p,
				  m.status, path, table[i].req);
	}
}

/* Byte by byte, with the same result. */
KTAP_TEST(t_split_at_every_byte)
{
	for (size_t i = 0; i < TABLE_NR; i++) {
		size_t len = strlen(table[i].req), n = 0;
		enum tbg_parsed p = TBG_PARSED_MORE;
		struct tbg_message m = { 0 };

		while (p == TBG_PARSED_MORE && n < len) {
			uint8_t *b = malloc(++n);

			memcpy(b, table[i].req, n);
			p = tbg_message_parse(&m, b, n, 16384, path);
			free(b);
		}
		if (p != (table[i].status ? TBG_PARSED_BAD : TBG_PARSED_DONE) ||
		    (table[i].status && m.status != table[i].status))
			ktap_fail("row %zu: %d after %zu bytes, status %u", i, p,
				  n, m.status);
	}
}

/* Refused as soon as enough is received, long before the line ends. */
KTAP_TEST(t_line_without_end)
{
	struct tbg_message m;
	char line[9000];

	memset(line, 'A', sizeof(line));
	KTAP_EQ(parse(line, sizeof(line), &m), TBG_PARSED_BAD);
	KTAP_EQ(m.status, 501);
	memcpy(line, "GET /", 5);
	KTAP_EQ(parse(line, sizeof(line), &m), TBG_PARSED_BAD);
	KTAP_EQ(m.status, 414);
}

KTAP_TEST(t_lengths_saturate)
{
	static const char *const sent[] = {
		"18446744073709551615", "18446744073709551616",
		"18446744073709551620", "99999999999999999999999999",
	};
	struct tbg_message m;
	char req[200];

	for (size_t i = 0; i < 4; i++) {
		snprintf(req, sizeof(req), GET H "Content-Length: %s\r\n\r\n", sent[i]);
		KTAP_EQ(parse(req, strlen(req), &m), TBG_PARSED_DONE);
		KTAP_EQ(m.content_length, UINT64_MAX);
	}
	parse(GET H "Content-Length: 0000000000000000000000000042\r\n\r\n",
	      strlen(GET H "Content-Length: 0000000000000000000000000042\r\n\r\n"), &m);
	KTAP_EQ(m.content_length, 42);
}

KTAP_TEST(t_lines_of_fields_are_counted)
{
	static const char req[] = "\r\n" GET H "A: b\r\nA: b\nC:\r\n\r\nD: e\r\n";
	struct tbg_message m = { 0 };
	size_t len = 0;

	KTAP_EQ(parse(req, sizeof(req) - 1, &m), TBG_PARSED_DONE);
	KTAP_EQ(m.fields_nr, 4);
	memset(&m, 0, sizeof(m));
	while (tbg_message_parse(&m, (const uint8_t *)req, len, 16384, path) == TBG_PARSED_MORE)
		len++;
	KTAP_EQ(m.fields_nr, 4);
}

KTAP_TEST(t_lines_of_a_list_are_one_list)
{
	static const char req[] = GET "If-Match: \"a\"\r\nIf-Matches: no\r\n" H
		"if-match:\"b\"\nX: If-Match: no\r\nIF-MATCH:\r\n\r\n";
	char ret[32];
	size_t n = tbg_message_list((const uint8_t *)req, sizeof(req) - 1,
				    "If-Match", ret, sizeof(ret));

	ret[n] = 0;
	KTAP_CHECK(!strcmp(ret, " \"a\", \"b\", "));
	for (size_t size = 0; size < 16; size++) {
		char *exact = malloc(size ? size : 1);

		KTAP_CHECK(tbg_message_list((const uint8_t *)req, sizeof(req) - 1,
					    "If-Match", exact, size) <= size);
		free(exact);
	}
}

KTAP_MAIN()
