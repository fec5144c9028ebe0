// SPDX-License-Identifier: GPL-2.0
/*
 * Removes objects before they expire: by key, path, folder, or all. Existing references
 * remain valid.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "cache/objects.h"
#include "os/root.h"
#include "cache/internal.h"

unsigned int tbg_cache_withdraw_node(struct tbg_cache *c, struct node *n)
{
	struct shard *sh = shard_of(c, &n->o.key);
	bool linked;

	pthread_mutex_lock(&sh->lock);
	linked = n->linked;
	if (linked)
		tbg_cache_unlink_node(c, sh, n, true);
	pthread_mutex_unlock(&sh->lock);
	return linked;
}

unsigned int tbg_cache_withdraw(struct tbg_cache *c, struct tbg_object *o)
{
	unsigned int nr;

	pthread_mutex_lock(&c->names);
	nr = tbg_cache_withdraw_node(c, node_of(o));
	pthread_mutex_unlock(&c->names);
	add(c->withdrawn, nr);
	return nr;
}

/* Withdraws all objects for which fn returns true. */
static unsigned int withdraw_if(struct tbg_cache *c,
				bool (*fn)(const struct node *n, void *arg),
				void *arg)
{
	unsigned int nr = 0;

	for (int i = 0; i < SHARD_NR; i++) {
		struct shard *sh = &c->shards[i];

		pthread_mutex_lock(&sh->lock);
		for (uint64_t b = 0; b <= sh->mask; b++) {
			struct node *n = SLIST_FIRST(&sh->buckets[b]), *next;

			for (; n; n = next) {
				next = SLIST_NEXT(n, bucket);
				if (!fn(n, arg))
					continue;
				tbg_cache_unlink_node(c, sh, n, true);
				nr++;
			}
		}
		pthread_mutex_unlock(&sh->lock);
	}
	add(c->withdrawn, nr);
	return nr;
}

static bool node_any(const struct node *n, void *arg)
{
	return true;
}

struct wanted_path {
	uint32_t vhost;
	const char *path;
	size_t len;
	bool below;		/* also paths that begin with it */
};

static bool node_is_wanted(const struct node *n, void *arg)
{
	const struct wanted_path *w = arg;

	return (w->vhost == TBG_VHOST_ANY || n->o.vhost == w->vhost) &&
	       (w->below ? n->o.path_len >= w->len : n->o.path_len == w->len) &&
	       !memcmp(n->o.path, w->path, w->len);
}

/* Checks every object: each variant of a path has its own key. */
static unsigned int withdraw_paths(struct tbg_cache *c, struct wanted_path w)
{
	unsigned int nr;

	pthread_mutex_lock(&c->names);
	nr = withdraw_if(c, node_is_wanted, &w);
	pthread_mutex_unlock(&c->names);
	return nr;
}

unsigned int tbg_cache_withdraw_path(struct tbg_cache *c, uint32_t vhost,
				     const char *path, size_t path_len)
{
	return withdraw_paths(c, (struct wanted_path){ vhost, path, path_len, false });
}

unsigned int tbg_cache_withdraw_below(struct tbg_cache *c, uint32_t vhost,
				      const char *prefix, size_t prefix_len)
{
	return withdraw_paths(c, (struct wanted_path){ vhost, prefix, prefix_len, true });
}

static void change_log(struct tbg_cache *c, uint64_t hash)
{
	uint64_t seq = tbg_cache_changes(c);

	c->change[seq % CHANGE_NR] = hash;
	atomic_store_explicit(&c->changes, seq + 1, memory_order_release);
}

/* Called with `names` held. */
static void change_log_all(struct tbg_cache *c)
{
	change_log(c, 0);
	c->all_changed = tbg_cache_changes(c);
}

void tbg_cache_break_leases(struct tbg_cache *c)
{
	pthread_mutex_lock(&c->names);
	change_log_all(c);
	pthread_mutex_unlock(&c->names);
}

unsigned int tbg_cache_withdraw_all(struct tbg_cache *c)
{
	unsigned int nr;

	pthread_mutex_lock(&c->names);
	change_log_all(c);
	nr = withdraw_if(c, node_any, NULL);
	pthread_mutex_unlock(&c->names);
	return nr;
}

unsigned int tbg_cache_withdraw_folder(struct tbg_cache *c, struct dir *top)
{
	unsigned int nr = 0;

	top->nr++;
	while (top->nr > 1) {
		struct dir *d = top;

		while (LIST_EMPTY(&d->files))
			d = LIST_FIRST(&d->children);
		nr += tbg_cache_withdraw_node(c, LIST_FIRST(&d->files));
	}
	top->nr--;
	tbg_cache_dir_prune(c, top);
	return nr;
}

unsigned int tbg_cache_withdraw_file(struct tbg_cache *c, const char *name, size_t len)
{
	uint64_t hash = tbg_name_hash(name, len);
	struct node *n, *next;
	unsigned int nr = 0;

	change_log(c, hash);
	for (n = LIST_FIRST(&c->name_buckets[hash & c->name_mask]); n; n = next) {
		next = LIST_NEXT(n, by_name);
		if (n->name_hash == hash && !strncmp(n->o.name, name, len) &&
		    !n->o.name[len])
			nr += tbg_cache_withdraw_node(c, n);
	}
	return nr;
}
