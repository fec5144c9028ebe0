// SPDX-License-Identifier: GPL-2.0
/*
 * The fast grammar (bpf/core/request.h): which requests it accepts and the exact reason
 * for passing up the others, for every length and with every byte changed.
 */
#include <stdio.h>
#include <stdlib.h>

#include "ktap.h"
#include "head.h"
#include "oracle.h"

#define H	"Host: a\r\n"
#define END	"\r\n"
#define GET	"GET / HTTP/1.1\r\n"
#define P64	"/bbbbbbbccccccccddddddddeeeeeeeeffffffffgggggggghhhhhhhhiiiiiiii"

static const char *const why_names[] = {
#define X(name, text) #name,
	TBG_WHY_LIST(X)
#undef X
};

static struct tbg_head *head;
static struct tbg_scan scan;

/* Returns the why, which must not depend on bytes after the request. */
static int parse(const void *req, size_t len, struct tbg_req *ret)
{
	int why = -1;

	if (!head)
		head = head_new();
	for (int rest = 0; rest < HEAD_REST_NR; rest++) {
		struct tbg_req got;
		int w;

		memset(&got, 0, sizeof(got));
		head_fill(head, req, len, rest);
		w = tbg_request_parse(head, &scan, len, &got);
		if (rest && (w != why || (!w && memcmp(&got, ret, sizeof(got)))))
			ktap_fail("what follows %zu bytes counts: %s, %s",
				  len, why_names[why], why_names[w]);
		why = w;
		*ret = got;
	}
	return why;
}

