/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connections that are known to have a socket. Their segments pass after one look at
 * addresses and ports, instead of a whole parse and the searches for a connection of wire's
 * and for a socket. A connection that is missing here is searched for.
 *
 * It is removed before it can become wire's: at a SYN, before wire answers that, and
 * when it is given back, before wire reads the socket's numbers.
 */
#ifndef TBG_WIRE_KNOWN_BPF_H
#define TBG_WIRE_KNOWN_BPF_H

#include "socket.bpf.h"
#include "tcb.bpf.h"

#define TBG_KNOWN_BITS	14

/*
 * The ports are written last, and are 0 before: whoever reads the same ports before and
 * after the addresses has read those of one connection.
 */
struct tbg_known {
	__u64 ports;		/* remote and local port, | TBG_KNOWN_*; 0: none */
	__u64 ends[4];		/* remote and local address; IPv4: both are in the first word */
};

#define TBG_KNOWN_BUSY	1		/* in place of the ports: being written */
#define TBG_KNOWN_V4	(4ull << 32)
#define TBG_KNOWN_V6	(6ull << 32)

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

static __always_inline __u64 tbg_pair(__u32 low, __u32 high)
{
	return low | (__u64)high << 32;
}

static __always_inline struct tbg_known *tbg_known_slot(const struct tbg_known *k)
{
	__u64 hash = (k->ends[0] ^ k->ends[1] ^ k->ports << 24) * 0x9e3779b97f4a7c15ull;
	__u32 at = hash >> (64 - TBG_KNOWN_BITS);

	return bpf_map_lookup_elem(&tbg_knowns, &at);
}

static __always_inline bool tbg_known_same(const struct tbg_known *k,
					   const struct tbg_known *slot)
{
	const volatile struct tbg_known *s = slot;

	return s->ports == k->ports && s->ends[0] == k->ends[0] &&
	       (k->ports < TBG_KNOWN_V6 ||
		(s->ends[1] == k->ends[1] && s->ends[2] == k->ends[2] &&
		 s->ends[3] == k->ends[3])) && s->ports == k->ports;
}

/*
 * Reads addresses and ports of a segment into *ret, and the flags of its TCP header. Returns
 * false for other packets, and for frames with tags, IP options or extension headers, and
 * fragments.
 */
static __always_inline bool tbg_known_read(struct __sk_buff *skb, struct tbg_known *ret,
					   __u8 *flags)
{
	const __u8 *ip;
	const __u32 *w;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		ip = tbg_linear(skb, ETH_HLEN, 20 + 20);
		if (!ip || ip[0] != 0x45 || ip[9] != IPPROTO_TCP ||
		    *(const __u16 *)(ip + 6) & bpf_htons(0x3fff))
			return false;
		w = (const void *)(ip + 12);
		ret->ends[0] = tbg_pair(w[0], w[1]);
		ret->ends[1] = 0;
		ret->ports = TBG_KNOWN_V4 | w[2];
		*flags = ip[20 + 13];
		return true;
	}
	if (skb->protocol != bpf_htons(ETH_P_IPV6))
		return false;
	ip = tbg_linear(skb, ETH_HLEN, 40 + 20);
	if (!ip || ip[0] >> 4 != 6 || ip[6] != IPPROTO_TCP)
		return false;
	w = (const void *)(ip + 8);
	ret->ends[0] = tbg_pair(w[0], w[1]);
	ret->ends[1] = tbg_pair(w[2], w[3]);
	ret->ends[2] = tbg_pair(w[4], w[5]);
	ret->ends[3] = tbg_pair(w[6], w[7]);
	ret->ports = TBG_KNOWN_V6 | w[8];
	*flags = ip[40 + 13];
	return true;
}

/* Returns whether the frame is a segment, but no SYN, of a connection that is known. */
static __always_inline bool tbg_is_known(struct __sk_buff *skb)
{
	struct tbg_known k, *slot;
	__u8 flags;

	if (!tbg_known_read(skb, &k, &flags) || flags & TBG_TCP_SYN)
		return false;
	slot = tbg_known_slot(&k);
	return slot && tbg_known_same(&k, slot);
}

static __always_inline void tbg_known_of(const struct tbg_pkt *p, struct tbg_known *ret)
{
	const struct tbg_flow_key *e = &p->key;
	__u32 ports = e->remote_port | (__u32)e->local_port << 16;

	if (p->v6) {
		ret->ends[0] = tbg_pair(e->remote[0], e->remote[1]);
		ret->ends[1] = tbg_pair(e->remote[2], e->remote[3]);
		ret->ends[2] = tbg_pair(e->local[0], e->local[1]);
		ret->ends[3] = tbg_pair(e->local[2], e->local[3]);
		ret->ports = TBG_KNOWN_V6 | ports;
	} else {
		ret->ends[0] = tbg_pair(e->remote[3], e->local[3]);
		ret->ends[1] = 0;
		ret->ports = TBG_KNOWN_V4 | ports;
	}
}

/* The segment's connection may become wire's: it is searched for again. */
static __attribute__((noinline)) int tbg_known_remove(const struct tbg_pkt *p)
{
	struct tbg_known k = {}, *slot;

	if (!p)
		return 0;
	tbg_known_of(p, &k);
	slot = tbg_known_slot(&k);
	if (slot && tbg_known_same(&k, slot))
		__sync_val_compare_and_swap(&slot->ports, k.ports, 0);
	return 0;
}

/*
 * Adds the segment's connection, for which wire has no entry, if it has a socket in
 * ESTABLISHED. Both are checked once more afterwards: a connection that becomes wire's
 * meanwhile may have been removed here before it was added.
 */
static __attribute__((noinline)) int tbg_known_add(struct __sk_buff *skb, const struct tbg_pkt *p,
						   const struct tbg_tcb_key *key)
{
	struct tbg_known k = {}, *slot;
	struct bpf_sock *sk;
	__u64 old;
	bool there;

	if (!p || !key)
		return 0;
	tbg_known_of(p, &k);
	slot = tbg_known_slot(&k);
	if (!slot)
		return 0;
	old = *(volatile __u64 *)&slot->ports;
	/* two connections with the same slot do not take it from each other at each segment */
	if (old == TBG_KNOWN_BUSY || (old && bpf_get_prandom_u32() & 7) ||
	    __sync_val_compare_and_swap(&slot->ports, old, TBG_KNOWN_BUSY) != old)
		return 0;
	slot->ends[0] = k.ends[0];
	slot->ends[1] = k.ends[1];
	slot->ends[2] = k.ends[2];
	slot->ends[3] = k.ends[3];
	__sync_lock_test_and_set(&slot->ports, k.ports);
	sk = tbg_socket_find(skb, &p->key, p->v6);
	there = sk && sk->state == BPF_TCP_ESTABLISHED;
	if (sk)
		bpf_sk_release(sk);
	if (!there || bpf_map_lookup_elem(&tbg_tcbs, key))
		__sync_val_compare_and_swap(&slot->ports, k.ports, 0);
	return 0;
}

#endif
