/* SPDX-License-Identifier: GPL-2.0 */
/*
 * May this request be answered here, and taken: what wire asks of a segment and
 * its flow at either hook, from the checksum to the claim, and what it does for
 * each hit.
 */
#ifndef TBG_WIRE_ANSWER_BPF_H
#define TBG_WIRE_ANSWER_BPF_H

#include "../log.bpf.h"
#include "reply.bpf.h"

#define TBG_DIFF_MAX 512	/* bytes that bpf_csum_diff() sums before 7.x */

/* Sum of the len bytes of payload in s->head, 1..TBG_REQ_MAX. */
static __always_inline __u64 tbg_payload_sum(struct tbg_scratch *s, __u64 len)
{
	__u64 sum = 0, n;
	__u32 at;

	/* an odd end is summed as if zeros followed */
	TBG_BOUND(len, TBG_REQ_MAX, return 0);
	__builtin_memset(s->head.b + len, 0, 4);
#pragma unroll
	for (at = 0; at < TBG_REQ_MAX; at += TBG_DIFF_MAX) {
		if (len <= at)
			break;
		n = (len - at + 3) & ~3ull;
		if (n > TBG_DIFF_MAX)
			n = TBG_DIFF_MAX;
		TBG_BOUND(n, TBG_DIFF_MAX, break);
		sum += (__u32)bpf_csum_diff(NULL, 0, (void *)(s->head.b + at), n, 0);
	}
	return sum;
}

/*
 * Whether the checksum holds, for a segment that nobody has checked: payload
 * in s->head, options read here.
 */
static __always_inline bool tbg_csum_holds(struct tbg_frame *frame,
					   struct tbg_scratch *s, __u16 pseudo)
{
	__u64 opt_len = s->pkt.opt_len, sum = pseudo;
	__u32 w[5];
	int i;

	if (tbg_load(frame, s->pkt.l4, w, 20))
		return false;
#pragma unroll
	for (i = 0; i < 5; i++)
		sum += w[i];
	if (opt_len) {
		__builtin_memset(s->opt.opt, 0, TBG_OPT_MAX);
		TBG_BOUND(opt_len, TBG_OPT_MAX, return false);
		if (tbg_load(frame, s->pkt.l4 + 20, s->opt.opt, opt_len))
			return false;
#pragma unroll
		for (i = 0; i < TBG_OPT_MAX / 4; i++)
			sum += *(__u32 *)(s->opt.opt + i * 4);
	}
	if (s->pkt.payload_len)
		sum += tbg_payload_sum(s, s->pkt.payload_len);
	return tbg_csum_fold(sum) == 0xffff;
}

/* Folded sum of the segment's pseudo-header (RFC 9293 3.1). */
static __always_inline __u16 tbg_pseudo(const struct tbg_pkt *p)
{
	return tbg_csum_fold((__u64)p->addr_sum + bpf_htons(IPPROTO_TCP) +
			     bpf_htons(20 + p->opt_len + p->payload_len));
}

/* CHECKSUM_PARTIAL: the field holds the pseudo-header's sum alone. */
static __always_inline bool tbg_is_partial(struct tbg_frame *frame,
					   const struct tbg_pkt *p)
{
	return p->check == tbg_pseudo(p) && tbg_frame_partial(frame);
}

/*
 * 0: the checksum is right or will be made by a device (CHECKSUM_PARTIAL: the
 * field holds the pseudo-header's sum). 1: it is right, but was verified in
 * software. -1: wrong.
 */
__attribute__((noinline)) int tbg_csum_check(struct tbg_frame *frame,
					     struct tbg_scratch *s)
{
	if (!s)
		return -1;
	if (tbg_is_partial(frame, &s->pkt))
		return 0;
	if (tbg_frame_verified(frame))
		return 0;
	return tbg_csum_holds(frame, s, tbg_pseudo(&s->pkt)) ? 1 : -1;
}

/*
 * The same of a segment whose payload, TBG_REQ_MAX bytes at most, is not in
 * s->head yet: it is afterwards.
 */
