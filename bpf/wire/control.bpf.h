/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Segments without a request on wire's connections: acknowledgements, FINs, resets,
 * SYNs, probes (RFC 9293 3.10.7, RFC 5961, RFC 7323 5). Answers them as the kernel's
 * TCP would, and passes up only segments of connections that the kernel has taken over.
 */
#ifndef TBG_WIRE_CONTROL_BPF_H
#define TBG_WIRE_CONTROL_BPF_H

#include "repeat.bpf.h"

/* Returns the size of our receive window in bytes. */
static __always_inline __u32 tbg_tcb_window(const struct tbg_tcb *f)
{
	return bpf_ntohs(f->win) << (f->wscale >> 4);
}

/* Returns whether our FIN is acknowledged: this is the last segment of a closed connection. */
static __always_inline bool tbg_fin_acked(const struct tbg_tcb *f,
					  const struct tbg_pkt *p)
{
	return tbg_tcb_fin(f) && p->tcp_flags & TBG_TCP_ACK && p->ack == tbg_tcb_next(f);
}

/*
 * Returns whether seq is what every segment but the last one of an unacknowledged reply
 * acknowledges. A client that has closed its socket remembers nothing else: it takes
 * the number of its reset from the segment that it answers.
 */
static __always_inline bool tbg_rst_of_reply(const struct tbg_tcb *f, __u32 seq)
{
	return seq == f->last.req_seq && f->acked - f->last.seq < f->last.len;
}

/*
 * A reset is accepted only with the next sequence number (RFC 5961 3.2), or with that
 * of the client's FIN (macOS sends these), or as the answer to a reply of many
 * segments.
 */
static __always_inline int tbg_on_rst(struct __sk_buff *skb, struct tbg_scratch *s,
				      const struct tbg_tcb_key *key,
				      struct tbg_tcb *f)
{
	__u32 ahead = s->pkt.seq - f->rcv_nxt;

	if (!ahead || (ahead == -1u && tbg_tcb_fin(f) && f->state != TBG_TCB_FIN_WAIT) ||
	    tbg_rst_of_reply(f, s->pkt.seq)) {
		tbg_tcb_forget(key, f);
		tbg_count(TBG_WHY_CLOSING);
		return TC_ACT_SHOT;
	}
	if (ahead < tbg_tcb_window(f))
		return tbg_bare_challenge(skb, s, key, f);
	tbg_count(TBG_WHY_DROPPED);
	return TC_ACT_SHOT;
}

/*
 * The client's FIN, in order. It is answered with ours at once: nothing is left to
 * send, except perhaps repeats of the last reply, which go on. The entry stays until
 * our FIN is acknowledged, or for the time of TIME_WAIT if there is room.
 */
static __always_inline int tbg_on_fin(struct __sk_buff *skb, struct tbg_scratch *s,
				      const struct tbg_tcb_key *key, struct tbg_tcb *f)
{
	struct tbg_pkt *p = &s->pkt;
	__u32 now_ms = s->now_ms, seq, ack, sent, flags = 0;
	bool left, owed, waits = false;
	int act;

	bpf_spin_lock(&f->lock);
	sent = tbg_tcb_next(f);
	if (p->seq == f->rcv_nxt && f->state == TBG_TCB_OPEN) {
		f->rcv_nxt++;
		f->state = TBG_TCB_LAST_ACK;
		f->tries = 0;
	} else if (p->seq == f->rcv_nxt && f->state == TBG_TCB_FIN_WAIT) {
		f->rcv_nxt++;
		f->state = TBG_TCB_TIME_WAIT;
		waits = true;
	}
	/* this may acknowledge our own FIN too, if that was sent before */
	if ((__s32)(p->ack - f->acked) > 0 && (__s32)(p->ack - sent) <= 0)
		f->acked = p->ack;
	if (p->timed && (__s32)(p->tsval - f->tsrecent) > 0)
		f->tsrecent = p->tsval;
	f->seen_ms = now_ms;
	seq = tbg_tcb_next(f);
	ack = f->rcv_nxt;
	/* repeat our FIN: the client has not seen it yet, or the two have crossed */
	if (p->ack != tbg_tcb_next(f) &&
	    (f->state == TBG_TCB_LAST_ACK || f->state == TBG_TCB_TIME_WAIT)) {
		flags = TBG_TCP_FIN;
		seq = f->snd_nxt;
	}
	left = f->state != TBG_TCB_OPEN && tbg_crowd_left(f);
	owed = tbg_tcb_owes(f);
	bpf_spin_unlock(&f->lock);
	if (left)
		tbg_crowd_leave(key);
	if (owed)
		tbg_due(key);
	tbg_count(TBG_WHY_FIN);
	act = tbg_bare_send(skb, s, f, seq, ack, flags);
	/* without our FIN's acknowledgement it has to be repeated */
	if (waits && !flags && !owed && !tbg_tcb_keeps())
		tbg_tcb_forget(key, f);
	return act;
}

