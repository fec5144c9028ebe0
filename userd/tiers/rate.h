/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Limit of requests per second and client prefix: one token bucket for each client,
 * shared by all tiers. Set by the control thread, charged by any worker. Memory is
 * fixed: a flood of clients makes limits of others less strict, never stricter.
 */
#ifndef TBG_USERD_TIERS_RATE_H
#define TBG_USERD_TIERS_RATE_H

#include <stdbool.h>
#include <stdint.h>

struct tbg_maps;
struct tbg_prefix;
struct tbg_rates;

#define TBG_RATE_V4_BITS 32
#define TBG_RATE_V6_BITS 128

struct tbg_rate_settings {
	uint64_t gap_ns;		/* between two requests; 0: no limit */
	uint64_t burst;			/* requests at once; 0: those of a second */
	unsigned int v4_bits, v6_bits;	/* leading address bits that identify a client */
};

/* maps: NULL without kernel tiers. key: of the hash of clients. 0 or -ENOMEM. */
int tbg_rates_open(struct tbg_rates **ret, const struct tbg_maps *maps, const uint64_t key[2]);
void tbg_rates_close(struct tbg_rates *r);

/* If the settings change, all buckets become full. */
void tbg_rates_set(struct tbg_rates *r, const struct tbg_rate_settings *settings);

/* Whether there is a limit. */
bool tbg_rates_are(const struct tbg_rates *r);

/*
 * A request of the client with this address: returns 0 and charges it, or nanoseconds
 * until it is allowed.
 */
uint64_t tbg_rates_take(struct tbg_rates *r, const struct tbg_prefix *address, uint64_t now_ns);

#endif
