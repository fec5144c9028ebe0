// SPDX-License-Identifier: GPL-2.0
/* The times of timers.h. */
#include "os/timers.h"

#include <string.h>

unsigned int tbg_timers_ms[TBG_TIMER_NR] = {
#define X(name, text, ms) ms,
	TBG_TIMER_LIST(X)
#undef X
};

bool tbg_timer_shorten(const char *text, unsigned int ms)
{
	static const char *const texts[] = {
#define X(name, text, ms) text,
		TBG_TIMER_LIST(X)
#undef X
	};

	for (int i = 0; i < TBG_TIMER_NR; i++)
		if (!strcmp(texts[i], text) && ms <= tbg_timers_ms[i]) {
			tbg_timers_ms[i] = ms;
			return true;
		}
	return false;
}
