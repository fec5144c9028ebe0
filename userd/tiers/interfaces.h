/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interfaces that wire is attached to: their selection, the way of attachment,
 * following those that disappear and return, and those that `auto` leaves out. Called by
 * wire.c alone, in the control thread.
 */
#ifndef TBG_USERD_TIERS_INTERFACES_H
#define TBG_USERD_TIERS_INTERFACES_H

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
	int ifindex;			/* 0: no interface has this name now */
	char how[8];			/* "tcx", "clsact" or "off" */
	char why[120];			/* reason if off */
	bool covered;			/* off, because wire is on an interface below it */
	char xdp[4];			/* "on", "off", or "": not requested, or TC is off */
	char xdp_why[120];		/* reason if XDP is off, and only TC answers */
	uint64_t xdp_retry_ns;		/* time of the next attempt; 0: never */
};

struct tbg_interfaces {
	/* set by wire.c before tbg_interfaces_open() */
	int progs[TBG_HOOK_NR];		/* -1: no program for this hook */
	struct bpf_object *obj;
	const struct tbg_plan *plan;
	struct tbg_knob *knob;
	const char *wanted;		/* the value of --wire */
	bool automatic, translated;
	const struct sockaddr_storage *listeners;
	unsigned int listeners_nr;
	uid_t owner;			/* user of the daemon after it drops privileges */

	struct tbg_pins pins;
	struct tbg_wire_iface at[TBG_IFACES_MAX];
	struct tbg_attachment attached[TBG_IFACES_MAX];
	int xdp_fd[TBG_IFACES_MAX];	/* or -1 */
	unsigned int nr;
	struct tbg_xdp *xdp;		/* loaded at the first use */
	struct tbg_links *links;	/* read once for all interfaces */
	struct tbg_link_news *news;		/* NULL: checked only every two seconds */
	uint64_t followed_ns;
	bool full;			/* and logged */
	bool news_wait;			/* something has changed since the last check */
	int left[TBG_IFACES_MAX];	/* ifindexes that `auto` leaves out, as logged */
	unsigned int left_nr;
	struct mnl_socket *ipsec_news;	/* NULL: the kernel has no IPsec */
	char ipsec[TBG_HELD_LEN];	/* why its policies forbid answers; or "" */
	bool unguarded;		/* the guard was removed and cannot be attached again */
	char held[TBG_HELD_LEN];	/* why wire answers nothing at the moment; or "" */
};

/* Attaches to all wanted interfaces. Negative errno: to none, with a message in ret_msg. */
int tbg_interfaces_open(struct tbg_interfaces *f, char *ret_msg, size_t msg_len);

/* Detaches from all. */
void tbg_interfaces_close(struct tbg_interfaces *f);

/*
 * Handles interfaces that have appeared or disappeared, and detached programs. Raises
 * CAP_NET_ADMIN while it does.
 */
void tbg_interfaces_follow(struct tbg_interfaces *f, uint64_t now_ns);

/*
 * The same if netlink has reported changes, at most every 20 ms; otherwise at the next
 * call. Returns whether it did.
 */
bool tbg_interfaces_news(struct tbg_interfaces *f, uint64_t now_ns);

#endif
