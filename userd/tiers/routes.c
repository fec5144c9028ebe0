// SPDX-License-Identifier: GPL-2.0
/*
 * Reads routes, rules and interfaces by rtnetlink, and sysctls. See routes.h. Called
 * by wire.c, in the control thread.
 */
#include "tiers/routes.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "abi/knob.h"
#include "abi/pair.h"
#include "os/clock.h"
#include "os/sysctl.h"
#include "tiers/links.h"
#include "tiers/netlink.h"

/*
 * Pause after a reading: a multiple of its processor time, and at least. While a table of
 * a million routes is being loaded, each change would mean to read all of it.
 */
#define PAUSE_FACTOR	20
#define PAUSE_LEAST_NS	(10 * 1000000ull)

/* Values of sysctls, see net/ipv6.h of the kernel. */
#define LABELS_UNLESS_REFUSED	1	/* net.ipv6.auto_flowlabels, its default */
#define LABELS_ALWAYS		3
#define REFLECT_CONNECTIONS	1	/* a bit of net.ipv6.flowlabel_reflect */

/* Processor time of this thread; never 0. */
static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec + 1;
}

static void leave(struct tbg_routes *r, enum tbg_routes_left left, const char *what)
{
	if (left <= r->left)
		return;
	r->left = left;
	snprintf(r->why, sizeof(r->why), "a route has %s, which is the kernel's to honour", what);
}

/* It is unknown by which interface the kernel would answer. */
static void lose(struct tbg_routes *r, const char *what)
{
	if (r->left == TBG_LEFT_ALL)
		return;
	r->left = TBG_LEFT_ALL;
	snprintf(r->why, sizeof(r->why), "the routes to clients cannot be known: %s", what);
}

/* The kernel is asked by which interface it answers a client. */
static void ask_for(struct tbg_routes *r, uint8_t versions, const char *what)
{
	if (!r->asks)
		snprintf(r->asks_why, sizeof(r->asks_why), "%s", what);
	r->asks |= versions;
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
	r->asks = 0;
	r->asks_why[0] = 0;
	r->services = false;
	tbg_ways_begin(&r->ways);
}

static int route_look(const struct nlmsghdr *h, void *arg)
{
	const struct rtmsg *rt = mnl_nlmsg_get_payload(h);
	const struct nlattr *metrics = tbg_attr_of(h, sizeof(*rt), RTA_METRICS), *a;
	bool v4 = rt->rtm_family == AF_INET, asks;
	struct tbg_routes *r = arg;
	const char *fault;
	char what[64];

	/* a cached copy of another route */
	if (rt->rtm_flags & RTM_F_CLONED)
		return MNL_CB_OK;
	if (metrics)
		mnl_attr_for_each_nested(a, metrics)
			metric_look(r, a, v4);
	r->services |= rt->rtm_tos;
	fault = tbg_ways_add(&r->ways, h, &asks);
	if (!fault)
		return MNL_CB_OK;
	snprintf(what, sizeof(what), "a route %s", fault);
	if (!asks)
		lose(r, what);
	else if (r->ways.more)
		ask_for(r, TBG_ASKS_V4 | TBG_ASKS_V6, what);
	else
		ask_for(r, v4 ? TBG_ASKS_V4 : TBG_ASKS_V6, what);
	return MNL_CB_OK;
}

static void rules_ask(struct tbg_routes *r)
{
	int err = tbg_rules_read(&r->rules);

	if (err)
		lose(r, strerror(-err));
	else if (r->rules.left[0])
		lose(r, r->rules.left);
	if (!err && r->rules.asks)
		ask_for(r, r->rules.asks, "rules (ip rule) choose the routes");
}

static void routes_ask(struct tbg_routes *r)
{
	char buf[MNL_NLMSG_HDRLEN + sizeof(struct rtmsg)] __attribute__((aligned(8)));
	struct rtmsg *rt;	/* zero: all address families */
	int err;

	err = tbg_netlink_dump(NETLINK_ROUTE,
			       tbg_netlink_request(buf, RTM_GETROUTE, sizeof(*rt), &rt),
			       routes_begin, route_look, r);
	if (err) {
		r->left = TBG_LEFT_ALL;
		snprintf(r->why, sizeof(r->why), "routes cannot be asked for: %s", strerror(-err));
	}
}

/*
 * Without SYN cookies the kernel makes no socket late. The next two give all segments the
 * TOS or the flow label of the client's SYN, which wire does not store, and the last one its
 * mark.
 */
