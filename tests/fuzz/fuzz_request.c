// SPDX-License-Identifier: GPL-2.0
/*
 * Compares the fast grammar with the simple oracle: any bytes are accepted by both,
 * with the same offsets, or by neither; bytes after the request have no effect. A
 * difference aborts.
 */
#include <stdlib.h>

#include "head.h"
#include "oracle.h"
#include "core/conditional.h"
#include "core/encoding.h"
#include "core/key.h"

static struct tbg_head *head;
static struct tbg_scan scan;

static int parse(const uint8_t *data, size_t len, enum head_rest rest,
		 struct tbg_req *ret)
{
	memset(ret, 0, sizeof(*ret));
	head_fill(head, data, len, rest);
	return tbg_request_parse(head, &scan, len, ret);
}

static void key_check(const struct tbg_req *req)
{
	static const __u64 secret[2] = { 1, 2 };
	const uint8_t *path = head->b + req->path_off;
	struct tbg_key fast, slow;
	struct tbg_path words;

	if (tbg_path_load(head, req->path_off, req->path_len, &words))
		abort();
	tbg_key_make(secret, 3, &words, req->path_len, &fast);
	oracle_key(secret, 3, path, req->path_len, &slow);
	if (memcmp(&fast, &slow, sizeof(fast)) ||
	    memcmp(&words, path, req->path_len))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const uint8_t etag[40] = "\"5f3-1a2b\"";
	struct tbg_req req, other, want;
	int why, status;
	bool ok;

	if (len > TBG_REQ_MAX)
		return 0;
	if (!head)
		head = head_new();
	memset(&want, 0, sizeof(want));
	why = parse(data, len, HEAD_REST_END, &other);
	if (why != parse(data, len, HEAD_REST_HIGH, &req) ||
	    why != parse(data, len, HEAD_REST_TEXT, &req) ||
	    memcmp(&req, &other, sizeof(req)))
		abort();
	ok = oracle_request(data, len, &want);
	if (ok != !why || (ok && memcmp(&req, &want, sizeof(req))))
		abort();
	if (!ok)
		return 0;
	key_check(&req);
	for (unsigned int have = 0; req.ae_len && have < 16; have += 2)
		if (tbg_encoding_choose(head, req.ae_off, req.ae_len, have) !=
		    (int)oracle_encoding(data + req.ae_off, req.ae_len, have))
			abort();
	status = tbg_condition(head, &req, etag, 10, 784111777);
	if (status != 200 && status != 304 && status != -TBG_WHY_CONDITION)
		abort();
	return 0;
}
