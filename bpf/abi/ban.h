/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Allow and deny lists of clients: the longest prefix that contains an address
 * decides whether the client is denied.
 */
#ifndef TBG_ABI_BAN_H
#define TBG_ABI_BAN_H

#include "types.h"

#define TBG_BANS_MAX	(1u << 20)

struct tbg_ban_key {
	__u32 bits;
	__u32 address[4];	/* IPv4 addresses are IPv4-mapped */
};

/* Value of tbg_bans. */
#define TBG_BAN_ALLOW	0
#define TBG_BAN_DENY	1

_Static_assert(sizeof(struct tbg_ban_key) == 20, "abi");

#endif
