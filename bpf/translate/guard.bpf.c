// SPDX-License-Identifier: GPL-2.0
/*
 * The guard: checks segments of the daemon's sockets at the socket (cgroup egress), not
 * at an interface. A segment of a flow with deltas must pass tbg_egress next. If the
 * device that it leaves by does not run tbg_egress first, the segment is dropped, and
 * the daemon resets the connection: the client gets an error, never wrong bytes. Never
 * changes a segment.
 */
#include "birth.bpf.h"
#include "flow.bpf.h"
#include "maps.bpf.h"

#define TBG_GUARD_DROP 0
#define TBG_GUARD_PASS 1
#define TBG_OVERDUE_MS 1000	/* within it, the worker's next tick finds the connection */
#define TBG_AF_INET 2

/* Flag of struct lwtunnel_state: the route changes the packet after this hook. */
#define TBG_LWT_OUTPUT	0x1
#define TBG_LWT_XMIT	0x4

/* Inode of the daemon's network namespace, set before loading; 0: there is only one. */
const volatile __u32 tbg_netns;

struct ns_common___guard {
	__u32 inum;
} __attribute__((preserve_access_index));

struct lwtunnel_state___guard {
	__u16 flags;
} __attribute__((preserve_access_index));

struct dst_entry___guard {
	struct lwtunnel_state___guard *lwtstate;
} __attribute__((preserve_access_index));

struct net___guard {
	struct ns_common___guard ns;
} __attribute__((preserve_access_index));

/* Parses the segment; the frame begins with the IP header here. False: it is none of ours. */
static __always_inline bool tbg_guard_parse(struct __sk_buff *skb, struct tbg_pkt *p,
					    const struct tbg_knob *knob)
{
	int proto = -1;

	p->l3 = 0;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		proto = tbg_pkt_ipv4(skb, p, false);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		proto = tbg_pkt_ipv6(skb, p, false);
	return proto == IPPROTO_TCP && !tbg_pkt_tcp(skb, p, false, false) &&
	       tbg_port_served(knob, p->key.local_port);
}

/* The cgroup may contain sockets of other namespaces, with the same addresses. */
static __always_inline bool tbg_guard_is_here(struct __sk_buff *skb)
{
	struct sk_buff___wire *b = (void *)skb;
	struct net___guard *net;

	if (!tbg_netns || !bpf_core_field_exists(b->dev->nd_net.net))
		return true;
	net = BPF_CORE_READ(b, dev, nd_net.net);
	return BPF_CORE_READ(net, ns.inum) == tbg_netns;
}

/*
 * Takes addresses and ports from the socket of a packet that is no plain segment: a
 * tunnel or IPsec has encapsulated it. False: it is not from a TCP socket on one of
 * our ports.
 */
static __always_inline bool tbg_socket_ends(struct __sk_buff *skb, struct tbg_pkt *p,
					      const struct tbg_knob *knob)
{
	struct bpf_sock *sk = skb->sk;
	__u32 local, remote;

	sk = sk ? bpf_sk_fullsock(sk) : NULL;
	if (!sk || sk->protocol != IPPROTO_TCP)
		return false;
	p->key.local_port = bpf_htons(sk->src_port);
	p->key.remote_port = sk->dst_port;
	/* read first, or clang computes what to read: no arithmetic on a socket */
	local = sk->src_ip4;
	remote = sk->dst_ip4;
	tbg_keep(local);
	tbg_keep(remote);
	if (sk->family == TBG_AF_INET) {
		tbg_map_v4(p->key.local, local);
		tbg_map_v4(p->key.remote, remote);
	} else {
		p->key.local[0] = sk->src_ip6[0];
		p->key.local[1] = sk->src_ip6[1];
		p->key.local[2] = sk->src_ip6[2];
		p->key.local[3] = sk->src_ip6[3];
		p->key.remote[0] = sk->dst_ip6[0];
		p->key.remote[1] = sk->dst_ip6[1];
		p->key.remote[2] = sk->dst_ip6[2];
		p->key.remote[3] = sk->dst_ip6[3];
	}
	return tbg_port_served(knob, p->key.local_port);
}

/* Segments of the flow leave without translation: marks the connection to be reset. */
static __always_inline void tbg_guard_close(struct tbg_flow *f)
{
	struct tbg_conn_word *conn;
	__u32 slot = f->slot;
	bool news;

	conn = bpf_map_lookup_elem(&tbg_conns, &slot);
	bpf_spin_lock(&f->lock);
	news = !(f->way & TBG_WAY_LOST);
	f->way |= TBG_WAY_LOST;
	f->flags |= TBG_FLOW_LEFT;
	bpf_spin_unlock(&f->lock);
	if (!news)
		return;
	if (conn)
		conn->sent_ms = (tbg_now_ms() - TBG_OVERDUE_MS) | 1;
	tbg_count(TBG_WHY_ASTRAY);
}

/*
 * Whether the route itself encapsulates packets (MPLS, a tunnel without a device):
 * then the device gets frames in which no segment is visible. A tunnel device has
 * hooks of its own.
 */
static __always_inline bool tbg_route_wraps(struct sk_buff___wire *b)
{
	struct dst_entry___guard *dst = (void *)(BPF_CORE_READ(b, _skb_refdst) & ~TBG_DST_NOREF);
	struct lwtunnel_state___guard *lwt = dst ? BPF_CORE_READ(dst, lwtstate) : NULL;

	return lwt && BPF_CORE_READ(lwt, flags) & (TBG_LWT_OUTPUT | TBG_LWT_XMIT);
}

SEC("cgroup_skb/egress")
int tbg_guard(struct __sk_buff *skb)
{
	struct sk_buff___wire *b = (void *)skb;
	struct tbg_knob *knob = tbg_knob_get();
	int cover = TBG_COVER_NONE;
	struct tbg_flow *f;
	struct tbg_pkt p = {};
	bool whole;
	__u64 dev;

	if (!knob)
		return TBG_GUARD_PASS;
	whole = tbg_guard_parse(skb, &p, knob);
	if (!whole && !tbg_socket_ends(skb, &p, knob))
		return TBG_GUARD_PASS;
	f = bpf_map_lookup_elem(&tbg_flows, &p.key);
	if (!f || !(f->in_delta | f->out_delta) || !tbg_guard_is_here(skb) ||
	    tbg_is_elsewhere(skb, f))
		return TBG_GUARD_PASS;
	/* the daemon's own resets come from a raw socket */
	if (whole && (p.tcp_flags & TBG_TCP_SYN || tbg_is_forged(skb, &p)))
		return TBG_GUARD_PASS;
	dev = (__u64)(long)BPF_CORE_READ(b, dev);
	if (tbg_device_is_away(dev))
		return TBG_GUARD_DROP;
	if (whole && !(f->way & TBG_WAY_LOST) && !tbg_route_wraps(b))
		cover = tbg_cover(dev);
	/* by one of several ports: then tbg_egress has seen all earlier segments */
	if (cover == TBG_COVER_ALL ||
	    (cover == TBG_COVER_SOME && (__s32)(p.seq - f->iss - f->sent) <= 0))
		return TBG_GUARD_PASS;
	tbg_guard_close(f);
	return TBG_GUARD_DROP;
}
