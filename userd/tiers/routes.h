/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What routes and settings of this network namespace ask of packets that wire sends
 * without a socket, by which interfaces it answers, and which are in VRFs. Reads alone:
 * needs no privilege.
 * What wire cannot do as the kernel's TCP would, it leaves to that.
 */
#ifndef TBG_USERD_ROUTES_H
#define TBG_USERD_ROUTES_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/conn.h"
#include "tiers/ways.h"

enum tbg_routes_left {
	TBG_LEFT_NOTHING,
	TBG_LEFT_SYNS,		/* the kernel answers SYNs, for wire to take over */
	TBG_LEFT_ALL,		/* connections stay the kernel's */
};

struct mnl_socket;

struct tbg_routes {
	struct mnl_socket *news;	/* of all that is here; NULL: it is asked for each time */
	bool again;		/* it is asked for the next time in any case */
	bool linked;		/* interfaces may be stacked otherwise than the maps have it */
	struct tbg_ways ways;
	int below[TBG_IFACES_MAX];	/* interfaces that the maps were set for */
	unsigned int below_nr;
	unsigned int vrfs;	/* interfaces that are in one */
	uint32_t segs_max;	/* least initcwnd of any route; 0: none has one */
	uint32_t mss_max;	/* least MTU of any; 0: none has one */
	uint32_t challenge_ms;	/* net.ipv4.tcp_invalid_ratelimit */
	uint8_t ttl, hops;
	bool no_df;		/* net.ipv4.ip_no_pmtu_disc */
	unsigned int offers[4];	/* net.ipv4.tcp_window_scaling, tcp_sack, tcp_timestamps, tcp_ecn */
	enum tbg_routes_left left;
	char why[120];		/* of what is left */
};

void tbg_routes_open(struct tbg_routes *ret);
void tbg_routes_close(struct tbg_routes *r);

/*
 * Asks for settings, and for routes if any has changed: there may be a million. Where they
 * cannot be asked for, everything is left.
 */
void tbg_routes_look(struct tbg_routes *r);

struct tbg_route_maps {
	int ways_fd, aboves_fd, vrfs_fd;
};

/*
 * Brings the maps up to date with what was looked at last. below: the interfaces that the
 * programs are on. Where that fails, everything is left.
 */
void tbg_routes_set(struct tbg_routes *r, const struct tbg_route_maps *m, const int *below,
		    unsigned int nr);

#endif
