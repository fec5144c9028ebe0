/* SPDX-License-Identifier: GPL-2.0 */
/*
 * XDP: wire's answers in the driver, on interfaces configured for it. Attached
 * natively by a link, so that it never outlives the daemon: the TC programs keep
 * the connections. Used by wire.c alone.
 */
#ifndef TBG_USERD_TIERS_XDP_H
#define TBG_USERD_TIERS_XDP_H

#include <stdbool.h>
#include <stddef.h>

#include "cache/slots.h"

struct bpf_object;
struct tbg_xdp;

/*
 * Loads the program with the maps of wire's object; translated: which translates. On
 * error returns negative errno, and a message for the operator in ret_why.
 */
int tbg_xdp_open(struct tbg_xdp **ret, const struct bpf_object *wire,
		 const struct tbg_plan *plan, bool translated, char *ret_why, size_t why_len);

/*
 * Returns the link's descriptor: closing it detaches. Or negative errno, with
 * ret_why; -EBUSY: another program is attached, which may disappear.
 */
int tbg_xdp_attach(struct tbg_xdp *x, int ifindex, char *ret_why, size_t why_len);

/* Whether the link was detached by another tool, or has disappeared with its interface. */
bool tbg_xdp_is_detached(int fd);

/* Forgets the state of an interface, after it was detached. */
void tbg_xdp_forget(struct tbg_xdp *x, int ifindex);

/* Updates the interface's address: only frames to it are answered. */
void tbg_xdp_follow(struct tbg_xdp *x, int ifindex);

/* Whether the interface drops replies from XDP. */
bool tbg_xdp_is_lost(const struct tbg_xdp *x, int ifindex);

/* NULL is allowed. */
void tbg_xdp_close(struct tbg_xdp *x);

#endif
