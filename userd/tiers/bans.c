// SPDX-License-Identifier: GPL-2.0
/*
 * Allow and deny lists: a tree of prefixes for the daemon, which decides, and the
 * kernel tiers' map, updated after it. The control thread changes them under a lock
 * that workers take to read.
 */
#include "tiers/bans.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>

#include "abi/ban.h"
#include "os/due.h"
#include "os/prefix_tree.h"
#include "tiers/maps.h"

enum filed { NOT_FILED, DENIED, ALLOWED };

struct ban {
	struct tbg_prefix prefix;
	enum filed filed;		/* state in the configuration, */
	enum filed next;		/* and in the one that is being read */
	bool rest, next_rest;		/* only for IPv4 clients without a prefix, likewise */
	bool commanded;			/* a command denies it, */
	struct tbg_due until;		/* until then; never: permanently */
};
static_assert(!offsetof(struct ban, prefix), "as the tree has it");

struct tbg_bans {
	const struct tbg_maps *maps;
	pthread_rwlock_t lock;
	struct tbg_prefix_tree tree;	/* of struct ban */
	_Atomic unsigned int nr;
	bool all_commanded;		/* a command denies all clients */
	unsigned int lengths[129];	/* number of prefixes with this many bits */
	struct tbg_due_heap ends;	/* of those that a command denies for a time */
};

static bool wanted(const struct ban *one)
{
	return one->commanded || one->filed != NOT_FILED;
}

static bool denies(const struct tbg_bans *b, const struct ban *one)
{
	return one->commanded || one->filed == DENIED || (one->rest && b->all_commanded);
}

/* Copies an entry to the kernel tiers' map. 0 or negative errno. */
static int map_update(const struct tbg_bans *b, const struct ban *one)
{
	struct tbg_ban_key key = { .bits = one->prefix.bits };
	uint32_t value = denies(b, one) ? TBG_BAN_DENY : TBG_BAN_ALLOW;

	if (!b->maps)
		return 0;
	memcpy(key.address, one->prefix.address, sizeof(key.address));
	if (!wanted(one))
		return bpf_map_delete_elem(b->maps->bans_fd, &key);
	return bpf_map_update_elem(b->maps->bans_fd, &key, &value, BPF_ANY);
}

static void nr_set(struct tbg_bans *b, unsigned int nr)
{
	atomic_store(&b->nr, nr);
	if (b->maps)
		tbg_maps_clients(b->maps, TBG_CLIENTS_LISTED, nr);
}

/* Finds or adds the entry of this prefix; NULL: see errno. */
static struct ban *get(struct tbg_bans *b, const struct tbg_prefix *p)
{
	struct ban *one = tbg_prefix_tree_find(&b->tree, p);

	if (one)
		return one;
	errno = ENOSPC;
	if (b->nr >= TBG_BANS_MAX)
		return NULL;
	errno = ENOMEM;
	one = calloc(1, sizeof(*one));
	if (!one)
		return NULL;
	one->prefix = *p;
	pthread_rwlock_wrlock(&b->lock);
	if (!tbg_prefix_tree_add(&b->tree, one)) {
		pthread_rwlock_unlock(&b->lock);
		free(one);
		errno = ENOMEM;
		return NULL;
	}
	b->lengths[p->bits]++;
	nr_set(b, b->nr + 1);
	pthread_rwlock_unlock(&b->lock);
	return one;
}

/* After a change: updates the map, and removes an entry that is no longer needed. */
static int settle(struct tbg_bans *b, struct ban *one)
{
	int err = map_update(b, one);

	if (wanted(one))
		return err;
	pthread_rwlock_wrlock(&b->lock);
	tbg_prefix_tree_remove(&b->tree, one);
	b->lengths[one->prefix.bits]--;
	nr_set(b, b->nr - 1);
	pthread_rwlock_unlock(&b->lock);
	free(one);
	return err;
}

/* Notes that a command denies this prefix, or no longer. */
static int command_note(struct tbg_bans *b, struct ban *one, bool commanded)
{
	struct ban *v4 = NULL;

	pthread_rwlock_wrlock(&b->lock);
	one->commanded = commanded;
	if (one->prefix.all || (!one->prefix.bits && commanded)) {
		one->prefix.all = true;
		b->all_commanded = commanded;
		v4 = tbg_prefix_tree_find(&b->tree, &tbg_prefix_v4);
	}
	pthread_rwlock_unlock(&b->lock);
	return v4 ? map_update(b, v4) : 0;
}

