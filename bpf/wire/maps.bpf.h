/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The maps of the wire tier: for each its key, value, writer, and what happens when it
 * is full. The daemon sets the sizes marked "plan" before loading.
 */
#ifndef TBG_WIRE_MAPS_BPF_H
#define TBG_WIRE_MAPS_BPF_H

#include "../maps.bpf.h"

/*
 * Index of an interface -> state of XDP there; only these may answer at XDP. Writers:
 * the daemon, when it attaches and when an address changes; BPF, without a lock, since
 * a race does no harm. Full: no XDP there.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TBG_IFACES_MAX);
	__type(key, __u32);
	__type(value, struct tbg_port);
} tbg_ports SEC(".maps");

/*
 * On each listening socket of this daemon: how many it has for the address. Writer: the daemon,
 * before it serves.
 */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} tbg_listeners SEC(".maps");

/*
 * The answering program. A program array loses its entries with the last user of its
 * descriptor. So the programs of a killed daemon still translate, but never answer from
 * a cache that is no longer maintained.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} tbg_tail SEC(".maps");

#define TBG_SCRATCH_ASK	1	/* the scratch of questions (abi/ask.h); 0: of packets */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct tbg_scratch);
} tbg_scratches SEC(".maps");

/* A copy of a segment's payload, for segments that do not begin a blob. */
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

/* Returns whether wire may answer at all. */
static __always_inline bool tbg_wire_answers(const struct tbg_knob *knob)
{
	return knob->answer && !knob->held;
}

#endif
