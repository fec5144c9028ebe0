/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a flow's numbers say of it and of a segment. No flow is changed here:
 * that is for who takes its lock.
 */
#ifndef TBG_WIRE_FLOW_BPF_H
#define TBG_WIRE_FLOW_BPF_H

#include "packet.bpf.h"

/* A connection as its way has it: with a socket, or (TBG_TRANSLATE not defined) without. */
#ifdef TBG_TRANSLATE
#define tbg_line tbg_flow
#define TBG_AGAIN_MAX TBG_SEG_MAX
#else
#include "tcb.bpf.h"
#define tbg_line tbg_tcb
/* Segments that a reply may be cut into once more, the path's MTU having shrunk. */
#define TBG_AGAIN_MAX 15
#endif

#define TBG_MSS_LEAST 536	/* of whoever names none (RFC 9293 3.7.1) */
#define TBG_TIGHT 4096		/* a window that a client on this machine may not open */
#define TBG_XDP_TIGHT 8192	/* the driver's frames take more of its memory */
#define TBG_OLD_ACK 65535	/* older than any window: challenged (RFC 5961 5.2) */

static __always_inline __u32 tbg_now_ms(void)
{
	return bpf_ktime_get_ns() / 1000000;
}

/* The later of two sequence numbers (RFC 9293 3.4). */
static __always_inline __u32 tbg_seq_max(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0 ? a : b;
}

/* Whether the segment's options are those of most: the flow's timestamp, or none. */
static __always_inline bool tbg_is_plain(const struct tbg_line *f,
					 const struct tbg_pkt *p)
{
	return f->flags & TBG_FLOW_TS ? p->plain_ts : p->no_opt;
}

/* Whether ack stands within the flow's last reply, something of it missing. */
static __always_inline bool tbg_within_reply(const struct tbg_line *f,
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
static __always_inline bool tbg_shows_loss(const struct tbg_line *f,
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
static __always_inline bool tbg_is_doubled(const struct tbg_line *f,
					   const struct tbg_pkt *p, __u32 now_ms)
{
	if (!(f->resent & TBG_FRESH) || now_ms - f->repeat_ms >= TBG_AGAIN_MS ||
	    !p->payload_len || p->ack != f->last.seq)
		return false;
	return f->flags & TBG_FLOW_TS ?
	       p->plain_ts && (__s32)(p->tsval - f->tsrecent) <= 0 :
	       p->seq == f->last.req_seq;
}

static __always_inline __u32 tbg_pkt_window(const struct tbg_line *f,
					    const struct tbg_pkt *p)
{
	return p->window << (f->wscale & 15);
}

/*
 * The most payload of a segment that answers this one. TCP itself fills no more than
 * half of a window with one (tcp_bound_to_half_wnd): a client that has seen longer
 * segments opens its window no more until it has room for another.
 */
static __always_inline __u32 tbg_flow_mss(const struct tbg_line *f,
					  const struct tbg_pkt *p)
{
	__u32 most = tbg_pkt_window(f, p);

	if (most > TBG_MSS_LEAST)
		most /= 2;
	return f->mss < most ? f->mss : most;
}

#endif
