// SPDX-License-Identifier: GPL-2.0
/*
 * Requests forwarded to an upstream: whatever the daemon's parser accepts is forwarded
 * as a head that the same parser accepts again, completely, with the intended method,
 * target, host and framing. A second meaning would be request smuggling.
 */
#include <stdlib.h>
#include <string.h>

#include "http/forward.h"
#include "http/request.h"
#include "http/freshness.h"

#define HEAD_MAX 65536

static char path[TBG_TARGET_MAX + 1];

static bool same(const char *a, struct tbg_text t, struct tbg_slice v)
{
	return t.len == v.len && !memcmp(a + t.off, v.text, v.len);
}

static void check(const struct tbg_lines *l, const struct tbg_forward *f,
		  const struct tbg_message *of)
{
	struct tbg_message m = { 0 };
	uint8_t *b = malloc(l->len);	/* exact size: ASan detects an overrun */

	memcpy(b, l->text, l->len);
	if (tbg_message_parse(&m, b, l->len, HEAD_MAX * 4, path) != TBG_PARSED_DONE ||
	    m.len != l->len || m.method != of->method ||
	    m.chunked != (f->framing == TBG_FRAMING_CHUNKED) ||
	    m.content_length != (f->framing == TBG_FRAMING_LENGTH ? f->length : 0) ||
	    (m.has_length && m.chunked) || !same((char *)b, m.target, f->target))
		abort();
	if (f->host.len && !same((char *)b, m.host, f->host))
		abort();
	free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	const char *b = (const char *)data, *line, *lf, *space;
	struct tbg_message m = { 0 };
	static struct tbg_fields fields;
	struct tbg_lines l = { 0 };

	if (tbg_message_parse(&m, data, len, HEAD_MAX, path) != TBG_PARSED_DONE)
		return 0;
	line = b + m.head_off;
	lf = memchr(line, '\n', m.len - m.head_off);
	space = memchr(line, ' ', m.len - m.head_off);
	if (tbg_fields_read(&fields, lf + 1, b + m.len - lf - 1) < 0)
		abort();
	for (int i = 0; i < 8; i++) {
		struct tbg_forward f = {
			.method = { line, space - line },
			.target = { b + m.target.off, m.target.len },
			.host = { b + m.host.off, m.host.off ? m.host.len : 0 },
			.fields = &fields,
			.peer = i & 1 ? "2001:db8::1" : "192.0.2.1",
			.authority = "up", .via = "toboggan (1)",
			.framing = m.chunked ? TBG_FRAMING_CHUNKED :
				   m.content_length ? TBG_FRAMING_LENGTH : TBG_FRAMING_NONE,
			.length = m.content_length, .has_length = m.has_length,
			.minor = m.minor, .upgrade = i & 1, .expect = i & 2,
			.unconditional = i & 4,
		};

		if (f.unconditional)
			f.etag = TBG_SLICE("\"1\"");
		/* other forms are converted earlier (request_copy.c) */
		if (m.target.len && *f.target.text != '/' && *f.target.text != '*')
			f.target = TBG_SLICE("/");
		if (m.method == TBG_METHOD_CONNECT)
			break;
		tbg_forward_request(&l, &f);
		check(&l, &f, &m);
		tbg_lines_free(&l);
	}
	return 0;
}
