// SPDX-License-Identifier: GPL-2.0
/*
 * rtnetlink by libmnl: dumps of links, qdiscs, filters and routes, and notifications of
 * changes. Called by attach.c and interfaces.c, in the control thread. Changes nothing.
 */
#include "tiers/links.h"

#include <errno.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>

#include "os/units.h"
#include "tiers/netlink.h"

#define TBG_STACK_MAX 8		/* maximum depth of stacked devices */

static bool attr_is(const struct nlattr *a, const char *text)
{
	return a && mnl_attr_validate(a, MNL_TYPE_NUL_STRING) >= 0 &&
	       !strcmp(mnl_attr_get_str(a), text);
}

/* --- links --------------------------------------------------------------- */

/* An interface, what it lies on, and what it is a port of. */
struct link {
	int ifindex, below, master;
	int vlan;			/* of its frames below; 0: none */
	uint32_t mtu, mtu6, hops;	/* of IPv6: mtu6 and hops; 0: it has no IPv6 */
	bool vrf, bridge;		/* its master is one */
	bool macvlan;
	uint8_t mac[6];
};

struct tbg_links {
	struct link *at;
	unsigned int nr;
};

/*
 * No lower devices are: the other end of a pair, a device in another namespace, and
 * one whose frames are encapsulated (tunnel, MACsec). What is no Ethernet is a tunnel.
 */
static bool link_is_apart(const struct nlmsghdr *h)
{
	const struct ifinfomsg *one = mnl_nlmsg_get_payload(h);
	static const char *const apart[] = {
		"veth", "netkit", "gretap", "ip6gretap", "erspan", "ip6erspan", "vxlan",
		"geneve", "bareudp", "macsec",
	};
	const struct nlattr *info = tbg_attr_of(h, sizeof(struct ifinfomsg), IFLA_LINKINFO), *a;

	if (one->ifi_type != ARPHRD_ETHER ||
	    tbg_attr_of(h, sizeof(struct ifinfomsg), IFLA_LINK_NETNSID))
		return true;
	if (!info)
		return false;
	mnl_attr_for_each_nested(a, info)
		for (size_t i = 0; mnl_attr_get_type(a) == IFLA_INFO_KIND &&
				   i < sizeof(apart) / sizeof(*apart); i++)
			if (attr_is(a, apart[i]))
				return true;
	return false;
}

/* Evaluates the kinds of the interface and of its master. */
static void link_kind(const struct nlmsghdr *h, struct link *ret)
{
	const struct nlattr *info = tbg_attr_of(h, sizeof(struct ifinfomsg), IFLA_LINKINFO), *a, *b;
	bool vlan = false;

	if (!info)
		return;
	mnl_attr_for_each_nested(a, info) {
		switch (mnl_attr_get_type(a)) {
		case IFLA_INFO_KIND:
			vlan = attr_is(a, "vlan");
			ret->macvlan = attr_is(a, "macvlan") || attr_is(a, "macvtap");
			break;
		case IFLA_INFO_SLAVE_KIND:
			ret->vrf = attr_is(a, "vrf");
			ret->bridge = attr_is(a, "bridge");
			break;
		case IFLA_INFO_DATA:		/* follows the kind */
			if (!vlan)
				break;
			mnl_attr_for_each_nested(b, a)
				if (mnl_attr_get_type(b) == IFLA_VLAN_ID &&
				    mnl_attr_validate(b, MNL_TYPE_U16) >= 0)
					ret->vlan = mnl_attr_get_u16(b);
		}
	}
}

/* Reads what the interface has for IPv6. */
static void link_inet6(const struct nlmsghdr *h, struct link *ret)
{
	const struct nlattr *spec = tbg_attr_of(h, sizeof(struct ifinfomsg), IFLA_AF_SPEC), *a, *b;
	int32_t conf[DEVCONF_MTU6 + 1];

	if (!spec)
		return;
	mnl_attr_for_each_nested(a, spec) {
		if (mnl_attr_get_type(a) != AF_INET6)
			continue;
		mnl_attr_for_each_nested(b, a) {
			if (mnl_attr_get_type(b) != IFLA_INET6_CONF ||
			    mnl_attr_get_payload_len(b) < sizeof(conf))
				continue;
			memcpy(conf, mnl_attr_get_payload(b), sizeof(conf));
			ret->mtu6 = conf[DEVCONF_MTU6];
			ret->hops = conf[DEVCONF_HOPLIMIT];
		}
	}
}

