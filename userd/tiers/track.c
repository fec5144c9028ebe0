// SPDX-License-Identifier: GPL-2.0
/*
 * Adds connections to conntrack's table by ctnetlink: established, and liberal about
 * sequence numbers, as conntrack itself picks connections up. Only for connections whose
 * beginning the firewall has accepted. Never blocks: a message and its answer, at once.
 */
#include "tiers/track.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_conntrack_tcp.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <netinet/in.h>
#include <string.h>

#include "tiers/address.h"
#include "tiers/netlink.h"

#define KEPT_S 300		/* timeout until its first segment, which sets conntrack's own */

/* One direction: from these addresses and ports, in network order, to those. */
static void tuple_put(struct nlmsghdr *h, uint16_t type, const __u32 from[4], uint16_t from_port,
		      const __u32 to[4], uint16_t to_port)
{
	bool v4 = tbg_is_v4(from);
	struct nlattr *tuple = mnl_attr_nest_start(h, type), *part;

	part = mnl_attr_nest_start(h, CTA_TUPLE_IP);
	mnl_attr_put(h, v4 ? CTA_IP_V4_SRC : CTA_IP_V6_SRC, v4 ? 4 : 16, v4 ? from + 3 : from);
	mnl_attr_put(h, v4 ? CTA_IP_V4_DST : CTA_IP_V6_DST, v4 ? 4 : 16, v4 ? to + 3 : to);
	mnl_attr_nest_end(h, part);
	part = mnl_attr_nest_start(h, CTA_TUPLE_PROTO);
	mnl_attr_put_u8(h, CTA_PROTO_NUM, IPPROTO_TCP);
	mnl_attr_put_u16(h, CTA_PROTO_SRC_PORT, from_port);
	mnl_attr_put_u16(h, CTA_PROTO_DST_PORT, to_port);
	mnl_attr_nest_end(h, part);
	mnl_attr_nest_end(h, tuple);
}

/* Begins a request about a connection in buf. */
static struct nlmsghdr *begin(char *buf, uint16_t what, uint16_t flags,
			      const struct tbg_flow_key *flow)
{
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct nfgenmsg *g;

	h->nlmsg_type = NFNL_SUBSYS_CTNETLINK << 8 | what;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
	g = mnl_nlmsg_put_extra_header(h, sizeof(*g));
	g->nfgen_family = tbg_is_v4(flow->remote) ? AF_INET : AF_INET6;
	g->version = NFNETLINK_V0;
	tuple_put(h, CTA_TUPLE_ORIG, flow->remote, flow->remote_port, flow->local,
		  flow->local_port);
	return h;
}

static void state_put(struct nlmsghdr *h)
{
	struct nf_ct_tcp_flags liberal = {
		IP_CT_TCP_FLAG_BE_LIBERAL | IP_CT_TCP_FLAG_SACK_PERM,
		IP_CT_TCP_FLAG_BE_LIBERAL | IP_CT_TCP_FLAG_SACK_PERM,
	};
	struct nlattr *info = mnl_attr_nest_start(h, CTA_PROTOINFO), *tcp;

	tcp = mnl_attr_nest_start(h, CTA_PROTOINFO_TCP);
	mnl_attr_put_u8(h, CTA_PROTOINFO_TCP_STATE, TCP_CONNTRACK_ESTABLISHED);
	mnl_attr_put(h, CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, sizeof(liberal), &liberal);
	mnl_attr_put(h, CTA_PROTOINFO_TCP_FLAGS_REPLY, sizeof(liberal), &liberal);
	mnl_attr_nest_end(h, tcp);
	mnl_attr_nest_end(h, info);
}

/* 0 or negative errno. */
static int answer_of(struct mnl_socket *nl, const struct nlmsghdr *h)
{
	char buf[MNL_SOCKET_BUFFER_SIZE] __attribute__((aligned(8)));
	ssize_t len;

	if (mnl_socket_sendto(nl, h, h->nlmsg_len) < 0)
		return -errno;
	len = mnl_socket_recvfrom(nl, buf, sizeof(buf));
	if (len < 0)
		return -errno;
	return mnl_cb_run(buf, len, 0, mnl_socket_get_portid(nl), NULL, NULL) < 0 ? -errno : 0;
}

int tbg_track_establish(const struct tbg_flow_key *flow)
{
	char buf[512] __attribute__((aligned(8)));
	struct mnl_socket *nl = mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC);
	struct nlmsghdr *h;
	int err;

	if (!nl)
		return -errno;
	err = mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) ? -errno : 0;
	if (!err) {
		err = answer_of(nl, begin(buf, IPCTNL_MSG_CT_DELETE, 0, flow));
		err = err == -ENOENT ? 0 : err;
	}
	if (!err) {
		h = begin(buf, IPCTNL_MSG_CT_NEW, NLM_F_CREATE | NLM_F_EXCL, flow);
		tuple_put(h, CTA_TUPLE_REPLY, flow->local, flow->local_port, flow->remote,
			  flow->remote_port);
		mnl_attr_put_u32(h, CTA_STATUS, htonl(IPS_SEEN_REPLY | IPS_ASSURED |
						      IPS_CONFIRMED));
		mnl_attr_put_u32(h, CTA_TIMEOUT, htonl(KEPT_S));
		state_put(h);
		err = answer_of(nl, h);
	}
	mnl_socket_close(nl);
	return err;
}
