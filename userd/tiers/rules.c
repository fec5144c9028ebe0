// SPDX-License-Identifier: GPL-2.0
/*
 * Reads rules by rtnetlink, see rules.h. A rule that no packet of the daemon's connections
 * fits does not count: these have no mark, no type of service, and the user and the ports of
 * its sockets. What a question to the kernel cannot state makes connections the kernel's.
 */
#include "tiers/rules.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "abi/pair.h"
#include "tiers/netlink.h"

/* What the headers of older kernels lack (linux/fib_rules.h). */
enum {
	RULE_DSCP = 25, RULE_FLOWLABEL, RULE_FLOWLABEL_MASK, RULE_SPORT_MASK, RULE_DPORT_MASK,
	RULE_DSCP_MASK,
};

/* A rule, and what it selects by. */
struct rule {
	uint32_t table, mark, mask;
	bool vrf;		/* it is that of VRFs */
	bool selects;		/* by anything */
	bool suppresses;	/* some routes of its table */
	bool service;		/* by the type of service */
	bool strange;		/* by something that is unknown here */
	bool apart;		/* by a protocol: not TCP */
	bool outside;		/* by what packets that are sent do not have: they never fit */
	struct fib_rule_port_range ports;	/* of clients; 0: by none */
	struct fib_rule_uid_range users;
	bool user;		/* by users */
	bool masked;		/* by some bits of the port alone */
};

static void read_number(const struct nlattr *a, uint32_t *ret)
{
	if (mnl_attr_validate(a, MNL_TYPE_U32) >= 0)
		*ret = mnl_attr_get_u32(a);
}

/* Copies a value of that size. */
static void read_value(const struct nlattr *a, void *ret, size_t size)
{
	if (mnl_attr_get_payload_len(a) == size)
		memcpy(ret, mnl_attr_get_payload(a), size);
}

static bool is_byte(const struct nlattr *a, uint8_t value)
{
	return mnl_attr_validate(a, MNL_TYPE_U8) >= 0 && mnl_attr_get_u8(a) == value;
}

static bool is_text(const struct nlattr *a, const char *text)
{
	return mnl_attr_validate(a, MNL_TYPE_NUL_STRING) >= 0 && !strcmp(mnl_attr_get_str(a), text);
}

static void rule_attr(const struct nlattr *a, struct rule *ret)
{
	uint32_t most = UINT32_MAX;

	switch (mnl_attr_get_type(a)) {
	case FRA_L3MDEV:
		ret->vrf = true;
		return;
	case FRA_TABLE:
		read_number(a, &ret->table);
		return;
	case FRA_SUPPRESS_PREFIXLEN:
	case FRA_SUPPRESS_IFGROUP:
		read_number(a, &most);
		ret->suppresses |= most != UINT32_MAX;
		return;
	case FRA_UNUSED2:
	case FRA_UNUSED3:
	case FRA_UNUSED4:
	case FRA_UNUSED5:
	case FRA_GOTO:
	case FRA_PRIORITY:
	case FRA_PROTOCOL:
	case FRA_FLOW:
	case FRA_PAD:
		return;
	case FRA_FWMARK:
		read_number(a, &ret->mark);
		break;
	case FRA_FWMASK:
		read_number(a, &ret->mask);
		break;
	case FRA_IIFNAME:	/* lo is that of packets which are sent */
		ret->outside |= !is_text(a, "lo");
		break;
	case RULE_DSCP:
		ret->service = true;
		ret->outside |= !is_byte(a, 0);
		break;
	case FRA_IP_PROTO:
		ret->apart = !is_byte(a, IPPROTO_TCP);
		break;
	case FRA_DPORT_RANGE:
		ret->ports.end = UINT16_MAX;
		read_value(a, &ret->ports, sizeof(ret->ports));
		break;
	case RULE_DPORT_MASK:
		ret->masked = true;
		break;
	case FRA_UID_RANGE:
		ret->user = true;
		ret->users.end = UINT32_MAX;
		read_value(a, &ret->users, sizeof(ret->users));
		break;
	case FRA_DST:
	case FRA_SRC:
	case FRA_OIFNAME:
	case FRA_TUN_ID:
	case FRA_SPORT_RANGE:
	case RULE_SPORT_MASK:
	case RULE_FLOWLABEL:
	case RULE_FLOWLABEL_MASK:
	case RULE_DSCP_MASK:
		break;
	default:
		ret->strange = true;
	}
	ret->selects = true;
}

static void rule_read(const struct nlmsghdr *h, struct rule *ret)
{
	const struct fib_rule_hdr *hdr = mnl_nlmsg_get_payload(h);
	const struct nlattr *a;

	*ret = (struct rule){
		.table = hdr->table, .outside = hdr->tos, .service = hdr->tos,
		.selects = hdr->src_len || hdr->dst_len || hdr->tos ||
			   hdr->flags & FIB_RULE_INVERT || hdr->action != FR_ACT_TO_TBL,
	};
	mnl_attr_for_each(a, h, sizeof(*hdr))
		rule_attr(a, ret);
	if (ret->masked)
		ret->ports = (struct fib_rule_port_range){ 1, UINT16_MAX };
}

