/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Takes a connection back from the kernel: the daemon has read a request that wire
 * could answer, and everything sent before is acknowledged. wire takes the sequence
 * numbers of the socket, the daemon closes the socket without sending a packet
 * (TCP_REPAIR), and wire answers. A segment that reaches the socket after this has
 * begun cancels it.
 */
#ifndef TBG_WIRE_GIVE_BPF_H
#define TBG_WIRE_GIVE_BPF_H

#include "ask.bpf.h"
#include "birth.bpf.h"
#include "track.bpf.h"
#include "way.bpf.h"

/* The fields of struct tcp_sock that are read here. */
struct tcp_options_received___wire {
	__u32 ts_recent;
} __attribute__((preserve_access_index));

struct tcp_sock___wire {
	__u32 rcv_nxt, rcv_wup, rcv_wnd, copied_seq, snd_nxt, snd_una, write_seq, snd_wnd, tsoffset;
	struct tcp_options_received___wire rx_opt;
} __attribute__((preserve_access_index));

/* The values of those fields. */
struct tbg_given {
	/* edge: end of its receive window */
	__u32 rcv_nxt, edge, snd_nxt, snd_wnd, tsoff, tsrecent;
};

/*
 * Looks up the request in s->pkt, as tbg_find(). Returns 0 or a reason. A request that
 * ends the connection is left to the socket.
 */
static __always_inline int tbg_give_find(struct __sk_buff *skb, struct tbg_scratch *s)
{
	int why = tbg_load_find(skb, s);

	if (!why && s->reply.persist == TBG_PERSIST_NOT)
		why = TBG_WHY_CLOSING;
	return why;
}

/*
 * Reads the socket of the segment into *g. Returns 1 if all it has sent is acknowledged
 * and all it has received was read, else 0.
 */
static __attribute__((noinline)) int tbg_give_socket(struct __sk_buff *skb,
						     const struct tbg_pkt *p,
						     struct tbg_given *g)
{
	__u32 state;
	struct bpf_sock *sk = tbg_socket_get(skb, p, &state);
	struct tcp_sock___wire *t;
	int ret = 0;

	if (!sk)
		return 0;
	t = state == BPF_TCP_ESTABLISHED ? (void *)bpf_skc_to_tcp_sock(sk) : NULL;
	if (t) {
		g->rcv_nxt = BPF_CORE_READ(t, rcv_nxt);
		g->edge = BPF_CORE_READ(t, rcv_wup) + BPF_CORE_READ(t, rcv_wnd);
		g->snd_nxt = BPF_CORE_READ(t, snd_nxt);
		g->snd_wnd = BPF_CORE_READ(t, snd_wnd);
		g->tsoff = BPF_CORE_READ(t, tsoffset);
		g->tsrecent = BPF_CORE_READ(t, rx_opt.ts_recent);
		ret = BPF_CORE_READ(t, copied_seq) == g->rcv_nxt &&
		      BPF_CORE_READ(t, snd_una) == g->snd_nxt &&
		      BPF_CORE_READ(t, write_seq) == g->snd_nxt;
	}
	bpf_sk_release(sk);
	return ret;
}

/* Copies the socket's numbers into the connection. Under the lock. Returns 0 or a reason. */
static __always_inline int tbg_give_take(struct tbg_tcb *f, const struct tbg_pkt *p,
					 const struct tbg_given *g, __u32 now_ms)
{
	__u32 shift = f->wscale >> 4, room;

	if (f->state != TBG_TCB_GIVING || f->undone)
		return TBG_WHY_GIVE_LATE;
	f->rcv_nxt = g->rcv_nxt - p->payload_len;
	/* the client may already use the window that the socket has offered */
	room = g->edge - f->rcv_nxt;
	if ((__s32)room > 0 && room > (__u32)bpf_ntohs(f->win) << shift)
		f->win = tbg_window_field(room, shift);
	f->snd_nxt = g->snd_nxt;
	f->acked = g->snd_nxt;
	f->tsoff = g->tsoff;
	f->tsval = now_ms + g->tsoff;
	f->tsrecent = g->tsrecent;
	f->seen_ms = now_ms;
	f->last.len = 0;
	f->flags = (f->flags & ~TBG_TCB_LOSSY) | TBG_TCB_HELD;
	f->state = TBG_TCB_OPEN;
	return 0;
}

/*
 * Takes the connection, which is in GIVING, and its request from the socket, which
 * still exists. Returns 1 on success: the reply is to be sent (TBG_PUSH_ANSWER) only
 * once the socket is gone, or the client's next segment could still reach it. 0: the
 * connection stays the socket's.
 */
static __always_inline int tbg_give(struct __sk_buff *skb, struct tbg_scratch *s,
				    const struct tbg_knob *knob,
				    const struct tbg_tcb_key *key, struct tbg_tcb *f)
{
	struct tbg_pkt *p = &s->pkt;
	__u32 now_ms = s->now_ms, frame;
	struct tbg_given g = {};
	int why, crowd;

	if (!tbg_wire_answers(knob) || tbg_give_find(skb, s) || !tbg_give_socket(skb, p, &g))
		return 0;
	/* io_uring has received more than the daemon has seen: the next request */
	if (p->seq + p->payload_len != g.rcv_nxt) {
		tbg_count(TBG_WHY_GIVE_LATE);
		return 0;
	}
	p->ack = g.snd_nxt;
	p->tsval = g.tsrecent;
	p->window = (g.snd_wnd >> (f->wscale & 15)) & 0xffff;
	/* the socket's segments may have shown what the path takes; or its route leads elsewhere */
	if (!tbg_way_set(skb, p, f) || tbg_hit_cut(skb, s, knob, f, &frame))
		return 0;
	/* the socket may have acknowledged the request: the client does not repeat it then */
	tbg_due(key);
	bpf_spin_lock(&f->lock);
	why = tbg_give_take(f, p, &g, now_ms);
	bpf_spin_unlock(&f->lock);
	why = why ?: tbg_claim(key, f, p, &s->reply, now_ms, false);
	if (why) {
		tbg_count(TBG_WHY_GIVE_LATE);
		return 0;
	}
	crowd = tbg_crowd_join(key);
	bpf_spin_lock(&f->lock);
	f->tried |= (crowd ? TBG_TCB_COUNTED : 0) |
		    (knob->births == TBG_BIRTHS_KERNEL ? TBG_TCB_PASSED : 0);
	bpf_spin_unlock(&f->lock);
	if (knob->tracks & TBG_TRACKS_ENTRIES)
		tbg_track_rest(skb, p, knob->tracks & TBG_TRACKS_FIRST);
	tbg_stat(given);
	tbg_hit_note(s, knob);
	return 1;
}

#endif
