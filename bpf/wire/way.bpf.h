/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether the route to a client leads out of the interface that its segments come in
 * by, and the address that they are sent to is this host's. Wire always answers there;
 * the kernel looks up its routes. Where the two differ, or it is not known yet, the
 * connection is left to the kernel.
 */
#ifndef TBG_WIRE_WAY_BPF_H
#define TBG_WIRE_WAY_BPF_H

#include "birth.bpf.h"
#include "pair.bpf.h"

#define TBG_WAY_UNKNOWN -1	/* the kernel is being asked */

/*
 * Returns the interface that the route to the client leads out of, as far as the daemon knows
 * the routes: the segment's, or one that lies on it. 0: another one; or TBG_WAY_UNKNOWN. For
 * the ACK of a handshake: its SYN was sent to an address of this host.
 */
__attribute__((noinline)) int tbg_way_back(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	struct tbg_above_key on = { .below = skb->ifindex };
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_above *above;
	struct tbg_way *way, of_pair;
	__u32 i, tag;

	if (!p || !knob || !tbg_sockets)
		return skb->ifindex;
	tag = tbg_vlans(skb, p);
	if (tbg_pair_counts(knob, p)) {
		if (tbg_pair_is_left(skb, knob, p))
			return 0;
		if (!tbg_pair_way(knob, p, &of_pair))
			return TBG_WAY_UNKNOWN;
		way = &of_pair;
	} else {
		way = tbg_way_to(p->key.remote);
	}
	for (i = 0; way && i < TBG_WAY_IFACES; i++) {
		on.above = way->ifindex[i];
		if (!on.above)
			return 0;
		if (on.above == on.below) {
			if (!tag)
				return on.above;
			continue;
		}
		above = bpf_map_lookup_elem(&tbg_aboves, &on);
		if (above && above->vlan == tag)
			return on.above;
	}
	return 0;
}

/* Returns that interface; 0 also if the address that the segment is sent to is not this host's. */
static __always_inline int tbg_way_fits(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	struct tbg_way *way;

	if (!tbg_sockets)
		return skb->ifindex;
	/* there is no way from an address that is not this host's in the VRF */
	if (p->vrf)
		return tbg_way_back(skb, p);
	way = tbg_way_to(p->key.local);
	return way && way->ifindex[0] == TBG_LO ? tbg_way_back(skb, p) : 0;
}

/* Sets a->mtu and a->hops, with the interface `out` that the route leads out of. */
__attribute__((noinline)) int tbg_way_take(struct __sk_buff *skb, const struct tbg_pkt *p,
					   struct tbg_agreed *a, __u32 out)
{
	const struct tbg_above *on = tbg_above_of(skb, out);
	struct tbg_knob *knob = tbg_knob_get();
	__u32 mtu;

	if (!p || !a || !knob)
		return 0;
	mtu = tbg_mtu_of(skb, on, p, a->now_ms);
	a->mtu = mtu < 65535 ? mtu : 65535;
	a->hops = tbg_hops_of(skb, knob, on, p->v6);
	return 0;
}

/*
 * Takes MTU and hop limit of the client's route as it is now; segments may become smaller.
 * Returns false if it does not lead out of the segment's interface, as far as is known: then
 * nothing changes.
 */
static __attribute__((noinline)) int tbg_way_set(struct __sk_buff *skb, const struct tbg_pkt *p,
						 struct tbg_tcb *f)
{
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_agreed a = {};
	__u16 mss;
	int out;

	if (!knob || !p || !f)
		return false;
	a.now_ms = tbg_now_ms();
	a.ways = knob->ways;
	out = tbg_way_fits(skb, p);
	if (out <= 0)
		return false;
	tbg_way_take(skb, p, &a, out);
	mss = tbg_mss_of(knob, f->peer_mss, a.mtu, p->v6, f->flags & TBG_FLOW_TS);
	bpf_spin_lock(&f->lock);
	if (mss < f->mss)
		f->mss = mss;
	if (!tbg_path_takes_df(knob, &a, p->v6))
		f->flags &= ~TBG_TCB_DF;
	f->ttl = a.hops;
	f->ways = a.ways;
	bpf_spin_unlock(&f->lock);
	return true;
}

/* Checks that again if routes or interfaces have changed since. */
static __always_inline void tbg_way_renew(struct __sk_buff *skb, const struct tbg_knob *knob,
					  const struct tbg_pkt *p, struct tbg_tcb *f)
{
	if (f->ways != knob->ways)
		tbg_way_set(skb, p, f);
}

/*
 * Returns whether the segment is from this machine to itself and has no route attached,
 * as those that our timer or the daemon causes. The kernel would then look one up as for a received
 * packet, and drop it: 127.0.0.1 and the machine's own addresses are martian sources
 * (IPv4 only).
 */
static __always_inline bool tbg_is_unrouted(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	struct sk_buff___wire *b = (void *)skb;

	return skb->ifindex == TBG_LO && !p->v6 && !BPF_CORE_READ(b, _skb_refdst);
}

/*
 * Checks the route again before the last reply is repeated, if nothing was heard of the client
 * for long. Returns more than 0 if it may be repeated, 0 if the route leads elsewhere by now,
 * TBG_WAY_UNKNOWN if the repeat has to wait for the kernel's answer.
 */
static __attribute__((noinline)) int tbg_way_again(struct __sk_buff *skb,
						   const struct tbg_scratch *s,
						   const struct tbg_tcb *f)
{
	if (!s || !f || f->state == TBG_TCB_HANDED || s->now_ms - f->seen_ms <= TBG_ASTRAY_MS)
		return 1;
	return tbg_way_fits(skb, &s->pkt);
}

#endif
