// SPDX-License-Identifier: GPL-2.0
/*
 * Deletes a flow for the sweeper. A new flow with the same addresses may have replaced
 * the one that the sweeper has read, and must not be missing for a moment. So only an
 * unchanged flow with that slot is deleted, and while it is marked, no other can replace
 * it. Run by the daemon (BPF_PROG_TEST_RUN) on a frame that holds a struct tbg_burial;
 * attached to nothing.
 */
#include "birth.bpf.h"

/* Returns 1 if it has deleted the flow; the slot is then the caller's. */
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
