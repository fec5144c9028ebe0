// SPDX-License-Identifier: GPL-2.0
/*
 * Withdrawal: removes stored responses before they expire, after an unsafe request or a
 * purge by path, host or tag. Objects of the kernel tiers made from them are dropped,
 * too.
 */
#include <pthread.h>
#include <string.h>
#include <strings.h>

#include "http/header.h"
#include "http/request.h"
#include "store/responses.h"
#include "store/internal.h"

static void change_log(struct tbg_store *s, uint64_t hash)
{
	s->change[s->changes++ % CHANGES] = hash;
}

static unsigned int entry_withdraw(struct tbg_store *s, struct entry *e)
{
	unsigned int nr = tbg_store_entry_empty(s, e);

	s->withdrawn += nr;
	struct tbg_pending_fetch *f;

	LIST_FOREACH(f, &e->pending, link)
		f->doomed = true;
	if (LIST_EMPTY(&e->pending))
		tbg_store_entry_free(s, e);
	return nr;
}

void tbg_store_drop(struct tbg_store *s, const struct tbg_uri *u,
		    const struct tbg_stored *one)
{
	struct tbg_stored *at;
	uint64_t hash[2];
	struct entry *e;

	pthread_mutex_lock(&s->lock);
	e = tbg_store_entry_find(s, u, hash);
	for (at = e ? LIST_FIRST(&e->variants) : NULL; at; at = LIST_NEXT(at, link)) {
		if (at != one)
			continue;
		tbg_store_variant_drop(s, e, at);
		s->withdrawn++;
		if (LIST_EMPTY(&e->variants) && LIST_EMPTY(&e->pending))
			tbg_store_entry_free(s, e);
		break;
	}
	pthread_mutex_unlock(&s->lock);
}

/* Called with the lock held. */
static unsigned int withdraw(struct tbg_store *s, const struct tbg_uri *u, uint64_t hash)
{
	struct entry *e = tbg_store_entry_like(LIST_FIRST(&s->buckets[hash % BUCKETS]), u, hash);
	struct entry *next;
	unsigned int nr = 0;

	change_log(s, hash);
	for (; e; e = next) {
		next = tbg_store_entry_like(LIST_NEXT(e, bucket), u, hash);
		nr += entry_withdraw(s, e);
	}
	return nr;
}

unsigned int tbg_store_withdraw(struct tbg_store *s, const struct tbg_uri *u)
{
	uint64_t hash[2];
	unsigned int nr;

	tbg_store_uri_hash(s->key, u, hash);
	pthread_mutex_lock(&s->lock);
	nr = withdraw(s, u, hash[0]);
	pthread_mutex_unlock(&s->lock);
	return nr;
}

bool tbg_store_withdraw_own(struct tbg_store *s, const struct tbg_uri *u, uint64_t *seq)
{
	uint64_t hash[2];
	bool first;

	tbg_store_uri_hash(s->key, u, hash);
	pthread_mutex_lock(&s->lock);
	first = !tbg_store_changed_since(s, hash[0], *seq);
	withdraw(s, u, hash[0]);
	if (first)
		*seq = s->changes;
	pthread_mutex_unlock(&s->lock);
	return first;
}

/* The criterion of a purge and its argument: a path, a host or a tag. */
struct pick {
	bool (*takes)(const struct entry *e, const struct pick *p);
	const char *text;
	size_t len;
};

static bool takes_all(const struct entry *e, const struct pick *p)
{
	return true;
}

/* Decodes the entry's path, without the query. Negative: it is not valid. */
static int path_of(const struct entry *e, char ret[TBG_TARGET_MAX + 1])
{
	return tbg_target_path(e->uri + e->path_off, e->len - e->path_off, ret);
}

static bool takes_path(const struct entry *e, const struct pick *p)
{
	char path[TBG_TARGET_MAX + 1];
	int n = path_of(e, path);

	return n >= 0 && (size_t)n == p->len && !memcmp(path, p->text, p->len);
}

static bool takes_below(const struct entry *e, const struct pick *p)
{
	char path[TBG_TARGET_MAX + 1];
	int n = path_of(e, path);

	return n >= 0 && (size_t)n >= p->len && !memcmp(path, p->text, p->len);
}

/* Returns whether an authority names that host, with or without a port. */
static bool host_is(const char *authority, size_t len, const struct pick *p)
{
	if (len < p->len || strncasecmp(authority, p->text, p->len))
		return false;
	return len == p->len || authority[p->len] == ':';
}

static bool takes_host(const struct entry *e, const struct pick *p)
{
	return host_is(e->uri, e->path_off, p) ||
	       host_is(e->uri + e->len, e->proxy_host_len, p);
}

static bool word_has(struct tbg_slice v, const char *word, size_t len)
{
	const char *p = v.text, *end = v.text + v.len;

	while (p < end) {
		const char *from = p;

		while (p < end && *p != ' ' && *p != '\t' && *p != ',')
			p++;
		if (p - from == (long)len && !memcmp(from, word, len))
			return true;
		p++;
	}
	return false;
}

static bool stored_tagged(const struct tbg_stored *one, const char *tag)
{
	struct tbg_slice name, v;
	size_t at = 0;

	while (tbg_field_next(one->head, one->head_len, &at, &name, &v))
		if (tbg_slice_is(name, "Surrogate-Key") &&
		    word_has(v, tag, strlen(tag)))
			return true;
	return false;
}

static bool takes_tag(const struct entry *e, const struct pick *p)
{
	const struct tbg_stored *one;

	LIST_FOREACH(one, &e->variants, link)
		if (stored_tagged(one, p->text))
			return true;
	return false;
}

static unsigned int purge(struct tbg_store *s, const struct pick *p)
{
	struct entry *e, *older;
	unsigned int nr = 0;

	pthread_mutex_lock(&s->lock);
	/* the paths of fetches in progress are unknown here, so none of them is stored */
	change_log(s, 0);
	s->all_changed = s->changes;
	for (e = TAILQ_FIRST(&s->entries); e; e = older) {
		older = TAILQ_NEXT(e, use);
		if (p->takes(e, p))
			nr += entry_withdraw(s, e);
	}
	pthread_mutex_unlock(&s->lock);
	return nr;
}

unsigned int tbg_store_purge(struct tbg_store *s, const char *path, size_t len)
{
	return purge(s, &(struct pick){ path ? takes_path : takes_all, path, len });
}

unsigned int tbg_store_purge_below(struct tbg_store *s, const char *path,
				   size_t len)
{
	return purge(s, &(struct pick){ takes_below, path, len });
}

unsigned int tbg_store_purge_host(struct tbg_store *s, const char *host)
{
	return purge(s, &(struct pick){ takes_host, host, strlen(host) });
}

unsigned int tbg_store_purge_tag(struct tbg_store *s, const char *tag)
{
	return purge(s, &(struct pick){ takes_tag, tag, strlen(tag) });
}
