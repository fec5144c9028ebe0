/* SPDX-License-Identifier: GPL-2.0 */
/*
 * BPF programs on the TC hooks of one interface: tcx where the kernel has it
 * (6.6), clsact otherwise. Translators outlive the process that attached them,
 * so that a killed daemon's connections keep being translated; the next start
 * finds them by name, and they stay beside its own until they are not needed.
 * On tcx they are there by links, which no other tool takes off by mistake, and which
 * end wherever the interface has gone; pinned, if they must outlive us. Where that cannot
 * be, without links.
 */
#ifndef TBG_USERD_ATTACH_H
#define TBG_USERD_ATTACH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "tiers/pins.h"

enum tbg_hook { TBG_HOOK_INGRESS, TBG_HOOK_EGRESS, TBG_HOOK_NR };

struct tbg_attachment {
	int ifindex;
	bool tcx;
	bool outlives;				/* must go on without us */
	bool stays;				/* on tcx by no link: wherever the interface goes */
	int prog_fd[TBG_HOOK_NR];		/* -1: none on that hook */
	unsigned int handle[TBG_HOOK_NR];	/* clsact only */
	unsigned int priority;			/* clsact only */
	int link_fd[TBG_HOOK_NR];		/* -1: there by no link */
	int pin_fd;				/* where its links are pinned; -1: nowhere */
	char pin[TBG_HOOK_NR][TBG_PIN_LEN];
};

/*
 * Attaches prog_fd[] to the hooks that have one; outlives: so that they stay when we are
 * killed. 0 or negative errno, and nothing is attached then. -EBUSY: there is an ingress
 * qdisc where clsact would be.
 */
int tbg_attach(struct tbg_attachment *ret, int ifindex, const int prog_fd[TBG_HOOK_NR],
	       const struct tbg_pins *pins, bool outlives);

/*
 * Attaches again what somebody has taken off the hooks: where there is no tcx,
 * `tc qdisc del` of the clsact that we share does. 0: all is there; 1: it is now;
 * or negative errno. Needs CAP_NET_ADMIN, as all here.
 */
int tbg_attach_again(struct tbg_attachment *a);

/* The hook, "ingress" or "egress", where another's program is run before ours; or NULL. */
const char *tbg_attach_behind(const struct tbg_attachment *a);

/* Detaches; a clsact qdisc that we made and nobody else uses goes too. */
void tbg_detach(struct tbg_attachment *a);

/*
 * The interface is not in our namespace any more: what is there by links is detached all
 * the same, wherever it is.
 */
void tbg_attach_forget(struct tbg_attachment *a);

/*
 * Whether a program is of this name and its daemon dead. *ret_flows_fd is its map of flows,
 * for the caller to close; -1: it has none.
 */
bool tbg_prog_is_left(int prog_fd, const char *name, int *ret_flows_fd);

/* The kernel's number of a program; 0: it cannot be told. */
uint32_t tbg_prog_id(int prog_fd);

/* Programs that dead daemons left on interfaces. */
struct tbg_left;
LIST_HEAD(tbg_left_list, tbg_left);

/* What there is. Needs CAP_SYS_ADMIN: finds nothing without. */
void tbg_left_find(struct tbg_left_list *ret);

/*
 * Detaches those of list whose connections (a map of struct tbg_flow) do not need
 * them, and forgets them. Needs CAP_NET_ADMIN.
 */
void tbg_left_sweep(struct tbg_left_list *list,
		    bool (*needed)(int flows_fd, uint64_t now_ns), uint64_t now_ns);

#endif
