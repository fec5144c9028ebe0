// SPDX-License-Identifier: GPL-2.0
/*
 * Sites and locations: lookup, added fields, and memory.
 */
#include "site/site.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http/header.h"
#include "http/media_types.h"
#include "os/root.h"
#include "upstream/upstream.h"

/* --- lookup -------------------------------------------------------------- */

size_t tbg_host_name(const char *raw, size_t len, char ret[TBG_PATH_MAX])
{
	const char *end = memchr(raw, len && *raw == '[' ? ']' : ':', len);

	if (end)
		len = end - raw + (*end == ']');
	if (len && raw[len - 1] == '.')
		len--;
	if (len > TBG_PATH_MAX)
		return 0;
	for (size_t i = 0; i < len; i++)
		ret[i] = tbg_lower(raw[i]);
	return len;
}

static uint32_t name_hash(const char *name, size_t len, bool wild)
{
	uint32_t h = 2166136261u + wild;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)name[i]) * 16777619u;
	return h ^ h >> 15;
}

static const struct tbg_site *host_find(const struct tbg_sites *s,
					const char *name, size_t len, bool wild)
{
	uint32_t at = name_hash(name, len, wild) & s->table_mask;

	for (; s->table[at]; at = (at + 1) & s->table_mask) {
		const struct tbg_host_name *h = &s->hosts[s->table[at] - 1];

		if (h->wild == wild && h->len == len && !memcmp(h->name, name, len))
			return h->site;
	}
	return NULL;
}

static const struct tbg_site *site_named(const struct tbg_sites *s,
					 const char *name, size_t len)
{
	const struct tbg_site *site = host_find(s, name, len, false);

	for (size_t i = 1; !site && s->wild && i < len; i++)
		if (name[i] == '.')
			site = host_find(s, name + i, len - i, true);
	return site;
}

const struct tbg_site *tbg_site_find(const struct tbg_sites *s,
				     const char *host, size_t len)
{
	char name[TBG_PATH_MAX];

	if (!s->hosts_nr || !host)
		return s->fallback;
	len = tbg_host_name(host, len, name);
	return site_named(s, name, len) ?: s->fallback;
}

bool tbg_site_whole(const struct tbg_sites *s, const char *name, size_t len)
{
	return host_find(s, name, len, false);
}

bool tbg_site_named(const struct tbg_sites *s, const char *host)
{
	char name[TBG_PATH_MAX];

	if (!s->hosts_nr)
		return true;
	/* look up a wildcard name as it is written */
	if (host[0] == '*' && host[1] == '.')
		return host_find(s, name, tbg_host_name(host + 1, strlen(host + 1), name), true);
	return site_named(s, name, tbg_host_name(host, strlen(host), name));
}

static bool location_matches(const struct tbg_location *l, const char *path,
			     size_t len)
{
	if (len < l->match_len)
		return false;
	switch (l->kind) {
	case TBG_MATCH_EXACT:
		return len == l->match_len && !memcmp(path, l->match, len);
	case TBG_MATCH_SUFFIX:
		return !memcmp(path + len - l->match_len, l->match, l->match_len);
	case TBG_MATCH_PREFIX:
		return !memcmp(path, l->match, l->match_len);
	}
	return false;
}

const struct tbg_location *tbg_location_find(const struct tbg_site *site,
					     const char *path, size_t len)
{
	const struct tbg_location *l = site->locations;

	/* the last one, "/", matches everything */
	for (unsigned int i = 0; i + 1 < site->locations_nr; i++, l++)
		if (location_matches(l, path, len))
			break;
	return l;
}

const char *tbg_location_error(const struct tbg_location *l,
			       unsigned int status)
{
	for (unsigned int i = 0; i < l->error_pages_nr; i++)
		if (l->error_pages[i].status == status)
			return l->error_pages[i].path;
	return NULL;
}

/* --- added fields -------------------------------------------------------- */

