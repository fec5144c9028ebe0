/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who answers the SYNs of connections that have no socket: where the host's firewall
 * could refuse a client (a netfilter chain at prerouting or input, or on the way to
 * it), the kernel, and wire takes the connection over at the client's ACK; elsewhere
 * wire. For wire.c, by the control thread alone.
 */
#ifndef TBG_USERD_BIRTHS_H
#define TBG_USERD_BIRTHS_H

#include <stdbool.h>
#include <stdint.h>

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
	bool forgets;		/* wire can have conntrack forget a connection */
	struct mnl_socket *nft;	/* which sends its changes; NULL: */
	int nft_err;		/* why not */
	int tables[2];		/* what iptables-legacy has, IPv4 and IPv6; or -1 */
	uint32_t mode;		/* TBG_BIRTHS_* of abi/knob.h */
	bool filters;		/* netfilter has a chain that could refuse a client */
	bool nats;		/* or one that translates addresses */
	unsigned int refused;	/* hand-overs whose segment a chain has dropped, ever, */
	unsigned int row;	/* and those with none in between that went well */
	char why[160];
};

/*
 * Begins to follow what netfilter has in this network namespace. Whatever cannot be
 * asked counts as a filter. forgets: see above. Needs CAP_NET_ADMIN, and to be root.
 */
void tbg_births_open(struct tbg_births *b, enum tbg_births_wanted wanted, bool forgets,
		     const struct tbg_routes *routes);
void tbg_births_close(struct tbg_births *b);

/* Who it is: kernel, wire or none. */
const char *tbg_births_text(const struct tbg_births *b);

/* Whether nftables has changed since it was last asked so. */
bool tbg_births_news(struct tbg_births *b);

/*
 * This many hand-overs have failed because netfilter drops what has not begun before its
 * eyes; well: one has not, since the last call. After a few in a row, connections are the
 * kernel's until nftables changes.
 */
void tbg_births_refused(struct tbg_births *b, unsigned int nr, bool well);

/* Asks again; true: mode is another now. Needs CAP_NET_ADMIN. */
bool tbg_births_look(struct tbg_births *b, const struct tbg_routes *routes);

#endif
