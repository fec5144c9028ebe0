/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interfaces by which the kernel answers clients: its routes as a map for BPF, which
 * has no route look-up of its own on a host without forwarding. Filled by routes.c;
 * written to the maps by wire.c.
 */
#ifndef TBG_USERD_TIERS_WAYS_H
#define TBG_USERD_TIERS_WAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/tcb.h"

struct nlmsghdr;
struct tbg_links;

struct tbg_way_entry {
	struct tbg_way_key key;
	struct tbg_way way;
	uint64_t rank;			/* the least wins among equal prefixes */
};

/* Empty if zeroed. */
struct tbg_ways {
	struct tbg_way_entry *at;	/* as read: unordered, several for a key */
	unsigned int nr, room;
	struct tbg_way_entry *set;	/* in the map: ordered by key */
	unsigned int set_nr, set_room;
	uint32_t *iface;		/* all interfaces that routes lead out of */
	unsigned int iface_nr, iface_room;
	bool read;			/* read again since the map was last set */
	bool more;			/* too many: the map has this host's addresses alone */
};

/* Before routes are read, and before each further attempt. */
void tbg_ways_begin(struct tbg_ways *w);

/*
 * Adds a route. Returns NULL, or the reason for which it cannot be represented. *ret_asks: then
 * the kernel can be asked instead.
 */
const char *tbg_ways_add(struct tbg_ways *w, const struct nlmsghdr *h, bool *ret_asks);

/* Reads the interfaces of a route; none where the kernel sends nothing or wraps it. */
void tbg_way_read(const struct nlmsghdr *h, struct tbg_way *ret);

/* Updates the map from what was read. 0 or negative errno. */
int tbg_ways_set(struct tbg_ways *w, int map_fd);

/* The same for the map of interfaces that lie on one of the nr in below. */
int tbg_ways_aboves(const struct tbg_ways *w, const struct tbg_links *links, int map_fd,
		    const int *below, unsigned int nr);

void tbg_ways_close(struct tbg_ways *w);

#endif