static bool header_rules_apply(const struct tbg_header_rules *p, const char *type)
{
	size_t len;

	if (!p->type)
		return true;
	if (!type)
		return false;
	len = strlen(p->type);
	if (p->type[len - 1] == '/')
		return !strncasecmp(type, p->type, len);
	/* "text/html" also matches "text/html; charset=utf-8" */
	return !strncasecmp(type, p->type, len) &&
	       (!type[len] || type[len] == ';' || type[len] == ' ');
}

static bool header_same(const char *a, const char *b)
{
	size_t len = strcspn(a, ":");

	return len == strcspn(b, ":") && !strncasecmp(a, b, len);
}

/* Returns whether an inner scope sets the same field. */
static bool header_hidden(const struct tbg_location *l, const char *type,
			  unsigned int rules, const char *header)
{
	for (unsigned int i = rules + 1; i < l->header_rules_nr; i++) {
		const struct tbg_header_rules *p = &l->header_rules[i];

		for (unsigned int j = 0; j < p->headers_nr; j++)
			if (header_rules_apply(p, type) &&
			    header_same(p->headers[j], header))
				return true;
	}
	return false;
}

struct lines {
	char *at, *end;
};

static void add(struct lines *to, const char *a, const char *b, const char *c)
{
	const char *const parts[] = { a, b, c, "\r\n" };

	for (int i = 0; i < 4; i++) {
		size_t len = strlen(parts[i]);

		if (len > (size_t)(to->end - to->at))
			return;		/* config/location.c enforces the limit */
		to->at = mempcpy(to->at, parts[i], len);
	}
}

size_t tbg_location_fields(const struct tbg_location *l, unsigned int status,
			   const char *type, char ret[TBG_FIELDS_MAX + 1])
{
	const char *expires = "", *control = "";
	struct lines to = { ret, ret + TBG_FIELDS_MAX };
	char line[TBG_FIELDS_MAX];

	for (unsigned int i = 0; i < l->header_rules_nr; i++) {
		const struct tbg_header_rules *p = &l->header_rules[i];

		if (!header_rules_apply(p, type))
			continue;
		expires = p->expires ?: expires;
		control = p->cache_control ?: control;
	}
	if (status >= 400)
		expires = control = "";
	if (*expires && *control) {
		char *end = stpcpy(stpcpy(line, expires), ", ");

		stpcpy(end, control);
		add(&to, "Cache-Control: ", line, "");
	} else if (*expires || *control) {
		add(&to, "Cache-Control: ", expires, control);
	}
	for (unsigned int i = 0; i < l->header_rules_nr && status != 304; i++) {
		const struct tbg_header_rules *p = &l->header_rules[i];

		for (unsigned int j = 0; j < p->headers_nr; j++)
			if (header_rules_apply(p, type) &&
			    !header_hidden(l, type, i, p->headers[j]))
				add(&to, p->headers[j], "", "");
	}
	*to.at = 0;
	return to.at - ret;
}

/* --- memory -------------------------------------------------------------- */

struct tbg_sites *tbg_sites_new(struct tbg_roots *roots)
{
	struct tbg_sites *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->roots = roots;
	return s;
}

void *tbg_sites_alloc(struct tbg_sites *s, size_t size)
{
	void **blocks = reallocarray(s->blocks, s->blocks_nr + 1, sizeof(*blocks));

	if (!blocks)
		return NULL;
	s->blocks = blocks;
	blocks[s->blocks_nr] = calloc(1, size ?: 1);
	return blocks[s->blocks_nr] ? blocks[s->blocks_nr++] : NULL;
}

char *tbg_sites_text(struct tbg_sites *s, const char *text)
{
	char *ret = tbg_sites_alloc(s, strlen(text) + 1);

	return ret ? strcpy(ret, text) : NULL;
}

