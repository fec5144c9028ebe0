/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Wire's replies that clients have not acknowledged in time: written again,
 * through their sockets, whose TCP has timers. For client/, which has these sockets.
 */
#ifndef TBG_USERD_TIERS_TAKE_BACK_H
#define TBG_USERD_TIERS_TAKE_BACK_H

#include "tiers/wire.h"

/*
 * The last len bytes of a reply that wire has sent, as it sent them, into out. Their
 * number, or -ESTALE: they are no longer held.
 */
int tbg_exchange_read(const struct tbg_maps *maps, const struct tbg_exchange *x,
		      uint32_t len, uint8_t *out, size_t size);

/*
 * Takes the unacknowledged end of wire's last reply on this slot back from
 * wire: at most size bytes of it go to out, for the caller to write next to
 * the socket, which has been given written bytes so far. Returns their number,
 * 0 where nothing is to be taken back, or negative errno, and the connection must be
 * reset: its bytes are no longer held (-ESTALE), or what it sends is not translated any
 * more (-ENETUNREACH), and the client has been told so.
 */
int tbg_take_back_bytes(const struct tbg_maps *maps, int slot, uint32_t written,
		   uint8_t *out, size_t size);

#endif
