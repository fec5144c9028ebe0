// SPDX-License-Identifier: GPL-2.0
/*
 * Two parsers with the same meaning: what the fast grammar accepts, the daemon's parser
 * (userd/http/request.c) accepts with the same method, length, path, key and fields,
 * and keeps the connection open. Conditions and codings are evaluated equally. A
 * difference would allow request smuggling between the tiers; it aborts.
 */
#include <stdlib.h>

#include "head.h"
#include "core/conditional.h"
#include "core/encoding.h"
#include "core/key.h"
#include "core/request.h"
#include "http/content_coding.h"
#include "http/header.h"
#include "http/request.h"
#include "http/reply.h"

static struct tbg_head *head;
static struct tbg_scan scan;
static char path[TBG_TARGET_MAX + 1];

static void same(struct tbg_text t, __u16 off, __u16 len)
{
	if (t.len != len || (len && t.off != off))
		abort();
}

static void key_check(const struct tbg_req *req, const struct tbg_message *m)
{
	static const __u64 secret[2] = { 1, 2 };
	struct tbg_path words, canonical = { { 0 } };
	struct tbg_key fast, slow;

	if (tbg_path_load(head, req->path_off, req->path_len, &words))
		abort();
	memcpy(&canonical, path, m->path_len);
	tbg_key_make(secret, 0, &words, req->path_len, &fast);
	tbg_key_make(secret, 0, &canonical, m->path_len, &slow);
	if (memcmp(&fast, &slow, sizeof(fast)) ||
	    !tbg_path_equal(&words, (uint8_t *)&canonical, m->path_len))
		abort();
}

static struct tbg_slice value(struct tbg_text t)
{
	return t.off ? (struct tbg_slice){ (char *)head->b + t.off, t.len } :
		       (struct tbg_slice){ 0 };
}

static void condition_check(const struct tbg_req *req, const struct tbg_message *m)
{
	static const uint8_t etag[40] = "\"5f3-1a2b\"";
	struct tbg_conditions c = {
		.if_none_match = value(m->inm), .if_modified_since = value(m->ims),
	};
	int status = tbg_condition(head, req, etag, 10, 784111777);

	if (status > 0 && status != (int)(tbg_conditions_eval(&c, (char *)etag, 10,
							       784111777) ?: 200))
		abort();
}

static void encoding_check(const struct tbg_req *req, const struct tbg_message *m)
{
	struct tbg_slice accept = value(m->ae);

	for (unsigned int have = 0; have <= TBG_ENCODINGS_ALL; have += 2)
		if (tbg_encode_choose(&accept, have) !=
		    (unsigned int)(req->ae_len ? tbg_encoding_choose(head, req->ae_off,
								     req->ae_len, have) : 0))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct tbg_message m = { 0 };
	struct tbg_req req;
	enum tbg_parsed p;
	uint8_t *copy;
	uint64_t once;

	if (len > TBG_REQ_MAX)
		return 0;
	if (!head)
		head = head_new();
	head_fill(head, data, len, HEAD_REST_END);
	copy = malloc(len ? len : 1);
	memcpy(copy, data, len);
	p = tbg_message_parse(&m, copy, len, TBG_REQ_MAX, path);
	free(copy);
	if (tbg_request_parse(head, &scan, len, &req))
		return 0;
	once = TBG_NAME_BIT(IF_NONE_MATCH) | TBG_NAME_BIT(IF_MODIFIED_SINCE) |
	       TBG_NAME_BIT(ACCEPT_ENCODING);

	if (p != TBG_PARSED_DONE || m.len != len || m.head_off || m.minor != 1 ||
	    m.close || m.chunked || m.content_length || m.asterisk ||
	    m.expect_continue || m.expect_other || m.repeated & once ||
	    m.im.off || m.ius.off || m.range.off || m.if_range.off)
		abort();
	if (m.method != (req.flags & TBG_REQ_HEAD ? TBG_METHOD_HEAD : TBG_METHOD_GET))
		abort();
	if (m.path_len != req.path_len ||
	    memcmp(path, head->b + req.path_off, req.path_len))
		abort();
	if (m.has_query != !!req.query_off)
		abort();
	same(m.query, req.query_off, req.query_len);
	same(m.host, req.host_off, req.host_len);
	same(m.inm, req.inm_off, req.inm_len);
	same(m.ims, req.ims_off, req.ims_len);
	same(m.ae, req.ae_off, req.ae_len);
	key_check(&req, &m);
	condition_check(&req, &m);
	encoding_check(&req, &m);
	return 0;
}