int tbg_bans_add(struct tbg_bans *b, const struct tbg_prefix *p, uint64_t until_ns)
{
	struct ban *one = get(b, p);
	int err;

	if (!one)
		return -errno;
	err = command_note(b, one, true) ?: tbg_due_set(&b->ends, &one->until, until_ns) ?:
	      map_update(b, one);
	if (err)
		tbg_bans_remove(b, p);
	return err;
}

int tbg_bans_remove(struct tbg_bans *b, const struct tbg_prefix *p)
{
	struct ban *one = tbg_prefix_tree_find(&b->tree, p);

	if (!one)
		return -ENOENT;
	if (!one->commanded)
		return -EPERM;
	tbg_due_set(&b->ends, &one->until, 0);
	command_note(b, one, false);
	settle(b, one);
	return 0;
}

/* --- the rules of the configuration ---------------------------------------- */

/*
 * Collects entries that are processed after the walk, since the tree must not change
 * during it.
 */
struct found {
	struct ban **ban;
	unsigned int nr;
};

/* What the lists of the configuration contain; filled while reading them. */
struct reading {
	enum filed all;			/* their entry for `all` */
	bool around_v4;			/* whether they have an IPv6 prefix as ::/1 */
};

static void found_changed(void *entry, void *arg)
{
	struct ban *one = entry;
	struct found *f = arg;

	if (one->filed != one->next || one->rest != one->next_rest || !wanted(one))
		f->ban[f->nr++] = one;
}

static void next_clear(void *entry, void *arg)
{
	struct ban *one = entry;

	one->next = NOT_FILED;
	one->next_rest = false;
	one->prefix.all = one->commanded && !one->prefix.bits;
}

static int file_one(struct tbg_bans *b, const struct tbg_prefix *p, enum filed filed)
{
	struct ban *one = get(b, p);

	if (!one)
		return -errno;
	one->next = filed;
	one->prefix.all |= p->all;
	return 0;
}

static enum filed next_of(const struct tbg_bans *b, const struct tbg_prefix *p)
{
	const struct ban *one = tbg_prefix_tree_find(&b->tree, p);

	return one ? one->next : NOT_FILED;
}

/*
 * Adds the verdict on clients without a prefix in the lists. IPv4 addresses are found as
 * IPv4-mapped ones, thus by an IPv6 prefix such as ::/1, too, which does not concern
 * them: beside one, they have an entry of their own.
 */
static int file_rest(struct tbg_bans *b, const struct reading *r, enum filed others)
{
	static const struct tbg_prefix all = { .all = true };
	struct ban *v4;
	int err;

	if (r->around_v4 && next_of(b, &tbg_prefix_v4) == NOT_FILED) {
		err = file_one(b, &tbg_prefix_v4, r->all ?: others);
		if (err)
			return err;
		v4 = tbg_prefix_tree_find(&b->tree, &tbg_prefix_v4);
		v4->next_rest = true;
	}
	if (others == DENIED && next_of(b, &all) == NOT_FILED)
		return file_one(b, &all, DENIED);
	return 0;
}

static int file_list(struct tbg_bans *b, const char *list, enum filed filed, struct reading *r)
{
	struct tbg_prefix p;
	char text[64];
	size_t len;
	int err = 0;

	for (const char *at = list ?: ""; *at && !err; at += len + !!at[len]) {
		len = strcspn(at, " ");
		snprintf(text, sizeof(text), "%.*s", (int)len, at);
		if (!len || !tbg_value_clients(text, &p))
			continue;
		err = file_one(b, &p, filed);
		r->around_v4 |= tbg_prefix_is_around_v4(&p);
		if (p.all)
			r->all = filed;
	}
	return err;
}

