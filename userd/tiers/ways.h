/* SPDX-License-Identifier: GPL-2.0 */
/*
 * By which interfaces the kernel answers clients: its routes, for BPF, which has no look-up
 * of its own on a host that forwards nothing. Filled by routes.c; brought into the maps by
 * wire.c. Reads routes alone.
 */
#ifndef TBG_USERD_WAYS_H
#define TBG_USERD_WAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/tcb.h"

struct nlmsghdr;
struct tbg_links;

struct tbg_way_entry {
	struct tbg_way_key key;
	struct tbg_way way;
	uint64_t rank;			/* of routes to the same addresses, the least is taken */
};

/* A zero one is empty. */
struct tbg_ways {
	struct tbg_way_entry *at;	/* as read: in any order, and more than one to a key */
	unsigned int nr, room;
	struct tbg_way_entry *set;	/* in the map: in order of their keys */
	unsigned int set_nr, set_room;
	bool read;			/* anew, since it was last set */
};

/* Before routes are read; and again, where the reading begins once more. */
void tbg_ways_begin(struct tbg_ways *w);

/* Adds a route. NULL, or what is about it that no way can be told. */
const char *tbg_ways_add(struct tbg_ways *w, const struct nlmsghdr *h);

/* Brings the map up to date with what was read. 0 or negative errno. */
int tbg_ways_set(struct tbg_ways *w, int map_fd);

/* The same for the map of interfaces that lie on those in below, of which there are nr. */
int tbg_ways_aboves(const struct tbg_ways *w, const struct tbg_links *links, int map_fd,
		    const int *below, unsigned int nr);

void tbg_ways_close(struct tbg_ways *w);

#endif
