// SPDX-License-Identifier: GPL-2.0
/*
 * What a client has not acknowledged of wire's last reply, given to the
 * socket: taken back out of the flow's delta, so that the daemon can write the
 * same bytes and the kernel's TCP owns them with its timers. Run by the daemon
 * (BPF_PROG_TEST_RUN, as tbg_flows has a spin lock that user space can't take)
 * on a frame that holds a struct tbg_yield; attached to nothing.
 */
#include "flow.bpf.h"

/* Under the flow's lock. False: there is nothing to yield, or no way to. */
static __always_inline bool tbg_yield_flow(struct tbg_flow_locked *f,
					   struct tbg_yield *y)
{
	__u32 left = tbg_flow_edge(f) - f->acked;

	if (!f->last.len || !left || left > f->last.len)
		return false;
	/* what the socket sends next must stand where the reply does */
	if (f->flags & TBG_FLOW_RST || f->sent != y->written ||
	    f->iss + f->sent + f->out_delta != tbg_flow_edge(f))
		return false;
	y->last = f->last;
	y->len = left;
	f->last.len -= left;
	f->out_delta -= left;
	f->last.owed = left;
	f->flags |= TBG_FLOW_LEFT;
	return true;
}

SEC("tc")
int tbg_yield(struct __sk_buff *skb)
{
	struct tbg_conn_word *conn;
	struct tbg_flow_locked *f;
	struct tbg_yield y = {};
	struct tbg_port *port;
	__u32 slot, ifindex;
	bool yields;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &y, sizeof(y)))
		return 0;
	f = bpf_map_lookup_elem(&tbg_flows, &y.key);
	if (!f)
		return 0;
	slot = f->slot;
	ifindex = f->ifindex;
	conn = bpf_map_lookup_elem(&tbg_conns, &slot);
	if (!conn)
		return 0;
	bpf_spin_lock(&f->lock);
	yields = tbg_yield_flow(f, &y);
	if (yields)
		conn->sent_ms = 0;
	bpf_spin_unlock(&f->lock);
	if (!yields || bpf_skb_store_bytes(skb, ETH_HLEN, &y, sizeof(y), 0))
		return 0;
	port = f->way & TBG_WAY_XDP ? bpf_map_lookup_elem(&tbg_ports, &ifindex) : NULL;
	if (port)
		tbg_port_lost(port, &y.key, f);
	tbg_count(TBG_WHY_YIELD);
	return 1;
}
