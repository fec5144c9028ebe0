/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connections that are known to have a socket. Their segments pass after one look at
 * addresses and ports, instead of a whole parse and the searches for a connection of wire's
 * and for a socket. Both searches are made if the connection is not in this map, or if its
 * segment comes from another link address, interface or VLAN than the last one. The map records
 * where segments come from: that is where wire answers once the connection is given back.
 *
 * It is removed before it can become wire's: at a SYN that wire may answer, and when it is
 * given back, before wire reads the socket's numbers. Where the same addresses and ports
 * have one connection on each of two interfaces, one of wire's may be reset by that.
 */
#ifndef TBG_WIRE_KNOWN_BPF_H
#define TBG_WIRE_KNOWN_BPF_H

#include "../abi/known.h"
#include "hand.bpf.h"

/*
 * Hash of a connection -> the connection. Writer: BPF. Full: most others are searched for,
 * some take the place of one that is here.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << TBG_KNOWN_BITS);
	__type(key, __u32);
	__type(value, struct tbg_known);
} tbg_knowns SEC(".maps");

#define TBG_KNOWN_MIX	0x9e3779b97f4a7c15ull

/*
 * Makes an entry of addresses and of the ports, remote and local one, as they are in packets.
 * The same mark and the same addresses are the same ports; a mark that is read with the
 * addresses of another entry fits nothing.
 */
static __always_inline void tbg_known_make(struct tbg_known *ret, const __u32 *remote,
					   const __u32 *local, __u32 ports, bool v6)
{
	__u64 mark;

	ret->ends[0] = v6 ? tbg_pair(remote[0], remote[1]) : tbg_pair(remote[0], local[0]);
	ret->ends[1] = v6 ? tbg_pair(remote[2], remote[3]) : 0;
	ret->ends[2] = v6 ? tbg_pair(local[0], local[1]) : 0;
	ret->ends[3] = v6 ? tbg_pair(local[2], local[3]) : 0;
	mark = ret->ends[0];
	if (v6) {
		mark = mark * TBG_KNOWN_MIX ^ ret->ends[1];
		mark = mark * TBG_KNOWN_MIX ^ ret->ends[2];
		mark = mark * TBG_KNOWN_MIX ^ ret->ends[3];
	}
	mark = (mark ^ (__u64)ports << 24 ^ v6) * TBG_KNOWN_MIX;
	ret->mark = mark > TBG_KNOWN_VOID ? mark : ~mark;
}

static __always_inline struct tbg_known *tbg_known_slot(const struct tbg_known *k)
{
	__u32 at = k->mark >> (64 - TBG_KNOWN_BITS);

	return bpf_map_lookup_elem(&tbg_knowns, &at);
}

/* Returns whether the slot has this connection. */
static __always_inline bool tbg_known_has(const struct tbg_known *slot, const struct tbg_known *k)
{
	const volatile struct tbg_known *s = slot;

	return s && s->mark == k->mark && s->ends[0] == k->ends[0] && s->ends[1] == k->ends[1] &&
	       s->ends[2] == k->ends[2] && s->ends[3] == k->ends[3];
}

/* Returns whether the frame comes from there. eth: its Ethernet header. */
static __always_inline bool tbg_known_is_from(struct __sk_buff *skb, const __u8 *eth,
					      const struct tbg_known_from *from)
{
	const __u32 *w = (const void *)eth, *was = (const void *)from->own;

	return w[0] == was[0] && w[1] == was[1] && w[2] == was[2] &&
	       skb->ifindex == from->ifindex &&
	       (skb->vlan_present ? skb->vlan_tci & 0xfff : 0) == from->vlan;
}

/*
 * Returns whether the frame is a segment, but no SYN, of a connection k that is known. A FIN or
 * a reset removes it, so that the table does not fill with those that are closed.
 */
static __always_inline bool tbg_known_look(struct __sk_buff *skb, const __u8 *eth,
					   const struct tbg_known *k, __u8 flags)
{
	struct tbg_known *slot;

	if (flags & TBG_TCP_SYN)
		return false;
	slot = tbg_known_slot(k);
	if (!tbg_known_has(slot, k) || !tbg_known_is_from(skb, eth, &slot->from))
		return false;
	if (flags & (TBG_TCP_FIN | TBG_TCP_RST))
		__sync_val_compare_and_swap(&slot->mark, k->mark, TBG_KNOWN_NONE);
	return true;
}

/*
 * As tbg_known_look(), of any frame. False for other packets, frames with tags in their data, IP
 * options or extension headers, and fragments.
 */
static __always_inline bool tbg_is_known(struct __sk_buff *skb)
{
	const __u8 *eth, *ip;
	struct tbg_known k;
	const __u32 *w;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		eth = tbg_linear(skb, 0, ETH_HLEN + 20 + 20);
		ip = eth + ETH_HLEN;
		if (!eth || ip[0] != 0x45 || ip[9] != IPPROTO_TCP ||
		    *(const __u16 *)(ip + 6) & bpf_htons(0x3fff))
			return false;
		w = (const void *)(ip + 12);
		tbg_known_make(&k, w, w + 1, w[2], false);
		return tbg_known_look(skb, eth, &k, ip[20 + 13]);
	}
	if (skb->protocol != bpf_htons(ETH_P_IPV6))
		return false;
	eth = tbg_linear(skb, 0, ETH_HLEN + 40 + 20);
	ip = eth + ETH_HLEN;
	if (!eth || ip[0] >> 4 != 6 || ip[6] != IPPROTO_TCP)
		return false;
	w = (const void *)(ip + 8);
	tbg_known_make(&k, w, w + 4, w[8], true);
	return tbg_known_look(skb, eth, &k, ip[40 + 13]);
}