static void needs_ask(struct tbg_routes *r)
{
	const char *why = !r->cookies ? "net.ipv4.tcp_syncookies is 0" :
			  r->reflects ? "net.ipv4.tcp_reflect_tos is 1" :
			  r->reflects_label ? "net.ipv6.flowlabel_reflect is set" :
			  r->accepts_marks && r->rules.marks ?
			  "rules (ip rule) select by marks, and net.ipv4.tcp_fwmark_accept is 1" :
			  NULL;

	if (!why)
		return;
	r->left = TBG_LEFT_ALL;
	strcpy(r->why, why);
}

/* The mask of flow labels: all bits where sockets have labels that nobody asked for, or none. */
static uint32_t labels_ask(void)
{
	unsigned int how = tbg_sysctl("/proc/sys/net/ipv6/auto_flowlabels", LABELS_UNLESS_REFUSED);

	return how == LABELS_UNLESS_REFUSED || how == LABELS_ALWAYS ? 0xfffff : 0;
}

/* Sysctls for SYN-ACKs with values that wire does not support. */
static void offers_ask(struct tbg_routes *r)
{
	static const char *const name[] = {
		"tcp_window_scaling", "tcp_sack", "tcp_timestamps", "tcp_ecn",
	};

	for (int i = 0; i < 4; i++) {
		/* 1 and 2: ECN if the client requests it */
		if (i < 3 ? r->offers[i] : r->offers[i] == 1 || r->offers[i] == 2)
			continue;
		if (r->left != TBG_LEFT_NOTHING)
			return;
		r->left = TBG_LEFT_SYNS;
		snprintf(r->why, sizeof(r->why), "net.ipv4.%s is %u", name[i], r->offers[i]);
	}
}

int tbg_routes_fd(const struct tbg_routes *r)
{
	return r->news ? mnl_socket_get_fd(r->news) : -1;
}

void tbg_routes_news(struct tbg_routes *r)
{
	if (r->news && tbg_netlink_drain(r->news))
		r->again = true;
}

bool tbg_routes_changed(const struct tbg_routes *r)
{
	return r->again;
}

bool tbg_routes_due(const struct tbg_routes *r, uint64_t now_ns)
{
	return r->again && now_ns >= r->next_ns;
}

void tbg_routes_look(struct tbg_routes *r)
{
	struct tbg_routes was = *r;
	bool changed;

	r->offers[0] = tbg_sysctl("/proc/sys/net/ipv4/tcp_window_scaling", 1);
	r->offers[1] = tbg_sysctl("/proc/sys/net/ipv4/tcp_sack", 1);
	r->offers[2] = tbg_sysctl("/proc/sys/net/ipv4/tcp_timestamps", 1);
	r->offers[3] = tbg_sysctl("/proc/sys/net/ipv4/tcp_ecn", 2);
	r->cookies = tbg_sysctl("/proc/sys/net/ipv4/tcp_syncookies", 0);
	r->reflects = tbg_sysctl("/proc/sys/net/ipv4/tcp_reflect_tos", 0);
	r->challenge_ms = tbg_sysctl("/proc/sys/net/ipv4/tcp_invalid_ratelimit", 500);
	r->reflects_label = tbg_sysctl("/proc/sys/net/ipv6/flowlabel_reflect", 0) & REFLECT_CONNECTIONS;
	r->accepts_marks = tbg_sysctl("/proc/sys/net/ipv4/tcp_fwmark_accept", 0);
	r->labels = labels_ask();
	r->ttl = tbg_sysctl("/proc/sys/net/ipv4/ip_default_ttl", 64);
	r->hops = tbg_sysctl("/proc/sys/net/ipv6/conf/all/hop_limit", 64);
	changed = was.ttl != r->ttl || was.hops != r->hops || was.cookies != r->cookies ||
		  was.reflects != r->reflects || was.reflects_label != r->reflects_label ||
		  was.labels != r->labels || was.accepts_marks != r->accepts_marks ||
		  memcmp(was.offers, r->offers, sizeof(was.offers));
	tbg_routes_news(r);
	if (!r->news)
		r->again = true;
	if (!tbg_routes_due(r, tbg_mono_ns()) && !changed)
		return;
	r->again = false;
	r->readings++;
	r->began_ns = cpu_ns();
	r->linked = true;
	routes_ask(r);
	rules_ask(r);
	offers_ask(r);
	needs_ask(r);
}

