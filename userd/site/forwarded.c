// SPDX-License-Identifier: GPL-2.0
/*
 * The nearest hop appends to X-Forwarded-For, so the list is read from its end: the
 * first address that is not a trusted proxy is the client. Addresses before it may be
 * forged.
 */
#include "site/forwarded.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "os/units.h"
#include "http/header.h"
#include "http/request.h"
#include "site/site.h"

#define HOPS_MAX 32		/* limit of chained proxies; earlier elements are not read */

bool tbg_trusts(const struct tbg_location *l, const char *peer)
{
	struct tbg_prefix one;

	if (!l->proxies_nr || !tbg_value_prefix(peer, &one))
		return false;
	for (unsigned int i = 0; i < l->proxies_nr; i++)
		if (tbg_prefix_has(&l->proxies[i], &one))
			return true;
	return false;
}

/* --- ids ----------------------------------------------------------------- */

/* Distributes a counter over all bits (splitmix64). */
static uint64_t spread(uint64_t n)
{
	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9ull;
	n = (n ^ n >> 27) * 0x94d049bb133111ebull;
	return n ^ n >> 31;
}

void tbg_request_id_make(char ret[TBG_REQUEST_ID_MADE + 1])
{
	static _Thread_local uint64_t thread, nr;

	while (!thread)		/* unique for this thread while it runs */
		if (getrandom(&thread, sizeof(thread), 0) != sizeof(thread))
			thread = (uintptr_t)&thread;
	nr += 0x9e3779b97f4a7c15ull;
	snprintf(ret, TBG_REQUEST_ID_MADE + 1, "%016llx%016llx", (unsigned long long)thread,
		 (unsigned long long)spread(thread + nr));
}

bool tbg_request_id_valid(struct tbg_slice id)
{
	for (size_t i = 0; i < id.len; i++)
		if (id.text[i] <= ' ' || id.text[i] > '~' || id.text[i] == '"' || id.text[i] == '\\')
			return false;
	return id.len && id.len <= TBG_REQUEST_ID_MAX;
}

/* --- the client ---------------------------------------------------------- */

/* Takes the address from "192.0.2.1", "192.0.2.1:80", "2001:db8::1" or "[2001:db8::1]:80". */
static bool address_take(struct tbg_slice v, char ret[INET6_ADDRSTRLEN])
{
	unsigned char bytes[sizeof(struct in6_addr)];
	const char *end = v.text + v.len, *colon;

	if (v.len && *v.text == '[') {
		v.text++;
		end = memchr(v.text, ']', v.len - 1);
		if (!end)
			return false;
	} else {
		colon = memchr(v.text, ':', v.len);
		if (colon && !memchr(colon + 1, ':', end - colon - 1))
			end = colon;
	}
	v.len = end - v.text;
	if (!v.len || v.len >= INET6_ADDRSTRLEN)
		return false;
	memcpy(ret, v.text, v.len);
	ret[v.len] = 0;
	return inet_pton(strchr(ret, ':') ? AF_INET6 : AF_INET, ret, bytes) == 1;
}

/* Returns for= of an element of Forwarded (RFC 7239 4) without quotes; len 0: none. */
static struct tbg_slice for_of(struct tbg_slice element)
{
	const char *at = element.text, *end = at + element.len;

	while (at < end) {
		const char *semi = memchr(at, ';', end - at) ?: end;
		struct tbg_slice v = { at + 4, semi - at - 4 };

		while (at < semi && *at == ' ')
			at++, v.text++, v.len--;
		if (semi - at > 4 && !strncasecmp(at, "for=", 4)) {
			if (v.len > 1 && *v.text == '"' && v.text[v.len - 1] == '"')
				v.text++, v.len -= 2;
			return v;
		}
		at = semi + 1;
	}
	return (struct tbg_slice){ "", 0 };
}

/* Returns the number of elements of a list. ret: a ring of the last HOPS_MAX. */
static unsigned int hops_read(const char *head, size_t len, struct tbg_slice name,
			      struct tbg_slice ret[HOPS_MAX])
{
	struct tbg_elements e = { .b = head, .len = len };
	unsigned int nr = 0;

