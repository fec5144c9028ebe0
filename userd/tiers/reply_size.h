/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Bytes of the longest reply that wire sends: what `toboggan status` and `toboggan
 * objects` show. What becomes of one request, wire itself is asked (tiers/ask.h).
 */
#ifndef TBG_USERD_REPLY_SIZE_H
#define TBG_USERD_REPLY_SIZE_H

#include <stdbool.h>

struct tbg_wire;

/* Of an interface, by its name; 0: there is none. */
unsigned int tbg_reply_size_mtu(const char *iface);

/* Bytes of a segment, and of a reply of --wire-size (0: auto); 0: none by IPv6. */
unsigned int tbg_reply_size_segment(unsigned int mtu, bool v6);
unsigned int tbg_reply_size_max(unsigned int wire_size, unsigned int mtu, bool v6);

/* Of the interface that takes most; 0: wire is on none. */
unsigned int tbg_reply_size_longest(const struct tbg_wire *w, unsigned int wire_size);

#endif
