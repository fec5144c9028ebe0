/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Facts about interfaces from rtnetlink: their stacking, the filters on clsact, routes by
 * an interface, and notifications of changes. Read-only: needs no privilege.
 */
#ifndef TBG_USERD_TIERS_LINKS_H
#define TBG_USERD_TIERS_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/tcb.h"

struct tbg_prefix;

/* Reads the stacking of interfaces; to be closed. NULL: error. */
struct tbg_links;

struct tbg_links *tbg_links_open(void);
void tbg_links_close(struct tbg_links *l);

/*
 * Whether one of two interfaces lies on the other (VLAN, macvlan, bridge, bond …), so that
 * frames of the upper pass the hooks of both. own: and are this host's at both, as those of a
 * macvlan are not.
 */
bool tbg_links_stacked(const struct tbg_links *l, int ifindex, int other, bool own);

/*
 * Whether frames of one interface leave by the other, on which it lies, with one tag at most.
 * Then *ret is how.
 */
bool tbg_links_above(const struct tbg_links *l, int above, int below, struct tbg_above *ret);

/* Calls fn for every interface in a VRF, with the VRF's device, until it returns false. */
void tbg_links_vrfs(const struct tbg_links *l, bool (*fn)(int ifindex, int vrf, void *arg),
		    void *arg);

/*
 * Whether the qdisc in the place of clsact is a clsact. An ingress qdisc has only
 * one hook, which would run the filters of both.
 */
bool tbg_links_clsact(int ifindex);

/* Number of filters on both clsact hooks of an interface; -1: unknown. */
int tbg_links_filters(int ifindex);

/*
 * The id of the BPF program of the first filter on a clsact hook; 0: another kind
 * of filter. False: no filter, or unknown.
 */
bool tbg_links_first(int ifindex, bool egress, uint32_t *ret_prog_id);

/*
 * Whether fn returns true for a route by an interface: unicast routes of all tables
 * except `local` and link-local ones. Also false if routes cannot be read.
 */
bool tbg_links_route(int ifindex, bool (*fn)(const struct tbg_prefix *to, void *arg), void *arg);

/* Notifications of links, addresses and qdiscs; of routes, if requested. */
struct tbg_link_news;

/* NULL: not available, see errno. */
struct tbg_link_news *tbg_link_news_open(void);
void tbg_link_news_close(struct tbg_link_news *n);

/* The descriptor to poll. */
int tbg_link_news_fd(const struct tbg_link_news *n);

/* Reads all notifications; false: there were none. */
bool tbg_link_news_take(struct tbg_link_news *n);

/* Adds routes; there may be many notifications with a routing daemon. */
void tbg_link_news_routes(struct tbg_link_news *n, bool wanted);

#endif
