/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The largest IP packet that reaches a client: as its interface allows, and as routers on the
 * path have reported by ICMP errors (RFC 1191, RFC 8201). The kernel remembers the latter with
 * its routes, which are not looked up yet here, and it learns nothing of connections without a
 * socket. So they are remembered here, too, by its rules.
 */
#ifndef TBG_WIRE_PATH_BPF_H
#define TBG_WIRE_PATH_BPF_H

#include "flow.bpf.h"

#define TBG_PMTU_MS 600000	/* net.ipv4.route.mtu_expires, RFC 1191 6.3 */

struct tbg_pmtu {
	__u32 mtu, learned_ms;
	__u32 way;		/* id of the route to the client: another one is another path */
};

struct tbg_pmtu_key {
	__u32 client[4];
};

/* Client -> MTU of its path. Writer: BPF. LRU: one that is evicted is learned again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct tbg_pmtu_key);
	__type(value, struct tbg_pmtu);
} tbg_pmtus SEC(".maps");

__u32 tbg_pmtus_any;	/* 1: tbg_pmtus is not empty, or was not */

struct ipv6_devconf___wire {
	__s32 hop_limit, mtu6;
} __attribute__((preserve_access_index));

struct inet6_dev___wire {
	struct ipv6_devconf___wire cnf;
} __attribute__((preserve_access_index));

struct net_device___link {
	unsigned int mtu;
	struct inet6_dev___wire *ip6_ptr;
} __attribute__((preserve_access_index));

struct sk_buff___link {
	struct net_device___link *dev;
} __attribute__((preserve_access_index));

/* Returns what IPv6 knows of the segment's interface; NULL: the kernel may have no IPv6. */
static __always_inline struct inet6_dev___wire *tbg_inet6_of(struct __sk_buff *skb)
{
	struct sk_buff___link *b = (void *)skb;
	struct inet6_dev___wire *own = NULL;

	if (bpf_core_field_exists(own->cnf.mtu6))
		own = BPF_CORE_READ(b, dev, ip6_ptr);
	return own;
}

/*
 * Returns what counts of the interface that the client's route leads out of; NULL: it is the
 * one that the segment came in by.
 */
static __always_inline const struct tbg_above *tbg_above_of(struct __sk_buff *skb, __u32 out)
{
	struct tbg_above_key on = { .above = out, .below = skb->ifindex };

	return on.above == on.below ? NULL : bpf_map_lookup_elem(&tbg_aboves, &on);
}

/* Returns the MTU of that interface. Routers may set a smaller one for IPv6. */
static __always_inline __u32 tbg_link_mtu(struct __sk_buff *skb, const struct tbg_above *on,
					  bool v6)
{
	struct inet6_dev___wire *own = v6 && !on ? tbg_inet6_of(skb) : NULL;
	struct sk_buff___link *b = (void *)skb;
	__u32 mtu = BPF_CORE_READ(b, dev, mtu), most = mtu;

	if (on)
		most = (v6 ? on->mtu6 : on->mtu) ?: mtu;
	else if (own)
		most = BPF_CORE_READ(own, cnf.mtu6);
	return most < mtu ? most : mtu;
}

/* Returns the TTL, or the hop limit of the interface, which routers may set (RFC 4861 6.3.4). */
static __always_inline __u8 tbg_hops_of(struct __sk_buff *skb, const struct tbg_knob *knob,
					const struct tbg_above *on, bool v6)
{
	struct inet6_dev___wire *own;

	if (!v6)
		return knob->ttl;
	if (on && on->hops)
		return on->hops;
	own = tbg_inet6_of(skb);
	return own ? BPF_CORE_READ(own, cnf.hop_limit) : knob->hops;
}

static __always_inline struct tbg_way *tbg_way_to(const __u32 address[4])
{
	struct tbg_way_key key = { .bits = 128 };

	__builtin_memcpy(key.address, address, sizeof(key.address));
	return bpf_map_lookup_elem(&tbg_ways, &key);
}

/* Returns the id of the route to the client; 0: there is none. */
static __always_inline __u32 tbg_way_id(const struct tbg_pkt *p)
{
	struct tbg_way *way = tbg_way_to(p->key.remote);

	return way ? way->id : 0;
}

/* Returns the size of the largest IP packet for the client that the segment is from. */
static __always_inline __u32 tbg_mtu_of(struct __sk_buff *skb, const struct tbg_above *on,
					const struct tbg_pkt *p, __u32 now_ms)
{
	__u32 mtu = tbg_link_mtu(skb, on, p->v6);
	struct tbg_pmtu *path;

	/* those of VRFs are not known */
	if (!tbg_pmtus_any || p->vrf)
		return mtu;
	path = bpf_map_lookup_elem(&tbg_pmtus, p->key.remote);
	if (path && path->mtu < mtu && now_ms - path->learned_ms < TBG_PMTU_MS &&
	    path->way == tbg_way_id(p))
		mtu = path->mtu;
	return mtu;
}

/* Remembers the MTU that a router has reported. A larger one is no news (ip_rt_update_pmtu). */
static __always_inline void tbg_pmtu_learn(struct __sk_buff *skb, const struct tbg_pkt *p,
					   __u32 mtu, __u32 now_ms)
{
	struct tbg_pmtu path = { .mtu = mtu, .learned_ms = now_ms, .way = tbg_way_id(p) };

	if (mtu >= tbg_mtu_of(skb, NULL, p, now_ms))
		return;
	bpf_map_update_elem(&tbg_pmtus, p->key.remote, &path, BPF_ANY);
	tbg_pmtus_any = 1;
}

#endif
