/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Dumps and notices by libmnl, of whatever bus of netlink: for links.c, routes.c and births.c.
 */
#ifndef TBG_USERD_NETLINK_H
#define TBG_USERD_NETLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libmnl/libmnl.h>

/* A request for a dump, in buf; *ret_fixed: its fixed part of len bytes, all zero. */
struct nlmsghdr *tbg_netlink_request(char *buf, uint16_t type, size_t len, void *ret_fixed);

/*
 * Shows fn every message that the request is answered with, after begin(arg): that may be
 * called again, where a change has made the answer useless. bus: NETLINK_*. 0 or negative
 * errno.
 */
int tbg_netlink_dump(int bus, const struct nlmsghdr *req, void (*begin)(void *arg), mnl_cb_t fn,
		     void *arg);

/* Takes all that has come to a socket that does not block; false: nothing had. */
bool tbg_netlink_drain(struct mnl_socket *nl);

/* The attribute of a message behind its fixed part; NULL: there is none. */
const struct nlattr *tbg_attr_of(const struct nlmsghdr *h, size_t fixed, uint16_t type);

#endif
