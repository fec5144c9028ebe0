/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The first IP fragment of a segment. The kernel reassembles fragments after the TC
 * hook, and would find no socket for the segment. So the fragment is turned into an
 * acknowledgement of the client's without payload, with which the connection is handed
 * over to the kernel. The client sends the segment again, to the new socket.
 */
#ifndef TBG_WIRE_FRAGMENT_BPF_H
#define TBG_WIRE_FRAGMENT_BPF_H

#include "bare.bpf.h"
#include "hand.bpf.h"

/* Turns skb into that acknowledgement, and sets *s to match. Returns 0 or negative. */
static __attribute__((noinline)) int tbg_fragment_bare(struct __sk_buff *skb,
						       struct tbg_scratch *s,
						       struct tbg_tcb *f)
{
	struct tbg_reply *r;
	struct tbg_pkt *p;

	if (!s || !f)
		return -1;
	r = &s->reply;
	p = &s->pkt;
	__builtin_memset(r, 0, sizeof(*r));
	bpf_spin_lock(&f->lock);
	r->ts = !!(f->flags & TBG_FLOW_TS);
	r->tsval = p->timed ? p->tsval : f->tsrecent;
	r->tsecr = p->timed ? p->tsecr : f->tsval;
	r->ttl = f->ttl;
	r->flowinfo = f->flowinfo;
	bpf_spin_unlock(&f->lock);
	r->to_stack = 1;
	r->seq = p->seq;
	r->ack = p->ack;
	r->win = bpf_htons(p->window);
	/* without fragment header and IP options */
	p->l4 = p->l3 + (p->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	p->payload_len = 0;
	p->opt_len = r->ts ? 12 : 0;
	p->plain_ts = p->timed = r->ts;
	p->tsval = r->tsval;
	p->tsecr = r->tsecr;
	p->no_opt = !r->ts;
	p->odd = p->frag = 0;
	p->checked = TBG_CHECKED_SOUND;
	return tbg_bare_write(skb, s, p->l4 + 20 + p->opt_len);
}

/*
 * The fragment in s->pkt, which has a whole TCP header, of wire's connection f. Returns
 * a TC action. If it belongs to a retransmission, our reply may be lost: our timer
 * checks that.
 */
static __always_inline int tbg_on_fragment(struct __sk_buff *skb, struct tbg_scratch *s,
					   const struct tbg_tcb_key *key, struct tbg_tcb *f)
{
	struct tbg_pkt *p = &s->pkt;

	if (p->seq != f->rcv_nxt || f->state != TBG_TCB_OPEN ||
	    p->ack - f->acked > f->snd_nxt - f->acked ||
	    (p->tcp_flags & (TBG_TCP_SYN | TBG_TCP_RST | TBG_TCP_ACK)) != TBG_TCP_ACK) {
		if (f->snd_nxt != f->acked)
			tbg_due(key);
		tbg_count(TBG_WHY_DROPPED);
		return TC_ACT_SHOT;
	}
	tbg_count(TBG_WHY_IP_ODD);
	if (tbg_fragment_bare(skb, s, f))
		return TC_ACT_SHOT;
	return tbg_hand_over(skb, p, key, f);
}

#endif
