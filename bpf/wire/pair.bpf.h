/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The way to a client by its address and ours, where rules or routes depend on more than the
 * client's; see abi/pair.h. For way.bpf.h and ask.bpf.h.
 */
#ifndef TBG_WIRE_PAIR_BPF_H
#define TBG_WIRE_PAIR_BPF_H

#include "../abi/pair.h"
#include "flow.bpf.h"

/* Pair of addresses -> answer. Writer: daemon, which keeps it from being full. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TBG_PAIRS_MAX);
	__type(key, struct tbg_pair_key);
	__type(value, struct tbg_pair);
} tbg_pairs SEC(".maps");

/*
 * Pairs to ask the kernel for. Writer: BPF; the daemon removes them and asks. Full: the next
 * connection asks again.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TBG_PAIR_ASKS_MAX);
	__type(key, struct tbg_pair_key);
	__type(value, __u32);
} tbg_pair_asks SEC(".maps");

/* Returns whether the way to a client depends on more than its address: always in a VRF. */
static __always_inline bool tbg_pair_counts(const struct tbg_knob *knob, const struct tbg_pkt *p)
{
	return p->vrf || knob->asks & (p->v6 ? TBG_ASKS_V6 : TBG_ASKS_V4);
}

/*
 * Returns whether rules may select this segment, or answers to it, by what no question has: its
 * mark, which another program has set, or the port of the client.
 */
static __always_inline bool tbg_pair_is_left(struct __sk_buff *skb, const struct tbg_knob *knob,
					     const struct tbg_pkt *p)
{
	__u32 port = bpf_ntohs(p->key.remote_port);

	return skb->mark || (port >= knob->ports_left[0] && port <= knob->ports_left[1]);
}

/* Copies the answer for this key. Returns false if there is none, or the element was reused. */
static __always_inline bool tbg_pair_copy(const struct tbg_pair_key *key, struct tbg_pair *ret)
{
	const struct tbg_pair *pair = bpf_map_lookup_elem(&tbg_pairs, key);
	const __u32 *is = (const void *)&ret->key, *wanted = (const void *)key;
	__u32 other = 0, i;

	if (!pair)
		return false;
	ret->way = pair->way;
	ret->asked_ms = pair->asked_ms;
	ret->ways = pair->ways;
	/* last: the daemon's answer for another pair is written from its key on */
	barrier();
	ret->key = pair->key;
	for (i = 0; i < sizeof(*key) / sizeof(*is); i++)
		other |= is[i] ^ wanted[i];
	return !other;
}

/*
 * Copies the way of the segment's pair. Returns false if the kernel has not been asked lately.
 * Then the daemon is asked to find out, unless the segment is a SYN: anybody can forge its sender.
 */
static __always_inline bool tbg_pair_way(const struct tbg_knob *knob, const struct tbg_pkt *p,
					 struct tbg_way *ret)
{
	__u32 now_ms = tbg_now_ms(), age_ms = TBG_PAIR_MS;
	struct tbg_pair_key key = { .vrf = p->vrf, .port = p->key.local_port };
	struct tbg_pair pair;
	bool counts;

	__builtin_memcpy(key.client, p->key.remote, sizeof(key.client));
	__builtin_memcpy(key.local, p->key.local, sizeof(key.local));
	/* an answer may be newer than the knob */
	if (tbg_pair_copy(&key, &pair) && (__s32)(pair.ways - knob->ways) >= 0)
		age_ms = now_ms - pair.asked_ms;
	counts = age_ms < TBG_PAIR_MS;
	if (age_ms >= TBG_PAIR_AGAIN_MS && (counts || !(p->tcp_flags & TBG_TCP_SYN)))
		bpf_map_update_elem(&tbg_pair_asks, &key, &now_ms, BPF_ANY);
	if (counts)
		*ret = pair.way;
	return counts;
}

#endif
