/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Maps of sock alone. Each comment names: key and value, the only writer,
 * what happens when the map is full. The daemon sets sizes marked "plan"
 * before loading.
 */
#ifndef TBG_SOCK_MAPS_BPF_H
#define TBG_SOCK_MAPS_BPF_H

#include "../end.bpf.h"
#include "../maps.bpf.h"

/* Free slots. BPF pops, the sweeper pushes. Empty: not enrolled (plan). */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} tbg_sock_free SEC(".maps");

/* Socket cookie -> slot. BPF adds, the sweeper deletes. Full: not enrolled (plan). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32);
} tbg_sock_slots SEC(".maps");

/* The sockets by slot. BPF adds; the kernel removes at close (plan). */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} tbg_socks SEC(".maps");

/*
 * By worker: ring buffer that reports the slots of quiet connections with new
 * data. Full: the worker's check of each connection, once a second, notices
 * (plan).
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_RINGBUF);
		__uint(max_entries, 4096);
	});
} tbg_sock_news SEC(".maps");

/* Mark on each listening socket of this daemon, inherited by accepted ones. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct tbg_sock_id);
} tbg_sock_ids SEC(".maps");

/*
 * A hit between verdict and expansion: a copy of the request, whose bytes in
 * the skb are overwritten, and what answers it.
 */
struct tbg_pend {
	struct tbg_pend_head h;
	struct tbg_scratch s;
};

/* Writer: BPF; the sweeper frees those of closed connections. */
tbg_array(tbg_pends, struct tbg_pend, TBG_SOCK_PENDS, BPF_F_MMAPABLE);

/* Free pending hits. BPF pops and pushes. Empty: the daemon answers. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, TBG_SOCK_PENDS);
	__type(value, __u32);
} tbg_pend_free SEC(".maps");

/* Reports data for the daemon; counts and flags were updated before. */
static __always_inline void tbg_sock_report(struct tbg_sock_conn *c, __u32 slot)
{
	__u32 worker = c->worker;
	void *news;

	if (!__sync_lock_test_and_set(&c->quiet, 0))
		return;
	news = bpf_map_lookup_elem(&tbg_sock_news, &worker);
	if (news)
		bpf_ringbuf_output(news, &slot, sizeof(slot), 0);
}

/* Marks that bytes of either direction are lost: the daemon resets the connection. */
static __always_inline int tbg_sock_break(struct tbg_sock_conn *c, __u32 slot)
{
	c->flags |= TBG_SOCK_BROKEN;
	tbg_sock_report(c, slot);
	return SK_DROP;
}

#endif
