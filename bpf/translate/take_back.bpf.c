// SPDX-License-Identifier: GPL-2.0
/*
 * Take-back: removes the unacknowledged end of wire's last reply from the flow's
 * delta, once the daemon has the same bytes, which it writes to the socket; then
 * the kernel's TCP retransmits them. Run by the daemon (BPF_PROG_TEST_RUN, because
 * user space cannot take the spin lock in tbg_flows) on a frame that holds a
 * struct tbg_take_back; attached to nothing.
 */
#include "flow.bpf.h"

/*
 * Called under the flow's lock. Returns TBG_TAKE_BACK_*. Changes the flow only if
 * y->commit is set.
 */
static __always_inline int tbg_take_back_flow(struct tbg_flow *f,
					  struct tbg_take_back *y)
{
	__u32 left = tbg_flow_edge(f) - f->acked;

	/* another connection with the same addresses */
	if (f->slot != y->slot || f->flags & TBG_FLOW_RST)
		return TBG_TAKE_BACK_NOTHING;
	if (f->way & TBG_WAY_LOST) {
		y->seq = f->iss + f->sent + f->out_delta;
		y->ack = f->irs + f->given + f->in_delta;
		f->flags |= TBG_FLOW_RST;
		return TBG_TAKE_BACK_LOST;
	}
	if (!f->last.len || !left || left > f->last.len)
		return TBG_TAKE_BACK_NOTHING;
	/* the socket's next number must be that of the reply */
	if (f->sent != y->written ||
	    f->iss + f->sent + f->out_delta != tbg_flow_edge(f))
		return TBG_TAKE_BACK_NOTHING;
	if (!y->commit) {
		y->last = f->last;
		y->len = left;
		return TBG_TAKE_BACK_BYTES;
	}
	/* acknowledged meanwhile, at least in part: the next tick checks again */
	if (left != y->len || f->last.seq != y->last.seq || f->last.len != y->last.len)
		return TBG_TAKE_BACK_NOTHING;
	f->last.len -= left;
	f->out_delta -= left;
	f->last.owed = left;
	f->flags |= TBG_FLOW_LEFT;
	return TBG_TAKE_BACK_BYTES;
}

SEC("tc")
int tbg_take_back(struct __sk_buff *skb)
{
	struct tbg_conn_word *conn;
	struct tbg_flow *f;
	struct tbg_take_back y = {};
	struct tbg_port *port;
	__u32 slot, ifindex;
	int ret;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &y, sizeof(y)))
		return TBG_TAKE_BACK_NOTHING;
	slot = y.slot;
	f = bpf_map_lookup_elem(&tbg_flows, &y.key);
	conn = bpf_map_lookup_elem(&tbg_conns, &slot);
	if (!f || !conn)
		return TBG_TAKE_BACK_NOTHING;
	ifindex = f->ifindex;
	bpf_spin_lock(&f->lock);
	ret = tbg_take_back_flow(f, &y);
	if (ret == TBG_TAKE_BACK_LOST || (ret && y.commit))
		conn->sent_ms = 0;
	bpf_spin_unlock(&f->lock);
	if (!ret || bpf_skb_store_bytes(skb, ETH_HLEN, &y, sizeof(y), 0))
		return TBG_TAKE_BACK_NOTHING;
	if (ret == TBG_TAKE_BACK_LOST || !y.commit)
		return ret;
	port = f->way & TBG_WAY_XDP ? bpf_map_lookup_elem(&tbg_ports, &ifindex) : NULL;
	if (port)
		tbg_port_lost(port, tbg_flow_reply(f, &y.key));
	tbg_count(TBG_WHY_YIELD);
	return ret;
}
