/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A connection handed over to the kernel: its listener makes a socket of the segment
 * at hand, with what was agreed at birth, at exactly its numbers (6.9 on). It begins
 * behind all that wire has sent: a reply that is not acknowledged yet stays wire's to
 * repeat. Until the socket is seen, the connection stays here, for the client's
 * retransmission to try again.
 */
#ifndef TBG_WIRE_HAND_BPF_H
#define TBG_WIRE_HAND_BPF_H

#include "answer.bpf.h"
#include "birth.bpf.h"
#include "send.bpf.h"

/* linux/tcp.h of 6.9 */
struct bpf_tcp_req_attrs___wire {
	__u32 rcv_tsval, rcv_tsecr;
	__u16 mss;
	__u8 rcv_wscale, snd_wscale;
	__u8 ecn_ok, wscale_ok, sack_ok, tstamp_ok, usec_ts_ok;
	__u8 reserved[3];
};

/* Nothing of it is read; a kfunc's argument has to be a struct, and not a name alone. */
struct sock___wire {
	struct sock_common___wire __sk_common;
};

struct sock___backlog {
	__u32 sk_ack_backlog, sk_max_ack_backlog;
} __attribute__((preserve_access_index));

/* include/net/netfilter/nf_conntrack.h, as far as it is read here */
struct ip_ct_tcp_state___wire {
	__u8 flags;
} __attribute__((preserve_access_index));

struct ip_ct_tcp___wire {
	struct ip_ct_tcp_state___wire seen[2];
	__u8 state;
} __attribute__((preserve_access_index));

union nf_conntrack_proto___wire {
	struct ip_ct_tcp___wire tcp;
} __attribute__((preserve_access_index));

struct nf_conn___wire {
	unsigned long status;
	union nf_conntrack_proto___wire proto;
} __attribute__((preserve_access_index));

/* include/uapi/linux/netfilter/nf_conntrack_tcp.h */
#define TBG_TRACK_ESTABLISHED	3
#define TBG_TRACK_LIBERAL	0x08

struct bpf_ct_opts___wire {
	__s32 netns_id, error;
	__u8 l4proto, dir, reserved[2];
};

extern struct nf_conn___wire *bpf_skb_ct_lookup(struct __sk_buff *skb,
						struct bpf_sock_tuple *tuple, __u32 tuple__sz,
						struct bpf_ct_opts___wire *opts,
						__u32 opts__sz) __ksym __weak;
extern int bpf_ct_change_timeout(struct nf_conn___wire *ct, __u32 timeout) __ksym __weak;
extern void bpf_ct_release(struct nf_conn___wire *ct) __ksym __weak;

/* 1: the kernel has these three; set by the daemon before loading. */
const volatile __u32 tbg_conntrack = 0;

#define TBG_NOT_YET 1000		/* no TC action: the segment is to be looked at further */
#define TBG_HAND_RESET 1001	/* nor is this: the connection is to be reset, */
#define TBG_HAND_CLOSE 1002	/* or closed */

extern int bpf_sk_assign_tcp_reqsk(struct __sk_buff *skb, struct sock___wire *sk,
				   struct bpf_tcp_req_attrs___wire *attrs,
				   int attrs__sz) __ksym;

/* The connection is nobody's any more, or the kernel's. */
static __always_inline void tbg_tcb_forget(const struct tbg_tcb_key *key)
{
	struct tbg_tcb *f = bpf_map_lookup_elem(&tbg_tcbs, key);
	bool left;

	if (!f)
		return;
	bpf_spin_lock(&f->lock);
	left = tbg_crowd_left(f);
	bpf_spin_unlock(&f->lock);
	if (left)
		tbg_crowd_leave(key);
	bpf_map_delete_elem(&tbg_tcbs, key);
}

/* Whether conntrack takes any number of the connection for valid, as it was taken up late. */
static __always_inline bool tbg_track_fits(const struct nf_conn___wire *ct)
{
	return BPF_CORE_READ(ct, proto.tcp.state) == TBG_TRACK_ESTABLISHED &&
	       BPF_CORE_READ(ct, proto.tcp.seen[0].flags) &
	       BPF_CORE_READ(ct, proto.tcp.seen[1].flags) & TBG_TRACK_LIBERAL;
}

