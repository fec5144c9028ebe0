// SPDX-License-Identifier: GPL-2.0
/*
 * The index by file name, a tree of folders: finds the objects affected by a change of
 * a file or of a folder above it. Called with `names` held, except for the tbg_cache_
 * functions that lock it.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cache/objects.h"
#include "os/root.h"
#include "cache/internal.h"

#define DEPTH_MAX	64	/* limit of folders in a name, for a search of the log */

static struct dir *dir_find(struct tbg_cache *c, const char *name, size_t len,
			    uint64_t hash)
{
	struct dir *d;

	SLIST_FOREACH(d, &c->dir_buckets[hash & c->dir_mask], bucket)
		if (d->hash == hash && d->len == len && !memcmp(d->name, name, len))
			break;
	return d;
}

/* Returns the folder named by the first len bytes of name; makes it and its ancestors. */
static struct dir *dir_make(struct tbg_cache *c, const char *name, size_t len)
{
	uint64_t hash = tbg_name_hash(name, len);
	struct dir *d = dir_find(c, name, len, hash), *up = NULL;
	size_t up_len = len;

	if (d)
		return d;
	d = calloc(1, sizeof(*d) + len);
	if (!d)
		return NULL;
	d->hash = hash;
	d->len = len;
	memcpy(d->name, name, len);
	while (up_len && name[up_len - 1] != '/')
		up_len--;
	if (up_len)
		up = dir_make(c, name, up_len - 1);
	if (up_len && !up) {
		free(d);
		return NULL;
	}
	if (up) {
		d->parent = up;
		LIST_INSERT_HEAD(&up->children, d, sibling);
		up->nr++;
	}
	SLIST_INSERT_HEAD(&c->dir_buckets[hash & c->dir_mask], d, bucket);
	return d;
}

void tbg_cache_dir_prune(struct tbg_cache *c, struct dir *d)
{
	while (d && !d->nr) {
		struct dir *up = d->parent;

		SLIST_REMOVE(&c->dir_buckets[d->hash & c->dir_mask], d, dir, bucket);
		if (up) {
			LIST_REMOVE(d, sibling);
			up->nr--;
		}
		free(d);
		d = up;
	}
}

int tbg_cache_name_enter(struct tbg_cache *c, struct node *n)
{
	const char *name = n->o.name, *slash = strrchr(name, '/');
	struct dir *d = NULL;

	if (slash) {
		d = dir_make(c, name, slash - name);
		if (!d)
			return -ENOMEM;
		n->dir = d;
		LIST_INSERT_HEAD(&d->files, n, in_dir);
		d->nr++;
	}
	LIST_INSERT_HEAD(&c->name_buckets[n->name_hash & c->name_mask], n, by_name);
	return 0;
}

void tbg_cache_name_leave(struct tbg_cache *c, struct node *n)
{
	LIST_REMOVE(n, by_name);
	if (!n->dir)
		return;
	LIST_REMOVE(n, in_dir);
	n->dir->nr--;
	tbg_cache_dir_prune(c, n->dir);
}

bool tbg_cache_name_changed(const struct tbg_cache *c, const char *name, uint64_t seq)
{
	uint64_t now = tbg_cache_changes(c), hashes[DEPTH_MAX];
	unsigned int nr = 0;

	if (now == seq)
		return false;
	if (c->all_changed > seq || now - seq > CHANGE_NR)
		return true;
	hashes[nr++] = tbg_name_hash(name, strlen(name));
	for (const char *p = strchr(name, '/'); p; p = strchr(p + 1, '/')) {
		if (nr == DEPTH_MAX)
			return true;
		hashes[nr++] = tbg_name_hash(name, p - name);
	}
	for (; seq != now; seq++)
		for (unsigned int i = 0; i < nr; i++)
			if (c->change[seq % CHANGE_NR] == hashes[i])
				return true;
	return false;
}

bool tbg_cache_changed(struct tbg_cache *c, const char *name, uint64_t *seq)
{
	bool ret;

	if (tbg_cache_changes(c) == *seq)
		return false;
	pthread_mutex_lock(&c->names);
	ret = tbg_cache_name_changed(c, name, *seq);
	*seq = tbg_cache_changes(c);
	pthread_mutex_unlock(&c->names);
	return ret;
}

/* Returns the length of the name without the suffix of a variant; 0: it has none. */
static size_t plain_len(const char *name)
{
	static const char *const suffixes[] = {
#define X(id, coding, suffix) suffix,
		TBG_ENCODING_LIST(X)
#undef X
	};
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; dot && i < sizeof(suffixes) / sizeof(*suffixes); i++)
		if (!strcmp(dot + 1, suffixes[i]))
			return dot - name;
	return 0;
}

unsigned int tbg_cache_withdraw_name(struct tbg_cache *c, const char *name)
{
	size_t len = strlen(name), plain = plain_len(name);
	unsigned int nr;
	struct dir *d;

	if (!len)
		return tbg_cache_withdraw_all(c);
	pthread_mutex_lock(&c->names);
	nr = tbg_cache_withdraw_file(c, name, len);
	if (plain)
		nr += tbg_cache_withdraw_file(c, name, plain);
	d = dir_find(c, name, len, tbg_name_hash(name, len));
	if (d)
		nr += tbg_cache_withdraw_folder(c, d);
	pthread_mutex_unlock(&c->names);
	add(c->withdrawn, nr);
	return nr;
}

bool tbg_cache_has_name(struct tbg_cache *c, const char *name)
{
	uint64_t hash = tbg_name_hash(name, strlen(name));
	struct node *n;

	pthread_mutex_lock(&c->names);
	LIST_FOREACH(n, &c->name_buckets[hash & c->name_mask], by_name)
		if (n->name_hash == hash && !strcmp(n->o.name, name))
			break;
	pthread_mutex_unlock(&c->names);
	return n;
}
