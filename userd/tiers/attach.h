/* SPDX-License-Identifier: GPL-2.0 */
/*
 * BPF programs on the TC hooks of one interface: tcx if the kernel has it (6.6), else
 * clsact. Programs that translate outlive the process that attached them, so that
 * connections of a killed daemon are still translated; the next start finds them by name
 * and removes them when they are no longer needed. On tcx they are attached by links,
 * which no other tool removes by mistake and which can be closed even if the interface
 * has moved; links are pinned if they must outlive the daemon. Where pinning is
 * impossible, they are attached without links.
 */
#ifndef TBG_USERD_TIERS_ATTACH_H
#define TBG_USERD_TIERS_ATTACH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "tiers/pins.h"

enum tbg_hook { TBG_HOOK_INGRESS, TBG_HOOK_EGRESS, TBG_HOOK_NR };

struct tbg_attachment {
	int ifindex;
	bool tcx;
	bool outlives;				/* must work after the daemon's death */
	bool stays;				/* on tcx without a link */
	int prog_fd[TBG_HOOK_NR];		/* -1: none on that hook */
	unsigned int handle[TBG_HOOK_NR];	/* clsact only */
	unsigned int priority;			/* clsact only */
	int link_fd[TBG_HOOK_NR];		/* -1: attached without a link */
	int pin_fd;				/* folder of its pinned links; -1: none */
	char pin[TBG_HOOK_NR][TBG_PIN_LEN];
};

/*
 * Attaches prog_fd[] to the hooks that have a program; outlives: they stay if the daemon
 * is killed. On error returns negative errno and leaves nothing attached. -EBUSY: an
 * ingress qdisc occupies the place of clsact.
 */
int tbg_attach(struct tbg_attachment *ret, int ifindex, const int prog_fd[TBG_HOOK_NR],
	       const struct tbg_pins *pins, bool outlives);

/*
 * Attaches programs again that another tool has removed: without tcx, `tc qdisc
 * del` of the shared clsact does that. 0: nothing was missing; 1: attached again;
 * or negative errno. Needs CAP_NET_ADMIN, as all functions here.
 */
int tbg_attach_again(struct tbg_attachment *a);

/* The hook, "ingress" or "egress", on which another program runs before ours; or NULL. */
const char *tbg_attach_behind(const struct tbg_attachment *a);

/* Detaches; also removes a clsact qdisc that we created and nothing else uses. */
void tbg_detach(struct tbg_attachment *a);

/* The interface has left our namespace: detaches what is attached by links. */
void tbg_attach_forget(struct tbg_attachment *a);

/*
 * Whether a program has this name and its daemon is dead. *ret_flows_fd: its map of
 * flows, to be closed by the caller; -1: it has none.
 */
bool tbg_prog_is_left(int prog_fd, const char *name, int *ret_flows_fd);

/* The kernel's id of a program; 0: unknown. */
uint32_t tbg_prog_id(int prog_fd);

/* Programs that dead daemons left on interfaces. */
struct tbg_left;
LIST_HEAD(tbg_left_list, tbg_left);

/* Finds them. Needs CAP_SYS_ADMIN: without it, finds none. */
void tbg_left_find(struct tbg_left_list *ret);

/*
 * Detaches those of the list that no connection in their map of flows needs, and
 * removes them from the list. Needs CAP_NET_ADMIN.
 */
void tbg_left_sweep(struct tbg_left_list *list,
		    bool (*needed)(int flows_fd, uint64_t now_ns), uint64_t now_ns);

#endif