static const struct {
	const char *req;
	int why;		/* 0: accepted */
} table[] = {
	{ GET H END, 0 },
	{ "HEAD / HTTP/1.1\r\n" H END, 0 },
	{ "HEAD /a/b.c?d=e HTTP/1.1\r\n" H END, 0 },
	{ "GET /? HTTP/1.1\r\n" H END, 0 },
	{ "GET /?a=%20&b=//./../? HTTP/1.1\r\n" H END, 0 },
	{ "GET /~a!b$c&d'e(f)g*h+i,j;k=l:m@n/o-p_q/ HTTP/1.1\r\n" H END, 0 },
	{ "GET /a.b/c..d/e. HTTP/1.1\r\n" H END, 0 },
	{ GET "host:a\r\n\r\n", 0 },
	{ GET "HOST:       a\r\n\r\n", 0 },
	{ GET "Host: www.example-1_2.com:8080\r\n\r\n", 0 },
	{ GET "Host: 127.0.0.1:1\r\n\r\n", 0 },
	{ GET "Host: [::1]\r\n\r\n", 0 },
	{ GET "Host: [fe80::1:2:3]:65535\r\n\r\n", 0 },
	{ GET "Host: [::]\r\n\r\n", 0 },
	{ GET "Host: [1::]\r\n\r\n", 0 },
	{ GET "Host: [1:2:3:4:5:6:7:8]\r\n\r\n", 0 },
	{ GET "Host: [1111:2222:3333:4444:5555:6666:7777:8888]:1\r\n\r\n", 0 },
	{ GET H "X:\r\n\r\n", 0 },
	{ GET H "X:  \r\nY: a  \r\n\r\n", 0 },
	{ GET H "Connection: keep-alive\r\n\r\n", 0 },
	{ GET H "Content-Length: 0\r\n\r\n", 0 },
	{ GET H "Upgrade: h2c\r\n\r\n", 0 },
	{ GET "Connection: Upgrade, HTTP2-Settings\r\nContent-Length: 0\r\n" H
	  "HTTP2-Settings: AAEAAEAA\r\nUpgrade: h2c\r\n\r\n", 0 },
	{ GET H "cONNECTION:Keep-Alive\r\n\r\n", 0 },
	{ GET H "Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Mode: navigate\r\n"
	  "DNT: 1\r\nVia: 1.1 x\r\nOrigin: null\r\nTest: 1\r\nHosts: b\r\n"
	  "Ranges: 1\r\nExpects: x\r\nCookies: 1\r\nTrailers: x\r\n\r\n", 0 },
	{ GET H "Accept-Encoding: gzip, deflate, br\r\nIf-None-Match: \"a\"\r\n"
	  "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\nCookie: a=b\r\n"
	  "Cookie: c=d\r\n\r\n", 0 },
	{ GET H "Abcdefghijklmnopqrstuvwxyz-0123456789-x: 1\r\n\r\n", 0 },

	{ "POST / HTTP/1.1\r\n" H END, TBG_WHY_METHOD },
	{ "get / HTTP/1.1\r\n" H END, TBG_WHY_METHOD },
	{ "GETS / HTTP/1.1\r\n" H END, TBG_WHY_METHOD },
	{ "\r\n" GET H END, TBG_WHY_METHOD },
	{ " " GET H END, TBG_WHY_METHOD },
	{ "OPTIONS * HTTP/1.1\r\n" H END, TBG_WHY_METHOD },

	{ "GET / HTTP/1.0\r\n" H END, TBG_WHY_VERSION },
	{ "GET / HTTP/1.2\r\n" H END, TBG_WHY_VERSION },
	{ "GET / HTTP/2.0\r\n" H END, TBG_WHY_VERSION },
	{ "GET / http/1.1\r\n" H END, TBG_WHY_GRAMMAR },
	{ "GET / HTTP/1.1 \r\n" H END, TBG_WHY_GRAMMAR },
	{ "GET / HTTP/1.1\n" H END, TBG_WHY_GRAMMAR },
	{ "GET /  HTTP/1.1\r\n" H END, TBG_WHY_GRAMMAR },
	{ "GET /\r\n" H END, TBG_WHY_PATH },

	{ "GET  / HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET http://a/ HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET * HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET ?x HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET //a HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET /a//b HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET /abcdefg//b HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET /abcdef//b HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET /a// HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET /. HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET /.. HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET /a/../b HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET /.htaccess HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET /%41 HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET /a\\b HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET /a#b HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET /a\tb HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET /caf\xc3\xa9 HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET " P64 P64 P64 " HTTP/1.1\r\n" H END, 0 },
	{ "GET " P64 P64 P64 "?q HTTP/1.1\r\n" H END, 0 },
	{ "HEAD " P64 P64 P64 " HTTP/1.1\r\n" H END, 0 },
	{ "GET " P64 P64 P64 "x HTTP/1.1\r\n" H END, TBG_WHY_PATH },
	{ "GET " P64 P64 P64 P64 " HTTP/1.1\r\n" H END, TBG_WHY_PATH },

	{ "GET /?a#b HTTP/1.1\r\n" H END, TBG_WHY_GRAMMAR },
	{ "GET /?a\tb HTTP/1.1\r\n" H END, TBG_WHY_GRAMMAR },
	{ "GET /?\xff HTTP/1.1\r\n" H END, TBG_WHY_GRAMMAR },

	{ GET END, TBG_WHY_FIELD },
	{ GET "Host:\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host:  \r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: a \r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host:        a\r\n\r\n", TBG_WHY_FIELD },
	{ GET H H END, TBG_WHY_FIELD },
	{ GET H "hOsT: b\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: a b\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: a,b\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: a/b\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: a@b\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: a%41\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: a:\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: :80\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: a:x\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: a:123456\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: a:80:80\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: []\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: [\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: [::1\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: ::1\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: [::g]\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: [fe80::1:2.3.4.5]\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: [4712::abcd::]\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: [1.2.3.4]\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: [12345::]\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: [:1]\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: [1:]\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: [:]\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: [:::]\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: [::1:]\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: [:1::]\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: [1:2:3:4:5:6:7]\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: [1:2:3:4:5:6:7:8:9]\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: [::1]x\r\n\r\n", TBG_WHY_FIELD },
	{ GET "Host: a]\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Content-Length: 1\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Content-Length: 00\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Content-Length:\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Content-Length: 0 \r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Content-Lengths: 0\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Content-Lengt: 0\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Content-Length: 0\r\ncontent-length: 0\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "content-type: a/b\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Transfer-Encoding: chunked\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Expect: 100-continue\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Connection: upgrade, http2-setting\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Connection: upgrade, http2-settingss\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Connection: upgrade, http2_settings\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Connection: upgrade; http2-settings\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Range: bytes=0-1\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "If-Range: \"a\"\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "If-Match: \"a\"\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "If-Unmodified-Since: x\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "If-None-Matches: x\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "If: x\r\n\r\n", 0 },
	{ GET H "TE: trailers\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Trailer: x\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Proxy-Authorization: x\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Proxy-Connection: keep-alive\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Cache-Control: no-cache\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Pragma: no-cache\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Authorization: Basic x\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Keep-Alive: 300\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Max-Forwards: 1\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Connection: close\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Connection: keep-alive, x\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Connection: keep-alivE \r\n\r\n", TBG_WHY_FIELD },
	{ GET H "Connection: keep-alive\r\nConnection: keep-alive\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "If-None-Match: \"a\"\r\nIf-None-Match: \"a\"\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "If-None-Match:\r\n\r\n", TBG_WHY_FIELD },
	{ GET H "If-Modified-Since: a\r\nif-modified-since: a\r\n\r\n", TBG_WHY_FIELD },

	{ GET H "X : a\r\n\r\n", TBG_WHY_GRAMMAR },
	{ GET H ": a\r\n\r\n", TBG_WHY_GRAMMAR },
	{ GET H " X: a\r\n\r\n", TBG_WHY_GRAMMAR },
	{ GET H "X: a\r\n b\r\n\r\n", TBG_WHY_GRAMMAR },
	{ GET H "X_Y: a\r\n\r\n", TBG_WHY_GRAMMAR },
	{ GET H "X\r\n\r\n", TBG_WHY_GRAMMAR },
	{ GET H "X: a\tb\r\n\r\n", TBG_WHY_GRAMMAR },
	{ GET H "X: \xe9\r\n\r\n", TBG_WHY_GRAMMAR },
	{ GET H "X: \x7f\r\n\r\n", TBG_WHY_GRAMMAR },
	{ GET H "X: a\rb\r\n\r\n", TBG_WHY_GRAMMAR },
	{ GET H "X: a\nY: b\r\n\r\n", TBG_WHY_GRAMMAR },
	{ GET H "X: a\n\r\n\r\n", TBG_WHY_GRAMMAR },
	{ GET H "\rX: a\r\n\r\n", TBG_WHY_GRAMMAR },
	{ GET H "\n", TBG_WHY_GRAMMAR },
	{ GET H "Abcdefghijklmnopqrstuvwxyz-0123456789-xy: 1\r\n\r\n", TBG_WHY_GRAMMAR },

	{ GET H END "G", TBG_WHY_PIPELINED },
	{ GET H END GET H END, TBG_WHY_PIPELINED },
	{ GET H END END, TBG_WHY_PIPELINED },
	{ "", TBG_WHY_SPLIT },
	{ "G", TBG_WHY_SPLIT },
	{ GET H, TBG_WHY_SPLIT },
};

#define TABLE_NR (sizeof(table) / sizeof(*table))

KTAP_TEST(t_each_request_has_its_reason)
{
	for (size_t i = 0; i < TABLE_NR; i++) {
		struct tbg_req got;
		int why = parse(table[i].req, strlen(table[i].req), &got);

		if (why != table[i].why)
			ktap_fail("row %zu: %s, not %s: %.60s", i, why_names[why],
				  why_names[table[i].why], table[i].req);
	}
}

KTAP_TEST(t_dull_oracle_agrees)
{
	for (size_t i = 0; i < TABLE_NR; i++) {
		size_t len = strlen(table[i].req);
		struct tbg_req got, want = { 0 };
		bool ok = oracle_request((uint8_t *)table[i].req, len, &want);
		int why = parse(table[i].req, len, &got);

		if (ok != !why || (ok && memcmp(&got, &want, sizeof(got))))
			ktap_fail("row %zu: the oracle %s, why %s", i,
				  ok ? "accepts" : "refuses", why_names[why]);
	}
}

/* In these fields a proxy names another URI: the flag lets an entry pass the request up. */
KTAP_TEST(t_claims_of_a_proxy_are_seen)
{
	static const struct {
		const char *field;
		__u16 flags;
	} rows[] = {
		{ "X-Forwarded-Proto: https", TBG_REQ_CLAIM }, { "x-forwarded-proto:", TBG_REQ_CLAIM },
		{ "X-FORWARDED-HOST: a", TBG_REQ_CLAIM }, { "X-Forwarded-For: 192.0.2.1", 0 },
		{ "X-Forwarded-Protocol: https", 0 }, { "X-Forwarded-Hosts: a", 0 },
		{ "X-Forwarded-Prot: https", 0 }, { "X-Forwarded-Port: 443", 0 }, { "X-Forwar: 1", 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct tbg_req r = { 0 };
		char req[128];
		int n = sprintf(req, "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n", rows[i].field);

		KTAP_EQ(parse(req, n, &r), 0);
		KTAP_EQ(r.flags, rows[i].flags);
	}
}

static void text_is(const char *what, __u16 off, __u16 len, const char *want)
{
	if (len != strlen(want) || memcmp(head->b + off, want, len))
		ktap_fail("%s is %.*s, not %s", what, len, head->b + off, want);
}

KTAP_TEST(t_offsets_of_what_was_found)
{
	static const char req[] =
		"HEAD /d/f.html?x=1 HTTP/1.1\r\nHost:  h.example:81\r\n"
		"Accept-Encoding: gzip, br\r\nCookie: a=b\r\n"
		"If-None-Match: W/\"t\"\r\n"
		"If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n";
	struct tbg_req r;

	KTAP_EQ(parse(req, sizeof(req) - 1, &r), 0);
	KTAP_EQ(r.len, sizeof(req) - 1);
	KTAP_EQ(r.flags, TBG_REQ_HEAD | TBG_REQ_COOKIE);
	text_is("path", r.path_off, r.path_len, "/d/f.html");
	text_is("query", r.query_off, r.query_len, "x=1");
	text_is("host", r.host_off, r.host_len, "h.example:81");
	text_is("accept-encoding", r.ae_off, r.ae_len, "gzip, br");
	text_is("if-none-match", r.inm_off, r.inm_len, "W/\"t\"");
	text_is("if-modified-since", r.ims_off, r.ims_len,
		"Sun, 06 Nov 1994 08:49:37 GMT");
}

KTAP_TEST(t_split_at_every_byte)
{
	for (size_t i = 0; i < TABLE_NR; i++) {
		size_t len = strlen(table[i].req);

		for (size_t n = 0; !table[i].why && n < len; n++) {
			struct tbg_req got;
			int why = parse(table[i].req, n, &got);

			if (why != TBG_WHY_SPLIT)
				ktap_fail("row %zu, %zu of %zu bytes: %s", i, n,
					  len, why_names[why]);
		}
	}
}

KTAP_TEST(t_every_byte_changed_to_every_other)
{
	uint8_t req[TBG_REQ_MAX];

	for (size_t i = 0; i < TABLE_NR; i++) {
		size_t len = strlen(table[i].req);

		memcpy(req, table[i].req, len);
		for (size_t n = 0; !table[i].why && n < len; n++) {
			for (int c = 0; c < 256; c++) {
				struct tbg_req got, want = { 0 };
				bool ok;
				int why;

				req[n] = c;
				ok = oracle_request(req, len, &want);
				why = parse(req, len, &got);
				if (ok != !why ||
				    (ok && memcmp(&got, &want, sizeof(got))))
					ktap_fail("row %zu, byte %zu is %02x: "
						  "oracle %d, why %s", i, n, c,
						  ok, why_names[why]);
			}
			req[n] = table[i].req[n];
		}
	}
}

/* The same request with a field of every length, up to the limit and beyond. */
KTAP_TEST(t_every_length)
{
	static uint8_t req[TBG_REQ_MAX + 64];
	const char *names[] = { "X", "Cookie", "Host", "If-None-Match", "Te" };

	for (size_t f = 0; f < sizeof(names) / sizeof(*names); f++)
		for (size_t n = 0; n < TBG_REQ_MAX; n++) {
			struct tbg_req got, want = { 0 };
			size_t len = sprintf((char *)req, "GET / HTTP/1.1\r\n%s%s:",
					     f == 2 ? "" : H, names[f]);
			bool ok;
			int why;

			memset(req + len, 'v', n);
			len += n;
			memcpy(req + len, "\r\n\r\n", 4);
			len += 4;
			if (len > TBG_REQ_MAX)
				break;
			ok = oracle_request(req, len, &want);
			why = parse(req, len, &got);
			if (ok != !why || (ok && memcmp(&got, &want, sizeof(got))))
				ktap_fail("%s of %zu bytes: oracle %d, why %s",
					  names[f], n, ok, why_names[why]);
		}
}

/* Two ends of a call of the parser's loop: a long value, or enough lines. */
KTAP_TEST(t_long_values_and_short_lines_in_turn)
{
	static uint8_t req[TBG_REQ_MAX];
	const char *names[] = { "X:", "Accept-Encoding:" };

	for (size_t n = TBG_STRETCH - 40; n < 3 * TBG_STRETCH; n++)
		for (size_t lines = 0; lines < 2 * TBG_LINES + 2; lines += 1 + lines % 3) {
			struct tbg_req got, want = { 0 };
			size_t len = sprintf((char *)req, GET H);
			bool ok;
			int why;

			for (size_t f = 0; len + n + lines * 4 + 22 < sizeof(req); f++) {
				for (size_t i = 0; i < lines; i++)
					len += sprintf((char *)req + len, "a:\r\n");
				len += sprintf((char *)req + len, "%s", names[f == 1]);
				memset(req + len, 'v', n);
				len += n;
				len += sprintf((char *)req + len, "\r\n");
			}
			len += sprintf((char *)req + len, "\r\n");
			ok = oracle_request(req, len, &want);
			why = parse(req, len, &got);
			if (!ok || why || memcmp(&got, &want, sizeof(got)))
				ktap_fail("%zu bytes, %zu lines: oracle %d, why %s",
					  n, lines, ok, why_names[why]);
		}
}

KTAP_TEST(t_longer_than_the_buffer)
{
	struct tbg_req got;

	head_fill(head, GET H "X:", sizeof(GET H "X:") - 1, HEAD_REST_TEXT);
	KTAP_EQ(tbg_request_parse(head, &scan, TBG_REQ_MAX + 1, &got), TBG_WHY_GRAMMAR);
	KTAP_EQ(tbg_request_parse(head, &scan, ~0u, &got), TBG_WHY_GRAMMAR);
	KTAP_EQ(tbg_request_parse(head, &scan, TBG_REQ_MAX, &got), TBG_WHY_SPLIT);
}

KTAP_TEST(t_as_many_fields_as_fit)
{
	static uint8_t req[TBG_REQ_MAX];
	struct tbg_req got;
	size_t len = sprintf((char *)req, GET H);

	while (len + 4 + 2 <= sizeof(req)) {
		memcpy(req + len, "a:\r\n", 4);
		len += 4;
	}
	memcpy(req + len, "\r\n", 2);
	KTAP_EQ(parse(req, len + 2, &got), 0);
	KTAP_EQ(got.len, len + 2);
}

KTAP_MAIN()