int tbg_sites_root(struct tbg_sites *s, const char *path)
{
	int *held = reallocarray(s->held, s->held_nr + 1, sizeof(*held)), nr;

	if (!held)
		return -ENOMEM;
	s->held = held;
	nr = tbg_root_get(s->roots, path);
	if (nr < 0)
		return nr;
	held[s->held_nr++] = nr;
	s->roots_nr += !s->has_root[nr];
	s->has_root[nr] = true;
	return s->roots_nr <= TBG_SITES_ROOTS ? nr : -E2BIG;
}

bool tbg_sites_upstream(struct tbg_sites *s, struct tbg_upstream *u)
{
	struct tbg_upstream **more = reallocarray(s->upstreams, s->upstreams_nr + 1,
						  sizeof(*more));

	if (!more) {
		tbg_upstream_put(u);
		return false;
	}
	s->upstreams = more;
	more[s->upstreams_nr++] = u;
	atomic_fetch_add(&u->sites, 1);
	return true;
}

struct tbg_upstream *tbg_sites_upstream_find(const struct tbg_sites *s,
					     const char *name)
{
	for (unsigned int i = 0; i < s->upstreams_nr; i++)
		if (!strcmp(s->upstreams[i]->name, name))
			return s->upstreams[i];
	return NULL;
}

bool tbg_sites_host(struct tbg_sites *s, const char *name,
		    const struct tbg_site *site)
{
	struct tbg_host_name *h, one = { .wild = *name == '*', .site = site };

	one.len = tbg_host_name(name + one.wild, strlen(name + one.wild), one.name);
	if (!one.len || s->hosts_nr == TBG_HOSTS_MAX)
		return false;
	for (unsigned int i = 0; i < s->hosts_nr; i++)
		if (s->hosts[i].wild == one.wild && s->hosts[i].len == one.len &&
		    !memcmp(s->hosts[i].name, one.name, one.len))
			return s->hosts[i].site == site;
	h = reallocarray(s->hosts, s->hosts_nr + 1, sizeof(*h));
	if (!h)
		return false;
	s->hosts = h;
	h[s->hosts_nr++] = one;
	s->wild |= one.wild;
	return true;
}

int tbg_sites_index(struct tbg_sites *s)
{
	uint32_t room = 4;

	while (room < 2 * s->hosts_nr + 1)
		room *= 2;
	s->table = calloc(room, sizeof(*s->table));
	if (!s->table)
		return -ENOMEM;
	s->table_mask = room - 1;
	for (unsigned int i = 0; i < s->hosts_nr; i++) {
		const struct tbg_host_name *h = &s->hosts[i];
		uint32_t at = name_hash(h->name, h->len, h->wild) & s->table_mask;

		while (s->table[at])
			at = (at + 1) & s->table_mask;
		s->table[at] = i + 1;
	}
	return 0;
}

void tbg_sites_hold(const struct tbg_sites *s)
{
	atomic_fetch_add(&((struct tbg_sites *)s)->refs, 1);
}

void tbg_sites_put(const struct tbg_sites *s)
{
	atomic_fetch_sub(&((struct tbg_sites *)s)->refs, 1);
}

bool tbg_sites_held(const struct tbg_sites *s)
{
	return atomic_load(&((struct tbg_sites *)s)->refs);
}

void tbg_sites_close(struct tbg_sites *s, void (*gone)(void *arg, int root),
		     void *arg)
{
	if (!s)
		return;
	for (unsigned int i = 0; i < s->held_nr; i++) {
		if (gone && tbg_root_last(s->roots, s->held[i]))
			gone(arg, s->held[i]);
		tbg_root_put(s->roots, s->held[i]);
	}
	for (unsigned int i = 0; i < s->upstreams_nr; i++) {
		atomic_fetch_sub(&s->upstreams[i]->sites, 1);
		tbg_upstream_put(s->upstreams[i]);
	}
	for (unsigned int i = 0; i < s->blocks_nr; i++)
		free(s->blocks[i]);
	free(s->upstreams);
	tbg_mime_close(s->mime);
	free(s->blocks);
	free(s->held);
	free(s->hosts);
	free(s->table);
	free(s);
}
