/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The connections that wire owns: their maps, and functions that all other files here
 * use. See abi/tcb.h.
 */
#ifndef TBG_WIRE_TCB_BPF_H
#define TBG_WIRE_TCB_BPF_H

#include "../abi/tcb.h"
#include "packet.bpf.h"

/*
 * Addresses, ports, VRF -> connection. Writers: BPF; the daemon, which gives
 * connections back and removes old ones. Not LRU. Full: new connections are the
 * kernel's, see tbg_tcb_room.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct tbg_tcb_key);
	__type(value, struct tbg_tcb);
} tbg_tcbs SEC(".maps");

/* See the struct. Writers: BPF and the daemon, both atomically. */
tbg_array(tbg_tcb_rooms, struct tbg_tcb_room, 1, BPF_F_MMAPABLE);

/*
 * What the kernel's listeners offer in their SYN-ACKs. Writer: BPF. LRU: what is
 * evicted is learned again.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct tbg_offer_key);
	__type(value, struct tbg_offer);
} tbg_offers SEC(".maps");

/* Interface -> the VRF device that it belongs to. Writer: daemon. Full: not wire's. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TBG_VRFS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} tbg_vrfs SEC(".maps");

/*
 * Prefix of client addresses -> interfaces that lead to them, by the longest match.
 * Writer: daemon. Full: the daemon lets wire answer no SYN.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TBG_WAYS_MAX);
	__type(key, struct tbg_way_key);
	__type(value, struct tbg_way);
} tbg_ways SEC(".maps");

/*
 * Two interfaces, one on top of the other -> how frames of the upper one leave by the lower
 * one. Writer: daemon. Full: connections through the missing ones are the kernel's.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TBG_ABOVES_MAX);
	__type(key, struct tbg_above_key);
	__type(value, struct tbg_above);
} tbg_aboves SEC(".maps");

/*
 * Connections whose last reply may be lost in a way that no segment of the client will
 * show; see tbg_due(). Writer: BPF; the daemon removes them and checks. Full: no timer
 * of ours.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct tbg_tcb_key);
	__type(value, __u32);
} tbg_dues SEC(".maps");

/* Client -> number of its open connections with a socket. Writer: daemon. Full: not counted. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TBG_CROWDS_MAX);
	__type(key, struct tbg_crowd_key);
	__type(value, __u32);
} tbg_holders SEC(".maps");

/*
 * Client -> number of its open connections without a socket, where these are limited.
 * Writer: BPF; the daemon clears it. Full: those of further clients are not counted.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, TBG_CROWDS_MAX);
	__type(key, struct tbg_crowd_key);
	__type(value, __u32);
} tbg_crowds SEC(".maps");

/*
 * Connections that were handed over but have no socket: a firewall dropped the segment,
 * because conntrack had not seen the connection begin. BPF adds them; the daemon removes
 * them and adds them to conntrack. If the map is full, further ones are reset in the end.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct tbg_tcb_key);
	__type(value, __u32);
} tbg_stuck SEC(".maps");

/*
 * Asks the daemon to check with its timer that the last reply arrives. Needed for a
 * reply of several segments, and if the request was acknowledged before the reply's
 * last segment: the client does not repeat it then.
 */
static __always_inline void tbg_due(const struct tbg_tcb_key *key)
{
	__u32 one = 1;

	bpf_map_update_elem(&tbg_dues, key, &one, BPF_ANY);
}

static __always_inline void tbg_tcb_key_of(struct tbg_frame *frame,
					   const struct tbg_knob *knob,
					   struct tbg_pkt *p, struct tbg_tcb_key *ret)
{
	__u32 ifindex = tbg_frame_ifindex(frame), *vrf = NULL;

	if (knob->vrfs)
		vrf = bpf_map_lookup_elem(&tbg_vrfs, &ifindex);
	ret->flow = p->key;
	ret->vrf = vrf ? *vrf : 0;
	p->vrf = ret->vrf;
}

static __always_inline struct tbg_tcb_room *tbg_tcb_room_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&tbg_tcb_rooms, &zero);
}

static __always_inline void tbg_tcb_taken(__s32 more)
{
	struct tbg_tcb_room *room = tbg_tcb_room_get();

	if (room)
		__sync_fetch_and_add(&room->taken, more);
}

/* Returns whether the table has room for what begins with a SYN. */
static __always_inline bool tbg_tcb_fits(void)
{
	struct tbg_tcb_room *room = tbg_tcb_room_get();

	return room && (!room->most || room->taken < room->most);
}

/* Returns whether the table keeps one more connection that has ended, and counts it. */
static __always_inline bool tbg_tcb_keeps(void)
{
	struct tbg_tcb_room *room = tbg_tcb_room_get();

	if (!room || (room->closed_most && room->closed >= room->closed_most))
		return false;
	__sync_fetch_and_add(&room->closed, 1);
	return true;
}

/* Returns whether some of what was sent is not acknowledged. Under the lock. */
static __always_inline bool tbg_tcb_owes(const struct tbg_tcb *f)
{
	return (__s32)(f->acked - f->snd_nxt) < 0;
}

/* Returns whether our FIN has been sent; its sequence number is snd_nxt. */
static __always_inline bool tbg_tcb_fin(const struct tbg_tcb *f)
{
	return f->state >= TBG_TCB_LAST_ACK;
}

/* Returns the sequence number of what we send next, after a FIN if there was one. */
static __always_inline __u32 tbg_tcb_next(const struct tbg_tcb *f)
{
	return f->snd_nxt + tbg_tcb_fin(f);
}

/* Returns a number that identifies the connection's last reply, for tbg_port_lost(). */
static __always_inline __u32 tbg_tcb_reply(const struct tbg_tcb *f, const struct tbg_pkt *p)
{
	return f->last.seq + (p->key.remote_port << 8);
}

/* Returns whether the frame's source address is where the connection's frames came from. */
static __always_inline bool tbg_tcb_is_from(const struct tbg_tcb *f, const __u16 *mac)
{
	return f->mac[0] == mac[0] && f->mac[1] == mac[1] && f->mac[2] == mac[2];
}

/*
 * The client's frames come by this interface now, and have these addresses: destination and
 * source. Under the lock.
 */
static __always_inline void tbg_tcb_move(struct tbg_tcb *f, __u32 ifindex, const __u16 mac[6])
{
	f->ifindex = ifindex;
	__builtin_memcpy(f->own, mac, sizeof(f->own));
	__builtin_memcpy(f->mac, mac + 3, sizeof(f->mac));
}

static __always_inline void tbg_stat_add(__u64 off)
{
	__u32 zero = 0;
	struct tbg_stats *st = bpf_map_lookup_elem(&tbg_stats, &zero);

	if (st)
		++*(__u64 *)((__u8 *)st + off);
}

#define tbg_stat(field) tbg_stat_add(__builtin_offsetof(struct tbg_stats, field))

#endif