/* Number of the daemon's users that the rule is for. */
static unsigned int users_of(const struct tbg_rules *r, const struct rule *rule)
{
	unsigned int ret = 0;

	for (unsigned int i = 0; i < r->users_nr; i++)
		ret += r->users[i] >= rule->users.start && r->users[i] <= rule->users.end;
	return ret;
}

/* Connections that exist are left, too: no answer would be right for any of their ports. */
static void leave(struct tbg_rules *r, const char *why)
{
	if (!r->left[0])
		snprintf(r->left, sizeof(r->left), "a rule (ip rule) %s", why);
	r->asks = TBG_ASKS_V4 | TBG_ASKS_V6;
	r->ports[0] = 0;
	r->ports[1] = UINT16_MAX;
}

static void ports_add(struct tbg_rules *r, const struct fib_rule_port_range *ports)
{
	if (!ports->end)
		return;
	if (!r->ports[1] || ports->start < r->ports[0])
		r->ports[0] = ports->start;
	if (ports->end > r->ports[1])
		r->ports[1] = ports->end;
}

/*
 * A rule that comes before the local table: addresses of this host may not be this host's. Packets
 * with a mark are left to the kernel where it is asked.
 */
static void early_look(struct tbg_rules *r, const struct rule *rule, uint8_t version, bool never)
{
	r->asks |= version;
	if (!never)
		leave(r, "comes before the table local");
}

/* Evaluates a rule. They come in the order of the kernel's search. */
static int rule_look(const struct nlmsghdr *h, void *arg)
{
	const struct fib_rule_hdr *hdr = mnl_nlmsg_get_payload(h);
	uint8_t version = hdr->family == AF_INET ? TBG_ASKS_V4 : TBG_ASKS_V6;
	bool straight = !(hdr->flags & FIB_RULE_INVERT), never, plain;
	struct tbg_rules *r = arg;
	struct rule rule;

	if (hdr->family != AF_INET && hdr->family != AF_INET6)
		return MNL_CB_OK;
	rule_read(h, &rule);
	r->seen |= version;
	if (rule.vrf)
		return MNL_CB_OK;
	plain = !rule.selects && !rule.suppresses;
	never = straight && (rule.mark & rule.mask || rule.apart);
	r->marks |= rule.mark || rule.mask;
	r->services |= rule.service;
	if (rule.strange)
		leave(r, "selects by something that this version does not know");
	if (!(r->local & version)) {
		if (plain && rule.table == RT_TABLE_LOCAL)
			r->local |= version;
		else
			early_look(r, &rule, version, never);
		return MNL_CB_OK;
	}
	if (plain && rule.table == RT_TABLE_MAIN)
		r->main |= version;
	never |= straight && (rule.outside || (rule.user && !r->users_more && !users_of(r, &rule)));
	if (never || (plain && (rule.table == RT_TABLE_LOCAL || rule.table == RT_TABLE_MAIN ||
				rule.table == RT_TABLE_DEFAULT)))
		return MNL_CB_OK;
	r->asks |= version;
	ports_add(r, &rule.ports);
	if (rule.user && (r->users_more || users_of(r, &rule) % r->users_nr))
		leave(r, "selects by user, and the daemon's sockets have several");
	return MNL_CB_OK;
}

static void rules_begin(void *arg)
{
	struct tbg_rules *r = arg;

	r->asks = r->seen = r->local = r->main = 0;
	r->marks = r->services = false;
	r->ports[0] = r->ports[1] = 0;
	r->left[0] = 0;
}

int tbg_rules_read(struct tbg_rules *r)
{
	char buf[MNL_NLMSG_HDRLEN + sizeof(struct fib_rule_hdr)] __attribute__((aligned(8)));
	struct fib_rule_hdr *rule;
	int err;

	err = tbg_netlink_dump(NETLINK_ROUTE,
			       tbg_netlink_request(buf, RTM_GETRULE, sizeof(*rule), &rule),
			       rules_begin, rule_look, r);
	if (err == -EOPNOTSUPP)		/* a kernel without rules has none */
		return 0;
	/* without the rule of main, its routes do not count */
	r->asks |= r->seen & ~r->main;
	if (!err && r->seen & ~r->local)
		leave(r, "is missing: that of the table local");
	return err;
}

bool tbg_rules_user(struct tbg_rules *r, uid_t user)
{
	for (unsigned int i = 0; i < r->users_nr; i++)
		if (r->users[i] == user)
			return false;
	if (r->users_nr == TBG_RULES_USERS) {
		bool news = !r->users_more;

		r->users_more = true;
		return news;
	}
	r->users[r->users_nr++] = user;
	return true;
}
