/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A request head in memory as the tests of the core want it: its last byte is
 * the last before a page that faults, and what stands behind the request is
 * hostile, as it is in BPF where the previous request lies there.
 */
#ifndef TBG_TESTS_LIB_HEAD_H
#define TBG_TESTS_LIB_HEAD_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/span.h"

/* Page-sized neighbours; never freed. */
__attribute__((unused)) static struct tbg_head *head_new(void)
{
	const size_t page = 4096;
	uint8_t *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	_Static_assert(sizeof(struct tbg_head) <= 4096, "one page");
	if (p == MAP_FAILED || mprotect(p + page, page, PROT_NONE))
		abort();
	return (struct tbg_head *)(p + page - sizeof(struct tbg_head));
}

/* What is left behind the request by those before it. */
enum head_rest { HEAD_REST_TEXT, HEAD_REST_END, HEAD_REST_HIGH, HEAD_REST_NR };

__attribute__((unused))
static void head_fill(struct tbg_head *h, const void *req, size_t len,
		      enum head_rest rest)
{
	static const char ends[] = "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";

	if (len > sizeof(h->b))
		abort();
	memcpy(h->b, req, len);
	for (size_t i = len; i < sizeof(h->b); i++)
		h->b[i] = rest == HEAD_REST_TEXT ? 'a' :
			  rest == HEAD_REST_HIGH ? 0xff :
			  ends[(i - len) % (sizeof(ends) - 1)];
}

#endif
