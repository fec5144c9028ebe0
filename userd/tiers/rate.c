// SPDX-License-Identifier: GPL-2.0
/*
 * The buckets are in the mapped map of the kernel tiers, or without these in plain
 * memory. The arithmetic is in core/bucket.h.
 */
#include "tiers/rate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/knob.h"
#include "core/bucket.h"
#include "os/units.h"
#include "tiers/maps.h"

#define SECOND_NS 1000000000ull

struct tbg_rates {
	const struct tbg_maps *maps;
	uint64_t key[2];
	struct tbg_rate_settings settings;
	struct tbg_rate own;		/* without kernel tiers */
	struct tbg_rate *rate;
	struct tbg_bucket_set *sets;
};

int tbg_rates_open(struct tbg_rates **ret, const struct tbg_maps *maps, const uint64_t key[2])
{
	struct tbg_rates *r = calloc(1, sizeof(*r));

	*ret = r;
	if (!r)
		return -ENOMEM;
	r->maps = maps;
	memcpy(r->key, key, sizeof(r->key));
	r->rate = maps ? &maps->knob->rate : &r->own;
	r->sets = maps ? maps->buckets : calloc(TBG_BUCKET_SETS, sizeof(*r->sets));
	return r->sets ? 0 : -ENOMEM;
}

void tbg_rates_close(struct tbg_rates *r)
{
	if (r && !r->maps)
		free(r->sets);
	free(r);
}

/* The mask of the first bits of an address, in the byte order of memory. */
static void mask_make(uint64_t ret[2], unsigned int bits)
{
	struct tbg_prefix all;

	memset(all.address, 0xff, sizeof(all.address));
	all.bits = 128;
	tbg_prefix_cut(&all, bits);
	memcpy(ret, all.address, sizeof(all.address));
}

void tbg_rates_set(struct tbg_rates *r, const struct tbg_rate_settings *settings)
{
	uint64_t burst = settings->burst;
	uint64_t mask[2][2];

	if (!memcmp(&r->settings, settings, sizeof(*settings)))
		return;
	r->settings = *settings;
	if (r->maps)		/* no limit while it changes; charges under way may still happen */
		tbg_maps_clients(r->maps, TBG_CLIENTS_RATED, false);
	__atomic_store_n(&r->rate->gap_ns, 0, __ATOMIC_SEQ_CST);
	memset(r->sets, 0, TBG_BUCKET_SETS * sizeof(*r->sets));
	mask_make(mask[0], settings->v6_bits);
	mask_make(mask[1], 128 - TBG_RATE_V4_BITS + settings->v4_bits);
	memcpy(r->rate->mask, mask, sizeof(mask));
	if (!settings->gap_ns)
		return;
	if (!burst)
		burst = settings->gap_ns < SECOND_NS ? SECOND_NS / settings->gap_ns : 1;
	r->rate->slack_ns = (burst - 1) * settings->gap_ns;
	__atomic_store_n(&r->rate->gap_ns, settings->gap_ns, __ATOMIC_RELEASE);
	if (r->maps)
		tbg_maps_clients(r->maps, TBG_CLIENTS_RATED, true);
}

bool tbg_rates_are(const struct tbg_rates *r)
{
	return __atomic_load_n(&r->rate->gap_ns, __ATOMIC_ACQUIRE);
}

uint64_t tbg_rates_take(struct tbg_rates *r, const struct tbg_prefix *address, uint64_t now_ns)
{
	uint64_t gap_ns = __atomic_load_n(&r->rate->gap_ns, __ATOMIC_ACQUIRE), tag, was, wait_ns;
	struct tbg_bucket *b;
	uint32_t words[4], nr;

	if (!gap_ns)
		return 0;
	memcpy(words, address->address, sizeof(words));
	tag = tbg_bucket_tag((const __u64 *)r->key, r->rate, words, &nr);
	b = &r->sets[nr].way[tbg_bucket_place(&r->sets[nr], tag)];
	tbg_bucket_claim(b, tag);
	do {
		was = __atomic_load_n(&b->until_ns, __ATOMIC_RELAXED);
		wait_ns = tbg_bucket_wait(was, r->rate->slack_ns, now_ns);
		if (wait_ns)
			return wait_ns;
	} while (!__sync_bool_compare_and_swap(&b->until_ns, was,
					       tbg_bucket_charged(was, gap_ns, now_ns)));
	return 0;
}
