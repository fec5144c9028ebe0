/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reference counters shared by threads. Only a thread that has a reference may take
 * another one, and each is released once. Assertions check both in tests and in builds
 * with sanitizers (`make CPPFLAGS=-UNDEBUG` enables them in any build).
 */
#ifndef TBG_USERD_OS_REFCOUNT_H
#define TBG_USERD_OS_REFCOUNT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

static inline void tbg_refcount_get(_Atomic uint32_t *refs)
{
	uint32_t before = atomic_fetch_add_explicit(refs, 1, memory_order_relaxed);

	assert(before && before < UINT32_MAX);
	(void)before;
}

/* Returns whether that was the last reference: then the caller frees the object. */
static inline bool tbg_refcount_put(_Atomic uint32_t *refs)
{
	uint32_t before = atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel);

	assert(before);
	return before == 1;
}

#endif
