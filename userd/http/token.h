/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The bytes allowed in tokens and in field values. The kernel tiers accept
 * fewer (bpf/core/request.h).
 */
#ifndef TBG_USERD_HTTP_TOKEN_H
#define TBG_USERD_HTTP_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* RFC 9110 5.6.2: tchar */
static inline bool tbg_token_byte(uint8_t c)
{
	static const bool tchar[256] = {
		['0' ... '9'] = true, ['A' ... 'Z'] = true, ['a' ... 'z'] = true,
		['!'] = true, ['#'] = true, ['$'] = true, ['%'] = true, ['&'] = true,
		['\''] = true, ['*'] = true, ['+'] = true, ['-'] = true, ['.'] = true,
		['^'] = true, ['_'] = true, ['`'] = true, ['|'] = true, ['~'] = true,
	};

	return tchar[c];
}

/* RFC 9110 5.5: field-vchar, SP, HTAB */
static inline bool tbg_value_byte(uint8_t c)
{
	static const bool value[256] = {
		['\t'] = true, [0x20 ... 0x7e] = true, [0x80 ... 0xff] = true,
	};

	return value[c];
}

/*
 * The number of bytes from b on, at most len, that are allowed in a field value; tested
 * eight at a time.
 */
static inline size_t tbg_value_run(const uint8_t *b, size_t len)
{
	const uint64_t ones = 0x0101010101010101, tops = 0x8080808080808080;
	size_t n = 0;

	for (; n + 8 <= len; n += 8) {
		uint64_t w, del;

		memcpy(&w, b + n, 8);
		del = w ^ 0x7f * ones;
		/* a byte below 0x20, or of 0 in del; the first one found is always right */
		if ((((w - 0x20 * ones) & ~w) | ((del - ones) & ~del)) & tops)
			break;
	}
	while (n < len && tbg_value_byte(b[n]))
		n++;
	return n;
}

/* RFC 5234 B.1: the value of a HEXDIG, lower case included; or -1. */
static inline int tbg_hex_value(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

#endif