/*
 * conntrack has not seen what wire has sent, and calls a segment of a connection that it
 * knows by old numbers invalid; one that it does not know, it takes up in its middle. 1: it
 * knows it so already.
 */
static __attribute__((noinline)) int tbg_track_forget(struct __sk_buff *skb,
						      const struct tbg_pkt *p)
{
	struct bpf_ct_opts___wire opts = { .netns_id = BPF_F_CURRENT_NETNS,
					   .l4proto = IPPROTO_TCP };
	struct bpf_sock_tuple tuple = {};
	struct nf_conn___wire *ct;
	int fits;

	if (!tbg_conntrack)
		return 0;
	if (p->v6) {
		__builtin_memcpy(tuple.ipv6.saddr, p->key.remote, 16);
		__builtin_memcpy(tuple.ipv6.daddr, p->key.local, 16);
		tuple.ipv6.sport = p->key.remote_port;
		tuple.ipv6.dport = p->key.local_port;
		ct = bpf_skb_ct_lookup(skb, &tuple, sizeof(tuple.ipv6), &opts, sizeof(opts));
	} else {
		tuple.ipv4.saddr = p->key.remote[3];
		tuple.ipv4.daddr = p->key.local[3];
		tuple.ipv4.sport = p->key.remote_port;
		tuple.ipv4.dport = p->key.local_port;
		ct = bpf_skb_ct_lookup(skb, &tuple, sizeof(tuple.ipv4), &opts, sizeof(opts));
	}
	if (!ct)
		return 0;
	fits = tbg_track_fits(ct);
	/* over at once: who looks it up next removes it */
	if (!fits)
		bpf_ct_change_timeout(ct, 0);
	bpf_ct_release(ct);
	return fits;
}

/* What the kernel is told of the connection, under its lock. */
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
 * Of a reply that wire has sent, the socket knows nothing: a segment that acknowledges
 * only a part of it acknowledges all of it to the socket, which else would drop it as too
 * old. The window ends where the client's does.
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

/* The daemon is to look at it. */
static __always_inline void tbg_hand_tell(const struct tbg_tcb_key *key)
{
	__u32 one = 1;

	bpf_map_update_elem(&tbg_stuck, key, &one, BPF_ANY);
}

/*
 * Hands over with the segment in p, which begins with the client's next byte. A TC
 * action. Another socket may be there already: ours of a moment ago.
 */
static __attribute__((noinline)) int
tbg_hand_over(struct __sk_buff *skb, const struct tbg_pkt *p, const struct tbg_tcb_key *key,
	      struct tbg_tcb *f)
{
	struct bpf_tcp_req_attrs___wire a = {};
	struct tcp_sock *tp;
	struct bpf_sock *sk;
	__u32 now_ms = tbg_now_ms();
	bool held, first, stays, left;
	__u8 tried = tbg_is_plain(f, p) && !p->odd ? TBG_HAND_PLAIN : 0;
	int err = -1;

