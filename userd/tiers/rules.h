/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The rules by which the kernel selects a routing table (`ip rule`), as far as they matter for
 * packets of the daemon's connections. For routes.c. Read-only: needs no privilege.
 */
#ifndef TBG_USERD_TIERS_RULES_H
#define TBG_USERD_TIERS_RULES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define TBG_RULES_USERS 3

struct tbg_rules {
	/* users of the daemon's sockets: before and after they were accepted */
	uid_t users[TBG_RULES_USERS];
	unsigned int users_nr;
	bool users_more;	/* there are others, too */
	/* what was read */
	uint8_t asks;		/* TBG_ASKS_*: routes depend on more than the client's address */
	uint8_t seen, local, main;	/* TBG_ASKS_*: has rules, such a rule */
	bool marks, services;	/* a rule selects by marks, by type of service */
	uint16_t ports[2];	/* first and last port of clients that rules select by */
	char left[96];		/* "", or why the kernel cannot be asked, either */
};

/* Reads the rules. 0 or negative errno. */
int tbg_rules_read(struct tbg_rules *r);

/* Adds a user that the daemon's sockets may have; false: that changes nothing. */
bool tbg_rules_user(struct tbg_rules *r, uid_t user);

#endif