/*
 * Data after our FIN. Nobody reads it, but it is acknowledged: else the client would
 * repeat it and never reach its own FIN.
 */
static __always_inline int tbg_on_data(struct __sk_buff *skb, struct tbg_scratch *s,
				       const struct tbg_tcb_key *key, struct tbg_tcb *f)
{
	struct tbg_pkt *p = &s->pkt;
	__u32 end = p->seq + p->payload_len, now_ms = s->now_ms, seq, ack;
	bool owed, waits = false;
	int act;

	bpf_spin_lock(&f->lock);
	if (f->state == TBG_TCB_FIN_WAIT && (__s32)(p->seq - f->rcv_nxt) <= 0 &&
	    (__s32)(end - f->rcv_nxt) > 0) {
		f->rcv_nxt = end;
		f->seen_ms = now_ms;
		if (p->tcp_flags & TBG_TCP_FIN) {
			f->rcv_nxt++;
			f->state = TBG_TCB_TIME_WAIT;
			waits = true;
		}
	}
	if (p->ack - f->acked <= tbg_tcb_next(f) - f->acked)
		f->acked = p->ack;
	seq = tbg_tcb_next(f);
	ack = f->rcv_nxt;
	owed = tbg_tcb_owes(f);
	/* otherwise it has to repeat our FIN */
	waits = waits && f->acked == seq;
	bpf_spin_unlock(&f->lock);
	if (owed)
		tbg_due(key);
	tbg_count(TBG_WHY_CLOSING);
	act = tbg_bare_send(skb, s, f, seq, ack, 0);
	if (waits && !tbg_tcb_keeps())
		tbg_tcb_forget(key, f);
	return act;
}

/*
 * Returns whether a SYN begins a new connection on the addresses and ports of a closed
 * one, by the rules of tcp_timewait_state_process() (RFC 9293 3.10.7.4, RFC 6191).
 */
static __always_inline bool tbg_syn_is_next(const struct tbg_scratch *s,
					    const struct tbg_tcb *f)
{
	bool timed = f->flags & TBG_FLOW_TS && s->opt.flags & TBG_OPT_TS;
	__s32 newer = s->opt.tsval - f->tsrecent;

	if (f->state != TBG_TCB_TIME_WAIT || (timed && newer < 0))
		return false;
	return (__s32)(s->pkt.seq - f->rcv_nxt) > 0 || (timed && newer > 0);
}

/*
 * What an acknowledgement means for the last reply: progress, a loss, or the end of the
 * connection.
 */
enum tbg_ack { TBG_ACK_NEWS, TBG_ACK_LOSS, TBG_ACK_OVER };

static __always_inline enum tbg_ack tbg_on_ack(struct __sk_buff *skb, struct tbg_scratch *s,
					       const struct tbg_tcb_key *key,
					       struct tbg_tcb *f)
{
	struct tbg_pkt *p = &s->pkt;
	bool plain = tbg_is_plain(f, p), sack, sooner = false;
	enum tbg_ack ret = TBG_ACK_NEWS;

