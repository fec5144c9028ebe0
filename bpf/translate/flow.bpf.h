/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Computations for flows with a socket: two numberings, what the socket knows, and
 * the window that it knows. Changes no flow.
 */
#ifndef TBG_TRANSLATE_FLOW_BPF_H
#define TBG_TRANSLATE_FLOW_BPF_H

#define TBG_TRANSLATE
#include "../wire/flow.bpf.h"

/*
 * First number, as the client sees it, after wire's last reply; newer bytes of the
 * kernel follow it.
 */
static __always_inline __u32 tbg_flow_edge(const struct tbg_flow *f)
{
	return f->last.len ? f->last.seq + f->last.len : f->iss;
}

/*
 * How far beyond `next`, up to which the socket has sent, the client may acknowledge:
 * it may have all of a reply whose rest was taken back to the socket and is still
 * unsent there.
 */
static __always_inline __u32 tbg_flow_slack(const struct tbg_flow *f,
					    __u32 next)
{
	__s32 ahead = f->last.seq + f->last.len + f->last.owed - next;

	return f->last.owed && ahead > 0 ? ahead : 0;
}

/* Returns a number that identifies the flow's last reply, for tbg_port_lost(). */
static __always_inline __u32 tbg_flow_reply(const struct tbg_flow *f,
					    const struct tbg_flow_key *key)
{
	return f->last.seq + (key->remote_port << 8 ^ f->slot);
}

/*
 * The window (raw) of a segment, less the unacknowledged bytes of wire's last reply:
 * for the socket they count as acknowledged.
 */
static __always_inline __u16 tbg_window_left(const struct tbg_flow *f,
					     const struct tbg_pkt *p)
{
	__u32 missing = tbg_flow_edge(f) - p->ack, shift = f->wscale & 15;
	__u32 window = tbg_pkt_window(f, p);

	if (!f->last.len || missing > TBG_OLD_ACK)
		return p->window;
	return window > missing ? (window - missing) >> shift : 0;
}

/*
 * Whether a segment has a window that the socket would ignore
 * (tcp_may_update_window): smaller than the known one, with sequence numbers
 * that it knows already because hits do not change them or tbg_window_pass()
 * has used them. After the segment's payload it accepts windows again.
 */
static __always_inline bool tbg_is_narrow(const struct tbg_flow *f,
					  const struct tbg_pkt *p)
{
	return p->payload_len && tbg_window_left(f, p) < f->heard &&
	       (f->flags & TBG_FLOW_WINDOW ||
		p->seq == f->last.req_seq + f->last.req_len) &&
	       p->seq - f->in_delta - f->irs == f->given &&
	       p->ack - f->last.seq <= f->last.len;
}

#endif
