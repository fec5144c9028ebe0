// SPDX-License-Identifier: GPL-2.0
/*
 * The operations of a fetch for FastCGI. A connection carries one request at a time,
 * and the server is asked to keep it: multiplexing, which hardly any server supports,
 * would gain nothing over a pool. Records are decoded from the first byte of the
 * response on, so its head has no framing.
 */
#include <string.h>
#include <sys/socket.h>

#include "fastcgi/answer.h"
#include "fastcgi/parameters.h"
#include "fastcgi/record.h"
#include "proxy/fetch_internal.h"
#include "proxy/protocol.h"

static void stream_end(struct tbg_lines *l, uint8_t type)
{
	uint8_t header[TBG_FCGI_RECORD_HEADER];

	tbg_fcgi_record_header(header, type, TBG_FASTCGI_ID, 0, 0);
	tbg_lines_put(l, header, sizeof(header));
}

/* Returns the target's path as programs receive it; "/" if there is none. */
static struct tbg_slice path_of(struct tbg_slice target, char ret[TBG_TARGET_MAX + 1])
{
	int n = tbg_target_path(target.text, target.len, ret);

	return n > 0 ? (struct tbg_slice){ ret, n } : TBG_SLICE("/");
}

static void head(struct tbg_transfer *x, const struct tbg_forward *f)
{
	const struct tbg_script *s = &x->upstream->settings.script;
	const char *root = s->root ?: x->root ?: "";
	uint8_t begin[TBG_FCGI_RECORD_HEADER + TBG_FCGI_RECORD_BODY];
	struct tbg_lines pairs = { 0 };
	char path[TBG_TARGET_MAX + 1];

	tbg_fcgi_params_put(&pairs, &(struct tbg_fcgi_params){
		.request = f, .script = s, .endpoints = &x->endpoints,
		.root = strcmp(root, "/") ? root : "", .path = path_of(f->target, path),
		.index = x->index });
	tbg_fcgi_record_begin(begin, TBG_FASTCGI_ID, TBG_ROLE_RESPONDER, TBG_FCGI_RECORD_KEEP_CONN);
	tbg_lines_put(&x->up_head, begin, sizeof(begin));
	tbg_fcgi_record_put(&x->up_head, TBG_FCGI_RECORD_PARAMS, TBG_FASTCGI_ID, pairs.text,
			    pairs.len);
	stream_end(&x->up_head, TBG_FCGI_RECORD_PARAMS);
	if (f->framing == TBG_FRAMING_NONE || !f->length)
		stream_end(&x->up_head, TBG_FCGI_RECORD_STDIN);
	x->up_head.failed |= pairs.failed;
	tbg_lines_free(&pairs);
}

static void body(struct tbg_transfer *x, size_t len, bool done)
{
	uint8_t header[TBG_FCGI_RECORD_HEADER];

	if (len) {
		tbg_fcgi_record_header(header, TBG_FCGI_RECORD_STDIN, TBG_FASTCGI_ID, len, 0);
		tbg_lines_put(&x->up_pre, header, sizeof(header));
	}
	if (done)
		stream_end(&x->up_post, TBG_FCGI_RECORD_STDIN);
}

static void abandon(struct tbg_transfer *x)
{
	const struct tbg_upstream_conn *o = x->o;
	uint8_t header[TBG_FCGI_RECORD_HEADER];

	/* only between two records, of a request that has begun and not ended */
	if (!o->connected || !o->sent || o->send.busy || x->up_nr ||
	    x->answer.ended)
		return;
	tbg_fcgi_record_header(header, TBG_FCGI_RECORD_ABORT, TBG_FASTCGI_ID, 0, 0);
	send(o->fd, header, sizeof(header), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void response_begin(struct tbg_transfer *x)
{
	tbg_body_decoder_end(&x->decoder);
	tbg_fcgi_answer_end(&x->answer);
	x->answer = (struct tbg_fcgi_answer){ 0 };
	tbg_body_decoder_begin_records(&x->decoder, &x->answer, tbg_fcgi_answer_eat);
}

static enum tbg_parsed head_receive(struct tbg_transfer *x, size_t len, size_t *ret_used,
				    size_t *ret_data)
{
	return tbg_body_decoder_eat(&x->decoder, x->o->head + x->o->head_len, len, ret_used,
				    ret_data);
}

static enum tbg_parsed head_parse(struct tbg_transfer *x)
{
	return tbg_response_parse_cgi(&x->r, &x->resp_fields, x->o->head, x->o->head_len);
}

static void body_begin(struct tbg_transfer *x, uint8_t framing, uint64_t length)
{
	/* records, since response_begin() */
	(void)x;
	(void)framing;
	(void)length;
}

static bool is_response(const uint8_t *b, size_t len)
{
	return len >= 2 && b[0] == TBG_FCGI_RECORD_VERSION && b[1] == TBG_FCGI_RECORD_STDOUT;
}

static bool length_agrees(struct tbg_transfer *x)
{
	struct tbg_response *r = &x->r;
	uint64_t len = x->o->head_len - r->len;
	bool ended = tbg_body_decoder_ended(&x->decoder);

	if (x->excess == TBG_EXCESS_RESPONSE || tbg_fetch_framing_of(x) == TBG_FRAMING_NONE)
		return x->excess != TBG_EXCESS_RESPONSE;
	/* an answer that has arrived completely has a length, declared or not */
	if (ended && !r->has_length) {
		r->has_length = true;
		r->content_length = len;
	}
	return !tbg_fetch_contradicts(x, len, ended);
}

const struct tbg_protocol_ops tbg_protocol_fastcgi = {
	.runs_programs = true,
	.body_piece_max = TBG_FCGI_RECORD_MAX,
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
