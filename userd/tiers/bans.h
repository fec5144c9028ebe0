/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Denied and allowed clients: from the configuration, and from commands, for a time or
 * permanently. The longest prefix that contains an address decides. Only the control
 * thread changes them; any thread looks them up. The kernel tiers' map has the same
 * content.
 */
#ifndef TBG_USERD_TIERS_BANS_H
#define TBG_USERD_TIERS_BANS_H

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
 * Replaces the lists from the configuration: deny and allow, values separated
 * by blanks, or NULL. 0 or negative errno.
 */
int tbg_bans_file(struct tbg_bans *b, const char *deny, const char *allow);

/*
 * Adds one by command. until_ns: CLOCK_MONOTONIC, 0: permanently. 0, -ENOSPC: too many,
 * or -ENOMEM.
 */
int tbg_bans_add(struct tbg_bans *b, const struct tbg_prefix *p, uint64_t until_ns);

/* Removes one of a command. -ENOENT: there is none; -EPERM: it is from the configuration. */
int tbg_bans_remove(struct tbg_bans *b, const struct tbg_prefix *p);

/* When the next one ends, CLOCK_MONOTONIC; 0: none does. */
uint64_t tbg_bans_next_ns(const struct tbg_bans *b);
/* Removes the bans that have ended. */
void tbg_bans_tick(struct tbg_bans *b, uint64_t now_ns);

/* Whether the peer of a connection is denied. */
bool tbg_bans_deny(struct tbg_bans *b, const struct sockaddr_storage *peer);
/* Whether any address is denied. */
bool tbg_bans_are(const struct tbg_bans *b);

/* One entry, to be shown. */
struct tbg_ban_shown {
	char text[64];			/* ADDRESS or ADDRESS/BITS */
	bool deny, filed;		/* of the configuration */
	uint64_t until_ns;
};

/* Calls fn for each, in the order of addresses. How many there are. */
unsigned int tbg_bans_each(struct tbg_bans *b,
			   void (*fn)(void *arg, const struct tbg_ban_shown *one), void *arg);

#endif
