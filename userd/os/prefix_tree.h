/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Entries by prefix of client addresses, for the connections of each client
 * (client/clients.c) and for the lists of clients (tiers/bans.c). An entry begins with
 * its struct tbg_prefix and belongs to the caller. Takes no lock.
 */
#ifndef TBG_USERD_OS_PREFIX_TREE_H
#define TBG_USERD_OS_PREFIX_TREE_H

#include <stdbool.h>

#include "os/units.h"

struct tbg_prefix_tree {
	void *root;			/* see tsearch(3); NULL: no entries */
};

/* Finds the entry of exactly that prefix; NULL: none. */
void *tbg_prefix_tree_find(const struct tbg_prefix_tree *t, const struct tbg_prefix *p);

/* Adds an entry whose prefix has none yet. Returns false without memory. */
bool tbg_prefix_tree_add(struct tbg_prefix_tree *t, void *entry);

/* Removes an entry, which the caller still has to free. */
void tbg_prefix_tree_remove(struct tbg_prefix_tree *t, const void *entry);

/* Calls fn for each entry in the order of the prefixes. fn must not change prefixes. */
void tbg_prefix_tree_each(const struct tbg_prefix_tree *t, void (*fn)(void *entry, void *arg),
			  void *arg);

/* Frees all entries with free(). */
void tbg_prefix_tree_free(struct tbg_prefix_tree *t);

#endif
