// SPDX-License-Identifier: GPL-2.0
/*
 * Reads the base chains of netfilter: those of nftables by netlink, with
 * notifications of changes; those of iptables-legacy in tiers/xtables.c. What cannot be
 * read counts as a filter.
 */
#include "tiers/births.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nf_tables_compat.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "abi/knob.h"
#include "os/cgroup.h"
#include "tiers/netlink.h"
#include "tiers/routes.h"
#include "tiers/track.h"
#include "os/sysctl.h"

/*
 * Hand-overs that fail in a row, until the daemon adds each connection to conntrack before
 * the kernel gets it; after as many more, the kernel keeps all connections.
 */
#define REFUSED_MAX 3

/* extension_look() reads both. */
_Static_assert((int)NFTA_MATCH_NAME == NFTA_TARGET_NAME && (int)NFTA_MATCH_REV == NFTA_TARGET_REV &&
	       (int)NFTA_MATCH_INFO == NFTA_TARGET_INFO, "attributes");

/* Subscribes to changes of nftables. 0 or negative errno. */
static int nft_open(struct mnl_socket **ret)
{
	struct mnl_socket *nl = mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC | SOCK_NONBLOCK);
	int err = nl ? 0 : -errno;

	if (nl && mnl_socket_bind(nl, 1u << (NFNLGRP_NFTABLES - 1), MNL_SOCKET_AUTOPID)) {
		err = -errno;
		mnl_socket_close(nl);
		nl = NULL;
	}
	*ret = nl;
	return err;
}

/*
 * The hook at which a chain of this family sees a SYN before a listener does, or the SYN-ACK;
 * NULL: none.
 */
static const char *hook_name(unsigned int family, uint32_t hook)
{
	switch (family) {
	case NFPROTO_INET:
	case NFPROTO_IPV4:
	case NFPROTO_IPV6:
		switch (hook) {
		case NF_INET_PRE_ROUTING:
			return "prerouting";
		case NF_INET_LOCAL_IN:
			return "input";
		case NF_INET_LOCAL_OUT:
			return "output";
		case NF_INET_POST_ROUTING:
			return "postrouting";
		case NF_INET_INGRESS:
			return family == NFPROTO_INET ? "ingress" : NULL;
		}
		return NULL;
	case NFPROTO_NETDEV:
		return hook == NF_NETDEV_INGRESS ? "ingress" :
		       hook == NF_NETDEV_EGRESS ? "egress" : NULL;
	}
	return NULL;
}

/* State of a dump of chains. */
struct chains {
	struct tbg_births *b;
	bool filter;			/* a chain may filter; b->why names it */
};

static void chains_begin(void *arg)
{
	struct chains *c = arg;

	c->filter = c->b->nats = c->b->reroutes = false;
}

/* A hand-over beside it takes help: see bpf/wire/track.bpf.h. */
static void nat_found(struct tbg_births *b, const char *whose, const char *name)
{
	snprintf(b->why, sizeof(b->why), "%s has NAT: table %.40s", whose, name);
	b->nats = true;
}

static const char *text_of(const struct nlattr *a)
{
	return a && mnl_attr_validate(a, MNL_TYPE_NUL_STRING) >= 0 ? mnl_attr_get_str(a) : "?";
}

static int chain_look(const struct nlmsghdr *h, void *arg)
{
	const struct nfgenmsg *g = mnl_nlmsg_get_payload(h);
	const struct nlattr *hook = tbg_attr_of(h, sizeof(*g), NFTA_CHAIN_HOOK), *a;
	struct chains *c = arg;
	const char *where = NULL, *type;

	if (!hook)	/* not a base chain */
		return MNL_CB_OK;
	type = text_of(tbg_attr_of(h, sizeof(*g), NFTA_CHAIN_TYPE));
	c->b->reroutes |= !strcmp(type, "route");
	/* whatever its hook: one NAT chain activates all four hooks */
	if (!strcmp(type, "nat")) {
		c->filter = true;
		nat_found(c->b, "nftables",
			  text_of(tbg_attr_of(h, sizeof(*g), NFTA_CHAIN_TABLE)));
		return MNL_CB_OK;
	}
	mnl_attr_for_each_nested(a, hook)
		if (mnl_attr_get_type(a) == NFTA_HOOK_HOOKNUM &&
		    mnl_attr_validate(a, MNL_TYPE_U32) >= 0)
			where = hook_name(g->nfgen_family, ntohl(mnl_attr_get_u32(a)));
	if (!where)
		return MNL_CB_OK;
	c->filter = true;
	if (c->b->nats)		/* which is the reason to give */
		return MNL_CB_OK;
	snprintf(c->b->why, sizeof(c->b->why),
		 "nftables has a chain at %s: table %.40s, chain %.40s", where,
		 text_of(tbg_attr_of(h, sizeof(*g), NFTA_CHAIN_TABLE)),
		 text_of(tbg_attr_of(h, sizeof(*g), NFTA_CHAIN_NAME)));
	return MNL_CB_OK;
}

