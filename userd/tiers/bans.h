/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Clients that are denied or allowed: of the configuration, and by command until a time
 * or for good. The longest prefix that has an address decides. Changed by the control
 * thread alone, asked by any; what the kernel tiers look up is kept the same.
 */
#ifndef TBG_USERD_BANS_H
#define TBG_USERD_BANS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct tbg_bans;
struct tbg_maps;
struct tbg_prefix;

/* maps: NULL without kernel tiers. 0 or -ENOMEM. */
int tbg_bans_open(struct tbg_bans **ret, const struct tbg_maps *maps);
void tbg_bans_close(struct tbg_bans *b);

/*
 * What the configuration says, in place of what it said before: its deny and allow,
 * values with blanks between, or NULL. 0 or negative errno.
 */
int tbg_bans_file(struct tbg_bans *b, const char *deny, const char *allow);

/* until_ns: CLOCK_MONOTONIC, 0: for good. 0, -ENOSPC: there are too many, or -ENOMEM. */
int tbg_bans_add(struct tbg_bans *b, const struct tbg_prefix *p, uint64_t until_ns);

/* Of a command. -ENOENT: there is none; -EPERM: it is the configuration's. */
int tbg_bans_remove(struct tbg_bans *b, const struct tbg_prefix *p);

/* About once a second: those whose time is over go. */
void tbg_bans_tick(struct tbg_bans *b, uint64_t now_ns);

/* Whether the peer of a connection is denied. */
bool tbg_bans_deny(struct tbg_bans *b, const struct sockaddr_storage *peer);
/* Whether anybody may be. */
bool tbg_bans_are(const struct tbg_bans *b);

/* One of a list, for those who show it. */
struct tbg_ban_shown {
	char text[64];			/* as people write it */
	bool deny, filed;		/* of the configuration */
	uint64_t until_ns;
};

/* Calls fn for each, in the order of addresses. How many there are. */
unsigned int tbg_bans_each(struct tbg_bans *b,
			   void (*fn)(void *arg, const struct tbg_ban_shown *one), void *arg);

#endif
