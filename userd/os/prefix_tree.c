// SPDX-License-Identifier: GPL-2.0
/* A balanced tree of the C library, ordered by address, then by prefix length. */
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "os/prefix_tree.h"

/* Compares entries by their first member, the prefix. */
static int compare(const void *a, const void *b)
{
	const struct tbg_prefix *one = a, *other = b;
	int ret = memcmp(one->address, other->address, sizeof(one->address));

	return ret ?: (int)one->bits - (int)other->bits;
}

void *tbg_prefix_tree_find(const struct tbg_prefix_tree *t, const struct tbg_prefix *p)
{
	void **at = tfind(p, &t->root, compare);

	return at ? *at : NULL;
}

bool tbg_prefix_tree_add(struct tbg_prefix_tree *t, void *entry)
{
	return tsearch(entry, &t->root, compare);
}

void tbg_prefix_tree_remove(struct tbg_prefix_tree *t, const void *entry)
{
	tdelete(entry, &t->root, compare);
}

struct walk {
	void (*fn)(void *entry, void *arg);
	void *arg;
};

static void walk_node(const void *node, VISIT visit, void *arg)
{
	const struct walk *w = arg;

	if (visit == postorder || visit == leaf)
		w->fn(*(void **)node, w->arg);
}

void tbg_prefix_tree_each(const struct tbg_prefix_tree *t, void (*fn)(void *entry, void *arg),
			  void *arg)
{
	struct walk w = { fn, arg };

	twalk_r(t->root, walk_node, &w);
}

void tbg_prefix_tree_free(struct tbg_prefix_tree *t)
{
	tdestroy(t->root, free);
	t->root = NULL;
}
