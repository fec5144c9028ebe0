/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What only a flow with a socket has: two numberings, what the socket was told, and
 * the window that it knows. No flow is changed here.
 */
#ifndef TBG_TRANSLATE_FLOW_BPF_H
#define TBG_TRANSLATE_FLOW_BPF_H

#define TBG_TRANSLATE
#include "../wire/flow.bpf.h"

/* First client's number behind wire's last reply; all of the kernel's is past it. */
static __always_inline __u32 tbg_flow_edge(const struct tbg_flow *f)
{
	return f->last.len ? f->last.seq + f->last.len : f->iss;
}

/*
 * How far beyond next, where the socket has sent to, the client may acknowledge: it
 * may have all of a reply whose rest was given to the socket, which has yet to send it.
 */
static __always_inline __u32 tbg_flow_slack(const struct tbg_flow *f,
					    __u32 next)
{
	__s32 ahead = f->last.seq + f->last.len + f->last.owed - next;

	return f->last.owed && ahead > 0 ? ahead : 0;
}

/* The flow's last reply left by XDP, and was lost or is long on its way. */
static __always_inline void tbg_port_lost(struct tbg_port *port,
					  const struct tbg_flow_key *key,
					  const struct tbg_flow *f)
{
	__u32 reply = (f->last.seq + (key->remote_port << 8 ^ f->slot)) | 1;

	/* once, however often its client asks for it again */
	if (port->counted == reply)
		return;
	port->counted = reply;
	__sync_fetch_and_add(&port->lost, 1);
	port->tried_ms = 0;
}

/*
 * The window that a segment leaves behind wire's last reply, raw as it came: what it
 * has not acknowledged of that, and the socket will be told it has, takes its share.
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
 * Whether a segment brings a window that its socket would not believe: smaller
 * than the one it knows, and with the numbers it knows already, which hits have
 * left as they were (tcp_may_update_window), or tbg_tell_window() has shown it.
 * Once it has the segment's payload, it believes what comes.
 */
static __always_inline bool tbg_is_narrow(const struct tbg_flow *f,
					  const struct tbg_pkt *p)
{
	return p->payload_len && tbg_window_left(f, p) < f->heard &&
	       (f->flags & TBG_FLOW_TOLD ||
		p->seq == f->last.req_seq + f->last.req_len) &&
	       p->seq - f->in_delta - f->irs == f->given &&
	       p->ack - f->last.seq <= f->last.len;
}

#endif
