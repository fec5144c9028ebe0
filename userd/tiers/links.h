/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What rtnetlink tells of interfaces: how they are stacked, what is on their clsact, which
 * routes lead by them, and that something of it has changed. Reads alone: needs no privilege.
 */
#ifndef TBG_USERD_LINKS_H
#define TBG_USERD_LINKS_H

#include <stdbool.h>
#include <stdint.h>

struct tbg_prefix;

/* How the interfaces are stacked now: to be closed. NULL: it cannot be told. */
struct tbg_links;

struct tbg_links *tbg_links_open(void);
void tbg_links_close(struct tbg_links *l);

/*
 * Whether one of two interfaces lies on the other (VLAN, macvlan, bridge,
 * bond …), so that frames of the upper pass the hooks of both. NULL: none does.
 */
bool tbg_links_stacked(const struct tbg_links *l, int ifindex, int other);

/*
 * Whether what one interface sends leaves by another, on which it lies: the VLAN that it is
 * tagged with there, 0 for none. Negative: it does not, or with more than one tag.
 */
int tbg_links_above(const struct tbg_links *l, int above, int below);

/* Shows fn every interface that is in a VRF, with that VRF's device, until it returns false. */
void tbg_links_vrfs(const struct tbg_links *l, bool (*fn)(int ifindex, int vrf, void *arg),
		    void *arg);

/*
 * Whether what an interface has where clsact would be is that. An ingress qdisc has
 * one hook, and takes the filters of both for it.
 */
bool tbg_links_clsact(int ifindex);

/* Number of filters on both clsact hooks of an interface; -1: cannot tell. */
int tbg_links_filters(int ifindex);

/*
 * The program of the first filter on a clsact hook, by its number; 0: it is another
 * kind of filter. False: there is none, or it cannot be told.
 */
bool tbg_links_first(int ifindex, bool egress, uint32_t *ret_prog_id);

/*
 * Whether fn is true for any route by an interface: unicast, of any table but `local`,
 * not to addresses of the link alone. False, too, where routes cannot be asked for.
 */
bool tbg_links_route(int ifindex, bool (*fn)(const struct tbg_prefix *to, void *arg), void *arg);

/* News of links, addresses and qdiscs; and of routes, where they are asked for. */
struct tbg_link_news;

/* NULL: there are none to be had, and errno is set. */
struct tbg_link_news *tbg_link_news_open(void);
void tbg_link_news_close(struct tbg_link_news *n);

/* To wait for, until it can be read. */
int tbg_link_news_fd(const struct tbg_link_news *n);

/* Takes all that has come; false: nothing had. */
bool tbg_link_news_take(struct tbg_link_news *n);

/* Those of routes may be many where a routing daemon runs. */
void tbg_link_news_routes(struct tbg_link_news *n, bool wanted);

#endif
