/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Decides whether wire may answer a request and takes it: checks the idle
 * equation of a flow with a socket, first without and then under the flow's
 * lock.
 */
#ifndef TBG_TRANSLATE_CLAIM_BPF_H
#define TBG_TRANSLATE_CLAIM_BPF_H

#include "flow.bpf.h"
#include "../wire/answer.bpf.h"

/*
 * Conntrack forgets a connection of which it sees no packets, and a firewall then drops
 * the next miss. So at least one request in this time is passed up.
 */
#define TBG_REFRESH_MS 30000

/* What has been answered through a connection's socket: by the daemon, and by sock. */
struct tbg_answered {
	const struct tbg_conn_word *conn;
	const struct tbg_sock_conn *sock;	/* or NULL */
};

/*
 * Reads the counts of the flow with this slot. The slot of its socket in sock may belong
 * to another socket by now.
 */
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

/* The part of the idle equation that does not need the request. */
static __always_inline int tbg_idle(const struct tbg_flow *f,
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
 * Whether the state of the connection allows an answer to this segment: 0 or
 * a why. Lost replies are retransmitted even after a FIN.
 */
static __always_inline int tbg_may_answer(struct tbg_frame *frame,
					  const struct tbg_flow *f,
					  const struct tbg_pkt *p, bool lost)
{
	__u8 may = TBG_TCP_PSH | (lost ? TBG_TCP_FIN : 0);

	if (p->odd)
		return TBG_WHY_IP_ODD;
	if (p->ecn == TBG_CE || p->ae || (p->tcp_flags & ~may) != TBG_TCP_ACK)
		return TBG_WHY_FLAGS;
	if (f->flags & TBG_FLOW_RST || f->way & TBG_WAY_LOST)
		return TBG_WHY_CLOSING;
	if (tbg_frame_ifindex(frame) != f->ifindex)
		return TBG_WHY_IFACE;
	return 0;
}

/* Checks all conditions except the request itself, for a new request. Returns 0 or a why. */
static __always_inline int tbg_may_hit(const struct tbg_knob *knob,
				       const struct tbg_flow *f,
				       const struct tbg_pkt *p,
				       const struct tbg_answered *a, __u32 now_ms)
{
	if (f->flags & TBG_FLOW_CLOSED)
		return TBG_WHY_CLOSING;
	if (f->flags & TBG_FLOW_LEFT)
		return TBG_WHY_LEFT;
	if (!tbg_wire_answers(knob))
		return TBG_WHY_OFF;
	if (!p->payload_len)
		return TBG_WHY_CONTROL;
	/* another CPU may have read the clock later */
	if ((__s32)(now_ms - f->up_ms) > TBG_REFRESH_MS)
		return TBG_WHY_REFRESH;
	if (!tbg_is_plain(f, p))
		return TBG_WHY_TCP_ODD;
	/* an old duplicate (RFC 7323 5.3) */
	if (p->plain_ts && (__s32)(p->tsval - f->tsrecent) < 0)
		return TBG_WHY_TCP_ODD;
	return tbg_idle(f, p, a);
}

struct tbg_bare_ack {
	__u32 seq, ack;
	bool needed;
};

/*
 * Claims the exchange for wire: checks the idle equation again under the lock and
 * adds to the deltas. Returns 0 or a why. If the request carries an
 * acknowledgement that the socket does not have yet, *ret_ack is set to its
 * numbers, as the socket's. XDP cannot pass it on, so there this is a why.
 */
static __always_inline int tbg_claim(struct tbg_flow *f,
				     const struct tbg_pkt *p,
				     struct tbg_reply *r,
				     struct tbg_conn_word *conn,
				     const struct tbg_answered *a, __u64 now_ns,
				     struct tbg_bare_ack *ret_ack, bool xdp)
{
	__u32 now_ms = now_ns / 1000000, acked;
	int why;

	bpf_spin_lock(&f->lock);
	why = tbg_idle(f, p, a);
	if (!why && f->flags & (TBG_FLOW_CLOSED | TBG_FLOW_LEFT))
		why = TBG_WHY_RACE;
	acked = p->ack - f->out_delta - f->iss;
	if (xdp && acked != f->known)
		why = TBG_WHY_UNTOLD;
	if (!why) {
		ret_ack->needed = acked != f->known;
		ret_ack->seq = p->seq - f->in_delta;
		ret_ack->ack = p->ack - f->out_delta;
		if (ret_ack->needed)
			f->heard = p->window;
		f->known = acked;
		tbg_reply_flow(r, f, now_ms);
		r->may_fragment = !f->df;
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

#endif