__attribute__((noinline)) int tbg_segment_check(struct tbg_frame *frame,
						struct tbg_scratch *s)
{
	__u64 len;

	if (!s)
		return -1;
	len = s->pkt.payload_len;
	if (len > TBG_REQ_MAX)	/* too long to be summed here */
		return tbg_frame_verified(frame) || tbg_is_partial(frame, &s->pkt) ?
		       0 : -1;
	if (len) {
		TBG_BOUND(len, TBG_REQ_MAX, return -1);
		if (tbg_load(frame, s->pkt.payload, s->head.b, len))
			return -1;
	}
	return tbg_csum_check(frame, s);
}

/* Whether the checksum holds, of a segment whose payload nobody asks for. */
static __always_inline bool tbg_segment_sound(struct tbg_frame *frame,
					      struct tbg_scratch *s)
{
	return tbg_is_partial(frame, &s->pkt) || tbg_frame_verified(frame) ||
	       tbg_segment_check(frame, s) >= 0;
}

/* What a connection's socket has answered: the daemon, and sock if it may. */
struct tbg_answered {
	const struct tbg_conn_word *conn;
	const struct tbg_sock_conn *sock;	/* or NULL */
};

/* Of the flow with that slot. Its socket's slot in sock may be another's by now. */
static __always_inline struct tbg_answered
tbg_answered(const struct tbg_conn_word *conn, __u32 slot)
{
	struct tbg_answered ret = { .conn = conn };
	__u32 at = *(const volatile __u32 *)&conn->sock;

	if (at--)
		ret.sock = bpf_map_lookup_elem(&tbg_sock_conns, &at);
	if (ret.sock && *(const volatile __u32 *)&ret.sock->wire != slot + 1)
		ret.sock = NULL;
	return ret;
}

/* The half of the idle equation that can be told before the request is read. */
static __always_inline int tbg_idle(const struct tbg_flow_locked *f,
				    const struct tbg_pkt *p,
				    const struct tbg_answered *a)
{
	__u64 word = *(const volatile __u64 *)&a->conn->word;
	__u64 hits = a->sock ? *(const volatile __u64 *)&a->sock->hits : 0;
	__u32 at = p->seq - f->in_delta - f->irs;

	if (at != f->given ||
	    f->given != TBG_CONN_TAKEN(word) + TBG_CONN_TAKEN(hits))
		return TBG_WHY_BUSY;
	if (p->ack - f->out_delta - f->iss !=
	    TBG_CONN_WRITTEN(word) + TBG_CONN_WRITTEN(hits))
		return TBG_WHY_UNACKED;
	return 0;
}

/*
 * Whether the connection allows an answer to this segment at all: 0 or a why.
 * What was lost is repeated even behind a FIN.
 */
static __always_inline int tbg_may_answer(struct tbg_frame *frame,
					  const struct tbg_flow_locked *f,
					  const struct tbg_pkt *p, bool lost)
{
	__u8 may = TBG_TCP_PSH | (lost ? TBG_TCP_FIN : 0);

	if (p->odd)
		return TBG_WHY_IP_ODD;
	if (p->ce || p->ae || (p->tcp_flags & ~may) != TBG_TCP_ACK)
		return TBG_WHY_FLAGS;
	if (f->flags & TBG_FLOW_RST)
		return TBG_WHY_CLOSING;
	if (tbg_frame_ifindex(frame) != f->ifindex)
		return TBG_WHY_IFACE;
	return 0;
}

