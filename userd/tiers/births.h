/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Decides who answers SYNs with late sockets. If the host's firewall could refuse a
 * client (a netfilter chain that sees a SYN or SYN-ACK, or a BPF program of the daemon's
 * cgroup), the kernel does, and wire takes the connection over at the client's ACK; else
 * wire does. For wire.c, in
 * the control thread alone.
 */
#ifndef TBG_USERD_TIERS_BIRTHS_H
#define TBG_USERD_TIERS_BIRTHS_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/knob.h"
#include "tiers/xtables.h"

/* --births: X(name, text) */
#define TBG_BIRTHS_WANTED_LIST(X) \
	X(AUTO, "auto") \
	X(KERNEL, "kernel") \
	X(WIRE, "wire")

enum tbg_births_wanted {
#define X(name, text) TBG_WANTED_##name,
	TBG_BIRTHS_WANTED_LIST(X)
#undef X
	TBG_WANTED_NR
};

struct mnl_socket;
struct tbg_routes;

struct tbg_births {
	enum tbg_births_wanted wanted;
	bool forgets;		/* wire can remove a connection from conntrack */
	struct mnl_socket *nft;	/* reports changes of nftables; NULL: */
	int nft_err;		/* the reason */
	struct tbg_xtables xtables[2];	/* IPv4 and IPv6 */
	int cgroup_fd;		/* of the daemon; or negative */
	uint32_t mode;		/* TBG_BIRTHS_* of abi/knob.h */
	bool filters;		/* netfilter has a chain that could refuse a client */
	bool nats;		/* or one that translates addresses */
	uint32_t tracks;	/* TBG_TRACKS_* of abi/knob.h */
	int untracked;		/* negative errno: conntrack has refused the daemon's last entry */
	bool reroutes;		/* or may have one that sets marks or TOS of answers */
	struct tbg_netfilter_rules rules;	/* of nftables */
	bool rules_read;	/* since they were last changed */
	unsigned int refused;	/* hand-overs whose segment netfilter dropped: all, */
	unsigned int row;	/* and those in a row, without a successful one between */
	char why[160];
};

/* Before tbg_births_open(): there is nothing to close. */
#define TBG_BIRTHS_CLOSED { .xtables = { { .fd = -1 }, { .fd = -1 } }, .cgroup_fd = -1 }

/*
 * Begins to follow the netfilter rules of this network namespace. What cannot be
 * read counts as a filter. forgets: see above. Needs CAP_NET_ADMIN, and root.
 */
void tbg_births_open(struct tbg_births *b, enum tbg_births_wanted wanted, bool forgets,
		     const struct tbg_routes *routes);
void tbg_births_close(struct tbg_births *b);

/* The result in a word: kernel, wire or none. */
const char *tbg_births_text(const struct tbg_births *b);

/* Whether connections are added to conntrack before the kernel gets a segment of theirs. */
static inline bool tbg_births_tracks(const struct tbg_births *b)
{
	return b->mode != TBG_BIRTHS_NONE && b->tracks & TBG_TRACKS_FIRST;
}

/* Readable when nftables has changed; -1: there is none. */
int tbg_births_fd(const struct tbg_births *b);

/* Whether nftables has changed since the last call. */
bool tbg_births_news(struct tbg_births *b);

/*
 * Whether there are other tables of iptables-legacy than at tbg_births_look(). It sends no
 * notifications: call it a few times a second. Needs no privilege.
 */
bool tbg_births_moved(const struct tbg_births *b);

/*
 * Reports the number of hand-overs that failed because netfilter drops segments of
 * connections whose beginning it has not seen; well: one has succeeded since the last
 * call. After a few failures in a row, connections are added to conntrack first; after a few
 * more, they are the kernel's; until nftables changes.
 */
void tbg_births_refused(struct tbg_births *b, unsigned int nr, bool well);

/*
 * The tracks to go by until changed rules are read: NAT may have come, which loses late sockets
 * at once.
 */
uint32_t tbg_births_guess(const struct tbg_births *b);

/* Reads the rules again; true: mode has changed. Needs CAP_NET_ADMIN. */
bool tbg_births_look(struct tbg_births *b, const struct tbg_routes *routes);

#endif