void tbg_routes_open(struct tbg_routes *ret, uid_t user)
{
	/*
	 * Also of interfaces: when one disappears, its routes do, without a notification. And of
	 * the MTU of one for IPv6 that a router advertises (6.12 to 7.2); the hop limit alone is
	 * not announced, nor are the sysctls of both.
	 */
	int groups = RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE | RTMGRP_LINK | RTMGRP_IPV4_RULE |
		     1 << (RTNLGRP_IPV6_RULE - 1) | RTMGRP_IPV6_IFINFO;

	*ret = (struct tbg_routes){
		.news = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC | SOCK_NONBLOCK),
		/* sockets keep the value from the creation of their listener */
		.no_df = tbg_sysctl("/proc/sys/net/ipv4/ip_no_pmtu_disc", 0),
	};
	if (ret->news && mnl_socket_bind(ret->news, groups, MNL_SOCKET_AUTOPID)) {
		mnl_socket_close(ret->news);
		ret->news = NULL;
	}
	tbg_rules_user(&ret->rules, user);
	tbg_rules_user(&ret->rules, geteuid());
	/* a TTL is never 0: routes are read for the first time */
	tbg_routes_look(ret);
	ret->began_ns = 0;		/* much is done before they are set */
}

void tbg_routes_close(struct tbg_routes *r)
{
	if (r->news)
		mnl_socket_close(r->news);
	r->news = NULL;
	tbg_pairs_close(&r->pairs);
	tbg_ways_close(&r->ways);
}

void tbg_routes_user(struct tbg_routes *r, uid_t user)
{
	r->again |= tbg_rules_user(&r->rules, user);
}

/* Reads interfaces in VRFs, and the devices of the VRFs. */
struct vrfs {
	uint32_t slave[TBG_VRFS_MAX], master[TBG_VRFS_MAX];
	unsigned int nr;
	bool more;
};

static bool vrf_add(int ifindex, int vrf, void *arg)
{
	struct vrfs *v = arg;

	v->more = v->nr == TBG_VRFS_MAX;
	if (v->more)
		return false;
	v->slave[v->nr] = ifindex;
	v->master[v->nr++] = vrf;
	return true;
}

static bool is_slave(const struct vrfs *v, uint32_t ifindex)
{
	for (unsigned int i = 0; i < v->nr; i++)
		if (v->slave[i] == ifindex)
			return true;
	return false;
}

/* The number of interfaces in VRFs, or negative errno. */
static int vrfs_set(const struct tbg_links *links, int map_fd)
{
	uint32_t key, next, *at = NULL;
	struct vrfs v;

	v.nr = 0;
	v.more = false;
	tbg_links_vrfs(links, vrf_add, &v);
	if (v.more)
		return -E2BIG;
	for (unsigned int i = 0; i < v.nr; i++)
		if (bpf_map_update_elem(map_fd, &v.slave[i], &v.master[i], BPF_ANY))
			return -errno;
	/* remove those that have left their VRF */
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

/* Updates maps that depend on the stacking of interfaces. 0 or negative errno. */
static int links_set(struct tbg_routes *r, const struct tbg_route_maps *m)
{
	struct tbg_links *links = tbg_links_open();
	int vrfs = links ? vrfs_set(links, m->vrfs_fd) : -ENODATA, err;

	err = vrfs < 0 ? vrfs :
	      tbg_ways_aboves(&r->ways, links, m->aboves_fd, r->below, r->below_nr);
	tbg_links_close(links);
	if (vrfs >= 0)
		r->vrfs = vrfs;
	return err;
}

/* After the maps were updated, which takes most of the time. */
static void pause_begin(struct tbg_routes *r)
{
	uint64_t pause_ns = PAUSE_FACTOR * (cpu_ns() - r->began_ns);

	if (r->began_ns)
		r->next_ns = tbg_mono_ns() +
			     (pause_ns > PAUSE_LEAST_NS ? pause_ns : PAUSE_LEAST_NS);
	r->began_ns = 0;
}

void tbg_routes_fill(const struct tbg_routes *r, struct tbg_knob *knob)
{
	knob->segs_max = r->segs_max;
	knob->mss_max = r->mss_max;
	knob->challenge_ms = r->challenge_ms;
	memcpy(knob->ports_left, r->rules.ports, sizeof(knob->ports_left));
	knob->ttl = r->ttl;
	knob->hops = r->hops;
	knob->labels = r->labels;
	knob->no_df = r->no_df;
	/* with the new number, BPF checks ways again: by the new rules */
	__atomic_store_n(&knob->asks, r->asks, __ATOMIC_RELEASE);
	__atomic_store_n(&knob->ways, r->readings, __ATOMIC_RELEASE);
}

void tbg_routes_set(struct tbg_routes *r, const struct tbg_route_maps *m, const int *below,
		    unsigned int nr)
{
	bool moved = nr != r->below_nr || memcmp(below, r->below, nr * sizeof(*below));
	int err = tbg_ways_set(&r->ways, m->ways_fd);

	memcpy(r->below, below, nr * sizeof(*below));
	r->below_nr = nr;
	if (!err && (moved || r->linked))
		err = links_set(r, m);
	r->linked = err;
	tbg_pairs_renew(&r->pairs, r->readings);
	pause_begin(r);
	if (!err)
		return;
	r->again = true;
	lose(r, strerror(-err));
}
