// SPDX-License-Identifier: GPL-2.0
/*
 * The operations of a fetch for HTTP/1.1 (RFC 9112): heads as text, and the body with
 * the framing that its head declares. A server learns only from the end of the
 * connection that no client waits any more.
 */
#include <string.h>

#include "proxy/fetch_internal.h"
#include "proxy/protocol.h"

static void head(struct tbg_transfer *x, const struct tbg_forward *f)
{
	tbg_forward_request(&x->up_head, f);
}

static void body(struct tbg_transfer *x, size_t len, bool done)
{
	if (x->up_decoder.framing != TBG_FRAMING_CHUNKED)
		return;
	if (len) {
		tbg_lines_add(&x->up_pre, "%zx\r\n", len);
		tbg_lines_put(&x->up_post, "\r\n", 2);
	}
	if (done) {
		tbg_lines_put(&x->up_post, "0\r\n", 3);
		tbg_forward_trailer(&x->up_post, x->up_decoder.trailer ?: "",
				    x->up_decoder.trailer_len, &x->req_fields,
				    x->reading.odd_names);
		tbg_lines_put(&x->up_post, "\r\n", 2);
	}
}

static void abandon(struct tbg_transfer *x)
{
	(void)x;
}

static void response_begin(struct tbg_transfer *x)
{
	(void)x;
}

static enum tbg_parsed head_receive(struct tbg_transfer *x, size_t len, size_t *ret_used,
				    size_t *ret_data)
{
	(void)x;
	*ret_used = *ret_data = len;
	return TBG_PARSED_MORE;
}

static enum tbg_parsed head_parse(struct tbg_transfer *x)
{
	return tbg_response_parse(&x->r, &x->resp_fields, x->o->head, x->o->head_len);
}

static bool is_response(const uint8_t *b, size_t len)
{
	while (len && (*b == '\r' || *b == '\n')) {
		b++;
		len--;
	}
	return len >= 5 && !memcmp(b, "HTTP/", 5);
}

static bool length_agrees(struct tbg_transfer *x)
{
	const struct tbg_response *r = &x->r;
	uint64_t len = x->o->head_len - r->len;
	enum tbg_framing framing = tbg_fetch_framing_of(x);
	uint64_t whole = framing == TBG_FRAMING_LENGTH ? r->content_length : 0;

	return framing == TBG_FRAMING_CHUNKED || framing == TBG_FRAMING_CLOSE || len <= whole ||
	       !is_response(x->o->head + r->len + whole, len - whole);
}

static void body_begin(struct tbg_transfer *x, uint8_t framing, uint64_t length)
{
	tbg_body_decoder_begin(&x->decoder, framing, length);
}

const struct tbg_protocol_ops tbg_protocol_http = {
	.body_piece_max = SIZE_MAX,
	.head = head,
	.body = body,
	.abandon = abandon,
	.response_begin = response_begin,
	.head_receive = head_receive,
	.head_parse = head_parse,
	.length_agrees = length_agrees,
	.body_begin = body_begin,
	.is_response = is_response,
};

const struct tbg_protocol_ops *tbg_protocol_ops_of(uint8_t protocol)
{
	static const struct tbg_protocol_ops *const all[] = {
		[TBG_PROTOCOL_HTTP] = &tbg_protocol_http,
		[TBG_PROTOCOL_FASTCGI] = &tbg_protocol_fastcgi,
	};

	return all[protocol];
}
