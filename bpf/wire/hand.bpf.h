/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hands a connection over to the kernel: the listener makes a socket out of the current
 * segment, with the negotiated options and the exact sequence numbers (since 6.9). The
 * socket starts after everything that wire has sent; wire goes on to repeat a reply
 * that is not acknowledged yet. The entry stays in the map until a socket has been
 * found: if none was made, the client's retransmission is the next attempt.
 */
#ifndef TBG_WIRE_HAND_BPF_H
#define TBG_WIRE_HAND_BPF_H

#include "answer.bpf.h"
#include "birth.bpf.h"
#include "send.bpf.h"
#include "track.bpf.h"
#include "way.bpf.h"

/* include/net/tcp.h of 6.9 */
struct bpf_tcp_req_attrs___wire {
	__u32 rcv_tsval, rcv_tsecr;
	__u16 mss;
	__u8 rcv_wscale, snd_wscale;
	__u8 ecn_ok, wscale_ok, sack_ok, tstamp_ok, usec_ts_ok;
	__u8 reserved[3];
};

/* No field is read: the argument of a kfunc must be a complete struct type. */
struct sock___wire {
	struct sock_common___wire __sk_common;
};

struct sock___backlog {
	__u32 sk_ack_backlog, sk_max_ack_backlog;
} __attribute__((preserve_access_index));

#define TBG_NOT_YET 1000		/* not a TC action: more has to be checked */
#define TBG_HAND_RESET 1001	/* not a TC action: the connection is to be reset */
#define TBG_HAND_CLOSE 1002	/* not a TC action: the connection is to be closed */
#define TBG_HAND_CONTROL 1003	/* not a TC action: to be checked as a segment of wire's own */

extern int bpf_sk_assign_tcp_reqsk(struct __sk_buff *skb, struct sock___wire *sk,
				   struct bpf_tcp_req_attrs___wire *attrs,
				   int attrs__sz) __ksym;

/* Returns the state of the segment's socket, else LISTEN where one listens, or 0. */
__attribute__((noinline)) int tbg_socket_state(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	struct bpf_sock *sk;
	__u32 state = 0;

	sk = p ? tbg_socket_get(skb, p, &state) : NULL;
	if (sk)
		bpf_sk_release(sk);
	return state;
}

/* Removes the connection f, which has ended or is the kernel's. */
static __always_inline void tbg_tcb_forget(const struct tbg_tcb_key *key, struct tbg_tcb *f)
{
	bool left = false;

	if (f->tried & TBG_TCB_COUNTED) {
		bpf_spin_lock(&f->lock);
		left = tbg_crowd_left(f);
		bpf_spin_unlock(&f->lock);
	}
	if (left)
		tbg_crowd_leave(key);
	if (!bpf_map_delete_elem(&tbg_tcbs, key))
		tbg_tcb_taken(-1);
}

/* Fills *a with what the kernel needs to make the socket. Under the lock. */
static __always_inline void tbg_hand_attrs(const struct tbg_tcb *f,
					   const struct tbg_pkt *p, __u32 now_ms,
					   struct bpf_tcp_req_attrs___wire *a)
{
	a->mss = f->peer_mss;
	a->wscale_ok = !!(f->flags & TBG_TCB_WSCALE);
	a->snd_wscale = f->wscale & 15;
	a->rcv_wscale = f->wscale >> 4;
	a->sack_ok = !!(f->flags & TBG_TCB_SACK);
	a->ecn_ok = !!(f->flags & TBG_TCB_ECN);
	a->tstamp_ok = !!(f->flags & TBG_FLOW_TS);
	a->rcv_tsval = p->timed ? p->tsval : f->tsrecent;
	a->rcv_tsecr = now_ms + f->tsoff;
}

/*
 * The socket knows nothing of a reply that wire has sent. It would drop a segment that
 * acknowledges only a part of it, as too old: raise the acknowledgement number to the
 * end of the reply. The window is reduced by as much, so that it ends where the
 * client's does.
 */
