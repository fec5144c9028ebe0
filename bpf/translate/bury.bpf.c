// SPDX-License-Identifier: GPL-2.0
/*
 * The end of a flow, for the sweeper. A flow between the same ends may have replaced the
 * one that the sweeper read, and must not be absent for a moment: what is deleted is the
 * flow of that slot, unchanged, and while it is marked none can take its place. Run by the
 * daemon (BPF_PROG_TEST_RUN) on a frame that holds a struct tbg_burial; attached to nothing.
 */
#include "birth.bpf.h"

/* Returns 1: the flow is deleted, and its slot the caller's. */
SEC("tc")
int tbg_bury(struct __sk_buff *skb)
{
	struct tbg_flow *f;
	struct tbg_burial b = {};
	bool same;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &b, sizeof(b)))
		return 0;
	f = bpf_map_lookup_elem(&tbg_flows, &b.key);
	if (!f)
		return 0;
	bpf_spin_lock(&f->lock);
	same = f->slot == b.slot && f->seen_ns == b.seen_ns &&
	       !(f->way & TBG_WAY_BURIED);
	if (same && b.revive) {
		f->flags &= ~TBG_FLOW_RST;
		f->flags |= TBG_FLOW_LEFT;
	} else if (same) {
		f->way |= TBG_WAY_BURIED;
	}
	bpf_spin_unlock(&f->lock);
	return same && !b.revive && !bpf_map_delete_elem(&tbg_flows, &b.key);
}