/* 0 or a why: all but the request itself lets wire answer what is not a repeat. */
static __always_inline int tbg_may_hit(const struct tbg_knob *knob,
				       const struct tbg_flow_locked *f,
				       const struct tbg_pkt *p,
				       const struct tbg_answered *a)
{
	if (f->flags & TBG_FLOW_CLOSED)
		return TBG_WHY_CLOSING;
	if (f->flags & TBG_FLOW_LEFT)
		return TBG_WHY_LEFT;
	if (!knob->answer)
		return TBG_WHY_OFF;
	if (!p->payload_len)
		return TBG_WHY_CONTROL;
	if (!tbg_is_plain(f, p))
		return TBG_WHY_TCP_ODD;
	/* an old duplicate (RFC 7323 5.3) */
	if (p->plain_ts && (__s32)(p->tsval - f->tsrecent) < 0)
		return TBG_WHY_TCP_ODD;
	return tbg_idle(f, p, a);
}

struct tbg_tell {
	__u32 seq, ack;
	bool needed;
};

/*
 * Takes the exchange for wire: the idle equation once more, now under the
 * lock, and the deltas with it. 0 or a why. *ret_tell is set to the socket's
 * numbers of an acknowledgement that the request carries for it, if the socket
 * does not have that yet; where XDP answers, which cannot tell it, that is a why.
 */
static __always_inline int tbg_claim(struct tbg_flow_locked *f,
				     const struct tbg_pkt *p,
				     struct tbg_reply *r,
				     struct tbg_conn_word *conn,
				     const struct tbg_answered *a, __u64 now_ns,
				     struct tbg_tell *ret_tell, bool xdp)
{
	__u32 now_ms = now_ns / 1000000, acked;
	int why;

	bpf_spin_lock(&f->lock);
	why = tbg_idle(f, p, a);
	if (!why && f->flags & (TBG_FLOW_CLOSED | TBG_FLOW_LEFT))
		why = TBG_WHY_RACE;
	acked = p->ack - f->out_delta - f->iss;
	if (xdp && acked != f->told)
		why = TBG_WHY_UNTOLD;
	if (!why) {
		ret_tell->needed = acked != f->told;
		ret_tell->seq = p->seq - f->in_delta;
		ret_tell->ack = p->ack - f->out_delta;
		if (ret_tell->needed)
			f->heard = p->window;
		f->told = acked;
		tbg_reply_flow(r, f, now_ms);
		r->first_seq = p->ack;
		r->acks[0] = p->seq;
		r->acks[1] = p->seq + p->payload_len;
		r->tsecr = p->tsval;
		f->tsrecent = p->tsval;
		f->in_delta += p->payload_len;
		f->out_delta += r->len;
		f->acked = p->ack;
		f->seen_ns = now_ns;
		f->last.req_seq = p->seq;
		f->last.req_len = p->payload_len;
		f->last.seq = p->ack;
		f->last.len = r->len;
		f->last.blob = r->blob;
		f->last.gen = r->gen;
		f->last.date_s = r->date_s;
		f->last.part = r->part_id;
		f->last.seg = r->seg;
		f->resent = TBG_FRESH;
		f->repeat_ms = now_ms;
		f->dups = 0;
		f->way = (f->way & ~TBG_WAY_XDP) | (xdp ? TBG_WAY_XDP : 0);
		conn->sent_ms = now_ms | 1;
	}
	bpf_spin_unlock(&f->lock);
	return why;
}

/* The request again, in a frame that was made ready for the reply. */
static __always_inline void tbg_request_restore(struct tbg_frame *frame,
						const struct tbg_scratch *s)
{
	const struct tbg_pkt *p = &s->pkt;
	__u64 len = p->payload_len;

	/* what was cut off is zeros now */
	tbg_frame_resize(frame, p->payload + p->payload_len);
	TBG_BOUND(len, TBG_REQ_MAX, return);
	tbg_store(frame, p->payload, s->head.b, len);
}

/* A reply is on its way: what the cache, the log and the counters want of it. */
static __always_inline void tbg_hit_note(struct tbg_scratch *s,
					 const struct tbg_knob *knob)
{
	const struct tbg_reply *r = &s->reply;

	tbg_reply_heat(r);
	if (knob->log)
		tbg_log_hit(s, TBG_TIER_wire);
	tbg_count_sent(TBG_WHY_HIT_WIRE, r->len);
}

#endif
