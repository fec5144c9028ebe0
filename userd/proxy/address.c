// SPDX-License-Identifier: GPL-2.0
/*
 * Each name is looked up once, however often a configuration is gone through.
 */
#include "proxy/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

struct name {
	struct name *next;
	char *host, *port;
	bool known;
	int err;		/* of getaddrinfo() */
	unsigned int nr;	/* addresses, once it is known without err */
	struct sockaddr_storage *addresses;
};

static struct name *names;
static bool notes;		/* instead of looking up */

static int address_compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct sockaddr_storage));
}

/* In an order of our own: all are used in turn, and a resolver's may change each time. */
static int look(struct name *n, int flags)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags }, *found;
	int err = getaddrinfo(n->host, n->port, &hints, &found);

	if (err)
		return err;
	n->nr = 0;
	memset(n->addresses, 0, TBG_ADDRESSES_MAX * sizeof(*n->addresses));
	for (const struct addrinfo *a = found; a && n->nr < TBG_ADDRESSES_MAX; a = a->ai_next)
		if (a->ai_family == AF_INET || a->ai_family == AF_INET6)
			memcpy(&n->addresses[n->nr++], a->ai_addr, a->ai_addrlen);
	freeaddrinfo(found);
	qsort(n->addresses, n->nr, sizeof(*n->addresses), address_compare);
	return n->nr ? 0 : EAI_NONAME;
}

static void name_free(struct name *n)
{
	free(n->host);
	free(n->port);
	free(n->addresses);
	free(n);
}

/* Numbers are known at once. */
static struct name *name_new(const char *host, const char *port)
{
	struct name *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->host = strdup(host);
	n->port = strdup(port);
	n->addresses = calloc(TBG_ADDRESSES_MAX, sizeof(*n->addresses));
	if (!n->host || !n->port || !n->addresses) {
		name_free(n);
		return NULL;
	}
	n->addresses->ss_family = AF_INET;
	n->nr = 1;
	n->known = !look(n, AI_NUMERICHOST);
	n->next = names;
	names = n;
	return n;
}

int tbg_address_find(const char *host, const char *port, unsigned int nr,
		     struct sockaddr_storage *ret, socklen_t *ret_len)
{
	struct name *n = names;

	while (n && (strcmp(n->host, host) || strcmp(n->port, port)))
		n = n->next;
	n = n ?: name_new(host, port);
	if (!n)
		return EAI_MEMORY;
	if (!n->known && !notes)
		tbg_addresses_look();
	if (n->err)
		return n->err;
	if (nr >= n->nr)
		return EAI_NONAME;
	*ret = n->addresses[nr];
	*ret_len = ret->ss_family == AF_INET ? sizeof(struct sockaddr_in)
					     : sizeof(struct sockaddr_in6);
	return 0;
}

void tbg_addresses_note(void)
{
	for (struct name *n; (n = names);) {
		names = n->next;
		name_free(n);
	}
	notes = true;
}

bool tbg_addresses_noted(void)
{
	for (const struct name *n = names; n; n = n->next)
		if (!n->known)
			return true;
	return false;
}

void tbg_addresses_look(void)
{
	for (struct name *n = names; n; n = n->next) {
		if (n->known)
			continue;
		n->err = look(n, 0);
		n->known = true;
	}
}
