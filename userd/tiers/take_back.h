/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Take-back: replies of wire that clients have not acknowledged in time are written
 * to their sockets, whose TCP then retransmits them. For client/, which has these
 * sockets.
 */
#ifndef TBG_USERD_TIERS_TAKE_BACK_H
#define TBG_USERD_TIERS_TAKE_BACK_H

#include "tiers/wire.h"

/*
 * Takes the unacknowledged end of wire's last reply on this slot back: copies at most
 * size bytes to out, which the caller writes to the socket next. written: bytes written
 * to the socket so far. Returns their number; 0 if there is nothing to take back; or
 * negative errno, and the connection must be reset: the bytes are no longer available
 * (-ESTALE), or its segments are no longer translated (-ENETUNREACH; the client has
 * been sent a reset).
 */
int tbg_take_back_bytes(const struct tbg_maps *maps, int slot, uint32_t written,
		   uint8_t *out, size_t size);

#endif
