// SPDX-License-Identifier: GPL-2.0
/*
 * Adds connections to conntrack's table by ctnetlink: established, and liberal about
 * sequence numbers, as conntrack itself picks connections up. Only for connections whose
 * beginning the firewall has accepted. Never blocks: a message and its answer, at once.
 *
 * As if this host had begun the connection: NAT does not compare the client's port with that of a
 * late socket then, see bpf/wire/track.bpf.h.
 */
#include "tiers/track.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_conntrack_tcp.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "os/privilege.h"
#include "tiers/address.h"
#include "tiers/births.h"
#include "tiers/netlink.h"
#include "tiers/segment.h"

#define STUCK_MAX 64		/* connections at a time that have no socket */
#define ASKED_MAX 256		/* segments at a time */
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

/* Adds the tuple of the direction to the client, or of the one from it. */
static void direction_put(struct nlmsghdr *h, uint16_t type, const struct tbg_flow_key *flow,
			  bool outward)
{
	if (outward)
		tuple_put(h, type, flow->local, flow->local_port, flow->remote,
			  flow->remote_port);
	else
		tuple_put(h, type, flow->remote, flow->remote_port, flow->local,
			  flow->local_port);
}

/* Begins a request about a connection in buf. outward: this host has begun it. */
static struct nlmsghdr *begin(char *buf, uint16_t what, uint16_t flags,
			      const struct tbg_flow_key *flow, bool outward)
{
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct nfgenmsg *g;

	h->nlmsg_type = NFNL_SUBSYS_CTNETLINK << 8 | what;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
	g = mnl_nlmsg_put_extra_header(h, sizeof(*g));
	g->nfgen_family = tbg_is_v4(flow->remote) ? AF_INET : AF_INET6;
	g->version = NFNETLINK_V0;
	direction_put(h, CTA_TUPLE_ORIG, flow, outward);
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

static int add(struct mnl_socket *nl, const struct tbg_flow_key *flow, bool outward)
{
	char buf[512] __attribute__((aligned(8)));
	struct nlmsghdr *h = begin(buf, IPCTNL_MSG_CT_NEW, NLM_F_CREATE | NLM_F_EXCL, flow,
				   outward);

	direction_put(h, CTA_TUPLE_REPLY, flow, !outward);
	mnl_attr_put_u32(h, CTA_STATUS, htonl(IPS_SEEN_REPLY | IPS_ASSURED | IPS_CONFIRMED));
	mnl_attr_put_u32(h, CTA_TIMEOUT, htonl(KEPT_S));
	state_put(h);
	return answer_of(nl, h);
}

static int remove_any(struct mnl_socket *nl, const struct tbg_flow_key *flow)
{
	char buf[512] __attribute__((aligned(8)));

	return answer_of(nl, begin(buf, IPCTNL_MSG_CT_DELETE, 0, flow, true));
}

/* anew: in place of an entry that conntrack may have, which otherwise suffices. */
static int establish(struct mnl_socket *nl, const struct tbg_flow_key *flow, bool outward,
		     bool anew)
{
	int err = add(nl, flow, outward);

	if (err != -EEXIST)
		return err;
	if (!anew)
		return 0;
	err = remove_any(nl, flow);
	return err && err != -ENOENT ? err : add(nl, flow, outward);
}

/* 0 or negative errno. */
static int nl_open(struct mnl_socket **ret)
{
	int err = 0;

	*ret = mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC);
	if (!*ret)
		return -errno;
	if (mnl_socket_bind(*ret, 0, MNL_SOCKET_AUTOPID)) {
		err = -errno;
		mnl_socket_close(*ret);
		*ret = NULL;
	}
	return err;
}

int tbg_track_try(void)
{
	/* of addresses for documentation (RFC 5737) */
	struct tbg_flow_key nobody = { .local_port = htons(9), .remote_port = htons(9) };
	struct mnl_socket *nl;
	int err;

	nobody.local[2] = nobody.remote[2] = htonl(0xffff);
	nobody.local[3] = htonl(0xc0000201);
	nobody.remote[3] = htonl(0xc0000202);
	err = nl_open(&nl);
	if (err)
		return err;
	err = establish(nl, &nobody, true, true);
	if (!err)
		remove_any(nl, &nobody);
	mnl_socket_close(nl);
	return err;
}

