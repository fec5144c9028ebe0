/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Dumps and notifications of any netlink bus, by libmnl: for links.c, routes.c and
 * births.c.
 */
#ifndef TBG_USERD_TIERS_NETLINK_H
#define TBG_USERD_TIERS_NETLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libmnl/libmnl.h>

/* Makes a request for a dump in buf; *ret_fixed: its fixed part of len zero bytes. */
struct nlmsghdr *tbg_netlink_request(char *buf, uint16_t type, size_t len, void *ret_fixed);

/*
 * Sends the request; calls begin(arg), then fn for every message of the answer. If a
 * change has made the answer inconsistent, it starts again with begin(). bus: NETLINK_*.
 * 0 or negative errno.
 */
int tbg_netlink_dump(int bus, const struct nlmsghdr *req, void (*begin)(void *arg), mnl_cb_t fn,
		     void *arg);

/* Reads all pending messages of a non-blocking socket; false: there were none. */
bool tbg_netlink_drain(struct mnl_socket *nl);

/* An attribute of a message, after its fixed part; NULL: none. */
const struct nlattr *tbg_attr_of(const struct nlmsghdr *h, size_t fixed, uint16_t type);

/* The value of an attribute of 32 bits; 0: none, or another size. */
uint32_t tbg_attr_number(const struct nlattr *a);

#endif
