// SPDX-License-Identifier: GPL-2.0
/*
 * Answers a hit at XDP, before an skb exists: on a connection without a socket, if the reply
 * is one segment and fits the driver's frame. Everything else is passed up unchanged to
 * tbg_ingress, which begins connections, ends them, hands them over, repeats and counts. A
 * separate object that shares wire's maps: if it does not load or attach, only TC answers.
 */
#define TBG_XDP
#define TBG_MAY_CLOSE 1
#include "claim.bpf.h"
#include "port.bpf.h"

/* Evaluates the connection's next segment for a reply that was sent here. */
static __always_inline void tbg_port_learn(struct tbg_port *port, const struct tbg_tcb *f,
					   const struct tbg_pkt *p, __u32 now_ms)
{
	/* once a reply was lost, it is repeated elsewhere */
	if (f->state != TBG_TCB_OPEN || !(f->tried & TBG_TCB_XDP) ||
	    f->flags & TBG_TCB_LOSSY)
		return;
	if (p->ack == f->snd_nxt) {
		port->lost = 0;
		port->proven = 1;
	} else if (p->payload_len && tbg_shows_loss(f, p) && !tbg_is_doubled(f, p, now_ms)) {
		tbg_port_lost(port, tbg_tcb_reply(f, p));
	}
}

/* Returns 0 if XDP may answer the segment on its connection, else a reason. */
static __always_inline int tbg_xdp_may(struct xdp_md *frame, const struct tbg_knob *knob,
				       const struct tbg_tcb *f, const struct tbg_pkt *p)
{
	__u16 from[4] __attribute__((aligned(4)));	/* source address and EtherType */

	if (p->l3 != ETH_HLEN || f->vlan || f->ifindex != frame->ingress_ifindex)
		return TBG_WHY_IFACE;
	/* TC follows a client that has moved: what wire sends later goes there, too */
	if (tbg_load_words(frame, ETH_ALEN, from, 2) || !tbg_tcb_is_from(f, from))
		return TBG_WHY_IFACE;
	if (f->state == TBG_TCB_HANDED || f->state == TBG_TCB_GIVING)
		return TBG_WHY_HANDED;
	if (f->state != TBG_TCB_OPEN)
		return TBG_WHY_CLOSING;
	/* the kernel may still have its request socket */
	if (!f->answers && knob->births == TBG_BIRTHS_KERNEL)
		return TBG_WHY_NO_FLOW;
	if (p->seq != f->rcv_nxt)
		return TBG_WHY_BUSY;
	/* an old duplicate (RFC 7323 5.3) */
	if (p->timed && f->flags & TBG_FLOW_TS && (__s32)(p->tsval - f->tsrecent) < 0)
		return TBG_WHY_TCP_ODD;
	return tbg_may_hit(knob, f, p);
}

/* Checks that the reply is one segment and fits. Returns 0 or a reason. */
static __always_inline int tbg_xdp_cut(struct xdp_md *frame, struct tbg_scratch *s,
				       const struct tbg_knob *knob, const struct tbg_tcb *f,
				       __u32 *ret_len)
{
	struct tbg_reply *r = &s->reply;
	struct tbg_pkt *p = &s->pkt;
	__u32 total = tbg_reply_total(r);

	/* TC closes */
	if (r->persist == TBG_PERSIST_NOT)
		return TBG_WHY_CLOSING;
	if (tbg_pkt_window(f, p) < TBG_XDP_TIGHT || total > tbg_flow_mss(f, p))
		return TBG_WHY_SIZE;
	r->seg = r->len;
	r->nr = 1;
	*ret_len = p->l4 + (f->flags & TBG_FLOW_TS ? 32 : 20) + total;
	return tbg_reply_fits(knob, r) && tbg_mtu_holds(frame, *ret_len - p->l3) ?
	       0 : TBG_WHY_SIZE;
}

/* Turns the frame into the reply. Returns 0: send it; or a reason: the frame is unchanged. */
static __always_inline int tbg_xdp_try(struct xdp_md *frame, struct tbg_scratch *s,
				       const struct tbg_knob *knob,
				       const struct tbg_tcb_key *key, struct tbg_tcb *f,
				       struct tbg_port *port)
{
	struct tbg_reply *r = &s->reply;
	struct tbg_pkt *p = &s->pkt;
	__u32 len;
	int why;

	why = tbg_xdp_may(frame, knob, f, p);
	if (why)
		return why;
	if (tbg_segment_check(frame, s) < 0)
		return TBG_WHY_CSUM;
	tbg_clock_read(s);
	__builtin_memset(r, 0, sizeof(*r));
	why = tbg_hit_find(frame, s, knob, true);
	why = why ?: tbg_xdp_cut(frame, s, knob, f, &len);
	if (why)
		return why;
	if (tbg_frame_resize(frame, len))
		return TBG_WHY_ROOM;
	why = TBG_WHY_BUSY;
	if (tbg_port_take(port, s->now_ms))
		why = tbg_claim(key, f, p, r, s->now_ms, true);
	if (why) {
		tbg_request_fetch(s);
		tbg_request_restore(frame, s);
	}
	return why;
}

/* Writes the claimed reply into the frame. Returns an XDP action. */
static __always_inline int tbg_xdp_send(struct xdp_md *frame, struct tbg_scratch *s,
					const struct tbg_knob *knob)
{
	if (tbg_reply_write(frame, s, 0))
		return XDP_DROP;
	tbg_stat(xdp_hits);
	if (knob->log)
		tbg_request_fetch(s);
	tbg_hit_note(s, knob);
	return XDP_TX;
}

SEC("xdp.frags")
int tbg_xdp(struct xdp_md *frame)
{
	struct tbg_scratch *s = tbg_scratch_get();
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_tcb_key key = {};
	struct tbg_port *port;
	struct tbg_tcb *f;
	struct tbg_pkt *p;
	int why;

	port = s && knob ? tbg_port_of(frame, s, knob) : NULL;
	if (!port)
		return XDP_PASS;
	p = &s->pkt;
	tbg_tcb_key_of(frame, knob, p, &key);
	f = bpf_map_lookup_elem(&tbg_tcbs, &key);
	if (f)
		tbg_port_learn(port, f, p, bpf_ktime_get_ns() / 1000000);
	if (!p->payload_len || port->lost >= TBG_PORT_LOST)
		return XDP_PASS;
	why = f ? tbg_xdp_try(frame, s, knob, &key, f, port) : TBG_WHY_NO_FLOW;
	return why ? tbg_xdp_leave(why) : tbg_xdp_send(frame, s, knob);
}

char _license[] SEC("license") = "GPL";
