/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Wire's own maps: key, value, its one writer, what happens when it is full.
 * Sizes marked "plan" are set by the daemon before loading.
 */
#ifndef TBG_WIRE_MAPS_BPF_H
#define TBG_WIRE_MAPS_BPF_H

#include "../maps.bpf.h"

/* Four-tuple of each slot's flow. Writer: BPF, when the flow is born (plan). */
tbg_array(tbg_owners, struct tbg_flow_key, 1, 0);

/* Free slots of tbg_conns. BPF pops, the sweeper pushes. Empty: no flow. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} tbg_slots SEC(".maps");

/*
 * Slots of flows that were replaced before they were buried. BPF pushes, the
 * sweeper pops. Full (it never is: as many as there are slots): slot lost.
 */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} tbg_retired SEC(".maps");

/*
 * Interfaces where XDP may answer, by index. Writers: daemon, when it attaches and
 * when the address changes; else BPF, racy by design. Full: no XDP there.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TBG_IFACES_MAX);
	__type(key, __u32);
	__type(value, struct tbg_port);
} tbg_ports SEC(".maps");

/* What SYN and SYN-ACK say about a connection that is not yet a flow. */
struct tbg_embryo {
	__u32 irs, iss, tsoff, tsval, flowinfo, ifindex;
	__u16 win, mss;		/* mss: the client's, then the smaller */
	__u32 window, tsrecent;
	__u16 mac[3];
	__u8 snd_wscale, rcv_wscale, flags, ttl, tos;
	__u8 wscale_ok, synack, ts_ok, tagged;
	__u8 pad;
};

/* Four-tuple -> embryo. LRU: a flood of SYNs evicts only other embryos. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct tbg_flow_key);
	__type(value, struct tbg_embryo);
} tbg_embryos SEC(".maps");

/* On each listening socket of this daemon. Writer: daemon, before it serves. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} tbg_listeners SEC(".maps");

/*
 * The answering program. A program array loses its entries with the last user
 * of its descriptor, so a killed daemon's programs go on translating but can
 * never answer from a cache that nobody keeps.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} tbg_tail SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tbg_scratch);
} tbg_scratches SEC(".maps");

/* A segment's payload on its way from a blob, where not at its beginning. */
struct tbg_chunk {
	__u8 b[16384];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tbg_chunk);
} tbg_chunks SEC(".maps");

static __always_inline struct tbg_scratch *tbg_scratch_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&tbg_scratches, &zero);
}

#endif
