/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether the route to a client leads out of the interface that its segments come in
 * by, and the address that they are sent to is this host's. Wire always answers there;
 * the kernel looks up its routes. Where the two differ, the connection is left to the
 * kernel.
 */
#ifndef TBG_WIRE_WAY_BPF_H
#define TBG_WIRE_WAY_BPF_H

#include "socket.bpf.h"
#include "tcb.bpf.h"

static __always_inline struct tbg_way *tbg_way_to(const __u32 address[4])
{
	struct tbg_way_key key = { .bits = 128 };

	__builtin_memcpy(key.address, address, sizeof(key.address));
	return bpf_map_lookup_elem(&tbg_ways, &key);
}

/*
 * Returns 1 if the route to the client leads there, as far as the daemon knows the
 * routes. For the ACK of a handshake: its SYN was sent to an address of this host.
 */
__attribute__((noinline)) int tbg_way_back(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	struct tbg_above_key on = { .below = skb->ifindex };
	struct tbg_way *way;
	__u32 i, tag, *vlan;

	if (!p || !tbg_sockets)
		return 1;
	tag = tbg_vlans(skb, p);
	way = tbg_way_to(p->key.remote);
	for (i = 0; way && i < TBG_WAY_IFACES; i++) {
		on.above = way->ifindex[i];
		if (!on.above)
			return 0;
		if (on.above == on.below) {
			if (!tag)
				return 1;
			continue;
		}
		vlan = bpf_map_lookup_elem(&tbg_aboves, &on);
		if (vlan && *vlan == tag)
			return 1;
	}
	return 0;
}

/* Returns whether both hold. */
static __always_inline bool tbg_way_fits(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	struct tbg_way *way;

	if (!tbg_sockets)
		return true;
	way = tbg_way_to(p->key.local);
	return way && way->ifindex[0] == TBG_LO && tbg_way_back(skb, p);
}

/* Checks that again if routes have changed since. */
static __always_inline void tbg_way_renew(struct __sk_buff *skb, const struct tbg_knob *knob,
					  const struct tbg_pkt *p, struct tbg_tcb *f)
{
	__u32 ways = knob->ways;

	if (f->ways != ways && tbg_way_fits(skb, p))
		f->ways = ways;
}

/*
 * Returns whether the segment is from this machine to itself and has no route attached,
 * as those that our timer causes. The kernel would then look one up as for a received
 * packet, and drop it: 127.0.0.1 and the machine's own addresses are martian sources
 * (IPv4 only).
 */
static __always_inline bool tbg_is_unrouted(struct __sk_buff *skb, const struct tbg_knob *knob,
					    const struct tbg_pkt *p)
{
	struct sk_buff___wire *b = (void *)skb;

	return skb->ifindex == TBG_LO && !p->v6 && tbg_port_served(knob, p->key.remote_port) &&
	       !BPF_CORE_READ(b, _skb_refdst);
}

/*
 * Returns whether nothing was heard of the client for so long that its route has to be
 * checked again before the last reply is repeated.
 */
static __always_inline bool tbg_is_astray(struct __sk_buff *skb, const struct tbg_scratch *s,
					  const struct tbg_tcb *f)
{
	return f->state != TBG_TCB_HANDED && s->now_ms - f->seen_ms > TBG_ASTRAY_MS &&
	       !tbg_way_fits(skb, &s->pkt);
}

#endif
