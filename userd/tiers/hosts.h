/* SPDX-License-Identifier: GPL-2.0 */
/* Fills the kernel tiers' map of host names to sites. */
#ifndef TBG_USERD_TIERS_HOSTS_H
#define TBG_USERD_TIERS_HOSTS_H

#include <stdint.h>

struct tbg_maps;
struct tbg_sites;

/*
 * Replaces the names of old (NULL: none) by those of s. A name not in the map
 * belongs to the default host; if s has patterns or the map is too small, a
 * request with it is passed up. Control thread alone; maps NULL: does nothing.
 */
void tbg_hosts_update(const struct tbg_maps *maps, const uint64_t key[2],
		      const struct tbg_sites *s, const struct tbg_sites *old);

#endif
