/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Finds by experiment which features of the kernel Toboggan can use. Called by `toboggan
 * probe`; needs no daemon and no privilege, and leaves nothing behind.
 */
#ifndef TBG_TOOLS_PROBE_H
#define TBG_TOOLS_PROBE_H

#include <jansson.h>

/*
 * {"ok":true, "kernel":"6.12.3", "features":[{"name","tiers","need","state",
 * "detail","since","lost"}...], "tiers":{"wire":{"state","lacks":[...]}...}}
 * state of a feature: present, missing, or unknown if only privilege could show
 * it. state of a tier: ready, off or unknown. NULL without memory.
 */
json_t *tbg_probe(void);

void tbg_probe_show(const json_t *a);	/* as text, on stdout */

#endif
