/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Finds rules of iptables that do not fit connections without a socket. iptables-legacy has
 * tables of its own, which netlink does not list; iptables-nft writes into those of nftables.
 */
#ifndef TBG_USERD_TIERS_XTABLES_H
#define TBG_USERD_TIERS_XTABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TBG_XTABLES_NAMES_LEN 64

/* Whether there are rules that go wrong if conntrack has not seen a connection begin. */
struct tbg_netfilter_rules {
	bool counts;		/* a rule that limits the number of connections */
	bool turns;		/* a rule about the direction of a connection, or its zone */
};

/* The tables of one family in this network namespace. */
struct tbg_xtables {
	bool v6;
	int fd;			/* of the file with their names; or -1 */
	char names[TBG_XTABLES_NAMES_LEN];	/* one a line; when they were read */
	struct tbg_netfilter_rules rules;
};

/*
 * Reads the names of the tables, and their rules. The length of the names, 0: there are no tables;
 * or negative errno. What cannot be read counts as a rule that limits. Needs CAP_NET_ADMIN.
 */
int tbg_xtables_look(struct tbg_xtables *x);

/* Whether there is a table of this name. */
bool tbg_xtables_has(const struct tbg_xtables *x, const char *table);

/* Whether the names have changed since tbg_xtables_look(). Needs no privilege. */
bool tbg_xtables_moved(const struct tbg_xtables *x);

void tbg_xtables_close(struct tbg_xtables *x);

/* The file with the names of the tables. */
const char *tbg_xtables_file(const struct tbg_xtables *x);

/* Adds to *ret what a match or target needs: its name, its revision, and its data of len bytes. */
void tbg_xtables_extension(const char *name, unsigned int revision, const void *data, size_t len,
			   struct tbg_netfilter_rules *ret);

/*
 * Adds to *ret what the rules in an answer of the kernel's to IPT_SO_GET_ENTRIES need. True if all
 * len bytes could be read.
 */
bool tbg_xtables_rules(bool v6, const void *entries, size_t len, struct tbg_netfilter_rules *ret);

#endif