/* Lets the segment arrive again, as if the client had sent it. */
static void put_in(const struct tbg_track *t, const struct tbg_untracked *u)
{
	struct tbg_tcb tcb = {
		.rcv_nxt = u->seq, .acked = u->ack, .tsrecent = u->tsval, .tsval = u->tsecr,
		.flags = u->flags, .vlan = u->vlan,
	};
	struct __sk_buff ctx = { .ifindex = u->ifindex, .cb = { TBG_PUSH_IN } };
	struct tbg_segment f;
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = f.b, .ctx_in = &ctx,
		    .ctx_size_in = sizeof(ctx), .repeat = 1);

	memcpy(tcb.own, u->mac, sizeof(tcb.own));
	memcpy(tcb.mac, u->mac + 3, sizeof(tcb.mac));
	tbg_segment_make(&f, &u->key, &tcb, u->b, u->len);
	/* rules may look at these fields */
	if (u->flags & TBG_FLOW_V6) {
		memcpy(f.b + f.l3, u->ip, sizeof(u->ip));
		f.b[f.l3 + offsetof(struct ip6_hdr, ip6_hlim)] = u->ttl;
	} else {
		f.b[f.l3 + offsetof(struct iphdr, tos)] = u->ip[1];
		f.b[f.l3 + offsetof(struct iphdr, ttl)] = u->ttl;
	}
	tbg_segment_seal(&f, u->tcp_flags, u->window);
	opts.data_size_in = f.len;
	/* on error, its interface has gone */
	bpf_prog_test_run_opts(t->tcbs->push_fd, &opts);
}

static int on_untracked(void *arg, void *data, size_t len)
{
	const struct tbg_untracked *u = data;
	struct tbg_track *t = arg;
	bool inbound = u->how & TBG_UNTRACKED_INBOUND;
	/* of one that does not fit, BPF has let the time run out */
	int err = u->how & TBG_UNTRACKED_MORE ? 0 :
		  establish(t->nl, &u->key.flow, !inbound, inbound);

	if (err)
		t->births->untracked = err;
	else if (u->how & TBG_UNTRACKED_AGAIN)
		put_in(t, u);
	/* the sample is consumed nevertheless; the descriptor remains readable */
	return ++t->read_nr >= ASKED_MAX ? -EAGAIN : 0;
}

void tbg_track_admit(struct tbg_track *t)
{
	t->read_nr = 0;
	tbg_privilege_raise();
	ring_buffer__consume(t->ring);
	tbg_privilege_lower();
}

unsigned int tbg_track_stuck(struct tbg_track *t)
{
	struct tbg_tcb_key keys[STUCK_MAX];
	unsigned int nr = t->nl ? tbg_tcbs_stuck(t->tcbs, keys, STUCK_MAX) : 0, added = 0;

	if (!nr)
		return 0;
	tbg_privilege_raise();
	for (unsigned int i = 0; i < nr; i++) {
		/* on error it is reset after a while */
		int err = establish(t->nl, &keys[i].flow, true, true);

		if (err)
			t->births->untracked = err;
		else
			added++;
	}
	tbg_privilege_lower();
	return added;
}

int tbg_track_open(struct tbg_track *t, const struct tbg_tcbs *tcbs, struct tbg_births *births,
		   int ring_fd)
{
	int err;

	*t = (struct tbg_track){ .tcbs = tcbs, .births = births };
	err = nl_open(&t->nl);
	/* a kernel without netfilter has no conntrack */
	if (err)
		return err == -EPROTONOSUPPORT ? 0 : err;
	t->ring = ring_buffer__new(ring_fd, on_untracked, t, NULL);
	if (t->ring)
		return 0;
	err = -errno;
	tbg_track_close(t);
	return err;
}

void tbg_track_close(struct tbg_track *t)
{
	ring_buffer__free(t->ring);
	if (t->nl)
		mnl_socket_close(t->nl);
	*t = (struct tbg_track){ 0 };
}

int tbg_track_fd(const struct tbg_track *t)
{
	return t->ring ? ring_buffer__epoll_fd(t->ring) : -1;
}
