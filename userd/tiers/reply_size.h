/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Bytes of the longest reply that wire sends, as shown by `toboggan status` and
 * `toboggan objects`. For a single request, tiers/ask.h asks wire itself.
 */
#ifndef TBG_USERD_TIERS_REPLY_SIZE_H
#define TBG_USERD_TIERS_REPLY_SIZE_H

#include <stdbool.h>

struct tbg_wire;

/* For the interface with this name; 0: there is none. */
unsigned int tbg_reply_size_mtu(const char *iface);

/* Bytes of a segment, and of a reply of --wire-size (0: auto); 0: none by IPv6. */
unsigned int tbg_reply_size_segment(unsigned int mtu, bool v6);
unsigned int tbg_reply_size_max(unsigned int wire_size, unsigned int mtu, bool v6);

/* For the interface with the largest; 0: wire is on none. */
unsigned int tbg_reply_size_longest(const struct tbg_wire *w, unsigned int wire_size);

#endif
