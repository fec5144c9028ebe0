// SPDX-License-Identifier: GPL-2.0
/*
 * A tree of clients by prefix. A client is removed with its last connection, so there
 * are never more clients than connections.
 */
#include "client/clients.h"

#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "os/prefix_tree.h"

struct tbg_client {
	struct tbg_prefix prefix;
	unsigned int connections, heads;
};
static_assert(!offsetof(struct tbg_client, prefix), "as the tree has it");

struct tbg_clients {
	pthread_mutex_t lock;
	struct tbg_prefix_tree tree;	/* of struct tbg_client */
	void (*changed)(void *arg, const struct tbg_prefix *client, unsigned int nr);
	void *changed_arg;
};

struct tbg_clients *tbg_clients_make(void)
{
	struct tbg_clients *ret = calloc(1, sizeof(*ret));

	if (ret)
		pthread_mutex_init(&ret->lock, NULL);
	return ret;
}

void tbg_clients_watch(struct tbg_clients *all,
		       void (*changed)(void *arg, const struct tbg_prefix *client,
				       unsigned int nr),
		       void *arg)
{
	all->changed = changed;
	all->changed_arg = arg;
}

/* Called under the lock, so that calls arrive in the order of the changes. */
static void count_report(const struct tbg_clients *all, const struct tbg_client *c)
{
	if (all->changed)
		all->changed(all->changed_arg, &c->prefix, c->connections);
}

void tbg_clients_free(struct tbg_clients *all)
{
	if (!all)
		return;
	tbg_prefix_tree_free(&all->tree);
	pthread_mutex_destroy(&all->lock);
	free(all);
}

/* Returns the client of that prefix and makes it if necessary. Called under the lock. */
static struct tbg_client *get(struct tbg_clients *all, const struct tbg_prefix *prefix)
{
	struct tbg_client *ret = tbg_prefix_tree_find(&all->tree, prefix);

	if (ret)
		return ret;
	ret = malloc(sizeof(*ret));
	if (!ret)
		return NULL;
	*ret = (struct tbg_client){ .prefix = *prefix };
	if (tbg_prefix_tree_add(&all->tree, ret))
		return ret;
	free(ret);
	return NULL;
}

struct tbg_client *tbg_client_join(struct tbg_clients *all, const struct tbg_prefix *prefix,
				   unsigned int *ret_nr)
{
	struct tbg_client *c;

	pthread_mutex_lock(&all->lock);
	c = get(all, prefix);
	if (c)
		*ret_nr = ++c->connections;
	if (c)
		count_report(all, c);
	pthread_mutex_unlock(&all->lock);
	return c;
}

void tbg_client_leave(struct tbg_clients *all, struct tbg_client *c)
{
	bool last;

	pthread_mutex_lock(&all->lock);
	last = !--c->connections;
	count_report(all, c);
	if (last)
		tbg_prefix_tree_remove(&all->tree, c);
	pthread_mutex_unlock(&all->lock);
	if (last)
		free(c);
}

bool tbg_client_head_begin(struct tbg_clients *all, struct tbg_client *c, unsigned int most)
{
	bool ret;

	pthread_mutex_lock(&all->lock);
	ret = c->heads < most;
	c->heads += ret;
	pthread_mutex_unlock(&all->lock);
	return ret;
}

void tbg_client_head_end(struct tbg_clients *all, struct tbg_client *c)
{
	pthread_mutex_lock(&all->lock);
	c->heads--;
	pthread_mutex_unlock(&all->lock);
}
