// SPDX-License-Identifier: GPL-2.0
/*
 * Numbers with units, and prefixes of addresses. No I/O.
 */
#include "os/units.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses the digits at the start of v. Returns their end; NULL: none, or too many. */
static const char *digits(const char *v, unsigned long long *ret)
{
	char *end;

	if (*v < '0' || *v > '9')
		return NULL;
	errno = 0;
	*ret = strtoull(v, &end, 10);
	return errno ? NULL : end;
}

bool tbg_value_number(const char *v, unsigned long min, unsigned long max,
		      unsigned int *ret)
{
	unsigned long long n;
	const char *end = digits(v, &n);

	if (!end || *end || n < min || n > max)
		return false;
	*ret = n;
	return true;
}

bool tbg_value_size(const char *v, uint64_t min, uint64_t max, uint64_t *ret)
{
	static const char units[] = "KMGkmg";
	unsigned long long n;
	const char *end = digits(v, &n), *unit;
	int shift = 0;

	if (!end)
		return false;
	unit = *end ? strchr(units, *end) : NULL;
	if (unit) {
		shift = 10 * ((unit - units) % 3 + 1);
		end++;
	}
	if (*end || n > max >> shift || n << shift < min)
		return false;
	*ret = n << shift;
	return true;
}

bool tbg_value_rate(const char *v, uint64_t *ret_gap_ns)
{
	static const struct { const char *unit; uint64_t seconds; } units[] = {
		{ "", 1 }, { "/s", 1 }, { "/m", 60 }, { "/h", 3600 },
	};
	unsigned long long n = 0;
	const char *end = strcmp(v, "off") ? digits(v, &n) : "";

	if (!end || n > TBG_RATE_MAX)
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
		if (!strcmp(end, units[i].unit)) {
			*ret_gap_ns = n ? units[i].seconds * 1000000000 / n : 0;
			return true;
		}
	return false;
}

bool tbg_value_ms(const char *v, unsigned int *ret)
{
	unsigned long long n;
	const char *end = digits(v, &n);
	unsigned int unit = 1000;

	if (!end)
		return false;
	if (!strcmp(end, "ms"))
		unit = 1;
	else if (*end && strcmp(end, "s"))
		return false;
	if (!n || n > 86400000 / unit)
		return false;
	*ret = n * unit;
	return true;
}

bool tbg_value_seconds(const char *v, uint64_t *ret)
{
	static const struct {
		char letter;
		uint64_t seconds;
	} units[] = {
		{ 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 },
		{ 'w', 7 * 86400 }, { 'y', 365 * 86400 },
	};
	uint64_t unit = 1, most = 100 * 365 * 86400ull;
	unsigned long long n;
	const char *end = digits(v, &n);

	if (!end)
		return false;
	for (size_t i = 0; *end && i < sizeof(units) / sizeof(*units); i++)
		if (end[0] == units[i].letter && !end[1])
			unit = units[i].seconds, end++;
	if (*end || n > most / unit)
		return false;
	*ret = n * unit;
	return true;
}

bool tbg_value_bool(const char *v, bool *ret)
{
	static const char *const yes[] = { "on", "yes", "true" };
	static const char *const no[] = { "off", "no", "false" };

	for (int i = 0; i < 3; i++) {
		if (strcmp(v, yes[i]) && strcmp(v, no[i]))
			continue;
		*ret = !strcmp(v, yes[i]);
		return true;
	}
	return false;
}

/* Whether the bits of the prefix are the first ones of the other. */
static bool begins(const struct tbg_prefix *p, const struct tbg_prefix *one)
{
	unsigned int bytes = p->bits / 8, rest = p->bits % 8;

	return one->bits >= p->bits && !memcmp(p->address, one->address, bytes) &&
	       (!rest || !((p->address[bytes] ^ one->address[bytes]) >> (8 - rest)));
}

void tbg_prefix_cut(struct tbg_prefix *p, unsigned int bits)
{
	if (p->bits > bits)
		p->bits = bits;
	for (unsigned int bit = p->bits; bit < 128; bit++)
		p->address[bit / 8] &= ~(0x80 >> bit % 8);
}