static __always_inline void tbg_known_of(const struct tbg_pkt *p, struct tbg_known *ret)
{
	const struct tbg_flow_key *e = &p->key;
	__u32 ports = e->remote_port | (__u32)e->local_port << 16;

	if (p->v6)
		tbg_known_make(ret, e->remote, e->local, ports, true);
	else
		tbg_known_make(ret, &e->remote[3], &e->local[3], ports, false);
}

/* The segment's connection may become wire's: it is searched for again. */
__attribute__((noinline)) int tbg_known_remove(const struct tbg_pkt *p)
{
	struct tbg_known k, *slot;
	__u64 was;

	if (!p)
		return 0;
	tbg_known_of(p, &k);
	slot = tbg_known_slot(&k);
	if (!slot)
		return 0;
	was = __sync_val_compare_and_swap(&slot->mark, k.mark, TBG_KNOWN_NONE);
	/* the writer may have finished in between */
	if (was == TBG_KNOWN_BUSY &&
	    __sync_val_compare_and_swap(&slot->mark, TBG_KNOWN_BUSY, TBG_KNOWN_VOID) == k.mark)
		__sync_val_compare_and_swap(&slot->mark, k.mark, TBG_KNOWN_NONE);
	return 0;
}

/*
 * Removes the segment's connection, which is given back, and lets it go on where its segments
 * have come from. If that is not known, it goes on where it was handed over; if the client has
 * moved since, its next segment shows where it is.
 */
static __attribute__((noinline)) int tbg_known_take(const struct tbg_pkt *p, struct tbg_tcb *f)
{
	struct tbg_known_from from;
	struct tbg_known k, *slot;
	bool known;

	if (!p || !f)
		return 0;
	tbg_known_of(p, &k);
	/* not of connections in a VRF: an entry is another connection's */
	slot = p->vrf ? NULL : tbg_known_slot(&k);
	if (!slot || __sync_val_compare_and_swap(&slot->mark, k.mark, TBG_KNOWN_BUSY) != k.mark) {
		tbg_known_remove(p);
		return 1;
	}
	from = slot->from;
	known = slot->ends[0] == k.ends[0] && slot->ends[1] == k.ends[1] &&
		slot->ends[2] == k.ends[2] && slot->ends[3] == k.ends[3];
	__sync_lock_test_and_set(&slot->mark, TBG_KNOWN_NONE);
	if (!known)
		return 1;
	bpf_spin_lock(&f->lock);
	f->ifindex = from.ifindex;
	f->vlan = bpf_htons(from.vlan);
	__builtin_memcpy(f->own, from.own, sizeof(f->own));
	__builtin_memcpy(f->mac, from.mac, sizeof(f->mac));
	bpf_spin_unlock(&f->lock);
	return 1;
}

/*
 * Adds the segment's connection if it has an established socket and is not wire's. That is
 * checked while the slot is busy: a connection that becomes wire's meanwhile makes it void.
 */
__attribute__((noinline)) int tbg_known_add(struct __sk_buff *skb, const struct tbg_pkt *p,
					    const struct tbg_tcb_key *key)
{
	struct tbg_known_from from;
	struct tbg_known k, *slot;
	__u64 old;

	/* both addresses */
	if (!p || !key || tbg_load_words(skb, 0, &from, 3))
		return 0;
	tbg_known_of(p, &k);
	slot = tbg_known_slot(&k);
	if (!slot)
		return 0;
	old = *(volatile __u64 *)&slot->mark;
	/* two connections with the same slot do not take it from each other at each segment */
	if (old == TBG_KNOWN_BUSY || old == TBG_KNOWN_VOID ||
	    (old && old != k.mark && bpf_get_prandom_u32() & 7) ||
	    __sync_val_compare_and_swap(&slot->mark, old, TBG_KNOWN_BUSY) != old)
		return 0;
	slot->ends[0] = k.ends[0];
	slot->ends[1] = k.ends[1];
	slot->ends[2] = k.ends[2];
	slot->ends[3] = k.ends[3];
	from.ifindex = skb->ifindex;
	from.vlan = tbg_vlans(skb, p);
	slot->from = from;
	if (tbg_socket_state(skb, p) != BPF_TCP_ESTABLISHED || bpf_map_lookup_elem(&tbg_tcbs, key))
		k.mark = TBG_KNOWN_NONE;
	if (__sync_val_compare_and_swap(&slot->mark, TBG_KNOWN_BUSY, k.mark) != TBG_KNOWN_BUSY)
		__sync_lock_test_and_set(&slot->mark, TBG_KNOWN_NONE);
	return 0;
}

#endif
