/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The maps of flows with a socket. Each comment names: key and value, the only
 * writer, what happens when the map is full. The daemon sets sizes marked "plan"
 * before loading.
 */
#ifndef TBG_TRANSLATE_MAPS_BPF_H
#define TBG_TRANSLATE_MAPS_BPF_H

#include "../wire/maps.bpf.h"

/* Four-tuple of each slot's flow. Writer: BPF, when the flow is born (plan). */
tbg_array(tbg_owners, struct tbg_flow_key, 1, 0);

/* Free slots of tbg_conns. BPF pops, the sweeper pushes. Empty: no flow. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} tbg_slots SEC(".maps");

/*
 * Slots of flows that were replaced before they were deleted. BPF pushes,
 * the sweeper pops. Never full: it has room for all slots.
 */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} tbg_retired SEC(".maps");

/* What SYN and SYN-ACK have of a connection that is not yet a flow. */
struct tbg_embryo {
	__u32 irs, iss, tsoff, tsval, flowinfo, ifindex;
	__u16 win, mss;		/* mss: the client's, then what the socket will send */
	__u32 window, tsrecent, domain, vlans;
	__u16 mac[3];
	__u8 snd_wscale, rcv_wscale, flags, ttl, tos;
	__u8 wscale_ok, synack, ts_ok, tagged;
	__u8 burst, df, pad[3];
};

/* Four-tuple -> embryo. LRU: a flood of SYNs evicts only other embryos. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct tbg_flow_key);
	__type(value, struct tbg_embryo);
} tbg_embryos SEC(".maps");

#endif
