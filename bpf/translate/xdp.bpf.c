// SPDX-License-Identifier: GPL-2.0
/*
 * XDP: the same answer, earlier. A hit whose reply is one segment and fits the
 * driver's frame is sent before an skb exists. Everything else is passed up
 * unchanged to tbg_ingress, which updates the flow, translates, retransmits and
 * counts. Changes flows only by tbg_claim(). A separate object that shares
 * wire's maps: if it does not load or attach, only TC answers.
 */
#define TBG_XDP
#include "claim.bpf.h"
#include "../wire/port.bpf.h"

/* Evaluates the flow's next segment for a reply that was sent here. */
static __always_inline void tbg_port_learn(struct tbg_port *port,
					   const struct tbg_flow *f,
					   const struct tbg_pkt *p, __u32 now_ms)
{
	/* once the flow has left wire, the reply was retransmitted elsewhere */
	if (!(f->way & TBG_WAY_XDP) || f->flags & TBG_FLOW_LEFT)
		return;
	if (p->ack == tbg_flow_edge(f)) {
		port->lost = 0;
		port->proven = 1;
	} else if (p->payload_len && tbg_shows_loss(f, p) &&
		   !tbg_is_doubled(f, p, now_ms)) {
		tbg_port_lost(port, tbg_flow_reply(f, &p->key));
	}
}

/* Turns the frame into the reply. Returns 0: send it; or a why: the frame is unchanged. */
static __always_inline int tbg_xdp_try(struct xdp_md *frame,
				       struct tbg_scratch *s,
				       const struct tbg_knob *knob,
				       struct tbg_flow *f,
				       struct tbg_port *port)
{
	struct tbg_reply *r = &s->reply;
	struct tbg_pkt *p = &s->pkt;
	struct tbg_answered answered;
	struct tbg_conn_word *conn;
	struct tbg_bare_ack ack;
	__u32 slot = f->slot, len;
	int why;

	why = tbg_may_answer(frame, f, p, false);
	if (why)
		return why;
	if (!(f->way & TBG_WAY_BARE) || p->l3 != ETH_HLEN || !f->burst)
		return TBG_WHY_IFACE;
	conn = bpf_map_lookup_elem(&tbg_conns, &slot);
	if (!conn)
		return TBG_WHY_NO_FLOW;
	answered = tbg_answered(conn, slot);
	s->now_ns = bpf_ktime_get_ns();
	why = tbg_may_hit(knob, f, p, &answered, s->now_ns / 1000000);
	if (why)
		return why;
	if (p->ack - f->out_delta - f->iss != f->known)
		return TBG_WHY_UNTOLD;
	if (p->payload_len > TBG_REQ_MAX)
		return TBG_WHY_GRAMMAR;
	if (tbg_segment_check(frame, s) < 0)
		return TBG_WHY_CSUM;
	if (tbg_request_load(frame, s))
		return TBG_WHY_GRAMMAR;
	__builtin_memset(r, 0, sizeof(*r));
	why = tbg_find(s, knob, p->payload_len);
	if (why)
		return why;
	if (tbg_pkt_window(f, p) < TBG_XDP_TIGHT ||
	    r->len > tbg_flow_mss(f, p))
		return TBG_WHY_SIZE;
	r->seg = r->len;
	r->nr = 1;
	if (!tbg_reply_fits(knob, r))
		return TBG_WHY_SIZE;
	len = p->l4 + (f->flags & TBG_FLOW_TS ? 32 : 20) + r->len;
	if (!tbg_mtu_holds(frame, len - p->l3))
		return TBG_WHY_SIZE;
	if (tbg_frame_resize(frame, len))
		return TBG_WHY_ROOM;
	why = TBG_WHY_BUSY;
	if (tbg_port_take(port, s->now_ns / 1000000))
		why = tbg_claim(f, p, r, conn, &answered, s->now_ns, &ack, true);
	if (why)
		tbg_request_restore(frame, s);
	return why;
}

SEC("xdp.frags")
int tbg_xdp(struct xdp_md *frame)
{
	struct tbg_scratch *s = tbg_scratch_get();
	struct tbg_knob *knob = tbg_knob_get();
	__u32 zero = 0;
	struct tbg_flow *f;
	struct tbg_stats *st;
	struct tbg_port *port;
	struct tbg_pkt *p;
	int why;

	port = s && knob ? tbg_port_of(frame, s, knob) : NULL;
	if (!port)
		return XDP_PASS;
	p = &s->pkt;
	f = bpf_map_lookup_elem(&tbg_flows, &p->key);
	if (f)
		tbg_port_learn(port, f, p, bpf_ktime_get_ns() / 1000000);
	if (!p->payload_len || port->lost >= TBG_PORT_LOST)
		return XDP_PASS;
	why = f ? tbg_xdp_try(frame, s, knob, f, port) : TBG_WHY_NO_FLOW;
	if (why)
		return tbg_xdp_leave(why);
	st = bpf_map_lookup_elem(&tbg_stats, &zero);
	if (!st || tbg_reply_write(frame, s, 0))
		return XDP_DROP;
	st->xdp_hits++;
	tbg_hit_note(s, knob);
	return XDP_TX;
}

char _license[] SEC("license") = "GPL";