static void links_begin(void *arg)
{
	((struct tbg_links *)arg)->nr = 0;
}

static int link_add(const struct nlmsghdr *h, void *arg)
{
	const struct ifinfomsg *info = mnl_nlmsg_get_payload(h);
	struct tbg_links *l = arg;
	struct link *at = realloc(l->at, (l->nr + 1) * sizeof(*at));
	const struct nlattr *mac = tbg_attr_of(h, sizeof(*info), IFLA_ADDRESS);

	if (!at)
		return MNL_CB_ERROR;
	l->at = at;
	at += l->nr++;
	*at = (struct link){ .ifindex = info->ifi_index };
	if (!link_is_apart(h))
		at->below = tbg_attr_number(tbg_attr_of(h, sizeof(*info), IFLA_LINK));
	at->master = tbg_attr_number(tbg_attr_of(h, sizeof(*info), IFLA_MASTER));
	at->mtu = tbg_attr_number(tbg_attr_of(h, sizeof(*info), IFLA_MTU));
	if (mac && mnl_attr_get_payload_len(mac) == sizeof(at->mac))
		memcpy(at->mac, mnl_attr_get_payload(mac), sizeof(at->mac));
	link_kind(h, at);
	link_inet6(h, at);
	return MNL_CB_OK;
}

struct tbg_links *tbg_links_open(void)
{
	struct tbg_links *ret = calloc(1, sizeof(*ret));
	char buf[MNL_NLMSG_HDRLEN + sizeof(struct ifinfomsg) + 64];
	struct ifinfomsg *info;

	if (ret && tbg_netlink_dump(NETLINK_ROUTE,
				    tbg_netlink_request(buf, RTM_GETLINK, sizeof(*info), &info),
				    links_begin, link_add, ret)) {
		tbg_links_close(ret);
		ret = NULL;
	}
	return ret;
}

void tbg_links_close(struct tbg_links *l)
{
	if (l)
		free(l->at);
	free(l);
}

/*
 * Whether frames to a macvlan are another host's below: it has an address of its own, unless it
 * takes over that of its device (mode passthru).
 */
static bool has_own_mac(const struct tbg_links *l, const struct link *k)
{
	for (unsigned int i = 0; k->macvlan && i < l->nr; i++)
		if (l->at[i].ifindex == k->below)
			return memcmp(l->at[i].mac, k->mac, sizeof(k->mac));
	return false;
}

/* Whether upper lies on lower, over at most depth others. own: not by a macvlan of its own. */
static bool lies_on(const struct tbg_links *l, int upper, int lower, bool own, int depth)
{
	if (upper == lower)
		return true;
	for (unsigned int i = 0; depth && i < l->nr; i++) {
		const struct link *k = &l->at[i];

		if (k->ifindex == upper && k->below && k->below != upper &&
		    !(own && has_own_mac(l, k)) && lies_on(l, k->below, lower, own, depth - 1))
			return true;
		if (k->master == upper && lies_on(l, k->ifindex, lower, own, depth - 1))
			return true;
	}
	return false;
}

bool tbg_links_stacked(const struct tbg_links *l, int ifindex, int other, bool own)
{
	return l && (lies_on(l, ifindex, other, own, TBG_STACK_MAX) ||
		     lies_on(l, other, ifindex, own, TBG_STACK_MAX));
}

/*
 * The VLAN in lower of frames that have this VLAN in upper; or -1. In a bridge, frames leave by
 * any port, and those that come lose the socket that was assigned to them at the port.
 */
static int vlan_on(const struct tbg_links *l, int upper, int lower, int vlan, int depth)
{
	int ret = upper == lower ? vlan : -1;

	for (unsigned int i = 0; depth && ret < 0 && i < l->nr; i++) {
		const struct link *k = &l->at[i];

		if (k->ifindex == upper && k->below && k->below != upper && !(vlan && k->vlan))
			ret = vlan_on(l, k->below, lower, vlan + k->vlan, depth - 1);
		if (ret < 0 && k->master == upper && !k->vrf && !k->bridge)
			ret = vlan_on(l, k->ifindex, lower, vlan, depth - 1);
	}
	return ret;
}