	while (tbg_elements_next(&e, name, &ret[nr % HOPS_MAX]))
		nr++;
	return nr;
}

static void client_find(struct tbg_forwarded *ret, const struct tbg_location *l, const char *head,
			size_t len)
{
	struct tbg_slice hops[HOPS_MAX], one;
	char address[INET6_ADDRSTRLEN];
	unsigned int nr = hops_read(head, len, TBG_SLICE("X-Forwarded-For"), hops), left;
	bool standard = !nr;

	if (standard)
		nr = hops_read(head, len, TBG_SLICE("Forwarded"), hops);
	for (left = nr < HOPS_MAX ? nr : HOPS_MAX; left; left--) {
		one = hops[--nr % HOPS_MAX];
		if (!address_take(standard ? for_of(one) : one, address))
			return;		/* "unknown": the client is not known beyond the proxy */
		strcpy(ret->client, address);
		if (!tbg_trusts(l, address))
			return;
	}
}

/* --- the request head ---------------------------------------------------- */

/* The parts of a request's head. */
struct asked {
	struct tbg_slice target, host;
	const char *fields;
};

/*
 * Returns the authority of an absolute target, which replaces Host (RFC 9112 3.2.2);
 * len 0: none.
 */
static struct tbg_slice authority_of(struct tbg_slice target)
{
	static const char scheme[] = "http://";
	size_t skip = strlen(scheme);
	const char *at = target.text + skip, *end;

	if (target.len <= skip || strncasecmp(target.text, scheme, skip))
		return (struct tbg_slice){ "", 0 };
	for (end = at; end < target.text + target.len && !strchr("/?", *end); end++)
		;
	return (struct tbg_slice){ at, end - at };
}

/* Returns false if the head is malformed. */
static bool head_read(const char *head, size_t len, struct asked *ret)
{
	const char *lf, *target, *end;

	while (len && (*head == '\r' || *head == '\n'))	/* RFC 9112 2.2 */
		head++, len--;
	lf = memchr(head, '\n', len);
	if (!lf || !(target = memchr(head, ' ', lf - head)))
		return false;
	target++;
	end = memchr(target, ' ', lf - target);
	if (!end)
		return false;
	*ret = (struct asked){ .target = { target, end - target }, .fields = lf + 1 };
	ret->host = authority_of(ret->target);
	if (!ret->host.len)
		tbg_field_find(lf + 1, head + len - lf - 1, "Host", &ret->host);
	return true;
}

const struct tbg_site *tbg_forwarded_site(const struct tbg_sites *sites, const char *head,
					  size_t len)
{
	struct asked a;

	return head_read(head, len, &a) && a.host.len ?
	       tbg_site_find(sites, a.host.text, a.host.len) : sites->fallback;
}

/* Returns the location of a request; NULL: the head is malformed. */
static const struct tbg_location *location_of(const struct tbg_sites *sites, const char *head,
					      size_t len, const char **ret_fields)
{
	char path[TBG_TARGET_MAX + 1];
	struct asked a;
	int n;

	if (!head_read(head, len, &a))
		return NULL;
	*ret_fields = a.fields;
	n = tbg_target_path(a.target.text, a.target.len, path);
	return tbg_location_find(tbg_site_find(sites, a.host.text, a.host.len), path,
				 n > 0 ? n : 0);
}

void tbg_forwarded_read(struct tbg_forwarded *ret, const struct tbg_sites *sites, const char *head,
		   size_t len, const char *peer)
{
	const struct tbg_location *l;
	struct tbg_slice id = { "", 0 };
	const char *fields;

	*ret->client = *ret->id = 0;
	l = sites->proxies ? location_of(sites, head, len, &fields) : NULL;
	if (l && tbg_trusts(l, peer)) {
		len = head + len - fields;
		client_find(ret, l, fields, len);
		tbg_field_find(fields, len, "X-Request-ID", &id);
	}
	if (!tbg_request_id_valid(id)) {
		tbg_request_id_make(ret->id);
		return;
	}
	memcpy(ret->id, id.text, id.len);
	ret->id[id.len] = 0;
}
