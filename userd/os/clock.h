/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Time for responses and kernel tiers: fills the ring of Date texts in the knob (or,
 * without BPF, in private memory) in advance.
 */
#ifndef TBG_USERD_OS_CLOCK_H
#define TBG_USERD_OS_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "abi/cache.h"
#include "abi/knob.h"

struct tbg_clock;

/*
 * knob NULL: uses private memory. ahead_ms: how far dates are filled in, and so how
 * long the kernel tiers can answer without the daemon; whole seconds, at most
 * TBG_DATE_AHEAD.
 */
int tbg_clock_open(struct tbg_clock **ret, struct tbg_knob *knob, unsigned int ahead_ms);
void tbg_clock_close(struct tbg_clock *c);

/*
 * Called by the control thread about every 100 ms: fills the ring and follows changes
 * of the clock.
 */
void tbg_clock_tick(struct tbg_clock *c, uint64_t now_ns);

/* Returns the current Date, TBG_DATE_LEN bytes, from CLOCK_REALTIME. Any thread. */
const char *tbg_clock_date(const struct tbg_clock *c);

#define TBG_NS_PER_S 1000000000ull

uint64_t tbg_mono_ns(void);

/* Formats seconds since 1970 as IMF-fixdate in ret[30], NUL-terminated. */
void tbg_date_format(int64_t second, char ret[30]);

/* Parses any of the three formats of RFC 9110. Returns 0 or -EINVAL. */
int tbg_date_parse(const char *text, size_t len, int64_t *ret_second);

#endif