bool tbg_links_above(const struct tbg_links *l, int above, int below, struct tbg_above *ret)
{
	int vlan = vlan_on(l, above, below, 0, TBG_STACK_MAX);

	for (unsigned int i = 0; vlan >= 0 && i < l->nr; i++)
		if (l->at[i].ifindex == above)
			*ret = (struct tbg_above){ .vlan = vlan, .mtu = l->at[i].mtu,
						   .mtu6 = l->at[i].mtu6, .hops = l->at[i].hops };
	return vlan >= 0;
}

void tbg_links_vrfs(const struct tbg_links *l, bool (*fn)(int ifindex, int vrf, void *arg),
		    void *arg)
{
	for (unsigned int i = 0; i < l->nr; i++)
		if (l->at[i].vrf && l->at[i].master && !fn(l->at[i].ifindex, l->at[i].master, arg))
			return;
}

/* --- clsact -------------------------------------------------------------- */

struct qdisc {
	int ifindex;
	bool is_clsact;
};

static void qdisc_begin(void *arg)
{
	((struct qdisc *)arg)->is_clsact = false;
}

static int qdisc_look(const struct nlmsghdr *h, void *arg)
{
	const struct tcmsg *tc = mnl_nlmsg_get_payload(h);
	struct qdisc *q = arg;

	if (tc->tcm_ifindex == q->ifindex && tc->tcm_parent == TC_H_CLSACT)
		q->is_clsact = attr_is(tbg_attr_of(h, sizeof(*tc), TCA_KIND), "clsact");
	return MNL_CB_OK;
}

bool tbg_links_clsact(int ifindex)
{
	char buf[MNL_NLMSG_HDRLEN + sizeof(struct tcmsg) + 64];
	struct qdisc q = { .ifindex = ifindex };
	struct tcmsg *tc;

	tbg_netlink_dump(NETLINK_ROUTE, tbg_netlink_request(buf, RTM_GETQDISC, sizeof(*tc), &tc),
			 qdisc_begin, qdisc_look, &q);
	return q.is_clsact;
}

/* Requests the filters on one of the hooks; 0 or negative errno. */
static int filters_dump(int ifindex, bool egress, void (*begin)(void *), mnl_cb_t fn, void *arg)
{
	char buf[MNL_NLMSG_HDRLEN + sizeof(struct tcmsg) + 64];
	struct nlmsghdr *req;
	struct tcmsg *tc;

	req = tbg_netlink_request(buf, RTM_GETTFILTER, sizeof(*tc), &tc);
	tc->tcm_ifindex = ifindex;
	tc->tcm_parent = TC_H_MAKE(TC_H_CLSACT, egress ? TC_H_MIN_EGRESS : TC_H_MIN_INGRESS);
	return tbg_netlink_dump(NETLINK_ROUTE, req, begin, fn, arg);
}

static void filters_begin(void *arg)
{
	*(int *)arg = 0;
}

static int filter_count(const struct nlmsghdr *h, void *arg)
{
	++*(int *)arg;
	return MNL_CB_OK;
}

int tbg_links_filters(int ifindex)
{
	int nr = 0;

	for (int i = 0; i < 2; i++) {
		int here;

		if (filters_dump(ifindex, i, filters_begin, filter_count, &here))
			return -1;
		nr += here;
	}
	return nr;
}

struct first {
	bool found;
	uint32_t prog_id;
};

static void first_begin(void *arg)
{
	((struct first *)arg)->found = false;
}

/* Filters arrive in the order of execution, each priority preceded by a message of its own. */
static int first_look(const struct nlmsghdr *h, void *arg)
{
	const struct tcmsg *tc = mnl_nlmsg_get_payload(h);
	const struct nlattr *options = tbg_attr_of(h, sizeof(*tc), TCA_OPTIONS), *a;
	struct first *f = arg;

	if (f->found || !tc->tcm_handle)
		return MNL_CB_OK;
	*f = (struct first){ .found = true };
	if (!options || !attr_is(tbg_attr_of(h, sizeof(*tc), TCA_KIND), "bpf"))
		return MNL_CB_OK;
	mnl_attr_for_each_nested(a, options)
		if (mnl_attr_get_type(a) == TCA_BPF_ID)
			f->prog_id = tbg_attr_number(a);
	return MNL_CB_OK;
}

bool tbg_links_first(int ifindex, bool egress, uint32_t *ret_prog_id)
{
	struct first f;

	if (filters_dump(ifindex, egress, first_begin, first_look, &f) || !f.found)
		return false;
	*ret_prog_id = f.prog_id;
	return true;
}

/* --- routes -------------------------------------------------------------- */

