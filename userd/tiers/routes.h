/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Routes and sysctls of this network namespace, as far as they matter for packets that
 * wire sends without a socket; the interfaces by which it answers; and those in VRFs.
 * Read-only: needs no privilege. What wire cannot do exactly as the kernel's TCP is
 * left to the kernel.
 */
#ifndef TBG_USERD_TIERS_ROUTES_H
#define TBG_USERD_TIERS_ROUTES_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/conn.h"
#include "tiers/pairs.h"
#include "tiers/rules.h"
#include "tiers/ways.h"

enum tbg_routes_left {
	TBG_LEFT_NOTHING,
	TBG_LEFT_SYNS,		/* the kernel answers SYNs, for wire to take over */
	TBG_LEFT_ALL,		/* connections stay the kernel's */
};

struct mnl_socket;

struct tbg_routes {
	struct mnl_socket *news;	/* notifications of changes; NULL: read each time */
	bool again;		/* something has changed since they were read */
	uint32_t readings;	/* number of them, so far */
	uint64_t began_ns;	/* CPU time at the start of the reading in progress; or 0 */
	uint64_t next_ns;	/* no reading before */
	bool linked;		/* the stacking in the maps may be outdated */
	struct tbg_ways ways;
	struct tbg_rules rules;
	struct tbg_pairs pairs;		/* questions about single ways; opened by wire.c */
	int below[TBG_IFACES_MAX];	/* interfaces that the maps were made for */
	unsigned int below_nr;
	unsigned int vrfs;	/* number of interfaces in VRFs */
	uint32_t segs_max;	/* least initcwnd of all routes; 0: none is set */
	uint32_t mss_max;	/* least MTU of all routes; 0: none is set */
	uint32_t challenge_ms;	/* net.ipv4.tcp_invalid_ratelimit */
	uint32_t labels;	/* mask of IPv6 flow labels (net.ipv6.auto_flowlabels) */
	uint8_t ttl, hops;
	bool no_df;		/* net.ipv4.ip_no_pmtu_disc */
	bool cookies;		/* net.ipv4.tcp_syncookies is not 0 */
	bool reflects;		/* net.ipv4.tcp_reflect_tos */
	bool reflects_label;	/* net.ipv6.flowlabel_reflect, for connections */
	bool accepts_marks;	/* net.ipv4.tcp_fwmark_accept */
	unsigned int offers[4];	/* net.ipv4.tcp_window_scaling, tcp_sack, tcp_timestamps, tcp_ecn */
	enum tbg_routes_left left;
	char why[160];		/* reason for TBG_LEFT_* */
	bool services;		/* a route is for one TOS alone */
	uint8_t asks;		/* TBG_ASKS_*: the kernel is asked for each way */
	char asks_why[80];	/* the reason; or "" */
};

/* user: that of the daemon's sockets once they are accepted; others: this process's. */
void tbg_routes_open(struct tbg_routes *ret, uid_t user);
void tbg_routes_close(struct tbg_routes *r);

/*
 * Reads sysctls, and routes if any has changed and it is time for that. If that fails,
 * everything is left to the kernel.
 */
void tbg_routes_look(struct tbg_routes *r);

/* Readable when a route has changed; -1: there is none. */
int tbg_routes_fd(const struct tbg_routes *r);

/* Takes note of changes. Call it when the descriptor is readable. */
void tbg_routes_news(struct tbg_routes *r);

/* Whether routes have changed since they were read, and whether it is time to read them. */
bool tbg_routes_changed(const struct tbg_routes *r);
bool tbg_routes_due(const struct tbg_routes *r, uint64_t now_ns);

/* Adds the user of a listening socket. */
void tbg_routes_user(struct tbg_routes *r, uid_t user);

struct tbg_route_maps {
	int ways_fd, aboves_fd, vrfs_fd;
};

/*
 * Updates the maps from what was read last. below: the interfaces with our programs. If
 * that fails, everything is left to the kernel. Called after each tbg_routes_look().
 */
void tbg_routes_set(struct tbg_routes *r, const struct tbg_route_maps *m, const int *below,
		    unsigned int nr);

/* Copies what BPF takes from them. */
struct tbg_knob;
void tbg_routes_fill(const struct tbg_routes *r, struct tbg_knob *knob);

#endif
