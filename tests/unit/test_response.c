// SPDX-License-Identifier: GPL-2.0
/*
 * Parsing of an upstream's response: the head of a server or of a CGI program
 * (userd/http/response.c), and the body (userd/http/framing.c). What is refused, what
 * is tolerated, and that no division into pieces changes a result.
 */
#include <stdlib.h>
#include <string.h>

#include "fastcgi/answer.h"
#include "http/framing.h"
#include "ktap.h"
#include "http/response.h"

#define OK "HTTP/1.1 200 OK\r\n"

/* Returns the result of the last call, of calls with more and more bytes; step 0: one call. */
static enum tbg_parsed parse(const char *text, size_t len, size_t step,
			     struct tbg_response *r)
{
	static struct tbg_fields fields;
	enum tbg_parsed p = TBG_PARSED_MORE;

	memset(r, 0, sizeof(*r));
	for (size_t n = step ?: len; p == TBG_PARSED_MORE; n += step) {
		uint8_t *b;

		n = n < len ? n : len;
		b = malloc(n ? n : 1);	/* exact size: ASan detects an overrun */
		memcpy(b, text, n);
		p = tbg_response_parse(r, &fields, b, n);
		free(b);
		if (n == len)
			break;
	}
	return p;
}

static const struct {
	const char *text;
	enum tbg_parsed want;
	unsigned int status;
	int64_t length;		/* -1: none */
	bool chunked, close;
} heads[] = {
#define BAD(t) { t, TBG_PARSED_BAD, 0, 0, false, false }
	{ OK "\r\n", TBG_PARSED_DONE, 200, -1, false, false },
	{ "HTTP/1.1 200\r\n\r\n", TBG_PARSED_DONE, 200, -1, false, false },
	{ "HTTP/1.1 200 \n\n", TBG_PARSED_DONE, 200, -1, false, false },
	{ "HTTP/1.0 404 No\r\n\r\n", TBG_PARSED_DONE, 404, -1, false, true },
	{ "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n",
	  TBG_PARSED_DONE, 200, -1, false, false },
	{ OK "Connection: x, Close\r\n\r\n", TBG_PARSED_DONE, 200, -1, false, true },
	{ OK "Content-Length: 12\r\n\r\n", TBG_PARSED_DONE, 200, 12, false, false },
	{ OK "content-length:12\r\nContent-Length: 12, 12\r\n\r\n",
	  TBG_PARSED_DONE, 200, 12, false, false },
	{ OK "Transfer-Encoding:\tChunked \r\n\r\n",
	  TBG_PARSED_DONE, 200, -1, true, false },
	{ OK "X : y\r\nContent-Length \t: 12\r\n\r\n", TBG_PARSED_DONE, 200, 12, false, false },
	{ OK, TBG_PARSED_MORE, 0, 0, false, false },
	{ OK "X: y\r\n", TBG_PARSED_MORE, 0, 0, false, false },
	{ OK "X: y\r\n\r", TBG_PARSED_MORE, 0, 0, false, false },
	/* a tunnel's bytes follow, whatever the head declares */
	{ "HTTP/1.1 101 S\r\nContent-Length: 0\r\n\r\n", TBG_PARSED_DONE, 101, -1, false, false },
	{ "HTTP", TBG_PARSED_MORE, 0, 0, false, false },
	{ "", TBG_PARSED_MORE, 0, 0, false, false },
	BAD("\r\n"), BAD("HTTQ"), BAD("HTTP/2.0 200 OK\r\n\r\n"),
	BAD("HTTP/1.x 200 OK\r\n\r\n"), BAD("HTTP/1.1 20 OK\r\n\r\n"),
	BAD("HTTP/1.1 099 OK\r\n\r\n"), BAD("HTTP/1.1 600 OK\r\n\r\n"),
	BAD("HTTP/1.1 200OK\r\n\r\n"), BAD("HTTP/1.1\t200 OK\r\n\r\n"),
	BAD(OK "X\r\n\r\n"), BAD(OK ": y\r\n\r\n"), BAD(OK " : y\r\n\r\n"),
	BAD(OK "X: a\r\n b\r\n\r\n"), BAD(OK "X: a\rb\r\n\r\n"),
	BAD(OK "X: a\x7f\r\n\r\n"), BAD(OK "X: a\r\r\n\r\n"),
	BAD(OK "Content-Length: 1\r\nContent-Length: 2\r\n\r\n"),
	BAD(OK "Content-Length: 1, 2\r\n\r\n"), BAD(OK "Content-Length:\r\n\r\n"),
	BAD(OK "Content-Length: 1,\r\n\r\n"), BAD(OK "Content-Length: +1\r\n\r\n"),
	BAD(OK "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
	BAD(OK "Content-Length : 1\r\nTransfer-Encoding : chunked\r\n\r\n"),
	BAD(OK "Content-Length : 1\r\nContent-Length: 2\r\n\r\n"),
	BAD(OK "Transfer-Encoding: gzip, chunked\r\n\r\n"),
	BAD(OK "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
	BAD("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
	BAD("HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n"),
	BAD("HTTP/1.1 204 No\r\nContent-Length: 1\r\n\r\n"),
	BAD("HTTP/1.1 103 Hints\r\nContent-Length: 1\r\n\r\n"),
};

#define NR(a) (sizeof(a) / sizeof(*(a)))

static bool head_right(size_t i, size_t step)
{
	struct tbg_response r;
	size_t len = strlen(heads[i].text);
	enum tbg_parsed p = parse(heads[i].text, len, step, &r);

	if (p != heads[i].want)
		return false;
	return p != TBG_PARSED_DONE ||
	       (r.status == heads[i].status && r.len == len &&
		r.chunked == heads[i].chunked && r.close == heads[i].close &&
		(r.has_length ? (int64_t)r.content_length : -1) == heads[i].length);
}

KTAP_TEST(t_heads_at_once_and_byte_by_byte)
{
	for (size_t i = 0; i < NR(heads); i++)
		for (size_t step = 0; step < 4; step++) {
			if (!head_right(i, step))
				ktap_note("%zu step %zu: %s", i, step, heads[i].text);
			KTAP_CHECK(head_right(i, step));
		}
}

KTAP_TEST(t_nul_is_refused_wherever_it_stands)
{
	static const char text[] = OK "X: y\r\n\r\n";
	struct tbg_response r;
	char copy[sizeof(text)];

	for (size_t i = 0; i < sizeof(text) - 3; i++) {
		memcpy(copy, text, sizeof(text));
		copy[i] = 0;
		KTAP_CHECK(parse(copy, sizeof(text) - 1, 0, &r) == TBG_PARSED_BAD);
	}
}

KTAP_TEST(t_head_ends_where_the_body_begins)
{
	static const char text[] = OK "A: b\r\n\r\nbody\r\n\r\n";
	struct tbg_response r;

	KTAP_CHECK(parse(text, sizeof(text) - 1, 0, &r) == TBG_PARSED_DONE);
	KTAP_CHECK(!memcmp(text + r.len, "body", 4));
	KTAP_CHECK(!memcmp(text + r.fields_off, "A: b", 4));
	KTAP_CHECK(r.reason.len == 2 && !memcmp(text + r.reason.off, "OK", 2));
}

KTAP_TEST(t_longest_head_and_most_fields)
{
	static char text[TBG_RESPONSE_HEAD_MAX + 16];
	struct tbg_response r;
	size_t len = sprintf(text, OK "X: ");

	memset(text + len, 'a', sizeof(text) - len);
	KTAP_CHECK(parse(text, sizeof(text), 0, &r) == TBG_PARSED_BAD);
	memcpy(text + TBG_RESPONSE_HEAD_MAX - 4, "\r\n\r\n", 4);
	KTAP_CHECK(parse(text, sizeof(text), 0, &r) == TBG_PARSED_DONE);
	for (int over = 0; over < 2; over++) {
		len = sprintf(text, OK);
		for (int i = 0; i < TBG_RESPONSE_FIELDS_MAX + over; i++)
			len += sprintf(text + len, "a: b\r\n");
		len += sprintf(text + len, "\r\n");
		KTAP_CHECK(parse(text, len, 0, &r) ==
			   (over ? TBG_PARSED_BAD : TBG_PARSED_DONE));
	}
}

/* As parse(), for a CGI program; ret: the converted head. */
static enum tbg_parsed parse_cgi(const char *text, size_t len, size_t step,
				 struct tbg_response *r, char *ret)
{
	enum tbg_parsed p = TBG_PARSED_MORE;
	static struct tbg_fields fields;

	memset(r, 0, sizeof(*r));
	for (size_t n = step ?: len; p == TBG_PARSED_MORE; n += step) {
		uint8_t *b;

		n = n < len ? n : len;
		b = malloc(n ? n : 1);
		memcpy(b, text, n);
		p = tbg_response_parse_cgi(r, &fields, b, n);
		memcpy(ret, b, n);
		free(b);
		if (n == len)
			break;
	}
	return p;
}

static const struct {
	const char *text, *fields;	/* fields NULL: no head; "": incomplete */
	unsigned int status;
	const char *reason;
	int64_t length;
	bool local;
} cgis[] = {
	{ "Content-Type: a/b\r\n\r\n", "Content-Type: a/b\r\n\r\n", 200, "", -1, false },
	{ "A: b\n\n", "A: b\n\n", 200, "", -1, false },
	{ "Status: 404 Not Found\r\nA: b\r\n\r\n", "A: b\r\n\r\n",
	  404, "Not Found", -1, false },
	{ "A: b\r\nC: d\r\nstatus:  403  x y \r\nE: f\r\n\r\n",
	  "A: b\r\nC: d\r\nE: f\r\n\r\n", 403, " x y", -1, false },
	{ "A: b\nStatus: 201\n\n", "A: b\n\n", 201, "", -1, false },
	{ "Content-Length: 7\r\nContent-Length: 7\r\n\r\n",
	  "Content-Length: 7\r\nContent-Length: 7\r\n\r\n", 200, "", 7, false },
	{ "Location: /a?b\r\n\r\n", "Location: /a?b\r\n\r\n", 302, "", -1, true },
	{ "Content-Type: a/b\nLocation: /a\n\n", "Content-Type: a/b\nLocation: /a\n\n",
	  302, "", -1, true },
	{ "Location: /a#b\r\n\r\n", "Location: /a#b\r\n\r\n", 302, "", -1, false },
	{ "Location: /a\nSet-Cookie: c=d\n\n", "Location: /a\nSet-Cookie: c=d\n\n",
	  302, "", -1, false },
	{ "Location: /a\nLocation: /b\n\n", NULL, 0, "", 0, false },
	{ "Content-Type: a/b\nContent-Type: a/b\n\n", NULL, 0, "", 0, false },
	{ "Location: //a/b\r\n\r\n", "Location: //a/b\r\n\r\n", 302, "", -1, false },
	{ "Location: http://a/\r\n\r\n", "Location: http://a/\r\n\r\n",
	  302, "", -1, false },
	{ "Location: /a\r\nStatus: 301 M\r\n\r\n", "Location: /a\r\n\r\n",
	  301, "M", -1, false },
	/* fields about the connection are ignored */
	{ "Connection: close\r\nTransfer-Encoding: gzip\r\n\r\n",
	  "Connection: close\r\nTransfer-Encoding: gzip\r\n\r\n", 200, "", -1, false },
	{ "", "", 0, "", 0, false }, { "A: b\r\n", "", 0, "", 0, false },
	{ "A: b\r\n\r", "", 0, "", 0, false }, { "Sta", "", 0, "", 0, false },
	{ "\r\n", NULL, 0, "", 0, false }, { "\n", NULL, 0, "", 0, false },
	{ "hello\n\n", NULL, 0, "", 0, false }, { "A: b\n c\n\n", NULL, 0, "", 0, false },
	{ "HTTP/1.1 200 OK\r\n\r\n", NULL, 0, "", 0, false },
	{ "Status: 20\n\n", NULL, 0, "", 0, false },
	{ "Status: 2000\n\n", NULL, 0, "", 0, false },
	{ "Status: OK\n\n", NULL, 0, "", 0, false },
	{ "Status: 100 C\n\n", NULL, 0, "", 0, false },
	{ "Status: 101 S\n\n", NULL, 0, "", 0, false },
	{ "Status: 600 S\n\n", NULL, 0, "", 0, false },
	{ "Status: 200\nStatus: 200\n\n", NULL, 0, "", 0, false },
	{ "Status : 404 No\nA : b\n\n", "A : b\n\n", 404, "No", -1, false },
	{ " A: b\n\n", NULL, 0, "", 0, false }, { "A: b\rc\n\n", NULL, 0, "", 0, false },
	{ "Content-Length: 1\nContent-Length: 2\n\n", NULL, 0, "", 0, false },
	{ "Content-Length: x\n\n", NULL, 0, "", 0, false },
};

static bool cgi_right(size_t i, size_t step)
{
	size_t len = strlen(cgis[i].text);
	struct tbg_response r;
	char b[256];
	enum tbg_parsed p = parse_cgi(cgis[i].text, len, step, &r, b);

	if (!cgis[i].fields)
		return p == TBG_PARSED_BAD;
	if (!*cgis[i].fields)
		return p == TBG_PARSED_MORE;
	return p == TBG_PARSED_DONE && r.len == len && r.status == cgis[i].status &&
	       r.len - r.fields_off == strlen(cgis[i].fields) && !r.close && !r.chunked &&
	       !memcmp(b + r.fields_off, cgis[i].fields, r.len - r.fields_off) &&
	       r.reason.len == strlen(cgis[i].reason) && r.local == cgis[i].local &&
	       !memcmp(b + r.reason.off, cgis[i].reason, r.reason.len) &&
	       (r.has_length ? (int64_t)r.content_length : -1) == cgis[i].length;
}

KTAP_TEST(t_cgi_heads_at_once_and_byte_by_byte)
{
	for (size_t i = 0; i < NR(cgis); i++)
		for (size_t step = 0; step < 4; step++) {
			if (!cgi_right(i, step))
				ktap_note("%zu step %zu: %s", i, step, cgis[i].text);
			KTAP_CHECK(cgi_right(i, step));
		}
}

/* Decodes text in steps; false: refused. */
static bool decode(enum tbg_framing framing, uint64_t length, const char *text,
		   size_t step, char *ret, size_t *ret_len, size_t *ret_used,
		   enum tbg_parsed *ret_end, char *ret_trailer)
{
	size_t len = strlen(text), at = 0;
	struct tbg_body_decoder f;
	enum tbg_parsed p = TBG_PARSED_MORE;

	tbg_body_decoder_begin(&f, framing, length);
	*ret_len = 0;
	while (at < len && p == TBG_PARSED_MORE) {
		size_t n = len - at < step ? len - at : step, used, data;
		uint8_t *b = malloc(n);

		memcpy(b, text + at, n);
		p = tbg_body_decoder_eat(&f, b, n, &used, &data);
		memcpy(ret + *ret_len, b, data);
		*ret_len += data;
		at += used;
		/* bytes after the body are unchanged */
		if (p == TBG_PARSED_DONE && memcmp(b + used, text + at, n - used))
			p = TBG_PARSED_BAD;
		free(b);
	}
	*ret_used = at;
	*ret_end = p;
	sprintf(ret_trailer, "%.*s", (int)f.trailer_len, f.trailer ?: "");
	tbg_body_decoder_end(&f);
	return p != TBG_PARSED_BAD;
}

static const struct {
	const char *text, *want;	/* want NULL: refused */
	const char *rest, *trailer;	/* rest NULL: it has not ended */
} bodies[] = {
	{ "0\r\n\r\n", "", "", "" },
	{ "3\r\nabc\r\n0\r\n\r\nnext", "abc", "next", "" },
	{ "3;a=b\r\nabc\r\n00A \r\n0123456789\r\n0;x\r\n\r\n", "abc0123456789", "", "" },
	{ "1\r\na\r\n0\r\nX: y\r\nZ:\r\n\r\n", "a", "", "X: y\r\nZ:\r\n" },
	{ "3\r\nab", "ab", NULL, "" },
	{ "1\r\na\r\n0\r\n", "a", NULL, "" },
	{ "x", NULL, NULL, NULL }, { "\r\n", NULL, NULL, NULL },
	{ "-1\r\n", NULL, NULL, NULL }, { "3\nabc", NULL, NULL, NULL },
	{ "3\r\nabcd\r\n", NULL, NULL, NULL }, { "3\r\nabc\n", NULL, NULL, NULL },
	{ "ffffffffffffffff\r\n", NULL, NULL, NULL },
	{ "3;\x01\r\n", NULL, NULL, NULL }, { "0\r\nno field\r\n\r\n", NULL, NULL, NULL },
	{ "0\r\nX y: z\r\n", NULL, NULL, NULL }, { "0\r\n X: z\r\n", NULL, NULL, NULL },
	{ "0\r\nX: a\rb\r\n", NULL, NULL, NULL }, { "0\r\nX: a\n\r\n", NULL, NULL, NULL },
	{ "0\r\n: a\r\n", NULL, NULL, NULL },
};

static bool body_right(size_t i, size_t step)
{
	const char *text = bodies[i].text;
	char got[256], trailer[256];
	size_t len, used;
	enum tbg_parsed end;

	if (!decode(TBG_FRAMING_CHUNKED, 0, text, step, got, &len, &used, &end, trailer))
		return !bodies[i].want;
	if (!bodies[i].want || len != strlen(bodies[i].want) ||
	    memcmp(got, bodies[i].want, len))
		return false;
	if (!bodies[i].rest)
		return end == TBG_PARSED_MORE;
	return end == TBG_PARSED_DONE && !strcmp(text + used, bodies[i].rest) &&
	       !strcmp(trailer, bodies[i].trailer);
}

KTAP_TEST(t_chunks_at_once_and_cut_anywhere)
{
	for (size_t i = 0; i < NR(bodies); i++)
		for (size_t step = 1; step < 12; step++) {
			if (!body_right(i, step))
				ktap_note("%zu step %zu: %s", i, step, bodies[i].text);
			KTAP_CHECK(body_right(i, step));
		}
}

KTAP_TEST(t_lengths_and_ends)
{
	char got[64], trailer[8];
	enum tbg_parsed end;
	size_t len, used;

	KTAP_CHECK(decode(TBG_FRAMING_LENGTH, 3, "abcnext", 7, got, &len, &used, &end, trailer));
	KTAP_CHECK(end == TBG_PARSED_DONE && len == 3 && used == 3);
	KTAP_CHECK(decode(TBG_FRAMING_LENGTH, 9, "abc", 2, got, &len, &used, &end, trailer));
	KTAP_CHECK(end == TBG_PARSED_MORE && len == 3);
	KTAP_CHECK(decode(TBG_FRAMING_NONE, 0, "abc", 3, got, &len, &used, &end, trailer));
	KTAP_CHECK(end == TBG_PARSED_DONE && !used);
	KTAP_CHECK(decode(TBG_FRAMING_CLOSE, 0, "abc", 2, got, &len, &used, &end, trailer));
	KTAP_CHECK(end == TBG_PARSED_MORE && len == 3);
}

/* The records of one request, and the expected result; NULL: refused. */
#define REC(type, len, text) "\1" type "\0\1\0" len "\0\0" text
#define THE_END REC("\3", "\10", "\0\0\0\0\0\0\0\0")
static const struct {
	const char *b;
	size_t len;
	const char *want, *errors;
	bool ended, failed;
} streams[] = {
#define CASE(text, ...) { text, sizeof(text) - 1, __VA_ARGS__ }
	CASE(REC("\6", "\2", "ab") REC("\6", "\0", "") THE_END, "ab", "", true, false),
	CASE(REC("\6", "\2", "ab") THE_END "\1\6", "ab", "", true, false),
	CASE(REC("\7", "\2", "e1") REC("\6", "\2", "ab") REC("\7", "\2", "e2")
	     REC("\6", "\1", "c"), "abc", "e1e2", false, false),
	CASE("\1\6\0\1\0\2\3\0abxxx" THE_END, "ab", "", true, false),
	CASE(REC("\3", "\10", "\0\0\0\377\0\0\0\0"), "", "", true, true),
	CASE("\1\13\0\0\0\10\0\0\11\0\0\0\0\0\0\0" THE_END, "", "", true, false),
	CASE("\1\12\0\0\0\3\0\0\1\0A" THE_END, "", "", true, false),
	/* overloaded; another request's; a request; an unknown type; no record */
	CASE(REC("\3", "\10", "\0\0\0\0\2\0\0\0"), NULL, NULL, false, false),
	CASE("\1\6\0\2\0\1\0\0a", NULL, NULL, false, false),
	CASE("\1\6\0\0\0\1\0\0a", NULL, NULL, false, false),
	CASE(REC("\1", "\10", "\0\1\0\0\0\0\0\0"), NULL, NULL, false, false),
	CASE(REC("\4", "\0", ""), NULL, NULL, false, false),
	CASE(REC("\143", "\0", ""), NULL, NULL, false, false),
	CASE("HTTP/1.1 200 OK\r\n\r\n", NULL, NULL, false, false),
};

static bool stream_right(size_t i, size_t step)
{
	struct tbg_fcgi_answer a = { 0 };
	struct tbg_body_decoder f;
	enum tbg_parsed p = TBG_PARSED_MORE;
	char got[64], errors[64];
	size_t n = 0;
	bool failed;

	tbg_body_decoder_begin_records(&f, &a, tbg_fcgi_answer_eat);
	for (size_t at = 0; at < streams[i].len && p == TBG_PARSED_MORE;) {
		size_t want = streams[i].len - at, used, data;
		uint8_t *b;

		want = want < step ? want : step;
		b = malloc(want);
		memcpy(b, streams[i].b + at, want);
		p = tbg_body_decoder_eat(&f, b, want, &used, &data);
		memcpy(got + n, b, data);
		n += data;
		at += used;
		free(b);
	}
	snprintf(errors, sizeof(errors), "%.*s", (int)a.errors.len, a.errors.text ?: "");
	failed = a.failed;
	tbg_body_decoder_end(&f);
	tbg_fcgi_answer_end(&a);
	if (!streams[i].want || p == TBG_PARSED_BAD)
		return !streams[i].want && p == TBG_PARSED_BAD;
	return n == strlen(streams[i].want) && !memcmp(got, streams[i].want, n) &&
	       !strcmp(errors, streams[i].errors) && failed == streams[i].failed &&
	       (p == TBG_PARSED_DONE) == streams[i].ended;
}

KTAP_TEST(t_records_at_once_and_cut_anywhere)
{
	for (size_t i = 0; i < NR(streams); i++)
		for (size_t step = 1; step < 40; step++) {
			if (!stream_right(i, step))
				ktap_note("%zu step %zu", i, step);
			KTAP_CHECK(stream_right(i, step));
		}
}

KTAP_TEST(t_trailers_and_extensions_are_bounded)
{
	static uint8_t line[] = "X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n";
	uint8_t start[] = "0\r\n", b[sizeof(line)];
	size_t used, data, sum = 0;
	enum tbg_parsed p;
	struct tbg_body_decoder f;

	tbg_body_decoder_begin(&f, TBG_FRAMING_CHUNKED, 0);
	p = tbg_body_decoder_eat(&f, start, 3, &used, &data);
	while (p == TBG_PARSED_MORE && sum < 2 * TBG_TRAILER_MAX) {
		memcpy(b, line, sizeof(line));
		p = tbg_body_decoder_eat(&f, b, sizeof(line) - 1, &used, &data);
		sum += used;
	}
	tbg_body_decoder_end(&f);
	KTAP_CHECK(p == TBG_PARSED_BAD && sum <= TBG_TRAILER_MAX + sizeof(line));
}

/* A body may have any number of extensions, a line only this many. */
KTAP_TEST(t_extensions_are_bounded_line_by_line)
{
	static const char chunk[] = "4;name=value \t\r\nabcd\r\n";
	uint8_t b[sizeof(chunk)];
	size_t used, data, sum = 0;
	struct tbg_body_decoder f;

	tbg_body_decoder_begin(&f, TBG_FRAMING_CHUNKED, 0);
	for (size_t i = 0; i < TBG_TRAILER_MAX; i++) {
		memcpy(b, chunk, sizeof(chunk));
		KTAP_CHECK(tbg_body_decoder_eat(&f, b, sizeof(chunk) - 1, &used, &data) ==
			   TBG_PARSED_MORE);
		sum += data;
	}
	KTAP_EQ(sum, 4 * TBG_TRAILER_MAX);
	memcpy(b, "4;", 2);
	KTAP_CHECK(tbg_body_decoder_eat(&f, b, 2, &used, &data) == TBG_PARSED_MORE);
	for (size_t i = 0; i < TBG_TRAILER_MAX; i++) {
		*b = 'x';
		KTAP_CHECK(tbg_body_decoder_eat(&f, b, 1, &used, &data) == TBG_PARSED_MORE);
	}
	KTAP_CHECK(tbg_body_decoder_eat(&f, b, 1, &used, &data) == TBG_PARSED_BAD);
	tbg_body_decoder_end(&f);
}

KTAP_MAIN()
