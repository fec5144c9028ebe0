/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The bytes that tokens and values of fields are made of, for whoever reads or
 * checks them one by one. The kernel tiers know fewer (bpf/core/request.h).
 */
#ifndef TBG_USERD_TOKEN_H
#define TBG_USERD_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

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
	return c == '\t' || (c >= 0x20 && c != 0x7f);
}

/* RFC 5234 B.1: HEXDIG, small letters too; what it stands for, or -1. */
static inline int tbg_hex_value(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

#endif
