/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Values as people write them, on the command line and in the configuration
 * file alike. Each returns false, and stores nothing, for what it is not.
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

bool tbg_value_bool(const char *v, bool *ret);		/* on, yes, true … */

/* Addresses that begin with the same bits; an IPv4 one as IPv6 maps it. */
struct tbg_prefix {
	uint8_t address[16];
	unsigned int bits;
};

/* "192.0.2.1", "10.0.0.0/8", "2001:db8::/32"; no bit set behind the prefix */
bool tbg_value_prefix(const char *v, struct tbg_prefix *ret);

/* The same, or "all" */
bool tbg_value_clients(const char *v, struct tbg_prefix *ret);

bool tbg_prefix_has(const struct tbg_prefix *p, const struct tbg_prefix *one);

/* No more than this many of its bits, the others cleared. */
void tbg_prefix_cut(struct tbg_prefix *p, unsigned int bits);

/* Whether it is of IPv4 addresses alone. */
bool tbg_prefix_is_v4(const struct tbg_prefix *p);

struct sockaddr;

/* An address as a prefix of all its bits; false: it is neither IPv4's nor IPv6's. */
bool tbg_prefix_of(const struct sockaddr *a, struct tbg_prefix *ret);

#define TBG_PREFIX_TEXT 64

/* "192.0.2.1", "2001:db8::1": without its bits */
void tbg_prefix_address_text(const struct tbg_prefix *p, char ret[TBG_PREFIX_TEXT]);

/* "192.0.2.1:80", "[2001:db8::1]:80" */
void tbg_prefix_end_text(const struct tbg_prefix *p, uint16_t port, char ret[TBG_PREFIX_TEXT]);

/* "10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32" */
void tbg_prefix_text(const struct tbg_prefix *p, char ret[TBG_PREFIX_TEXT]);

/* "eth0" or "eth0:xdp", up to a comma or the end */
bool tbg_value_iface(const char *v, char ret_name[16], bool *ret_xdp);

#endif