/* Dumps chains or rules of all families. 0 or negative errno. */
static int nft_dump(uint16_t what, void (*begin)(void *arg), mnl_cb_t fn, struct chains *c)
{
	char buf[MNL_NLMSG_HDRLEN + sizeof(struct nfgenmsg)] __attribute__((aligned(8)));
	struct nlmsghdr *h;
	struct nfgenmsg *g;

	h = tbg_netlink_request(buf, NFNL_SUBSYS_NFTABLES << 8 | what, sizeof(*g), &g);
	g->nfgen_family = NFPROTO_UNSPEC;
	g->version = NFNETLINK_V0;
	return tbg_netlink_dump(NETLINK_NETFILTER, h, begin, fn, c);
}

static void rules_begin(void *arg)
{
	struct chains *c = arg;

	c->b->rules = (struct tbg_netfilter_rules){ 0 };
}

/* A match or target of xtables in a rule that iptables has written. */
static void extension_look(const struct nlattr *data, struct tbg_netfilter_rules *ret)
{
	const struct nlattr *a, *info = NULL;
	uint32_t revision = 0;
	const char *name = "?";

	mnl_attr_for_each_nested(a, data) {
		if (mnl_attr_get_type(a) == NFTA_MATCH_NAME)
			name = text_of(a);
		else if (mnl_attr_get_type(a) == NFTA_MATCH_INFO)
			info = a;
		else if (mnl_attr_get_type(a) == NFTA_MATCH_REV &&
			 mnl_attr_validate(a, MNL_TYPE_U32) >= 0)
			revision = ntohl(mnl_attr_get_u32(a));
	}
	tbg_xtables_extension(name, revision, info ? mnl_attr_get_payload(info) : NULL,
			      info ? mnl_attr_get_payload_len(info) : 0, ret);
}

/* Whether a "ct" expression needs an entry in the direction and the zone of the first SYN. */
static bool ct_turns(const struct nlattr *data)
{
	const struct nlattr *a, *key = NULL;
	bool direction = false;

	mnl_attr_for_each_nested(a, data) {
		if (mnl_attr_get_type(a) == NFTA_CT_KEY)
			key = a;
		direction |= mnl_attr_get_type(a) == NFTA_CT_DIRECTION;
	}
	if (!key || mnl_attr_validate(key, MNL_TYPE_U32) < 0)
		return direction;
	return direction || ntohl(mnl_attr_get_u32(key)) == NFT_CT_DIRECTION ||
	       ntohl(mnl_attr_get_u32(key)) == NFT_CT_ZONE;
}

static void expression_look(const struct nlattr *element, struct tbg_netfilter_rules *ret)
{
	const struct nlattr *a, *data = NULL;
	const char *name = "?";

	mnl_attr_for_each_nested(a, element) {
		if (mnl_attr_get_type(a) == NFTA_EXPR_NAME)
			name = text_of(a);
		else if (mnl_attr_get_type(a) == NFTA_EXPR_DATA)
			data = a;
	}
	if (data && !strcmp(name, "ct"))
		ret->turns |= ct_turns(data);
	else if (data && (!strcmp(name, "match") || !strcmp(name, "target")))
		extension_look(data, ret);
}

static int rule_look(const struct nlmsghdr *h, void *arg)
{
	static const char name[] = "connlimit";	/* an expression, wherever it is nested */
	const struct nlattr *all = tbg_attr_of(h, sizeof(struct nfgenmsg), NFTA_RULE_EXPRESSIONS);
	const struct nlattr *a;
	struct chains *c = arg;

	c->b->rules.counts |= !!memmem(mnl_nlmsg_get_payload(h), mnl_nlmsg_get_payload_len(h), name,
				       sizeof(name));
	if (all)
		mnl_attr_for_each_nested(a, all)
			expression_look(a, &c->b->rules);
	return MNL_CB_OK;
}

/* Whether nftables has a chain that may filter, or cannot be asked. */
static bool nft_filters(struct tbg_births *b)
{
	struct chains c = { .b = b };
	int err = b->nft ? nft_dump(NFT_MSG_GETCHAIN, chains_begin, chain_look, &c) : b->nft_err;

	if (!err && !b->rules_read)
		b->rules_read = !nft_dump(NFT_MSG_GETRULE, rules_begin, rule_look, &c);
	if (!err)
		return c.filter;
	/* a kernel without nftables has none of its chains */
	if (err == -EPROTONOSUPPORT || err == -EINVAL || err == -EOPNOTSUPP)
		return false;
	b->reroutes = true;
	snprintf(b->why, sizeof(b->why), "nftables does not list its chains: %s",
		 strerror(-err));
	return true;
}

