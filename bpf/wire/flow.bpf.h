/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the numbers of a connection and of a segment mean. Nothing here changes a
 * connection: only code that holds its lock may do so.
 */
#ifndef TBG_WIRE_FLOW_BPF_H
#define TBG_WIRE_FLOW_BPF_H

#include "packet.bpf.h"

/* The state of a connection: of one with a socket (TBG_TRANSLATE defined), or without one. */
#ifdef TBG_TRANSLATE
#define tbg_line tbg_flow
#define TBG_AGAIN_MAX TBG_SEG_MAX
#else
#include "tcb.bpf.h"
#define tbg_line tbg_tcb
/* Most segments of a repeated reply: more than at first, if the path's MTU has shrunk. */
#define TBG_AGAIN_MAX 15
#endif

#define TBG_MSS_LEAST 536	/* of a peer that sends no MSS option (RFC 9293 3.7.1) */
#define TBG_TIGHT 4096		/* smaller windows of a client on this machine may not open again */
#define TBG_XDP_TIGHT 8192	/* the same with XDP: its frames take more memory */
#define TBG_OLD_ACK 65535	/* an older ACK gets a challenge ACK (RFC 5961 5.2) */

static __always_inline __u32 tbg_now_ms(void)
{
	return bpf_ktime_get_ns() / 1000000;
}

/* Reads the clock, once for each segment. */
static __always_inline void tbg_clock_read(struct tbg_scratch *s)
{
	s->now_ns = bpf_ktime_get_ns();
	s->now_ms = s->now_ns / 1000000;
}

/* Returns the later of two sequence numbers (RFC 9293 3.4). */
static __always_inline __u32 tbg_seq_max(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0 ? a : b;
}

/*
 * Returns whether the segment has just the options expected: a timestamp where
 * negotiated, else none.
 */
static __always_inline bool tbg_is_plain(const struct tbg_line *f,
					 const struct tbg_pkt *p)
{
	return f->flags & TBG_FLOW_TS ? p->plain_ts : p->no_opt;
}

/*
 * Returns whether ack is within the connection's last reply, a part of which is not
 * acknowledged.
 */
static __always_inline bool tbg_within_reply(const struct tbg_line *f,
					     __u32 ack)
{
	return ack - f->last.seq < f->last.len && (__s32)(ack - f->acked) >= 0;
}

/*
 * Returns whether the segment shows that a part of the last reply was lost. A segment
 * with payload does if it repeats the request or a part of it. The stack must not see
 * that: it would only acknowledge it, and the client would never get the reply.
 * tbg_ingress has checked those without payload.
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
 * Returns whether the network has duplicated the request or a segment of it: the whole
 * reply is under way, and nothing was lost. A client that retransmits, even this early,
 * sends a newer TSval. Without timestamps, an early retransmission is a tail loss
 * probe, which repeats only the last segment (RFC 8985 7.3).
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
 * Returns the most payload of a segment that answers this one. TCP fills at most half
 * of a window with one segment (tcp_bound_to_half_wnd): a client that has received
 * longer ones opens its window again only once another of that length fits.
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
