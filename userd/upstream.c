// SPDX-License-Identifier: GPL-2.0
/*
 * Choosing is lock-free: counters that several workers race on are hints, and
 * a turn taken twice costs nothing.
 */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#include "upstream.h"

static bool unix_set(struct tbg_backend *b, const char *path)
{
	struct sockaddr_un *a = (struct sockaddr_un *)&b->address;

	if (*path != '/' || strlen(path) >= sizeof(a->sun_path))
		return false;
	a->sun_family = AF_UNIX;
	strcpy(a->sun_path, path);
	b->address_len = sizeof(*a);
	strcpy(b->authority, "localhost");
	return true;
}

/* HOST[:PORT] or [ADDR6][:PORT], up to a slash that ends the text. */
static bool inet_set(struct tbg_backend *b, const char *text)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found;
	size_t len = strcspn(text, "/");
	char host[256], *name = host, *port;

	if (!len || len >= sizeof(host) || (text[len] && text[len + 1]))
		return false;
	snprintf(host, sizeof(host), "%.*s", (int)len, text);
	strcpy(b->authority, host);
	port = strrchr(host, ':');
	if (*host == '[') {
		char *end = strchr(host, ']');

		if (!end || (end[1] && end[1] != ':'))
			return false;
		port = end[1] ? end + 1 : NULL;
		*end = 0;
		name++;
	}
	if (port)
		*port++ = 0;
	if (!*name || (port && (!*port || strspn(port, "0123456789") != strlen(port))))
		return false;
	if (getaddrinfo(name, port ?: "80", &hints, &found))
		return false;
	memcpy(&b->address, found->ai_addr, found->ai_addrlen);
	b->address_len = found->ai_addrlen;
	freeaddrinfo(found);
	return true;
}

bool tbg_upstream_add(struct tbg_upstream *u, const char *text)
{
	struct tbg_backend *b;
	bool http = !strncasecmp(text, "http://", 7);
	bool set;

	if (u->nr == TBG_BACKEND_MAX)
		return false;
	b = &u->backends[u->nr];
	snprintf(b->text, sizeof(b->text), "%s", text);
	if (http)
		text += 7;
	if (!strncmp(text, "unix:", 5))
		set = unix_set(b, text + 5);
	else
		set = http && inet_set(b, text);
	if (!set)
		return false;
	b->id = u->nr++;
	return true;
}

bool tbg_backend_rests(const struct tbg_backend *b, uint64_t now_ns)
{
	return atomic_load_explicit(&b->rest_ns, memory_order_relaxed) > now_ns;
}

struct tbg_backend *tbg_upstream_choose(struct tbg_upstream *u, uint32_t tried,
					uint64_t now_ns)
{
	uint32_t from = atomic_fetch_add_explicit(&u->turn, 1, memory_order_relaxed);
	struct tbg_backend *best = NULL, *resting = NULL;

	for (unsigned int i = 0; i < u->nr; i++) {
		struct tbg_backend *b = &u->backends[(from + i) % u->nr];

		if (tried & 1u << b->id)
			continue;
		if (tbg_backend_rests(b, now_ns)) {
			resting = resting ?: b;
			continue;
		}
		if (!u->least)
			return b;
		if (!best || atomic_load(&b->active) < atomic_load(&best->active))
			best = b;
	}
	return best ?: resting;
}

void tbg_backend_worked(struct tbg_backend *b)
{
	if (atomic_load_explicit(&b->failures, memory_order_relaxed))
		atomic_store_explicit(&b->failures, 0, memory_order_relaxed);
}

void tbg_backend_failed(struct tbg_backend *b, uint64_t now_ns)
{
	atomic_fetch_add_explicit(&b->failed, 1, memory_order_relaxed);
	if (atomic_fetch_add(&b->failures, 1) + 1 >= TBG_BACKEND_FAILURES)
		atomic_store(&b->rest_ns, now_ns + TBG_BACKEND_REST_NS);
}

void tbg_backend_found(struct tbg_backend *b, bool well, uint64_t rest_ns)
{
	if (well)
		atomic_store(&b->failures, 0);
	atomic_store(&b->rest_ns, well ? 0 : rest_ns);
}