	sack = !plain && tbg_pkt_options(skb, s)->sack_nr;
	bpf_spin_lock(&f->lock);
	if ((__s32)(p->ack - f->acked) > 0) {
		f->acked = p->ack;
		f->dups = 0;
		sooner = f->tries && tbg_within_reply(f, p->ack);
		f->tries = 0;
		/*
		 * a partial acknowledgement after a repeat: the next segment was lost
		 * too (RFC 6582)
		 */
		if (f->flags & TBG_TCB_LOSSY && tbg_within_reply(f, p->ack))
			ret = TBG_ACK_LOSS;
	} else if (tbg_within_reply(f, p->ack) && f->dups < TBG_DUPS) {
		f->dups++;
	}
	if (tbg_within_reply(f, p->ack) && (sack || f->dups == TBG_DUPS))
		ret = TBG_ACK_LOSS;
	if (plain && p->plain_ts && p->seq == f->rcv_nxt &&
	    (__s32)(p->tsval - f->tsrecent) > 0)
		f->tsrecent = p->tsval;
	if (f->state == TBG_TCB_LAST_ACK && p->ack == tbg_tcb_next(f))
		ret = TBG_ACK_OVER;
	bpf_spin_unlock(&f->lock);
	/* the daemon still waits for the previous, longer timeout */
	if (sooner)
		tbg_due(key);
	return ret;
}

/*
 * A segment of a connection that has a socket by now. Passes it up. Returns TBG_NOT_YET
 * if it shows that the last reply was lost: wire sent that one, and the socket knows
 * nothing of it.
 */
static __always_inline int tbg_on_socket(struct __sk_buff *skb, struct tbg_scratch *s,
					 const struct tbg_tcb_key *key, struct tbg_tcb *f)
{
	struct tbg_pkt *p = &s->pkt;
	bool owed;

	if (!(p->tcp_flags & TBG_TCP_ACK) || p->tcp_flags & (TBG_TCP_SYN | TBG_TCP_RST))
		goto pass;
	owed = p->ack - f->last.seq < f->last.len;
	if (owed && p->payload_len && tbg_shows_loss(f, p))
		return TBG_NOT_YET;
	if (owed && !p->payload_len && !(p->tcp_flags & TBG_TCP_FIN) &&
	    tbg_on_ack(skb, s, key, f) == TBG_ACK_LOSS)
		return TBG_NOT_YET;
	if (f->acked != f->snd_nxt && (__s32)(p->ack - f->acked) > 0) {
		bpf_spin_lock(&f->lock);
		f->acked = (__s32)(p->ack - f->snd_nxt) < 0 ? p->ack : f->snd_nxt;
		bpf_spin_unlock(&f->lock);
	}
	if (owed)
		tbg_ack_raise(skb, p, f);
pass:
	tbg_count(TBG_WHY_HANDED);
	return TBG_PASS;
}

/* Resets a connection that neither wire nor the kernel can continue. */
static __always_inline int tbg_hand_reset(struct __sk_buff *skb, struct tbg_scratch *s,
					  const struct tbg_tcb_key *key,
					  struct tbg_tcb *f)
{
	tbg_count(TBG_WHY_HAND_LOST);
	return tbg_tcb_reset(skb, s, key, f);
}

/*
 * Closes a connection with our FIN, as an idle one, because no listener is left to
 * answer its request. The client keeps all it has received so far and can ask another
 * server.
 */
static __always_inline int tbg_hand_close(struct __sk_buff *skb, struct tbg_scratch *s,
					  const struct tbg_tcb_key *key, struct tbg_tcb *f)
{
	__u32 now_ms = s->now_ms, seq, ack;
	struct tbg_pkt *p = &s->pkt;
	bool left, owed;

	bpf_spin_lock(&f->lock);
	if (f->state == TBG_TCB_OPEN || f->state == TBG_TCB_HANDED) {
		f->state = TBG_TCB_FIN_WAIT;
		f->seen_ms = now_ms;
		f->tries = 0;
		if (p->seq == f->rcv_nxt) {
			f->rcv_nxt += p->payload_len;
			if (p->tcp_flags & TBG_TCP_FIN) {
				f->rcv_nxt++;
				f->state = TBG_TCB_LAST_ACK;
			}
		}
		if (p->ack - f->acked <= f->snd_nxt - f->acked)
			f->acked = p->ack;
	}
	seq = f->snd_nxt;
	ack = f->rcv_nxt;
	left = tbg_crowd_left(f);
	owed = tbg_tcb_owes(f);
	bpf_spin_unlock(&f->lock);
	if (left)
		tbg_crowd_leave(key);
	if (owed)
		tbg_due(key);
	tbg_count(TBG_WHY_CLOSING);
	return tbg_bare_send(skb, s, f, seq, ack, TBG_TCP_FIN);
}

