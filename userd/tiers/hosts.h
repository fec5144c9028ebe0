/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tells the kernel tiers which host is which site.
 */
#ifndef TBG_USERD_HOSTS_H
#define TBG_USERD_HOSTS_H

#include <stdint.h>

struct tbg_maps;
struct tbg_sites;

/*
 * The names of s instead of those it was told before (old; NULL: none). A name
 * that is not told is of the host that has all others, or, where s has patterns
 * or the map no room, passed up. Control thread alone; maps NULL: nothing to tell.
 */
void tbg_hosts_tell(const struct tbg_maps *maps, const uint64_t key[2],
		    const struct tbg_sites *s, const struct tbg_sites *old);

#endif
