/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether late sockets are possible here, and if not, why. For wire.c, before it loads
 * one of the two ways. Changes nothing.
 */
#ifndef TBG_USERD_TIERS_LATE_H
#define TBG_USERD_TIERS_LATE_H

#include <stdbool.h>
#include <stddef.h>

struct tbg_late {
	bool can;		/* the kernel has late sockets, and they are wanted */
	bool forgets;		/* BPF may remove connections from conntrack */
	char why[160];		/* why they do not work, or are not used; or "" */
};

/* wanted: --late-sockets is not off. */
void tbg_late_look(struct tbg_late *ret, bool wanted);

#endif
