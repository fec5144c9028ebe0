/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Settings and clock for the running BPF programs: one mmapped element of
 * tbg_knob. Only the daemon's control thread writes it, by plain stores.
 */
#ifndef TBG_ABI_KNOB_H
#define TBG_ABI_KNOB_H

#include "rate.h"
#include "types.h"

/*
 * Ring of Date texts by second: BPF needs no calendar, and a retransmitted
 * reply carries the Date of the first one. The daemon fills in the next
 * TBG_DATE_AHEAD seconds; if it stops, BPF passes requests up (CLOCK).
 */
#define TBG_DATE_RING	256
#define TBG_DATE_AHEAD	64

struct tbg_date {
	__u32 second;		/* CLOCK_REALTIME that text belongs to */
	__u8 text[44];		/* IMF-fixdate in the first 29 bytes, then zeros */
};

/* A listener; an all-zero address is the wildcard of its family. */
#define TBG_LISTENER_MAX 32

struct tbg_listener {
	__u32 local[4];		/* IPv4 addresses are IPv4-mapped */
	__u16 port;		/* network order; 0: unused */
	__u16 v6;		/* wildcard of IPv6 (1) or of IPv4 (0) */
};

/* How the site of a request is found. */
#define TBG_HOSTS_NONE	0	/* there is one site: Host is ignored */
#define TBG_HOSTS_ALL	1	/* tbg_hosts holds every name there is */
#define TBG_HOSTS_SOME	2	/* names that are not in it may exist: passed up */
#define TBG_HOSTS_MODES	4

/* Who answers SYNs (births); with translation always the kernel. */
#define TBG_BIRTHS_KERNEL 0	/* the kernel and its firewall; wire takes over afterwards */
#define TBG_BIRTHS_WIRE	1	/* wire, as soon as it knows what the kernel would offer */
#define TBG_BIRTHS_NONE	2	/* the kernel, and wire takes no connection over */

/*
 * Conntrack. FIRST: a connection must be known to it before the kernel gets a segment. ENTRIES: it
 * may have some of wire's connections. GUESS: FIRST may be wrong, for rules have just changed.
 */
#define TBG_TRACKS_FIRST 1
#define TBG_TRACKS_ENTRIES 2
#define TBG_TRACKS_GUESS 4

/* Checks of clients: allow and deny lists (tbg_bans), a request rate (tbg_buckets). */
#define TBG_CLIENTS_LISTED 1
#define TBG_CLIENTS_RATED 2

/* LOST: wire finds no sockets there, so all connections are the kernel's. */
#define TBG_VRFS_NONE	0
#define TBG_VRFS_LOST	1
#define TBG_VRFS_FOUND	2

struct tbg_knob {
	__u32 answer;		/* 1: kernel tiers may answer; 0: translate only */
	__u32 log;		/* 1: an event for each hit */
	__u32 vhost;		/* site of hosts that are not in tbg_hosts */
	__u32 hosts;		/* TBG_HOSTS_* + TBG_HOSTS_MODES * a number */
	__u32 uris;		/* 1: the index also has keys of whole URIs */
	__u32 births;		/* TBG_BIRTHS_*: who answers SYNs of connections without a socket */
	__u32 segs_max;		/* segments of the smallest initial window of a route; 0: ten */
	__u32 mss_max;		/* bytes of an IP packet by the smallest MTU of a route; 0: any */
	__u8 ttl, hops;		/* of packets that wire sends, IPv4 and IPv6 */
	__u8 no_df;		/* IPv4 without path MTU discovery */
	__u8 vrfs;		/* TBG_VRFS_*: whether some interface is in a VRF, see tbg_vrfs */
	__u32 reply_max;	/* --wire-size: bytes of the longest reply, head included; 0: any */
	__u32 held;		/* 1: wire answers nothing; sock may */
	__u32 clients;		/* TBG_CLIENTS_*: what to check before a client is answered */
	__u32 crowd_most;	/* connections of a client at once; 0: not counted */
	__u32 challenge_ms;	/* between two challenges of a connection, at least */
	__u32 ways;		/* changes when tbg_ways may have changed */
	__u32 labels;		/* mask of IPv6 flow labels; 0: none are sent */
	__u32 asks;		/* TBG_ASKS_*: for which versions of IP tbg_pairs has the ways */
	__u32 tracks;		/* TBG_TRACKS_*; 0: conntrack is not in use */
	__u16 ports_left[2];	/* first and last port of clients that rules select by */
	__u64 cookie[2];	/* key of the sequence numbers of wire's SYN-ACKs */
	__u64 key[2];		/* key of the cache's hash */
	__u64 published;	/* grows when an answer may have changed: index, hosts */
	__u64 real_ns;		/* CLOCK_REALTIME less CLOCK_MONOTONIC */
	struct tbg_rate rate;	/* request rate of each client */
	__u64 ports[65536 / 64]; /* bitmap by port number, host order */
	struct tbg_listener listener[TBG_LISTENER_MAX];
	struct tbg_date date[TBG_DATE_RING];
};

_Static_assert(sizeof(struct tbg_date) == 48, "abi");
_Static_assert(sizeof(struct tbg_listener) == 20, "abi");

#endif
