/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interfaces that wire is on: which ones, in what way, what takes them away and brings
 * them back, and which `auto` leaves out. Called by wire.c alone, in the control thread.
 */
#ifndef TBG_USERD_INTERFACES_H
#define TBG_USERD_INTERFACES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "abi/knob.h"
#include "abi/conn.h"
#include "tiers/attach.h"

struct bpf_object;
struct tbg_links;
struct tbg_link_news;
struct tbg_plan;
struct tbg_xdp;

#define TBG_HELD_LEN 320

struct tbg_wire_iface {
	char name[16];
	int ifindex;			/* 0: there is none of that name now */
	char how[8];			/* "tcx", "clsact" or "off" */
	char why[120];			/* why it is off */
	bool covered;			/* off, as another that it lies on is on */
	char xdp[4];			/* "on", "off", or "" where it is not asked for, or TC off */
	char xdp_why[120];		/* why that is off, and TC answers alone */
	uint64_t xdp_retry_ns;		/* when it is tried again; 0: never */
};

struct tbg_interfaces {
	/* set by wire.c before tbg_interfaces_open() */
	int progs[TBG_HOOK_NR];		/* -1: nothing looks at that hook */
	struct bpf_object *obj;
	const struct tbg_plan *plan;
	struct tbg_knob *knob;
	const char *wanted;		/* as --wire says */
	bool automatic, translated;
	const struct sockaddr_storage *listeners;
	unsigned int listeners_nr;
	uid_t owner;			/* whom the daemon will run as */

	struct tbg_pins pins;
	struct tbg_wire_iface at[TBG_IFACES_MAX];
	struct tbg_attachment attached[TBG_IFACES_MAX];
	int xdp_fd[TBG_IFACES_MAX];	/* or -1 */
	unsigned int nr;
	struct tbg_xdp *xdp;		/* loaded when first asked for */
	struct tbg_links *links;	/* read once for all that are looked at */
	struct tbg_link_news *news;		/* NULL: looked at every two seconds alone */
	uint64_t followed_ns;
	bool full;			/* and said so */
	bool news_wait;			/* something has changed since then */
	int left[TBG_IFACES_MAX];	/* what `auto` leaves out, by number, and has said so */
	unsigned int left_nr;
	char held[TBG_HELD_LEN];	/* why wire answers nothing for now; or "" */
};

/* Attaches to all that are wanted; negative: to none, and ret_msg says why. */
int tbg_interfaces_open(struct tbg_interfaces *f, char *ret_msg, size_t msg_len);

/* Detaches from all. */
void tbg_interfaces_close(struct tbg_interfaces *f);

/*
 * Looks for what has gone, come, or been taken off. Needs CAP_NET_ADMIN for that, which it
 * raises for as long.
 */
void tbg_interfaces_follow(struct tbg_interfaces *f, uint64_t now_ns);

/* The same if netlink had news, at most every 20 ms: then at the next call. */
void tbg_interfaces_news(struct tbg_interfaces *f, uint64_t now_ns);

#endif
