/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether a client is answered by the way that its segments come. Wire knows no other;
 * the kernel asks its routes, and where those lead elsewhere, the connection is its own.
 */
#ifndef TBG_WIRE_WAY_BPF_H
#define TBG_WIRE_WAY_BPF_H

#include "socket.bpf.h"
#include "tcb.bpf.h"

/* 1: it is, as far as the daemon has followed the routes. */
__attribute__((noinline)) int tbg_way_fits(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	struct tbg_above_key on = { .below = skb->ifindex };
	struct tbg_way_key key = { .bits = 128 };
	struct tbg_way *way;
	__u32 i, tag, *vlan;

	if (!p || !tbg_sockets)
		return 1;
	tag = tbg_vlans(skb, p);
	__builtin_memcpy(key.remote, p->key.remote, sizeof(key.remote));
	way = bpf_map_lookup_elem(&tbg_ways, &key);
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

/*
 * Whether the segment, of this machine's to itself, has no route with it, as those that our
 * timer makes. The kernel would look one up by where it comes in, and by that 127.0.0.1 and
 * the machine's own addresses are martians (IPv4 only).
 */
static __always_inline bool tbg_is_unrouted(struct __sk_buff *skb, const struct tbg_knob *knob,
					    const struct tbg_pkt *p)
{
	struct sk_buff___wire *b = (void *)skb;

	return skb->ifindex == TBG_LO && !p->v6 && tbg_port_served(knob, p->key.remote_port) &&
	       !BPF_CORE_READ(b, _skb_refdst);
}

/* Whether the last reply of f is lost for so long that its way is to be looked at again. */
static __always_inline bool tbg_is_astray(struct __sk_buff *skb, const struct tbg_pkt *p,
					  const struct tbg_tcb *f)
{
	return f->state != TBG_TCB_HANDED && tbg_now_ms() - f->seen_ms > TBG_ASTRAY_MS &&
	       !tbg_way_fits(skb, p);
}

#endif
