// SPDX-License-Identifier: GPL-2.0
/*
 * The guard: what the daemon's sockets send, seen at the socket (cgroup egress) and not
 * at an interface. A segment of a flow with deltas must pass tbg_egress next. Where the
 * device it leaves by does not run that before all else, the segment is dropped, and the
 * daemon resets the connection: the client gets an error, never other bytes. Never
 * changes a segment.
 */
#include "birth.bpf.h"
#include "guard.bpf.h"

#define TBG_GUARD_DROP 0
#define TBG_GUARD_PASS 1

/* Inode of the daemon's network namespace. Set before loading; 0: there is only one. */
const volatile __u32 tbg_netns;

struct ns_common___guard {
	__u32 inum;
} __attribute__((preserve_access_index));

struct net___guard {
	struct ns_common___guard ns;
} __attribute__((preserve_access_index));

/* The segment, whose frame begins with the IP header here; false: it is none of ours. */
static __always_inline bool tbg_guard_parse(struct __sk_buff *skb, struct tbg_pkt *p,
					    const struct tbg_knob *knob)
{
	int proto = -1;

	p->l3 = 0;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		proto = tbg_pkt_ipv4(skb, p, false);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		proto = tbg_pkt_ipv6(skb, p, false);
	return proto == IPPROTO_TCP && !tbg_pkt_tcp(skb, p, false) &&
	       tbg_port_served(knob, p->key.local_port);
}

/* Sockets of other namespaces may be in the cgroup, and have the same ends. */
static __always_inline bool tbg_guard_is_here(struct __sk_buff *skb)
{
	struct sk_buff___wire *b = (void *)skb;
	struct net___guard *net;

	if (!tbg_netns || !bpf_core_field_exists(b->dev->nd_net.net))
		return true;
	net = BPF_CORE_READ(b, dev, nd_net.net);
	return BPF_CORE_READ(net, ns.inum) == tbg_netns;
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
	/* the daemon's own resets are from a raw socket */
	if (whole && (p.tcp_flags & TBG_TCP_SYN || tbg_is_forged(skb, &p)))
		return TBG_GUARD_PASS;
	dev = (__u64)(long)BPF_CORE_READ(b, dev);
	if (tbg_device_is_away(dev))
		return TBG_GUARD_DROP;
	if (whole && !(f->way & TBG_WAY_LOST))
		cover = tbg_cover(dev);
	/* by one of several ports: then tbg_egress has seen all that came before */
	if (cover == TBG_COVER_ALL ||
	    (cover == TBG_COVER_SOME && (__s32)(p.seq - f->iss - f->sent) <= 0))
		return TBG_GUARD_PASS;
	tbg_guard_close(f);
	return TBG_GUARD_DROP;
}
