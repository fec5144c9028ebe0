/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What no incoming segment triggers: repeats of a reply after a timeout, the FIN of an
 * idle connection, resets, and answers to the daemon's questions, on a segment as the
 * client would send it.
 */
#ifndef TBG_WIRE_PUSH_BPF_H
#define TBG_WIRE_PUSH_BPF_H

#include "control.bpf.h"
#include "give.bpf.h"
#include "known.bpf.h"
#include "port.bpf.h"
#include "way.bpf.h"

/* Sends our FIN: the first one, on an idle connection, or a repeat. */
static __always_inline int tbg_push_fin(struct __sk_buff *skb, struct tbg_scratch *s,
					const struct tbg_tcb_key *key, struct tbg_tcb *f)
{
	__u32 now_ms = s->now_ms, seq, ack;
	struct tbg_pkt *p = &s->pkt;
	bool may, left = false;

	bpf_spin_lock(&f->lock);
	may = p->seq == f->rcv_nxt;
	if (f->state == TBG_TCB_OPEN) {
		may = may && f->acked == f->snd_nxt;
		if (may) {
			f->state = TBG_TCB_FIN_WAIT;
			left = tbg_crowd_left(f);
			f->seen_ms = now_ms;
			f->tries = 0;
		}
	} else {
		may = may && tbg_tcb_fin(f);
		f->tries += f->tries < 255;
	}
	seq = f->snd_nxt;
	ack = f->rcv_nxt;
	bpf_spin_unlock(&f->lock);
	if (left)
		tbg_crowd_leave(key);
	if (!may)
		return TC_ACT_SHOT;
	tbg_count(TBG_WHY_FIN);
	return tbg_bare_send(skb, s, f, seq, ack, TBG_TCP_FIN);
}

/* Returns 1 + the ms until the reply must be checked again; 0: no more. */
static __always_inline int tbg_push_next(const struct tbg_tcb_key *key)
{
	struct tbg_tcb *f = bpf_map_lookup_elem(&tbg_tcbs, key);
	__s32 wait_ms;

	if (!f || !tbg_within_reply(f, f->acked))
		return 0;
	wait_ms = f->repeat_ms + tbg_due_ms(f->tries) - tbg_now_ms();
	return wait_ms > 0 ? wait_ms + 1 : 1;
}

/*
 * Notes for XDP that our timer repeats a reply that left there. If its client waits longer
 * than our timer before it sends the request again, XDP does not see that the reply was lost:
 * a device that drops all of them would never be given up.
 */
static __always_inline void tbg_push_lost(struct __sk_buff *skb, const struct tbg_pkt *p,
					  const struct tbg_tcb *f)
{
	__u32 ifindex = skb->ifindex;
	struct tbg_port *port;

	if (!(f->tried & TBG_TCB_XDP) || f->flags & TBG_TCB_LOSSY)
		return;
	port = bpf_map_lookup_elem(&tbg_ports, &ifindex);
	if (port)
		tbg_port_lost(port, tbg_tcb_reply(f, p));
}

/* Counts a repeat that has to wait for the way to the client; returns the tries so far. */
static __always_inline __u32 tbg_push_waits(struct tbg_tcb *f)
{
	__u32 tries;

	bpf_spin_lock(&f->lock);
	f->tries += f->tries < 255;
	tries = f->tries;
	bpf_spin_unlock(&f->lock);
	return tries;
}

/*
 * Repeats the reply if its timeout has passed. The daemon's segment may have an old
 * acknowledgement number, so f->acked is used.
 */
static __always_inline int tbg_push_again(struct __sk_buff *skb, struct tbg_scratch *s,
					  const struct tbg_knob *knob,
					  const struct tbg_tcb_key *key,
					  struct tbg_tcb *f)
{
	__u32 now_ms = s->now_ms;
	int act, way;

	if (now_ms - f->repeat_ms < tbg_due_ms(f->tries) || f->state == TBG_TCB_GIVING ||
	    !tbg_within_reply(f, f->acked))
		return TC_ACT_SHOT;
	s->pkt.ack = f->acked;
	way = tbg_way_again(skb, s, f);
	/* the route has changed, or the kernel has not been asked for it in all that time */
	if (!way || (way < 0 && tbg_push_waits(f) > TBG_PUSH_TRIES))
		tbg_tcb_forget(key, f);
	if (way <= 0)
		return TC_ACT_SHOT;
	if (f->tries >= TBG_PUSH_TRIES)
		return tbg_tcb_reset(skb, s, key, f);
	tbg_way_renew(skb, knob, &s->pkt, f);
	tbg_push_lost(skb, &s->pkt, f);
	act = tbg_again(skb, s, knob, f, false, TBG_AGAIN_TIMER);
	if (act == -TBG_WHY_STALE_REPEAT) {
		tbg_count(TBG_WHY_STALE_REPEAT);
		return tbg_tcb_reset(skb, s, key, f);
	}
	return act < 0 ? TC_ACT_SHOT : act;
}

/* Sends the whole reply for the first time: the socket that received the request is gone. */
static __always_inline int tbg_push_answer(struct __sk_buff *skb, struct tbg_scratch *s,
					   const struct tbg_knob *knob,
					   const struct tbg_tcb_key *key,
					   struct tbg_tcb *f)
{
	int act;

	bpf_spin_lock(&f->lock);
	f->flags &= ~TBG_TCB_HELD;
	bpf_spin_unlock(&f->lock);
	act = tbg_again(skb, s, knob, f, false, TBG_AGAIN_FIRST);
	return act < 0 ? tbg_tcb_reset(skb, s, key, f) : act;
}

/* Does what (TBG_PUSH_*) for the daemon. Returns what tbg_push does. */
static __always_inline int tbg_push_do(struct __sk_buff *skb, struct tbg_scratch *s,
				       const struct tbg_knob *knob, __u32 what)
{
	struct tbg_tcb_key key = {};
	struct tbg_tcb *f;
	int act = TC_ACT_SHOT;

	if (what == TBG_PUSH_IN) {
		tbg_send_clone(skb, BPF_F_INGRESS);
		return 1;
	}
	if (tbg_pkt_parse(skb, &s->pkt, true) != TBG_PKT_TCP)
		return 0;
	s->pkt.odd = 0;
	__builtin_memset(&s->reply, 0, sizeof(s->reply));
	tbg_clock_read(s);
	tbg_tcb_key_of(skb, knob, &s->pkt, &key);
	if (what == TBG_PUSH_ASK)
		return !(tbg_give_find(skb, s) ?: tbg_ask_line(skb, s, true));
	if (what == TBG_PUSH_WHY)
		return tbg_ask(skb, s, knob);
	f = bpf_map_lookup_elem(&tbg_tcbs, &key);
	if (!f)
		return 0;
	switch (what) {
	case TBG_PUSH_SEEK:
		return tbg_known_take(&s->pkt, f);
	case TBG_PUSH_GIVE:
		return tbg_give(skb, s, knob, &key, f);
	case TBG_PUSH_ANSWER:
		act = tbg_push_answer(skb, s, knob, &key, f);
		break;
	case TBG_PUSH_AGAIN:
		act = tbg_push_again(skb, s, knob, &key, f);
		break;
	case TBG_PUSH_FIN:
		act = tbg_push_fin(skb, s, &key, f);
		break;
	case TBG_PUSH_RST:
		act = tbg_tcb_reset(skb, s, &key, f);
		break;
	}
	/* a test run does not carry out redirects */
	if (act == TC_ACT_REDIRECT)
		tbg_send_clone(skb, 0);
	return what == TBG_PUSH_AGAIN ? tbg_push_next(&key) : 1;
}

#endif
