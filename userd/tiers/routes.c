// SPDX-License-Identifier: GPL-2.0
/*
 * Metrics of routes and the masters of interfaces, by rtnetlink; settings, by their
 * files. See routes.h. Called by wire.c, in the control thread.
 */
#include "tiers/routes.h"

#include <errno.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <bpf/bpf.h>

#include "abi/tcb.h"
#include "os/sysctl.h"
#include "tiers/netlink.h"

static void leave(struct tbg_routes *r, enum tbg_routes_left left, const char *what)
{
	if (left <= r->left)
		return;
	r->left = left;
	snprintf(r->why, sizeof(r->why), "a route has %s, which is the kernel's to honour", what);
}

static void least(uint32_t *ret, uint32_t value)
{
	if (value && (!*ret || value < *ret))
		*ret = value;
}

static void metric_look(struct tbg_routes *r, const struct nlattr *a, bool v4)
{
	uint32_t value;

	if (mnl_attr_validate(a, MNL_TYPE_U32) < 0)
		return;			/* the name of a congestion control */
	value = mnl_attr_get_u32(a);
	switch (mnl_attr_get_type(a)) {
	case RTAX_INITCWND:
		least(&r->segs_max, value);
		break;
	case RTAX_MTU:
		least(&r->mss_max, value);
		leave(r, TBG_LEFT_SYNS, "an MTU");
		break;
	case RTAX_LOCK:
		if (value & 1u << RTAX_MTU)
			leave(r, TBG_LEFT_ALL, "a locked MTU");
		break;
	case RTAX_HOPLIMIT:
		if (value != (v4 ? r->ttl : r->hops))
			leave(r, TBG_LEFT_ALL, "a hoplimit");
		break;
	case RTAX_ADVMSS:
		leave(r, TBG_LEFT_SYNS, "an advmss");
		break;
	case RTAX_WINDOW:
		leave(r, TBG_LEFT_SYNS, "a window");
		break;
	case RTAX_INITRWND:
		leave(r, TBG_LEFT_SYNS, "an initrwnd");
		break;
	case RTAX_FEATURES:
		leave(r, TBG_LEFT_SYNS, "features");
		break;
	}
}

static void routes_begin(void *arg)
{
	struct tbg_routes *r = arg;

	r->left = TBG_LEFT_NOTHING;
	r->segs_max = r->mss_max = 0;
}

static int route_look(const struct nlmsghdr *h, void *arg)
{
	const struct rtmsg *rt = mnl_nlmsg_get_payload(h);
	const struct nlattr *metrics = tbg_attr_of(h, sizeof(*rt), RTA_METRICS), *a;

	/* of a destination that this is a copy of */
	if (metrics && !(rt->rtm_flags & RTM_F_CLONED))
		mnl_attr_for_each_nested(a, metrics)
			metric_look(arg, a, rt->rtm_family == AF_INET);
	return MNL_CB_OK;
}

static void routes_ask(struct tbg_routes *r)
{
	char buf[MNL_NLMSG_HDRLEN + sizeof(struct rtmsg)] __attribute__((aligned(8)));
	struct rtmsg *rt;	/* zero: of all families there are */
	int err;

	err = tbg_netlink_dump(NETLINK_ROUTE,
			       tbg_netlink_request(buf, RTM_GETROUTE, sizeof(*rt), &rt),
			       routes_begin, route_look, r);
	if (err) {
		r->left = TBG_LEFT_ALL;
		snprintf(r->why, sizeof(r->why), "routes cannot be asked for: %s", strerror(-err));
	}
}

/* What the kernel is set to offer in a SYN-ACK, apart from what all offer: wire is not. */
static void offers_ask(struct tbg_routes *r)
{
	static const char *const name[] = {
		"tcp_window_scaling", "tcp_sack", "tcp_timestamps", "tcp_ecn",
	};

	for (int i = 0; i < 4; i++) {
		/* ECN where a client asks for it: 1 and 2 */
		if (i < 3 ? r->offers[i] : r->offers[i] == 1 || r->offers[i] == 2)
			continue;
		if (r->left != TBG_LEFT_NOTHING)
			return;
		r->left = TBG_LEFT_SYNS;
		snprintf(r->why, sizeof(r->why), "net.ipv4.%s is %u", name[i], r->offers[i]);
	}
}

