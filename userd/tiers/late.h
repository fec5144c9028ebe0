/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether connections can be without a socket until their first miss, and why not. For
 * wire.c, before it loads either way. Reads alone.
 */
#ifndef TBG_USERD_LATE_H
#define TBG_USERD_LATE_H

#include <stdbool.h>
#include <stddef.h>

struct tbg_late {
	bool can;		/* the kernel makes sockets late, in this network namespace */
	bool forgets;		/* BPF may remove what conntrack knows of a connection */
	char why[160];		/* why it cannot, or why it does not all the same; or "" */
};

/* ifaces: as --wire names them; sock: that tier is wanted, too. */
void tbg_late_look(struct tbg_late *ret, bool wanted, const char *ifaces, bool sock);

#endif
