/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a flow's numbers say of it and of a segment. No flow is changed here:
 * that is for who takes its lock.
 */
#ifndef TBG_WIRE_FLOW_BPF_H
#define TBG_WIRE_FLOW_BPF_H

#include "packet.bpf.h"

#define TBG_MSS_LEAST 536	/* of whoever names none (RFC 9293 3.7.1) */
#define TBG_TIGHT 4096		/* a window that a client on this machine may not open */
#define TBG_XDP_TIGHT 8192	/* the driver's frames take more of its memory */
#define TBG_OLD_ACK 65535	/* older than any window: challenged (RFC 5961 5.2) */

static __always_inline __u32 tbg_now_ms(void)
{
	return bpf_ktime_get_ns() / 1000000;
}

/* First client's number behind wire's last reply; all of the kernel's is past it. */
static __always_inline __u32 tbg_flow_edge(const struct tbg_flow_locked *f)
{
	return f->last.len ? f->last.seq + f->last.len : f->iss;
}

/*
 * How far beyond next, where the socket has sent to, the client may acknowledge: it
 * may have all of a reply whose rest was given to the socket, which has yet to send it.
 */
static __always_inline __u32 tbg_flow_slack(const struct tbg_flow_locked *f,
					    __u32 next)
{
	__s32 ahead = f->last.seq + f->last.len + f->last.owed - next;

	return f->last.owed && ahead > 0 ? ahead : 0;
}

/* The flow's last reply left by XDP, and was lost or is long on its way. */
static __always_inline void tbg_port_lost(struct tbg_port *port,
					  const struct tbg_flow_key *key,
					  const struct tbg_flow_locked *f)
{
	__u32 reply = (f->last.seq + (key->remote_port << 8 ^ f->slot)) | 1;

	/* once, however often its client asks for it again */
	if (port->counted == reply)
		return;
	port->counted = reply;
	__sync_fetch_and_add(&port->lost, 1);
	port->tried_ms = 0;
}

/* The later of two sequence numbers (RFC 9293 3.4). */
static __always_inline __u32 tbg_seq_max(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0 ? a : b;
}

/* Whether the segment's options are those of most: the flow's timestamp, or none. */
static __always_inline bool tbg_is_plain(const struct tbg_flow_locked *f,
					 const struct tbg_pkt *p)
{
	return f->flags & TBG_FLOW_TS ? p->plain_ts : p->no_opt;
}

/* Whether ack stands within the flow's last reply, something of it missing. */
static __always_inline bool tbg_within_reply(const struct tbg_flow_locked *f,
					     __u32 ack)
{
	return ack - f->last.seq < f->last.len && (__s32)(ack - f->acked) >= 0;
}

/*
 * Whether the segment shows that a part of the last reply was lost. With
 * payload it brings the request again, or a part of it: not the stack's to
 * see, which would acknowledge it, and the client would wait for ever.
 * Without, tbg_ingress has looked.
 */
static __always_inline bool tbg_shows_loss(const struct tbg_flow_locked *f,
					   const struct tbg_pkt *p)
{
	__u32 end = f->last.req_seq + f->last.req_len;

	if (!tbg_within_reply(f, p->ack))
		return false;
	if (!p->payload_len)
		return true;
	return (__s32)(p->seq - end) < 0 &&
	       (__s32)(p->seq + p->payload_len - f->last.req_seq) > 0;
}

/*
 * Whether the network has doubled the request, or a segment of it: its reply is on its
 * way, whole, and nothing was lost. Whoever sends again, if so soon, has seen its clock
 * go on; without one, it would begin with the last segment (RFC 8985 7.3).
 */
static __always_inline bool tbg_is_doubled(const struct tbg_flow_locked *f,
					   const struct tbg_pkt *p, __u32 now_ms)
{
	if (!(f->resent & TBG_FRESH) || now_ms - f->repeat_ms >= TBG_AGAIN_MS ||
	    !p->payload_len || p->ack != f->last.seq)
		return false;
	return f->flags & TBG_FLOW_TS ?
	       p->plain_ts && (__s32)(p->tsval - f->tsrecent) <= 0 :
	       p->seq == f->last.req_seq;
}

static __always_inline __u32 tbg_pkt_window(const struct tbg_flow_locked *f,
					    const struct tbg_pkt *p)
{
	return p->window << (f->wscale & 15);
}

/*
 * The window that a segment leaves behind wire's last reply, raw as it came: what it
 * has not acknowledged of that, and the socket will be told it has, takes its share.
 */
static __always_inline __u16 tbg_window_left(const struct tbg_flow_locked *f,
					     const struct tbg_pkt *p)
{
	__u32 missing = tbg_flow_edge(f) - p->ack, shift = f->wscale & 15;
	__u32 window = tbg_pkt_window(f, p);

	if (!f->last.len || missing > TBG_OLD_ACK)
		return p->window;
	return window > missing ? (window - missing) >> shift : 0;
}

/*
 * The most payload of a segment that answers this one. TCP itself fills no more than
 * half of a window with one (tcp_bound_to_half_wnd): a client that has seen longer
 * segments opens its window no more until it has room for another.
 */
static __always_inline __u32 tbg_flow_mss(const struct tbg_flow_locked *f,
					  const struct tbg_pkt *p)
{
	__u32 most = tbg_pkt_window(f, p);

	if (most > TBG_MSS_LEAST)
		most /= 2;
	return f->mss < most ? f->mss : most;
}

/*
 * Whether a segment brings a window that its socket would not believe: smaller
 * than the one it knows, and with the numbers it knows already, which hits have
 * left as they were (tcp_may_update_window), or tbg_tell_window() has shown it.
 * Once it has the segment's payload, it believes what comes.
 */
static __always_inline bool tbg_is_narrow(const struct tbg_flow_locked *f,
					  const struct tbg_pkt *p)
{
	return p->payload_len && tbg_window_left(f, p) < f->heard &&
	       (f->flags & TBG_FLOW_TOLD ||
		p->seq == f->last.req_seq + f->last.req_len) &&
	       p->seq - f->in_delta - f->irs == f->given &&
	       p->ack - f->last.seq <= f->last.len;
}

#endif