static __always_inline void tbg_ack_raise(struct __sk_buff *skb, const struct tbg_pkt *p,
					  const struct tbg_tcb *f)
{
	__u32 more = f->snd_nxt - p->ack, shift = f->wscale & 15;
	__be32 old = bpf_htonl(p->ack), new = bpf_htonl(f->snd_nxt);
	__u32 less = (more + (1u << shift) - 1) >> shift;
	__be16 was = bpf_htons(p->window), is;

	if (!more || more > f->last.len)
		return;
	is = p->window > less ? bpf_htons(p->window - less) : 0;
	bpf_l4_csum_replace(skb, p->l4 + 16, old, new, 4);
	bpf_skb_store_bytes(skb, p->l4 + 8, &new, 4, 0);
	bpf_l4_csum_replace(skb, p->l4 + 16, was, is, 2);
	bpf_skb_store_bytes(skb, p->l4 + 14, &is, 2, 0);
}

/* Asks the daemon to look at the connection (tbg_stuck). */
static __always_inline void tbg_hand_report(const struct tbg_tcb_key *key)
{
	__u32 one = 1;

	bpf_map_update_elem(&tbg_stuck, key, &one, BPF_ANY);
}

/*
 * The kernel makes the socket of the segment in p: the connection is no longer wire's. Repeats of
 * its last reply go where the segment came from.
 */
static __always_inline void tbg_hand_done(struct __sk_buff *skb, const struct tbg_pkt *p,
					  const struct tbg_tcb_key *key, struct tbg_tcb *f,
					  __u8 tried, __u32 now_ms)
{
	__u16 mac[6] __attribute__((aligned(4)));	/* destination, source */
	bool read = !tbg_load_words(skb, 0, mac, 3), left;

	bpf_spin_lock(&f->lock);
	f->state = TBG_TCB_HANDED;
	f->flags &= ~TBG_TCB_HELD;
	f->seen_ms = now_ms;
	f->acked = tbg_seq_max(f->acked, p->ack);
	if (read)
		tbg_tcb_move(f, skb->ifindex, mac);
	left = tbg_crowd_left(f);
	f->tried = tried | (f->tried & TBG_TCB_PASSED);
	bpf_spin_unlock(&f->lock);
	if (left)
		tbg_crowd_leave(key);
	/* the socket acknowledges the request: the client does not repeat it */
	if (p->ack != f->snd_nxt)
		tbg_due(key);
}

/* Counts an attempt that made no socket. Returns whether it was the last one. */
static __always_inline bool tbg_hand_is_last(struct tbg_tcb *f)
{
	__u32 fails;

	bpf_spin_lock(&f->lock);
	fails = ++f->fails;
	bpf_spin_unlock(&f->lock);
	return fails >= TBG_HAND_TRIES;
}

/* Returns whether the kernel has no reason to drop the segment. */
static __always_inline bool tbg_hand_is_plain(struct __sk_buff *skb, const struct tbg_tcb *f,
					      const struct tbg_pkt *p)
{
	if (!tbg_is_plain(f, p) || p->odd)
		return false;
	return p->checked ? p->checked != TBG_CHECKED_WRONG : tbg_is_verified(skb, p);
}

/*
 * The daemon has to tell conntrack first. sound: the segment may arrive again. Returns
 * TC_ACT_SHOT, or TBG_HAND_RESET: too often. An attempt that the daemon has not come to yet, as
 * where it is stopped, is no failure.
 */
static __always_inline int tbg_hand_ask(struct __sk_buff *skb, const struct tbg_pkt *p,
					 const struct tbg_tcb_key *key, struct tbg_tcb *f,
					 bool sound)
{
	__u32 how = sound && tbg_track_repeats(skb, p) ? TBG_UNTRACKED_AGAIN : 0;
	struct tbg_track_wait *w = tbg_track_waiting(key);

	/* what waits may be of an earlier connection, or a request that wire has answered since */
	if ((!w || w->first != p->seq) && tbg_track_room()) {
		/* one that repeats its segment to a socket that is not there has been counted */
		if (f->state != TBG_TCB_HANDED && tbg_hand_is_last(f))
			return TBG_HAND_RESET;
		tbg_track_ask(skb, p, key, how);
	}
	tbg_count(TBG_WHY_UNTRACKED);
	return TC_ACT_SHOT;
}

/*
 * Prepares conntrack for the segment that the kernel is to get; see track.bpf.h. *tried: TBG_HAND_*
 * of this attempt. Returns TBG_NOT_YET: it may get it; else a TC action or TBG_HAND_*.
 */
