// SPDX-License-Identifier: GPL-2.0
/*
 * Responses of upstreams, complete and in pieces: heads of servers and of CGI programs,
 * bodies, fields, freshness, and the heads made from them. The division into pieces
 * must change nothing; heads made here must be accepted again with the same framing;
 * nothing may be read out of bounds.
 */
#include <stdlib.h>
#include <string.h>

#include "fastcgi/answer.h"
#include "http/forward.h"
#include "http/framing.h"
#include "http/freshness.h"
#include "http/response.h"

static struct tbg_fields some;

/* Valid until the next call. */
static const struct tbg_fields *fields_of(const char *b, size_t len)
{
	if (tbg_fields_read(&some, b, len) < 0)
		abort();
	return &some;
}

struct taken {
	enum tbg_parsed end;
	size_t used, len, errors_len;
	bool failed;
	uint8_t *body;
};

/* Decodes the body, step bytes at a time, each from a copy of exact size. */
static struct taken body_take(enum tbg_framing framing, uint64_t length,
			      const uint8_t *data, size_t len, size_t step)
{
	struct taken t = { .end = TBG_PARSED_MORE, .body = malloc(len + 1) };
	struct tbg_lines trailer = { 0 };
	struct tbg_fcgi_answer a = { 0 };
	struct tbg_body_decoder f;

	if (framing == TBG_FRAMING_RECORDS)
		tbg_body_decoder_begin_records(&f, &a, tbg_fcgi_answer_eat);
	else
		tbg_body_decoder_begin(&f, framing, length);
	while (t.used < len && t.end == TBG_PARSED_MORE) {
		size_t n = len - t.used < step ? len - t.used : step, used, got;
		uint8_t *b = malloc(n);

		memcpy(b, data + t.used, n);
		t.end = tbg_body_decoder_eat(&f, b, n, &used, &got);
		if (used > n || got > used || (t.end == TBG_PARSED_MORE && used != n))
			abort();
		memcpy(t.body + t.len, b, got);
		t.used += used;
		t.len += got;
		free(b);
	}
	if (t.end == TBG_PARSED_DONE)
		tbg_forward_trailer(&trailer, f.trailer ?: "", f.trailer_len, fields_of("Connection: a\r\n", 15), true);
	t.errors_len = a.errors.len;
	t.failed = a.failed;
	tbg_lines_free(&trailer);
	tbg_body_decoder_end(&f);
	tbg_fcgi_answer_end(&a);
	return t;
}

static void bodies_compare(enum tbg_framing framing, uint64_t length,
			   const uint8_t *data, size_t len)
{
	struct taken whole = body_take(framing, length, data, len, len + 1);

	for (size_t step = 1; step < 8; step += 3) {
		struct taken cut = body_take(framing, length, data, len, step);

		if (cut.end != whole.end ||
		    (whole.end != TBG_PARSED_BAD &&
		     (cut.used != whole.used || cut.len != whole.len ||
		      cut.errors_len != whole.errors_len || cut.failed != whole.failed ||
		      memcmp(cut.body, whole.body, whole.len))))
			abort();
		free(cut.body);
	}
	free(whole.body);
}

/* Forwarded fields parse again, without the old framing. */
static void fields_check(const struct tbg_response *r, const char *head)
{
	static const char date[] = "Sun, 06 Nov 1994 08:49:37 GMT";
	static const char line[] = "HTTP/1.1 200 OK\r\n";
	const char *fields = head + r->fields_off;
	size_t len = r->len - r->fields_off;
	struct tbg_lines l = { 0 }, up = { 0 };
	struct tbg_response again = { 0 };
	struct tbg_response_directives directives;
	struct tbg_request_directives request;

	tbg_response_directives_read(&directives, r->status, fields_of(fields, len), 1000, 1000, 0);
	tbg_request_directives_read(&request, TBG_METHOD_GET, fields_of(fields, len));
	tbg_response_directives_storable(&directives, &request);
	if (tbg_response_directives_age(&directives, 5000) < 0 || directives.lifetime_s < 0)
		abort();
	tbg_lines_put(&l, line, sizeof(line) - 1);
	tbg_forward_fields(&l, fields_of(fields, len), date, false);
	tbg_forward_update(&up, fields, len, fields, len);
	tbg_lines_put(&l, "\r\n", 2);
	if (l.len < TBG_RESPONSE_HEAD_MAX) {
		enum tbg_parsed p = tbg_response_parse(&again, &some, (uint8_t *)l.text, l.len);

		/* the added Date may exceed the limit of fields */
		if (p == TBG_PARSED_DONE && (again.chunked || again.has_length ||
					     again.len != l.len))
			abort();
	}
	tbg_lines_free(&l);
	tbg_lines_free(&up);
}

/* Parses as tbg_response_parse(), step bytes at a time; the head is in ret. */
static enum tbg_parsed head_take(struct tbg_response *r, bool cgi,
				 const uint8_t *data, size_t len, size_t step,
				 uint8_t *ret)
{
	enum tbg_parsed p = TBG_PARSED_MORE;

	memset(r, 0, sizeof(*r));
	for (size_t n = 0; n < len && p == TBG_PARSED_MORE;) {
		uint8_t *b;

		n = n + step < len ? n + step : len;
		b = malloc(n);
		memcpy(b, data, n);
		p = cgi ? tbg_response_parse_cgi(r, &some, b, n) :
			  tbg_response_parse(r, &some, b, n);
		memcpy(ret, b, n);
		free(b);
	}
	return p;
}

static bool same(const struct tbg_response *a, const struct tbg_response *b)
{
	return a->len == b->len && a->status == b->status && a->chunked == b->chunked &&
	       a->close == b->close && a->content_length == b->content_length &&
	       a->local == b->local && a->fields_off == b->fields_off;
}

static void head_check(bool cgi, const uint8_t *data, size_t len)
{
	uint8_t *head = malloc(len + 1), *other = malloc(len + 1);
	struct tbg_response r, cut;
	enum tbg_parsed p = head_take(&r, cgi, data, len, len + 1, head);

	for (size_t step = 1; step < 12; step += 5) {
		enum tbg_parsed q = head_take(&cut, cgi, data, len, step, other);

		if (q != p || (p == TBG_PARSED_DONE &&
			       (!same(&cut, &r) || memcmp(head, other, r.len))))
			abort();
	}
	if (p == TBG_PARSED_DONE) {
		if (r.len > len || (r.chunked && r.has_length) ||
		    r.reason.off + r.reason.len > r.len || r.fields_off > r.len ||
		    (cgi && (r.close || r.chunked || r.status < 200)))
			abort();
		fields_check(&r, (char *)head);
		bodies_compare(r.chunked ? TBG_FRAMING_CHUNKED : TBG_FRAMING_LENGTH,
			       r.content_length, data + r.len, len - r.len);
	}
	free(head);
	free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	bodies_compare(TBG_FRAMING_CHUNKED, 0, data, len);
	bodies_compare(TBG_FRAMING_RECORDS, 0, data, len);
	head_check(false, data, len);
	head_check(true, data, len);
	return 0;
}
