/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Entries by the prefix of clients that each is about: the one search and the one walk of
 * the connections that each client has (client/clients.c) and of the lists of clients
 * (tiers/bans.c). An entry begins with its struct tbg_prefix, and is its caller's memory.
 * Takes no lock.
 */
#ifndef TBG_USERD_OS_PREFIX_TREE_H
#define TBG_USERD_OS_PREFIX_TREE_H

#include <stdbool.h>

#include "os/units.h"

struct tbg_prefix_tree {
	void *root;			/* see tsearch(3); NULL: no entries */
};

/* NULL: there is none of exactly that prefix. */
void *tbg_prefix_tree_find(const struct tbg_prefix_tree *t, const struct tbg_prefix *p);

/* An entry of a prefix that has none yet. False: no memory. */
bool tbg_prefix_tree_add(struct tbg_prefix_tree *t, void *entry);

/* It is there, and stays its caller's. */
void tbg_prefix_tree_remove(struct tbg_prefix_tree *t, const void *entry);

/* Calls fn for each entry in the order of the prefixes; it may change no prefix. */
void tbg_prefix_tree_each(const struct tbg_prefix_tree *t, void (*fn)(void *entry, void *arg),
			  void *arg);

/* Frees all entries, by free(). */
void tbg_prefix_tree_free(struct tbg_prefix_tree *t);

#endif