/* The same for iptables-legacy: each of its tables has a chain at prerouting or input. */
static bool xtables_filter(struct tbg_births *b, struct tbg_xtables *x)
{
	int n = tbg_xtables_look(x);

	b->reroutes |= n < 0;
	if (n < 0 && b->nats)
		return true;
	if (n < 0) {
		snprintf(b->why, sizeof(b->why), "%s: %s; iptables may filter",
			 tbg_xtables_file(x), strerror(-n));
		return true;
	}
	if (tbg_xtables_has(x, "nat"))
		nat_found(b, "iptables", "nat");
	b->reroutes |= tbg_xtables_has(x, "mangle");
	if (n && !b->nats)
		snprintf(b->why, sizeof(b->why), "iptables has the table %.*s (%s)",
			 (int)strcspn(x->names, "\n"), x->names, x->v6 ? "IPv6" : "IPv4");
	return n;
}

/*
 * With a filter: whether conntrack accepts a connection whose beginning it has not seen, or the
 * daemon has to tell it of each. turns: as in struct tbg_netfilter_rules.
 */
static void conntrack_ask(struct tbg_births *b, bool turns)
{
	/* negative: there is no conntrack, or nothing that asks it */
	int loose = b->filters ? tbg_sysctl("/proc/sys/net/netfilter/nf_conntrack_tcp_loose", -1) :
				 -1;
	bool there = loose >= 0 || b->nats;
	bool first = there && (b->nats || !loose || b->row >= REFUSED_MAX);

	if (b->forgets && (b->untracked || (first && !(b->tracks & TBG_TRACKS_FIRST))))
		b->untracked = tbg_track_try();
	b->tracks &= ~TBG_TRACKS_FIRST;
	b->tracks |= (there ? TBG_TRACKS_ENTRIES : 0) | (first ? TBG_TRACKS_FIRST : 0);
	if (!there || (b->forgets && !first) || b->mode == TBG_BIRTHS_NONE)
		return;
	if (!b->forgets)
		strcpy(b->why, "conntrack came after the start, or its entries cannot be removed by BPF; start again");
	else if (turns)
		snprintf(b->why, sizeof(b->why), "a rule looks at the direction or the zone of connections (ct direction, original, reply, zone; --ctdir), and %s",
			 b->nats ? "netfilter has NAT" :
			 "others drop what conntrack has not seen begin");
	else if (b->untracked)
		snprintf(b->why, sizeof(b->why), "%s, and conntrack takes no entries of the daemon: %s",
			 b->nats ? "netfilter has NAT" :
			 "netfilter drops segments of connections that conntrack has not seen begin",
			 strerror(-b->untracked));
	else if (b->mode == TBG_BIRTHS_WIRE)
		strcpy(b->why, "by --births wire, the firewall would not see connections that are then added to conntrack, for it has NAT or drops what conntrack has not seen begin");
	else
		return;
	b->mode = TBG_BIRTHS_NONE;
}

/*
 * Whether the daemon's cgroup has programs, its own or inherited ones, through which the
 * segments of the kernel's sockets pass.
 */
static bool cgroup_filters(struct tbg_births *b)
{
	static const enum bpf_attach_type ways[] = {
		BPF_CGROUP_INET_INGRESS, BPF_CGROUP_INET_EGRESS,
	};
	bool ret = false;

	for (int i = 0; i < 2 && b->cgroup_fd >= 0; i++) {
		uint32_t nr = 0, flags;

		ret |= !bpf_prog_query(b->cgroup_fd, ways[i], BPF_F_QUERY_EFFECTIVE, &flags, NULL,
				       &nr) && nr;
	}
	if (ret)
		strcpy(b->why, "the daemon's cgroup has BPF programs that could refuse a client, as IPAddressDeny= of systemd makes");
	return ret;
}

const char *tbg_births_text(const struct tbg_births *b)
{
	switch (b->mode) {
	case TBG_BIRTHS_KERNEL:
		return "the kernel";
	case TBG_BIRTHS_WIRE:
		return "wire";
	}
	return "the kernel alone, which keeps the connections";
}

/* Checks for requirements of routes that wire cannot meet. */
static void routes_ask(struct tbg_births *b, const struct tbg_routes *r)
{
	if (r->left == TBG_LEFT_NOTHING || b->mode == TBG_BIRTHS_NONE ||
	    (r->left == TBG_LEFT_SYNS && b->mode == TBG_BIRTHS_KERNEL))
		return;
	b->mode = r->left == TBG_LEFT_ALL ? TBG_BIRTHS_NONE : TBG_BIRTHS_KERNEL;
	snprintf(b->why, sizeof(b->why), "%s", r->why);
}

