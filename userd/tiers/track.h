/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes conntrack take connections for established whose beginning, or part of which,
 * it has not seen. For wire.c.
 */
#ifndef TBG_USERD_TIERS_TRACK_H
#define TBG_USERD_TIERS_TRACK_H

#include "abi/conn.h"

/* 0 or negative errno. Needs CAP_NET_ADMIN. */
int tbg_track_establish(const struct tbg_flow_key *flow);

#endif