static __always_inline int tbg_hand_track(struct __sk_buff *skb, const struct tbg_pkt *p,
					  const struct tbg_tcb_key *key, struct tbg_tcb *f,
					  __u32 tracks, __u8 *tried)
{
	bool asks = tracks & TBG_TRACKS_FIRST;

	/* with an entry it would be established for a firewall that has not let it pass */
	if (asks && !(f->tried & TBG_TCB_PASSED)) {
		if (!(tracks & TBG_TRACKS_GUESS))
			return TBG_HAND_CLOSE;
		asks = false;
	}
	if (tbg_track_ready(skb, p, asks))
		*tried |= TBG_HAND_KNOWN;
	else if (asks)
		return tbg_hand_ask(skb, p, key, f, *tried & TBG_HAND_PLAIN);
	/* the daemon has let it arrive on lo: it has to come with a route */
	if (asks && tbg_is_unrouted(skb, p))
		return bpf_redirect_neigh(TBG_LO, NULL, 0, 0);
	return TBG_NOT_YET;
}

/*
 * A segment that is not the next one of connection f: what goes before it may wait for conntrack.
 * Returns whether it waits as well, and the daemon lets it arrive again after that.
 */
static __attribute__((noinline)) int tbg_hand_follows(struct __sk_buff *skb,
						      const struct tbg_pkt *p,
						      const struct tbg_tcb_key *key,
						      struct tbg_tcb *f)
{
	if (!p || !key || !f)
		return 0;
	if (f->state != TBG_TCB_OPEN || p->ack - f->acked > f->snd_nxt - f->acked ||
	    !tbg_hand_is_plain(skb, f, p) || !tbg_track_repeats(skb, p))
		return 0;
	return tbg_track_ask(skb, p, key, TBG_UNTRACKED_AGAIN | TBG_UNTRACKED_MORE);
}

/*
 * Hands the connection over with the segment in p, which begins with the client's next
 * byte. Returns a TC action or TBG_HAND_*. There may be a socket already, made by this
 * a moment ago.
 */
static __attribute__((noinline)) int
tbg_hand_over(struct __sk_buff *skb, const struct tbg_pkt *p, const struct tbg_tcb_key *key,
	      struct tbg_tcb *f)
{
	struct bpf_tcp_req_attrs___wire a = {};
	struct tbg_knob *knob = tbg_knob_get();
	struct tcp_sock *tp;
	struct bpf_sock *sk;
	__u32 now_ms = tbg_now_ms(), state;
	bool held, first, stays;
	__u8 tried = tbg_hand_is_plain(skb, f, p) ? TBG_HAND_PLAIN : 0;
	int err = -1, act;

	if (!knob)
		return TBG_HAND_CLOSE;
	bpf_spin_lock(&f->lock);
	held = f->flags & TBG_TCB_HELD;
	stays = p->seq != f->rcv_nxt;
	first = f->state == TBG_TCB_OPEN;
	tbg_hand_attrs(f, p, now_ms, &a);
	bpf_spin_unlock(&f->lock);
	sk = tbg_socket_get(skb, p, &state);
	if (!sk)
		return TBG_HAND_CLOSE;	/* no listener is left */
	if (state != BPF_TCP_LISTEN && !held) {
		/*
		 * the reset that should remove the request socket is not there yet; its
		 * numbers are old
		 */
		bool old = state == BPF_TCP_NEW_SYN_RECV && f->answers;

		bpf_sk_release(sk);
		if (old) {
			tbg_hand_report(key);
			return TBG_HAND_RESET;
		}
		tbg_tcb_forget(key, f);
		return TBG_PASS;
	}
	/*
	 * The daemon closes the socket that gave the connection back in its next system call.
	 * A segment that arrives in between is dropped, and the client repeats it, after
	 * 200 ms or more: 1 in 170,000 pipelined requests, where three busy loops preempt the
	 * daemon on two CPUs.
	 */
	if (state != BPF_TCP_LISTEN) {
		bpf_sk_release(sk);
		tbg_count(TBG_WHY_HAND_HELD);
		return TC_ACT_SHOT;
	}
	/* it has not seen the connection begin: its answers would be another server's */
	if (knob->answer && !tbg_is_ours(sk, p->vrf)) {
		bpf_sk_release(sk);
		tbg_count(TBG_WHY_HAND_FAIL);
		return TBG_HAND_RESET;
	}
	tp = (void *)bpf_skc_to_tcp_sock(sk);
	if (!stays) {
		act = tbg_hand_track(skb, p, key, f, knob->tracks, &tried);
		if (act != TBG_NOT_YET) {
			bpf_sk_release(sk);
			return act;
		}
		tbg_ack_raise(skb, p, f);
	}
	if (!stays && tp)
		err = bpf_sk_assign_tcp_reqsk(skb, (struct sock___wire *)tp, &a, sizeof(a));
	bpf_sk_release(sk);
	if (err) {
		tbg_count(TBG_WHY_HAND_FAIL);
		/* for example, a sysctl forbids an option that the connection has */
		return !stays && tbg_hand_is_last(f) ? TBG_HAND_RESET : TC_ACT_SHOT;
	}
	tbg_hand_done(skb, p, key, f, tried, now_ms);
	if (p->vrf)
		tbg_vrf_note(key);
	if (first)
		tbg_stat(handed);
	return TBG_PASS;
}

