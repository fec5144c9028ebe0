/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Decides whether wire may answer a request on its connection, finds the reply and claims
 * the sequence numbers; for both hooks.
 */
#ifndef TBG_WIRE_CLAIM_BPF_H
#define TBG_WIRE_CLAIM_BPF_H

#include "answer.bpf.h"
#include "crowd.bpf.h"
#include "kept.bpf.h"

/*
 * Returns 0 if the connection allows wire to answer a request at its next byte, else a
 * reason.
 */
static __always_inline int tbg_may_hit(const struct tbg_knob *knob,
				       const struct tbg_tcb *f,
				       const struct tbg_pkt *p)
{
	if (p->odd)
		return TBG_WHY_IP_ODD;
	if (p->ecn == TBG_CE || p->ae || (p->tcp_flags & ~TBG_TCP_PSH) != TBG_TCP_ACK)
		return TBG_WHY_FLAGS;
	if (f->flags & TBG_TCB_LOSSY)
		return TBG_WHY_LEFT;
	if (!tbg_wire_answers(knob))
		return TBG_WHY_OFF;
	/* routes have changed: see tbg_way_renew() */
	if (f->ways != knob->ways)
		return TBG_WHY_IFACE;
	if (!tbg_is_plain(f, p))
		return TBG_WHY_TCP_ODD;
	if (p->ack != f->snd_nxt)
		return TBG_WHY_UNACKED;
	if (p->payload_len > TBG_REQ_MAX)
		return TBG_WHY_GRAMMAR;
	return 0;
}

/*
 * Claims the exchange: checks under the lock once more that nothing is outstanding, and
 * advances the sequence numbers. xdp: the reply leaves there. Returns 0 or a reason.
 */
static __always_inline int tbg_claim(const struct tbg_tcb_key *key, struct tbg_tcb *f,
				     const struct tbg_pkt *p, struct tbg_reply *r, __u32 now_ms,
				     bool xdp)
{
	bool left = false;
	int why = 0;

	bpf_spin_lock(&f->lock);
	if (f->state != TBG_TCB_OPEN || p->seq != f->rcv_nxt || p->ack != f->snd_nxt)
		why = TBG_WHY_RACE;
	if (!why) {
		tbg_reply_flow(r, f, now_ms);
		r->may_fragment = !(f->flags & TBG_TCB_DF);
		r->first_seq = p->ack;
		r->acks[0] = p->seq;
		r->acks[1] = p->seq + p->payload_len;
		r->tsecr = p->tsval;
		f->tsrecent = p->tsval;
		f->rcv_nxt += p->payload_len;
		f->snd_nxt += tbg_reply_total(r);
		f->acked = p->ack;
		f->seen_ms = now_ms;
		f->last.req_seq = p->seq;
		f->last.req_len = p->payload_len;
		f->last.seq = p->ack;
		f->last.len = tbg_reply_total(r);
		f->last.blob = r->blob;
		f->last.gen = r->gen;
		f->last.date_s = r->date_s;
		f->last.part = r->part_id | r->persist << 8;
		f->last.seg = r->seg + r->line_len;
		f->resent = TBG_FRESH;
		f->repeat_ms = now_ms;
		f->tries = 0;
		f->dups = 0;
		f->answers++;
		f->tried = (f->tried & ~TBG_TCB_XDP) | (xdp ? TBG_TCB_XDP : 0);
		if (r->persist == TBG_PERSIST_NOT) {
			f->state = TBG_TCB_FIN_WAIT;
			left = tbg_crowd_left(f);
			r->more = TBG_TCP_FIN;
		}
	}
	bpf_spin_unlock(&f->lock);
	if (left)
		tbg_crowd_leave(key);
	return why;
}

/* Copies the request into s->head, unless it is there already. Its reply has been found. */
static __always_inline void tbg_request_fetch(struct tbg_scratch *s)
{
	if (!s->pkt.loaded)
		tbg_kept_load(s);
}

/*
 * Reads the number of changes of the cache, before all that the search reads: an exchange is a
 * barrier. It is one with memory of this CPU, since all CPUs read the knob for each hit.
 */
static __always_inline void tbg_published_read(struct tbg_scratch *s, const struct tbg_knob *knob)
{
	__sync_lock_test_and_set(&s->published, *(volatile __u64 *)&knob->published);
}

/*
 * Finds the reply to the request in the frame, which is parsed into s->pkt, as tbg_find(), and
 * chooses its Connection line. The slot may hold another response by now; this is detected when
 * the reply is written. keep: may use and keep the answers in kept.bpf.h, where s->head is not
 * filled; see tbg_request_fetch().
 */
static __always_inline int tbg_hit_find(struct tbg_frame *frame, struct tbg_scratch *s,
					const struct tbg_knob *knob, bool keep)
{
	int why = tbg_find_may(s, knob);
	struct tbg_blob *blob;

	if (why)
		return why;
	s->digest = 0;
	if (keep && !tbg_frame_gather(frame, s->pkt.payload + s->pkt.payload_len) &&
	    tbg_kept_find(frame, s, knob))
		return 0;
	if (keep)
		tbg_published_read(s, knob);
	if (tbg_request_load(frame, s))
		return TBG_WHY_GRAMMAR;
	why = tbg_find_reply(s, s->pkt.payload_len);
	if (why)
		return why;
	blob = tbg_blob_get(s->reply.blob);
	if (!blob)
		return TBG_WHY_BLOB;
	tbg_reply_persist(&s->reply, blob, tbg_request_persist(s->req.flags));
	if (keep && s->digest)
		tbg_kept_keep(s);
	return 0;
}

#endif
