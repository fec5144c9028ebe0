/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Time as responses and kernel tiers need it: keeps the ring of Date texts in
 * the knob (or in memory of its own without BPF) filled in ahead.
 */
#ifndef TBG_USERD_OS_CLOCK_H
#define TBG_USERD_OS_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "abi/cache.h"
#include "abi/knob.h"

struct tbg_clock;

/*
 * knob NULL: keeps a private one. ahead_ms: how far dates are filled in, and so for how
 * long the kernel tiers answer without the daemon; whole seconds, TBG_DATE_AHEAD at most.
 */
int tbg_clock_open(struct tbg_clock **ret, struct tbg_knob *knob, unsigned int ahead_ms);
void tbg_clock_close(struct tbg_clock *c);

/* Control thread, about every 100 ms: fills the ring, follows clock steps. */
void tbg_clock_tick(struct tbg_clock *c, uint64_t now_ns);

/* Any thread: the Date of now, TBG_DATE_LEN bytes, from CLOCK_REALTIME. */
const char *tbg_clock_date(const struct tbg_clock *c);

#define TBG_NS_PER_S 1000000000ull

uint64_t tbg_mono_ns(void);

/* IMF-fixdate of seconds since 1970 into ret[30], NUL-terminated. */
void tbg_date_format(int64_t second, char ret[30]);

/* Any of RFC 9110's three formats; -EINVAL. */
int tbg_date_parse(const char *text, size_t len, int64_t *ret_second);

#endif
