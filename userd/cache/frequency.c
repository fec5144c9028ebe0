// SPDX-License-Identifier: GPL-2.0
/*
 * Estimates how often a key was requested recently, to decide whether a new object
 * replaces an old one.
 */
#include <stdatomic.h>

#include "cache/internal.h"

uint32_t tbg_cache_sketch_ask(const struct sketch *s, const struct tbg_key *key)
{
	uint8_t least = UINT8_MAX;

	for (unsigned int row = 0; row < 4; row++) {
		uint8_t v = __atomic_load_n(sketch_at(s, key, row),
					    __ATOMIC_RELAXED);

		least = v < least ? v : least;
	}
	return least;
}

void tbg_cache_sketch_halve(struct sketch *s)
{
	uint64_t *words = (uint64_t *)s->lines;

	for (uint64_t i = 0; i < (s->mask + 1) * 8; i++) {
		uint64_t w = __atomic_load_n(&words[i], __ATOMIC_RELAXED);

		if (w)
			__atomic_store_n(&words[i],
					 w >> 1 & 0x7f7f7f7f7f7f7f7full,
					 __ATOMIC_RELAXED);
	}
	s->asked = 0;
}

void tbg_cache_sketch_add(struct sketch *s, const struct tbg_key *key, uint32_t nr)
{
	uint32_t v = tbg_cache_sketch_ask(s, key) + nr;

	if (v > UINT8_MAX)
		v = UINT8_MAX;
	for (unsigned int row = 0; row < 4; row++) {
		uint8_t *at = sketch_at(s, key, row);

		if (__atomic_load_n(at, __ATOMIC_RELAXED) < v)
			__atomic_store_n(at, (uint8_t)v, __ATOMIC_RELAXED);
	}
}

void tbg_cache_sketch_count(struct sketch *s, const struct tbg_key *key)
{
	tbg_cache_sketch_add(s, key, 1);
	if (++s->asked >= s->age_at)
		tbg_cache_sketch_halve(s);
}