/* Returns whether the accept queue of the listener is at least half full. */
static __always_inline bool tbg_is_full(struct bpf_sock *sk)
{
	struct sock___backlog *b = (void *)bpf_skc_to_tcp_sock(sk);

	return !b || 2 * BPF_CORE_READ(b, sk_ack_backlog) >= BPF_CORE_READ(b, sk_max_ack_backlog);
}

/*
 * The client has repeated a segment that the kernel has dropped, although the accept
 * queue was not full: it will drop the repeat too, unless the daemon helps. Returns 1
 * after too many attempts.
 */
static __attribute__((noinline)) int tbg_hand_failed(struct __sk_buff *skb,
						     struct tbg_scratch *s,
						     const struct tbg_tcb_key *key,
						     struct tbg_tcb *f)
{
	if (!s || !f || !key)
		return 0;
	if (!tbg_segment_sound(skb, s) || !(f->tried & TBG_HAND_PLAIN))
		return 0;
	if (f->tried & TBG_TCB_PASSED)
		tbg_hand_report(key);
	return tbg_hand_is_last(f);
}

/* Notes that the socket exists: if there is none later, it was closed. */
static __always_inline void tbg_hand_made(struct tbg_tcb *f)
{
	if (f->tried & TBG_HAND_MADE)
		return;
	bpf_spin_lock(&f->lock);
	if (f->state == TBG_TCB_HANDED)
		f->tried |= TBG_HAND_MADE;
	bpf_spin_unlock(&f->lock);
}

/*
 * A segment of a connection that was handed over. Returns TBG_NOT_YET if the socket
 * exists, TBG_HAND_CONTROL if none was made and the segment is a SYN or a reset. If none
 * was made otherwise, the accept queue was full: tries again.
 */
static __always_inline int tbg_handed(struct __sk_buff *skb, struct tbg_scratch *s,
				      const struct tbg_tcb_key *key,
				      struct tbg_tcb *f)
{
	const struct tbg_pkt *p = &s->pkt;
	struct bpf_sock *sk;
	bool there, full;
	__u32 state;

	if (p->vrf)
		tbg_vrf_note(key);
	sk = tbg_socket_get(skb, p, &state);
	if (!sk) {
		tbg_tcb_forget(key, f);
		tbg_count(TBG_WHY_HANDED);
		return TBG_PASS;
	}
	there = state != BPF_TCP_LISTEN;
	full = !there && tbg_is_full(sk);
	bpf_sk_release(sk);
	if (there) {
		tbg_hand_made(f);
		return TBG_NOT_YET;
	}
	/* closed: what comes now is the kernel's to refuse, or begins another connection */
	if (f->tried & TBG_HAND_MADE) {
		tbg_tcb_forget(key, f);
		tbg_count(TBG_WHY_HANDED);
		return TBG_PASS;
	}
	if (p->tcp_flags & (TBG_TCP_SYN | TBG_TCP_RST))
		return TBG_HAND_CONTROL;
	/* the kernel makes a socket only of an ACK with the next sequence number */
	if (!(p->tcp_flags & TBG_TCP_ACK) || p->seq != f->rcv_nxt ||
	    p->ack - f->acked > f->snd_nxt - f->acked || !tbg_is_plain(f, p)) {
		tbg_count(TBG_WHY_DROPPED);
		return TC_ACT_SHOT;
	}
	tbg_count(TBG_WHY_HAND_FAIL);
	if (!full && tbg_hand_failed(skb, s, key, f))
		return TBG_HAND_RESET;
	return tbg_hand_over(skb, p, key, f);
}

#endif