void tbg_routes_look(struct tbg_routes *r)
{
	struct tbg_routes was = *r;

	r->offers[0] = tbg_sysctl("/proc/sys/net/ipv4/tcp_window_scaling", 1);
	r->offers[1] = tbg_sysctl("/proc/sys/net/ipv4/tcp_sack", 1);
	r->offers[2] = tbg_sysctl("/proc/sys/net/ipv4/tcp_timestamps", 1);
	r->offers[3] = tbg_sysctl("/proc/sys/net/ipv4/tcp_ecn", 2);
	r->challenge_ms = tbg_sysctl("/proc/sys/net/ipv4/tcp_invalid_ratelimit", 500);
	r->ttl = tbg_sysctl("/proc/sys/net/ipv4/ip_default_ttl", 64);
	r->hops = tbg_sysctl("/proc/sys/net/ipv6/conf/all/hop_limit", 64);
	if (r->news && !tbg_netlink_drain(r->news) && was.ttl == r->ttl &&
	    was.hops == r->hops && !memcmp(was.offers, r->offers, sizeof(was.offers)))
		return;
	routes_ask(r);
	offers_ask(r);
}

void tbg_routes_open(struct tbg_routes *ret)
{
	int groups = RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE;

	*ret = (struct tbg_routes){
		.news = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC | SOCK_NONBLOCK),
		/* sockets keep what it was when their listener was made */
		.no_df = tbg_sysctl("/proc/sys/net/ipv4/ip_no_pmtu_disc", 0),
	};
	if (ret->news && mnl_socket_bind(ret->news, groups, MNL_SOCKET_AUTOPID))
		tbg_routes_close(ret);
	/* no TTL is 0: routes are asked for the first time */
	tbg_routes_look(ret);
}

void tbg_routes_close(struct tbg_routes *r)
{
	if (r->news)
		mnl_socket_close(r->news);
	r->news = NULL;
}

/* Interfaces in VRFs, and those devices. */
struct vrfs {
	uint32_t slave[TBG_VRFS_MAX], master[TBG_VRFS_MAX];
	unsigned int nr;
	bool more;
};

static void vrfs_begin(void *arg)
{
	struct vrfs *v = arg;

	v->nr = 0;
	v->more = false;
}

static int link_look(const struct nlmsghdr *h, void *arg)
{
	const struct ifinfomsg *info = mnl_nlmsg_get_payload(h);
	const struct nlattr *master = tbg_attr_of(h, sizeof(*info), IFLA_MASTER), *a;
	const struct nlattr *kinds = tbg_attr_of(h, sizeof(*info), IFLA_LINKINFO);
	struct vrfs *v = arg;
	bool vrf = false;

	if (!master || mnl_attr_validate(master, MNL_TYPE_U32) < 0 || !kinds)
		return MNL_CB_OK;
	mnl_attr_for_each_nested(a, kinds)
		if (mnl_attr_get_type(a) == IFLA_INFO_SLAVE_KIND &&
		    mnl_attr_validate(a, MNL_TYPE_NUL_STRING) >= 0)
			vrf |= !strcmp(mnl_attr_get_str(a), "vrf");
	if (!vrf)
		return MNL_CB_OK;
	if (v->nr == TBG_VRFS_MAX) {
		v->more = true;
		return MNL_CB_OK;
	}
	v->slave[v->nr] = info->ifi_index;
	v->master[v->nr++] = mnl_attr_get_u32(master);
	return MNL_CB_OK;
}

static bool is_slave(const struct vrfs *v, uint32_t ifindex)
{
	for (unsigned int i = 0; i < v->nr; i++)
		if (v->slave[i] == ifindex)
			return true;
	return false;
}

int tbg_vrfs_look(int map_fd)
{
	char buf[MNL_NLMSG_HDRLEN + sizeof(struct ifinfomsg)] __attribute__((aligned(8)));
	uint32_t key, next, *at = NULL;
	struct ifinfomsg *info;
	struct vrfs v;
	int err;

	err = tbg_netlink_dump(NETLINK_ROUTE,
			       tbg_netlink_request(buf, RTM_GETLINK, sizeof(*info), &info),
			       vrfs_begin, link_look, &v);
	if (err)
		return err;
	if (v.more)
		return -E2BIG;
	for (unsigned int i = 0; i < v.nr; i++)
		if (bpf_map_update_elem(map_fd, &v.slave[i], &v.master[i], BPF_ANY))
			return -errno;
	/* those that have left theirs */
	while (!bpf_map_get_next_key(map_fd, at, &next)) {
		if (at && !is_slave(&v, key))
			bpf_map_delete_elem(map_fd, &key);
		key = next;
		at = &key;
	}
	if (at && !is_slave(&v, key))
		bpf_map_delete_elem(map_fd, &key);
	return v.nr;
}
