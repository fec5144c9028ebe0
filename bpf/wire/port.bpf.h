/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The state of XDP on an interface (struct tbg_port): whether a frame is for this host, and
 * whether the device sends what XDP_TX gives it. For the XDP programs of both ways, and for
 * the TC programs that note what XDP cannot see.
 */
#ifndef TBG_WIRE_PORT_BPF_H
#define TBG_WIRE_PORT_BPF_H

#include "packet.bpf.h"

/*
 * Notes that a reply was sent by XDP and is lost or late. reply: a number that identifies
 * it. Counts once, however often its client retransmits the request.
 */
static __always_inline void tbg_port_lost(struct tbg_port *port, __u32 reply)
{
	reply |= 1;
	if (port->counted == reply)
		return;
	port->counted = reply;
	__sync_fetch_and_add(&port->lost, 1);
	port->tried_ms = 0;
}

#ifdef TBG_XDP
#define TBG_PROOF_MS 1000	/* timeout of a reply that has to prove that XDP_TX works */

/*
 * Whether the frame is for this host. TC knows it by skb->pkt_type; frames from a
 * driver in promiscuous mode or below a bridge may be for others.
 */
static __always_inline bool tbg_port_is_meant(const struct tbg_port *port,
					      struct xdp_md *frame)
{
	const __u16 *mac = (void *)(long)frame->data;

	return (void *)(mac + 3) <= (void *)(long)frame->data_end &&
	       !((mac[0] ^ port->mac[0]) | (mac[1] ^ port->mac[1]) |
		 (mac[2] ^ port->mac[2]));
}

/*
 * Parses the frame into s->pkt. Returns the port it came in by; NULL if XDP can neither answer
 * it nor learn from it.
 */
static __always_inline struct tbg_port *tbg_port_of(struct xdp_md *frame, struct tbg_scratch *s,
						    const struct tbg_knob *knob)
{
	__u64 linear = (__u64)(long)frame->data_end - (__u64)(long)frame->data;
	__u32 ifindex = frame->ingress_ifindex;
	struct tbg_port *port = bpf_map_lookup_elem(&tbg_ports, &ifindex);
	struct tbg_pkt *p = &s->pkt;

	if (!port || bpf_xdp_get_buff_len(frame) != linear)
		return NULL;
	if (tbg_pkt_parse(frame, p, true) != TBG_PKT_TCP ||
	    !tbg_port_served(knob, p->key.local_port) ||
	    !tbg_port_is_meant(port, frame))
		return NULL;
	/* a bare acknowledgement matters only on an unproven interface */
	return !p->payload_len && port->proven && !port->lost ? NULL : port;
}

/* Whether a reply may be sent now: one at a time on an unproven interface. */
static __always_inline bool tbg_port_take(struct tbg_port *port, __u32 now_ms)
{
	__u32 was = port->tried_ms;

	if (port->proven)
		return true;
	if (was && (__s32)(now_ms - was) < TBG_PROOF_MS)
		return false;
	return __sync_val_compare_and_swap(&port->tried_ms, was, now_ms | 1) == was;
}

/* Passes a request up; TC evaluates it again and counts its own why. */
static __always_inline int tbg_xdp_leave(__u64 why)
{
	__u32 zero = 0;
	struct tbg_stats *st = bpf_map_lookup_elem(&tbg_stats, &zero);

	tbg_keep(why);
	if (st && why < TBG_WHY_NR)
		st->xdp_left[why]++;
	return XDP_PASS;
}

#else
/*
 * Notes for XDP whether this device delivers CHECKSUM_PARTIAL: only virtual
 * devices do. Only SYNs show it, because GRO never merges them; merged
 * segments look the same.
 */
static __always_inline void tbg_port_note(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct tbg_port *port;

	if (!tbg_frame_partial(skb))
		return;
	port = bpf_map_lookup_elem(&tbg_ports, &ifindex);
	if (port && !port->partial)
		port->partial = 1;
}

#endif

#endif