	bpf_spin_lock(&f->lock);
	held = f->flags & TBG_TCB_HELD;
	stays = p->seq != f->rcv_nxt;
	first = f->state == TBG_TCB_OPEN;
	tbg_hand_attrs(f, p, now_ms, &a);
	bpf_spin_unlock(&f->lock);
	sk = tbg_socket_find(skb, &p->key, p->v6);
	if (!sk)
		return TBG_HAND_CLOSE;	/* nobody listens any more: the daemon ends */
	if (sk->state != BPF_TCP_LISTEN && !held) {
		/* the reset that was to withdraw it has not reached it; its numbers are old */
		bool old = sk->state == BPF_TCP_NEW_SYN_RECV && f->answers;

		bpf_sk_release(sk);
		if (old) {
			tbg_hand_tell(key);
			return TBG_HAND_RESET;
		}
		tbg_tcb_forget(key);
		return TBG_PASS;
	}
	stays |= sk->state != BPF_TCP_LISTEN;	/* the one that it was given back by */
	tp = (void *)bpf_skc_to_tcp_sock(sk);
	if (!stays) {
		tbg_ack_raise(skb, p, f);
		if (tbg_track_forget(skb, p))
			tried |= TBG_HAND_KNOWN;
	}
	if (!stays && tp)
		err = bpf_sk_assign_tcp_reqsk(skb, (struct sock___wire *)tp, &a, sizeof(a));
	bpf_sk_release(sk);
	if (err) {
		tbg_count(TBG_WHY_HAND_FAIL);
		return TC_ACT_SHOT;
	}
	bpf_spin_lock(&f->lock);
	f->state = TBG_TCB_HANDED;
	f->flags &= ~TBG_TCB_HELD;
	f->seen_ms = now_ms;
	f->acked = tbg_seq_max(f->acked, p->ack);
	left = tbg_crowd_left(f);
	f->tried = tried;
	bpf_spin_unlock(&f->lock);
	if (left)
		tbg_crowd_leave(key);
	/* the socket acknowledges the request: its client does not send it again */
	if (p->ack != f->snd_nxt)
		tbg_due(key);
	if (first)
		tbg_stat(handed);
	return TBG_PASS;
}

/* Whether the listener takes no more connections, or nearly none, for now. */
static __always_inline bool tbg_is_full(struct bpf_sock *sk)
{
	struct sock___backlog *b = (void *)bpf_skc_to_tcp_sock(sk);

	return !b || 2 * BPF_CORE_READ(b, sk_ack_backlog) >= BPF_CORE_READ(b, sk_max_ack_backlog);
}

/*
 * The client has sent again what the kernel lost, though there was room: it will lose
 * that, too, unless the daemon helps. True: there is no more to be hoped for.
 */
static __attribute__((noinline)) int tbg_hand_failed(struct __sk_buff *skb,
						     struct tbg_scratch *s,
						     const struct tbg_tcb_key *key,
						     struct tbg_tcb *f)
{
	__u32 fails;

	if (!s || !f || !key)
		return 0;
	if (!(f->tried & TBG_HAND_PLAIN) || !tbg_segment_sound(skb, s))
		return 0;
	bpf_spin_lock(&f->lock);
	fails = ++f->fails;
	bpf_spin_unlock(&f->lock);
	tbg_hand_tell(key);
	return fails >= TBG_HAND_TRIES;
}

/*
 * A segment of a connection that was handed over: TBG_NOT_YET once its socket is there.
 * Where none came to be, the accept queue was full: it is tried again.
 */
static __always_inline int tbg_handed(struct __sk_buff *skb, struct tbg_scratch *s,
				      const struct tbg_tcb_key *key,
				      struct tbg_tcb *f)
{
	const struct tbg_pkt *p = &s->pkt;
	struct bpf_sock *sk;
	bool there, full;

	sk = tbg_socket_find(skb, &p->key, p->v6);
	if (!sk) {
		tbg_tcb_forget(key);
		tbg_count(TBG_WHY_HANDED);
		return TBG_PASS;
	}
	there = sk->state != BPF_TCP_LISTEN;
	full = !there && tbg_is_full(sk);
	bpf_sk_release(sk);
	if (there)
		return TBG_NOT_YET;
	/* a socket is made of a segment that acknowledges, and begins where it must */
	if ((p->tcp_flags & (TBG_TCP_SYN | TBG_TCP_RST | TBG_TCP_ACK)) != TBG_TCP_ACK ||
	    p->seq != f->rcv_nxt || p->ack - f->acked > f->snd_nxt - f->acked ||
	    !tbg_is_plain(f, p)) {
		if (p->tcp_flags & (TBG_TCP_SYN | TBG_TCP_RST)) {
			tbg_tcb_forget(key);
			tbg_count(TBG_WHY_CONTROL);
			return TBG_PASS;
		}
		tbg_count(TBG_WHY_DROPPED);
		return TC_ACT_SHOT;
	}
	tbg_count(TBG_WHY_HAND_FAIL);
	if (!full && tbg_hand_failed(skb, s, key, f))
		return TBG_HAND_RESET;
	return tbg_hand_over(skb, p, key, f);
}

#endif