const struct tbg_prefix tbg_prefix_v4 = { .address = { [10] = 0xff, 0xff }, .bits = 96 };

bool tbg_prefix_is_v4(const struct tbg_prefix *p)
{
	return begins(&tbg_prefix_v4, p);
}

bool tbg_prefix_is_around_v4(const struct tbg_prefix *p)
{
	return !p->all && p->bits < tbg_prefix_v4.bits && begins(p, &tbg_prefix_v4);
}

bool tbg_prefix_has(const struct tbg_prefix *p, const struct tbg_prefix *one)
{
	return begins(p, one) && !(tbg_prefix_is_around_v4(p) && tbg_prefix_is_v4(one));
}

bool tbg_prefix_of(const struct sockaddr *a, struct tbg_prefix *ret)
{
	*ret = (struct tbg_prefix){ .bits = 128 };
	if (a->sa_family == AF_INET) {
		memcpy(ret->address, tbg_prefix_v4.address, 12);
		memcpy(ret->address + 12, &((const struct sockaddr_in *)a)->sin_addr, 4);
	} else if (a->sa_family == AF_INET6) {
		memcpy(ret->address, &((const struct sockaddr_in6 *)a)->sin6_addr, 16);
	}
	return a->sa_family == AF_INET || a->sa_family == AF_INET6;
}

void tbg_prefix_address_text(const struct tbg_prefix *p, char ret[TBG_PREFIX_TEXT])
{
	bool v4 = tbg_prefix_is_v4(p);

	inet_ntop(v4 ? AF_INET : AF_INET6, p->address + (v4 ? 12 : 0), ret, TBG_PREFIX_TEXT);
}

void tbg_prefix_end_text(const struct tbg_prefix *p, uint16_t port, char ret[TBG_PREFIX_TEXT])
{
	char address[INET6_ADDRSTRLEN];
	bool v4 = tbg_prefix_is_v4(p);

	inet_ntop(v4 ? AF_INET : AF_INET6, p->address + (v4 ? 12 : 0), address, sizeof(address));
	snprintf(ret, TBG_PREFIX_TEXT, v4 ? "%s:%u" : "[%s]:%u", address, port);
}

void tbg_prefix_text(const struct tbg_prefix *p, char ret[TBG_PREFIX_TEXT])
{
	size_t len;

	tbg_prefix_address_text(p, ret);
	len = strlen(ret);
	snprintf(ret + len, TBG_PREFIX_TEXT - len, "/%u",
		 p->bits - (tbg_prefix_is_v4(p) ? 96 : 0));
}

bool tbg_value_prefix(const char *v, struct tbg_prefix *ret)
{
	struct tbg_prefix p = tbg_prefix_v4;
	size_t len = strcspn(v, "/");
	bool six = memchr(v, ':', len);
	unsigned int most = six ? 128 : 32;
	char text[INET6_ADDRSTRLEN];

	p.bits = most;
	if (len >= sizeof(text) || (v[len] && !tbg_value_number(v + len + 1, 0, most, &p.bits)))
		return false;
	memcpy(text, v, len);
	text[len] = 0;
	if (inet_pton(six ? AF_INET6 : AF_INET, text, six ? p.address : p.address + 12) != 1)
		return false;
	p.bits += 128 - most;
	for (unsigned int bit = p.bits; bit < 128; bit++)
		if (p.address[bit / 8] & (0x80 >> bit % 8))
			return false;
	*ret = p;
	return true;
}

bool tbg_value_clients(const char *v, struct tbg_prefix *ret)
{
	if (strcmp(v, "all"))
		return tbg_value_prefix(v, ret);
	*ret = (struct tbg_prefix){ .all = true };
	return true;
}

bool tbg_value_iface(const char *v, char ret_name[16], bool *ret_xdp)
{
	size_t len = strcspn(v, ":, "), rest = strcspn(v + len, ",");
	bool xdp = rest == 4 && !strncmp(v + len, ":xdp", 4);

	if (!len || len > 15 || (rest && !xdp))
		return false;
	memcpy(ret_name, v, len);
	ret_name[len] = 0;
	*ret_xdp = xdp;
	return true;
}