int tbg_bans_file(struct tbg_bans *b, const char *deny, const char *allow)
{
	struct reading r = { 0 };
	struct found f = { 0 };
	int err, res;

	tbg_prefix_tree_each(&b->tree, next_clear, NULL);
	err = file_list(b, deny, DENIED, &r);
	err = err ?: file_list(b, allow, ALLOWED, &r);
	err = err ?: file_rest(b, &r, allow && !deny ? DENIED : ALLOWED);
	f.ban = calloc(b->nr + 1, sizeof(*f.ban));
	if (!f.ban)
		return -ENOMEM;
	tbg_prefix_tree_each(&b->tree, found_changed, &f);
	pthread_rwlock_wrlock(&b->lock);
	for (unsigned int i = 0; i < f.nr; i++) {
		f.ban[i]->filed = f.ban[i]->next;
		f.ban[i]->rest = f.ban[i]->next_rest;
	}
	pthread_rwlock_unlock(&b->lock);
	for (unsigned int i = 0; i < f.nr; i++) {
		res = settle(b, f.ban[i]);
		err = err ?: res == -ENOENT ? 0 : res;
	}
	free(f.ban);
	return err;
}

/* --- time ------------------------------------------------------------------- */

static struct ban *ban_of(struct tbg_due *until)
{
	return (struct ban *)((char *)until - offsetof(struct ban, until));
}

uint64_t tbg_bans_next_ns(const struct tbg_bans *b)
{
	const struct tbg_due *first = tbg_due_first(&b->ends);

	return first ? first->at_ns : 0;
}

void tbg_bans_tick(struct tbg_bans *b, uint64_t now_ns)
{
	struct tbg_due *first;

	while ((first = tbg_due_first(&b->ends)) && first->at_ns <= now_ns)
		tbg_bans_remove(b, &ban_of(first)->prefix);
}

/* --- who asks ---------------------------------------------------------------- */

bool tbg_bans_are(const struct tbg_bans *b)
{
	return atomic_load_explicit(&b->nr, memory_order_relaxed);
}

bool tbg_bans_deny(struct tbg_bans *b, const struct sockaddr_storage *peer)
{
	const struct ban *one = NULL;
	struct tbg_prefix p;
	bool ret;

	if (!tbg_bans_are(b) || !peer || !tbg_prefix_of((const void *)peer, &p))
		return false;
	pthread_rwlock_rdlock(&b->lock);
	for (int bits = 128; bits >= 0 && !one; bits--) {
		if (bits < 128)
			p.address[bits / 8] &= ~(0x80 >> bits % 8);
		p.bits = bits;
		if (b->lengths[bits])
			one = tbg_prefix_tree_find(&b->tree, &p);
		if (one && !wanted(one))	/* not complete yet */
			one = NULL;
	}
	ret = one && denies(b, one);
	pthread_rwlock_unlock(&b->lock);
	return ret;
}

struct showing {
	const struct tbg_bans *bans;
	void (*fn)(void *arg, const struct tbg_ban_shown *one);
	void *arg;
};

static void show(void *entry, void *arg)
{
	const struct ban *one = entry;
	struct showing *s = arg;
	struct tbg_ban_shown shown = {
		.deny = denies(s->bans, one), .filed = !one->commanded,
		.until_ns = one->until.at_ns,
	};

	if (one->prefix.all)
		strcpy(shown.text, "all");
	else if (one->prefix.bits == 128)
		tbg_prefix_address_text(&one->prefix, shown.text);
	else
		tbg_prefix_text(&one->prefix, shown.text);
	s->fn(s->arg, &shown);
}

unsigned int tbg_bans_each(struct tbg_bans *b,
			   void (*fn)(void *arg, const struct tbg_ban_shown *one), void *arg)
{
	struct showing s = { b, fn, arg };

	tbg_prefix_tree_each(&b->tree, show, &s);
	return b->nr;
}

int tbg_bans_open(struct tbg_bans **ret, const struct tbg_maps *maps)
{
	struct tbg_bans *b = calloc(1, sizeof(*b));

	*ret = b;
	if (!b)
		return -ENOMEM;
	b->maps = maps;
	pthread_rwlock_init(&b->lock, NULL);
	return 0;
}

void tbg_bans_close(struct tbg_bans *b)
{
	if (!b)
		return;
	tbg_due_free(&b->ends);
	tbg_prefix_tree_free(&b->tree);
	pthread_rwlock_destroy(&b->lock);
	free(b);
}
