/* SPDX-License-Identifier: GPL-2.0 */
/*
 * XDP, an earlier place of wire's answers on the interfaces that ask for it.
 * Attached as a link, natively, so that it never outlives the daemon: flows with
 * their deltas are the TC programs' to keep. Used by wire.c alone.
 */
#ifndef TBG_USERD_XDP_H
#define TBG_USERD_XDP_H

#include <stdbool.h>
#include <stddef.h>

#include "cache/slots.h"

struct bpf_object;
struct tbg_xdp;

/*
 * Loads the program on the maps of wire's object. 0 or negative errno, and
 * ret_why says what to tell the operator.
 */
int tbg_xdp_open(struct tbg_xdp **ret, const struct bpf_object *wire,
		 const struct tbg_plan *plan, char *ret_why, size_t why_len);

/*
 * A descriptor that is the attachment: closing it undoes it. Or negative errno,
 * with ret_why; -EBUSY: another program is there, which may go.
 */
int tbg_xdp_attach(struct tbg_xdp *x, int ifindex, char *ret_why, size_t why_len);

/* Whether an attachment was undone by somebody else, or went with its interface. */
bool tbg_xdp_is_detached(int fd);

/* What is known of an interface, once it is detached. */
void tbg_xdp_forget(struct tbg_xdp *x, int ifindex);

/* Of the frames that come, those are answered which have the interface's address of now. */
void tbg_xdp_follow(struct tbg_xdp *x, int ifindex);

/* Whether the interface takes replies from XDP and drops them. */
bool tbg_xdp_is_lost(const struct tbg_xdp *x, int ifindex);

/* NULL is allowed. */
void tbg_xdp_close(struct tbg_xdp *x);

#endif
