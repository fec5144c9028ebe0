/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Wire's own maps: key, value, its one writer, what happens when it is full.
 * Sizes marked "plan" are set by the daemon before loading.
 */
#ifndef TBG_WIRE_MAPS_BPF_H
#define TBG_WIRE_MAPS_BPF_H

#include "../maps.bpf.h"

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

#define TBG_SCRATCH_ASK	1	/* the one of questions (abi/ask.h); 0: of packets */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
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