/* Does what the return value of tbg_hand_over() asks for. Returns a TC action. */
static __always_inline int tbg_hand_end(struct __sk_buff *skb, struct tbg_scratch *s,
					const struct tbg_tcb_key *key, struct tbg_tcb *f,
					int act)
{
	if (act == TBG_HAND_RESET)
		return tbg_hand_reset(skb, s, key, f);
	return act == TBG_HAND_CLOSE ? tbg_hand_close(skb, s, key, f) : act;
}

/*
 * A segment of a connection that the kernel may have a socket for. Returns a TC action,
 * or TBG_NOT_YET if it is still wire's.
 */
static __always_inline int tbg_on_shared(struct __sk_buff *skb, struct tbg_scratch *s,
					 const struct tbg_tcb_key *key,
					 struct tbg_tcb *f)
{
	if (f->state == TBG_TCB_HANDED) {
		int act = tbg_handed(skb, s, key, f);

		if (act == TBG_HAND_CONTROL)
			return TBG_NOT_YET;
		return act == TBG_NOT_YET ? tbg_on_socket(skb, s, key, f) :
		       tbg_hand_end(skb, s, key, f, act);
	}
	if (f->state != TBG_TCB_GIVING)
		return TBG_NOT_YET;
	bpf_spin_lock(&f->lock);
	if (f->state == TBG_TCB_GIVING)
		f->undone = 1;
	bpf_spin_unlock(&f->lock);
	tbg_count(TBG_WHY_GIVE_LATE);
	return TBG_PASS;
}

/*
 * A segment without payload of wire's connection f. Returns a TC action, or TBG_NOT_YET
 * if it shows a loss: tbg_answer repeats the reply.
 */
static __always_inline int tbg_control(struct __sk_buff *skb, struct tbg_scratch *s,
				       const struct tbg_tcb_key *key,
				       struct tbg_tcb *f)
{
	struct tbg_pkt *p = &s->pkt;
	__u32 ahead;

	if (!tbg_segment_sound(skb, s)) {
		tbg_count(TBG_WHY_CSUM);
		return TC_ACT_SHOT;
	}
	if (p->tcp_flags & TBG_TCP_RST)
		return tbg_on_rst(skb, s, key, f);
	if (!(p->tcp_flags & TBG_TCP_ACK)) {
		tbg_count(TBG_WHY_DROPPED);
		return TC_ACT_SHOT;
	}
	ahead = p->seq - f->rcv_nxt;
	/*
	 * a SYN-ACK, an ACK of unsent or very old data, out of window, or an old
	 * duplicate (PAWS)
	 */
	if (p->tcp_flags & TBG_TCP_SYN ||
	    (__s32)(p->ack - tbg_tcb_next(f)) > 0 || (__s32)(p->ack - f->acked) < -65535 ||
	    (ahead > tbg_tcb_window(f) && !(p->tcp_flags & TBG_TCP_FIN)) ||
	    (p->timed && f->flags & TBG_FLOW_TS && (__s32)(p->tsval - f->tsrecent) < 0))
		return tbg_bare_challenge(skb, s, key, f);
	if (p->tcp_flags & TBG_TCP_FIN) {
		if (!ahead || (ahead == -1u && tbg_tcb_fin(f)))
			return tbg_on_fin(skb, s, key, f);
		return tbg_bare_challenge(skb, s, key, f);
	}
	switch (tbg_on_ack(skb, s, key, f)) {
	case TBG_ACK_LOSS:
		return TBG_NOT_YET;
	case TBG_ACK_OVER:
		tbg_tcb_forget(key, f);
		tbg_count(TBG_WHY_FIN);
		return TC_ACT_SHOT;
	case TBG_ACK_NEWS:
		break;
	}
	tbg_count(TBG_WHY_ACK);
	return TC_ACT_SHOT;
}

#endif