/* Netfilter has the route of a packet looked up again once it has set its mark or its TOS. */
static void marks_ask(struct tbg_births *b, const struct tbg_routes *r)
{
	bool matters = r->rules.marks || r->rules.services || r->services;

	if (!b->reroutes || !matters || b->mode == TBG_BIRTHS_NONE)
		return;
	b->mode = TBG_BIRTHS_NONE;
	strcpy(b->why, "rules (ip rule) or routes select by marks or TOS, and netfilter can set those of answers (a chain of type route, or the table mangle)");
}

bool tbg_births_look(struct tbg_births *b, const struct tbg_routes *routes)
{
	uint32_t was = b->mode;
	struct tbg_netfilter_rules rules;
	bool filters;

	b->why[0] = 0;
	b->nats = b->reroutes = false;
	filters = nft_filters(b);
	rules = b->rules;
	for (int i = 0; i < 2; i++) {
		filters |= xtables_filter(b, &b->xtables[i]);
		rules.counts |= b->xtables[i].rules.counts;
		rules.turns |= b->xtables[i].rules.turns;
	}
	if (b->wanted != TBG_WANTED_AUTO) {
		b->mode = b->wanted == TBG_WANTED_WIRE ? TBG_BIRTHS_WIRE : TBG_BIRTHS_KERNEL;
		strcpy(b->why, "set by --births");
	} else {
		b->mode = filters || cgroup_filters(b) ? TBG_BIRTHS_KERNEL : TBG_BIRTHS_WIRE;
		if (b->mode == TBG_BIRTHS_WIRE)
			strcpy(b->why, "netfilter has no chain that could refuse a client");
	}
	b->filters = filters;
	if (rules.counts && b->wanted == TBG_WANTED_AUTO) {
		b->mode = TBG_BIRTHS_NONE;
		strcpy(b->why, "a rule limits the number of connections (ct count, connlimit), and would not count those that are wire's");
	}
	conntrack_ask(b, rules.turns);
	routes_ask(b, routes);
	marks_ask(b, routes);
	if (b->row >= 2 * REFUSED_MAX) {
		b->mode = TBG_BIRTHS_NONE;
		strcpy(b->why, "the firewall drops resets, or segments of connections that conntrack has not seen begin");
	}
	return b->mode != was;
}

uint32_t tbg_births_guess(const struct tbg_births *b)
{
	if (b->mode != TBG_BIRTHS_KERNEL || !b->forgets || b->untracked)
		return b->tracks;
	return b->tracks & TBG_TRACKS_FIRST ? b->tracks :
	       b->tracks | TBG_TRACKS_FIRST | TBG_TRACKS_ENTRIES | TBG_TRACKS_GUESS;
}

void tbg_births_refused(struct tbg_births *b, unsigned int nr, bool well)
{
	b->refused += nr;
	if (!well)
		b->row += nr;
	else
		b->row = b->row < REFUSED_MAX ? 0 : REFUSED_MAX;
}

void tbg_births_open(struct tbg_births *b, enum tbg_births_wanted wanted, bool forgets,
		     const struct tbg_routes *routes)
{
	*b = (struct tbg_births){ .wanted = wanted, .forgets = forgets,
				  .xtables = { { .fd = -1 }, { .v6 = true, .fd = -1 } },
				  .cgroup_fd = tbg_cgroup_open(), .mode = TBG_BIRTHS_NONE };
	b->nft_err = nft_open(&b->nft);
	tbg_births_look(b, routes);
}

int tbg_births_fd(const struct tbg_births *b)
{
	return b->nft ? mnl_socket_get_fd(b->nft) : -1;
}

bool tbg_births_moved(const struct tbg_births *b)
{
	return tbg_xtables_moved(&b->xtables[0]) || tbg_xtables_moved(&b->xtables[1]);
}

bool tbg_births_news(struct tbg_births *b)
{
	bool ret = b->nft && tbg_netlink_drain(b->nft);

	if (ret) {
		b->row = 0;
		b->rules_read = false;
	}
	return ret;
}

void tbg_births_close(struct tbg_births *b)
{
	if (b->nft)
		mnl_socket_close(b->nft);
	b->nft = NULL;
	if (b->cgroup_fd >= 0)
		close(b->cgroup_fd);
	b->cgroup_fd = -1;
	for (int i = 0; i < 2; i++)
		tbg_xtables_close(&b->xtables[i]);
}