struct route_search {
	int ifindex;
	bool (*fn)(const struct tbg_prefix *to, void *arg);
	void *arg;
	bool found;
};

static void route_begin(void *arg)
{
}

/* One matching next hop suffices. */
static bool route_is_by(const struct nlmsghdr *h, int ifindex)
{
	const struct nlattr *several = tbg_attr_of(h, sizeof(struct rtmsg), RTA_MULTIPATH);
	const struct nlattr *one = tbg_attr_of(h, sizeof(struct rtmsg), RTA_OIF);
	const struct rtnexthop *hop;
	int len;

	if (!several)
		return (int)tbg_attr_number(one) == ifindex;
	hop = mnl_attr_get_payload(several);
	len = mnl_attr_get_payload_len(several);
	for (; RTNH_OK(hop, len); len -= RTNH_ALIGN(hop->rtnh_len), hop = RTNH_NEXT(hop))
		if (hop->rtnh_ifindex == ifindex)
			return true;
	return false;
}

static int route_look(const struct nlmsghdr *h, void *arg)
{
	const struct rtmsg *rt = mnl_nlmsg_get_payload(h);
	bool v4 = rt->rtm_family == AF_INET;
	const struct nlattr *to = tbg_attr_of(h, sizeof(*rt), RTA_DST);
	struct tbg_prefix s = { .bits = rt->rtm_dst_len + (v4 ? 96 : 0) };
	struct route_search *r = arg;
	size_t size = v4 ? 4 : 16;

	if (r->found || rt->rtm_type != RTN_UNICAST || rt->rtm_table == RT_TABLE_LOCAL ||
	    s.bits > 128 || (to && mnl_attr_get_payload_len(to) != size) ||
	    !route_is_by(h, r->ifindex))
		return MNL_CB_OK;
	if (v4)
		memset(s.address + 10, 0xff, 2);
	if (to)
		memcpy(s.address + 16 - size, mnl_attr_get_payload(to), size);
	/* fe80::/10: link-local */
	if (!v4 && s.address[0] == 0xfe && (s.address[1] & 0xc0) == 0x80)
		return MNL_CB_OK;
	r->found = r->fn(&s, r->arg);
	return MNL_CB_OK;
}

bool tbg_links_route(int ifindex, bool (*fn)(const struct tbg_prefix *to, void *arg), void *arg)
{
	struct route_search r = { .ifindex = ifindex, .fn = fn, .arg = arg };
	static const unsigned char families[] = { AF_INET, AF_INET6 };

	for (int i = 0; i < 2 && !r.found; i++) {
		char buf[MNL_NLMSG_HDRLEN + sizeof(struct rtmsg) + 64];
		struct nlmsghdr *req;
		struct rtmsg *rt;

		req = tbg_netlink_request(buf, RTM_GETROUTE, sizeof(*rt), &rt);
		rt->rtm_family = families[i];
		mnl_attr_put_u32(req, RTA_OIF, ifindex);
		tbg_netlink_dump(NETLINK_ROUTE, req, route_begin, route_look, &r);
	}
	return r.found;
}

/* --- news ---------------------------------------------------------------- */

struct tbg_link_news {
	struct mnl_socket *nl;
	bool routes;
};

struct tbg_link_news *tbg_link_news_open(void)
{
	struct tbg_link_news *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->nl = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (n->nl && !mnl_socket_bind(n->nl, RTMGRP_LINK | RTMGRP_TC | RTMGRP_IPV4_IFADDR |
				      RTMGRP_IPV6_IFADDR, MNL_SOCKET_AUTOPID))
		return n;
	tbg_link_news_close(n);
	return NULL;
}

void tbg_link_news_close(struct tbg_link_news *n)
{
	if (n && n->nl)
		mnl_socket_close(n->nl);
	free(n);
}

int tbg_link_news_fd(const struct tbg_link_news *n)
{
	return mnl_socket_get_fd(n->nl);
}

bool tbg_link_news_take(struct tbg_link_news *n)
{
	return tbg_netlink_drain(n->nl);
}

void tbg_link_news_routes(struct tbg_link_news *n, bool wanted)
{
	int groups[] = { RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE };

	if (!n || n->routes == wanted)
		return;
	for (int i = 0; i < 2; i++)
		mnl_socket_setsockopt(n->nl, wanted ? NETLINK_ADD_MEMBERSHIP :
				      NETLINK_DROP_MEMBERSHIP, &groups[i], sizeof(groups[i]));
	n->routes = wanted;
}
