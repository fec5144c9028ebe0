/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Parses values of the command line and the configuration file. Each function returns
 * false for an invalid value, and then stores nothing.
 */
#ifndef TBG_USERD_OS_UNITS_H
#define TBG_USERD_OS_UNITS_H

#include <stdbool.h>
#include <stdint.h>

bool tbg_value_number(const char *v, unsigned long min, unsigned long max,
		      unsigned int *ret);

/* "512", "64K", "256M", "4G" */
bool tbg_value_size(const char *v, uint64_t min, uint64_t max, uint64_t *ret);

/* "30", "30s" or "500ms": up to a day */
bool tbg_value_ms(const char *v, unsigned int *ret);

/* "10", "10/s", "30/m" or "100/h": the time between two, in ns; "0" and "off": 0 */
#define TBG_RATE_MAX 1000000
bool tbg_value_rate(const char *v, uint64_t *ret_gap_ns);

/* "0", "90", "90s", "10m", "12h", "30d", "2w", "1y": up to 100 years */
bool tbg_value_seconds(const char *v, uint64_t *ret);

bool tbg_value_bool(const char *v, bool *ret);		/* on, yes, true; off, no, false */

/* Addresses that share their first bits. IPv4 addresses are IPv4-mapped. */
struct tbg_prefix {
	uint8_t address[16];
	unsigned int bits;
	bool all;			/* "all": without bits, and of both families */
};

/* "192.0.2.1", "10.0.0.0/8", "2001:db8::/32"; all bits after the prefix must be 0 */
bool tbg_value_prefix(const char *v, struct tbg_prefix *ret);

/* As tbg_value_prefix(), or "all". */
bool tbg_value_clients(const char *v, struct tbg_prefix *ret);

/* An IPv6 prefix has no IPv4 addresses, even if it contains the IPv4-mapped ones. */
bool tbg_prefix_has(const struct tbg_prefix *p, const struct tbg_prefix *one);

/* ::ffff:0:0/96, which is 0.0.0.0/0 */
extern const struct tbg_prefix tbg_prefix_v4;

/* Returns whether it is an IPv6 prefix that contains the IPv4-mapped addresses, as ::/1. */
bool tbg_prefix_is_around_v4(const struct tbg_prefix *p);

/* Shortens the prefix to at most this many bits and clears the others. */
void tbg_prefix_cut(struct tbg_prefix *p, unsigned int bits);

/* Returns whether it contains only IPv4 addresses. */
bool tbg_prefix_is_v4(const struct tbg_prefix *p);

struct sockaddr;

/* Makes a prefix of all bits of an address. Returns false unless it is IPv4 or IPv6. */
bool tbg_prefix_of(const struct sockaddr *a, struct tbg_prefix *ret);

#define TBG_PREFIX_TEXT 64

/* "192.0.2.1", "2001:db8::1": without the prefix length */
void tbg_prefix_address_text(const struct tbg_prefix *p, char ret[TBG_PREFIX_TEXT]);

/* "192.0.2.1:80", "[2001:db8::1]:80" */
void tbg_prefix_end_text(const struct tbg_prefix *p, uint16_t port, char ret[TBG_PREFIX_TEXT]);

/* "10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32" */
void tbg_prefix_text(const struct tbg_prefix *p, char ret[TBG_PREFIX_TEXT]);

/* "eth0" or "eth0:xdp", up to a comma or the end */
bool tbg_value_iface(const char *v, char ret_name[16], bool *ret_xdp);

#endif
