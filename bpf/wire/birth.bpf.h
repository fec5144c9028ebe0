/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How a connection becomes wire's. Either the kernel answers the SYN and keeps a
 * request socket: at the client's ACK, wire reads the negotiated options out of it and
 * passes the ACK up as a reset, which removes the request socket. Or wire answers the
 * SYN itself (synack.bpf.h) with the options that the kernel was seen to offer, and
 * recognizes the ACK by the cookie in it; it keeps no state before. Connections with
 * unusual options stay with the kernel.
 */
#ifndef TBG_WIRE_BIRTH_BPF_H
#define TBG_WIRE_BIRTH_BPF_H

#include "cookie.bpf.h"
#include "crowd.bpf.h"
#include "path.bpf.h"
#include "vrf.bpf.h"

#define TBG_MSS_V6_LEAST 1220	/* bpf_sk_assign_tcp_reqsk() takes no less */

/* The fields of a request socket that are read here. */
struct sock_common___request {
	__u32 skc_rcv_wnd;	/* rsk_rcv_wnd */
} __attribute__((preserve_access_index));

struct request_sock___wire {
	struct sock_common___request __req_common;
	__u16 mss;
	__u8 syncookie:1;
	__u32 ts_recent;
} __attribute__((preserve_access_index));

struct inet_request_sock___wire {
	struct request_sock___wire req;
	__u16 snd_wscale:4, rcv_wscale:4, tstamp_ok:1, sack_ok:1, wscale_ok:1, ecn_ok:1;
	void *ireq_opt;
} __attribute__((preserve_access_index));

struct tcp_request_sock___wire {
	struct inet_request_sock___wire req;
	bool tfo_listener, is_mptcp, req_usec_ts;
	__u32 rcv_isn, snt_isn, ts_off;
	__u32 snt_tsval_first, snt_tsval_last;	/* since 6.14 */
	bool used_tcp_ao, accecn_ok;
} __attribute__((preserve_access_index));

/* What client and server have negotiated, by whichever of them answered the SYN. */
struct tbg_agreed {
	__u32 irs, iss;		/* the first sequence numbers after the SYNs */
	__u32 tsoff, window, flowinfo;
	__u32 now_ms;
	__u32 ways;		/* the knob's, before the route was checked */
	__u16 peer_mss;
	__u16 mtu;		/* for our packets */
	__u8 snd_wscale, rcv_wscale, flags;
	__u8 hops;		/* of our packets: TTL or hop limit */
	__u8 tried;		/* TBG_TCB_PASSED, or 0 */
};

/*
 * Returns the MSS without the timestamp option, and no larger than interface and routes
 * allow.
 */
static __always_inline __u16 tbg_mss_of(const struct tbg_knob *knob, __u32 mss, __u32 mtu,
					bool v6, bool ts)
{
	__u32 heads = v6 ? 60 : 40;

	if (knob->mss_max && mtu > knob->mss_max)
		mtu = knob->mss_max;
	if (mtu < heads + TBG_MSS_LEAST)
		mtu = heads + TBG_MSS_LEAST;
	if (mss > mtu - heads)
		mss = mtu - heads;
	return ts ? mss - 12 : mss;
}

/* Returns whether packets are sent with DF: not where routers have to cut the least of ours. */
static __always_inline bool tbg_path_takes_df(const struct tbg_knob *knob,
					      const struct tbg_agreed *a, bool v6)
{
	return !v6 && !knob->no_df && a->mtu >= 40 + TBG_MSS_LEAST;
}

/* Returns the window field for this many bytes, rounded up: a window must not shrink. */
static __always_inline __be16 tbg_window_field(__u32 bytes, __u32 shift)
{
	bytes += (1u << (shift & 15)) - 1;
	bytes >>= shift & 15;
	return bpf_htons(bytes < 65535 ? bytes : 65535);
}

/* Fills *f, which is zero, from the negotiated values and the segment in p. */
static __always_inline void tbg_tcb_make(struct __sk_buff *skb, const struct tbg_knob *knob,
					 const struct tbg_pkt *p, const struct tbg_agreed *a,
					 struct tbg_tcb *f)
{
	__u16 mac[6] __attribute__((aligned(4)));	/* destination, source */

	f->rcv_nxt = a->irs;
	f->snd_nxt = a->iss;
	f->acked = a->iss;
	f->tsoff = a->tsoff;
	f->flags = a->flags;
	f->born_ms = a->now_ms;
	f->seen_ms = f->born_ms;
	f->tsval = f->born_ms + a->tsoff;
	f->tsrecent = p->tsval;
	f->ifindex = skb->ifindex;
	f->flowinfo = a->flowinfo & bpf_htonl(0xfff00000 | knob->labels);
	f->ways = a->ways;
	f->win = tbg_window_field(a->window, a->rcv_wscale);
	f->peer_mss = a->peer_mss;
	f->mss = tbg_mss_of(knob, a->peer_mss, a->mtu, p->v6, a->flags & TBG_FLOW_TS);
	f->wscale = (a->snd_wscale & 15) | a->rcv_wscale << 4;
	f->ttl = a->hops;
	if (p->v6)
		f->flags |= TBG_FLOW_V6;
	else if (tbg_path_takes_df(knob, a, p->v6))
		f->flags |= TBG_TCB_DF;
	if (!tbg_load_words(skb, 0, mac, 3)) {
		__builtin_memcpy(f->own, mac, sizeof(f->own));
		__builtin_memcpy(f->mac, mac + 3, sizeof(f->mac));
	}
	f->vlan = bpf_htons(tbg_vlans(skb, p));
}

/*
 * Creates the connection in the map. Returns 0 or a reason. Not inlined: the struct
 * would count for the stack depth of all functions that the caller calls.
 */
__attribute__((noinline)) int
tbg_tcb_begin(struct __sk_buff *skb, const struct tbg_pkt *p, const struct tbg_tcb_key *key,
	      const struct tbg_agreed *a)
{
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_tcb f = {};
	int crowd;
	long err;

	if (!knob || !p || !key || !a)
		return TBG_WHY_OFF;
	tbg_tcb_make(skb, knob, p, a, &f);
	f.tried = a->tried;
	crowd = tbg_crowd_join(key);
	if (crowd) {
		f.tried |= TBG_TCB_COUNTED;
		/*
		 * over the limit by now: leave its first request to the daemon, which
		 * refuses it
		 */
		if (crowd > (int)knob->crowd_most)
			f.flags |= TBG_TCB_LOSSY;
	}
	err = bpf_map_update_elem(&tbg_tcbs, key, &f, BPF_NOEXIST);
	if (err && crowd)
		tbg_crowd_leave(key);
	if (err)
		return err == -17 ? TBG_WHY_RACE : TBG_WHY_NO_FLOW;	/* EEXIST */
	tbg_tcb_taken(1);
	tbg_stat(births);
	return 0;
}

/* The listeners that share a port (SO_REUSEPORT). */
struct sock_reuseport___wire {
	__u16 num_socks;
} __attribute__((preserve_access_index));

struct sock___shared {
	struct sock_reuseport___wire *sk_reuseport_cb;
} __attribute__((preserve_access_index));

/*
 * The process that a listener belongs to. US: this daemon. SHARED: this daemon, but another
 * process listens at the same port. OTHER: another process.
 */
enum tbg_owner { TBG_OWNER_OTHER, TBG_OWNER_SHARED, TBG_OWNER_US };

static __always_inline enum tbg_owner tbg_owner_of(struct bpf_sock *sk, __u32 vrf)
{
	struct sock___shared *b;
	__u32 *nr;

	sk = bpf_get_listener_sock(sk);
	nr = sk ? bpf_sk_storage_get(&tbg_listeners, sk, NULL, 0) : NULL;
	/* in a VRF, a listener counts only if tbg_vrf_birth notes its connections */
	if (nr && vrf && !bpf_sk_storage_get(&tbg_vrf_own, sk, NULL, 0))
		return TBG_OWNER_OTHER;
	b = nr ? (void *)bpf_skc_to_tcp_sock(sk) : NULL;
	if (!b)
		return TBG_OWNER_OTHER;
	/* read without a helper; 0 if it shares nothing */
	return b->sk_reuseport_cb->num_socks <= *nr ? TBG_OWNER_US : TBG_OWNER_SHARED;
}

/*
 * Returns whether sk, a listener or a request socket, belongs to a listener of this daemon. Not
 * if another process shares its port: whichever listener is assigned, the kernel chooses once more
 * among all of them (inet_steal_sock).
 */
static __always_inline bool tbg_is_ours(struct bpf_sock *sk, __u32 vrf)
{
	return tbg_owner_of(sk, vrf) == TBG_OWNER_US;
}

/*
 * Returns whether the kernel accepts the timestamps of the segment in p, as tcp_check_req()
 * does. Otherwise it would ignore the reset that withdraws the request socket.
 */
static __always_inline bool tbg_request_times(struct tcp_request_sock___wire *t,
					      const struct tbg_pkt *p)
{
	__u32 first;

	if (!p->timed)
		return true;
	if ((__s32)(p->tsval - BPF_CORE_READ(t, req.req.ts_recent)) < 0)
		return false;
	if (!p->tsecr || !bpf_core_field_exists(t->snt_tsval_first))
		return true;
	first = BPF_CORE_READ(t, snt_tsval_first);
	return p->tsecr - first <= BPF_CORE_READ(t, snt_tsval_last) - first;
}

/* Reads what the request socket sk has negotiated. Returns false if wire can't take it. */
static __always_inline bool tbg_request_read(struct bpf_sock *sk, const struct tbg_pkt *p,
					     struct tbg_agreed *a)
{
	struct tcp_request_sock___wire *t;
	__u32 kind = 0;

	t = (void *)bpf_skc_to_tcp_request_sock(sk);
	if (!t)
		return false;
	a->irs = BPF_CORE_READ(t, rcv_isn) + 1;
	a->iss = BPF_CORE_READ(t, snt_isn) + 1;
	if (p->seq != a->irs || p->ack != a->iss)
		return false;
	if (BPF_CORE_READ(t, tfo_listener) || BPF_CORE_READ(t, req.ireq_opt))
		return false;
	if (bpf_core_field_exists(t->is_mptcp) && BPF_CORE_READ(t, is_mptcp))
		return false;
	if (bpf_core_field_exists(t->req_usec_ts) && BPF_CORE_READ(t, req_usec_ts))
		return false;
	if (bpf_core_field_exists(t->used_tcp_ao) && BPF_CORE_READ(t, used_tcp_ao))
		return false;
	if (bpf_core_field_exists(t->accecn_ok) && BPF_CORE_READ(t, accecn_ok))
		return false;
	if (BPF_CORE_READ_BITFIELD_PROBED(t, req.req.syncookie) || !tbg_request_times(t, p))
		return false;
	a->peer_mss = BPF_CORE_READ(t, req.req.mss);
	a->window = BPF_CORE_READ(t, req.req.__req_common.skc_rcv_wnd);
	a->tsoff = BPF_CORE_READ(t, ts_off);
	if (BPF_CORE_READ_BITFIELD_PROBED(t, req.tstamp_ok))
		kind |= TBG_FLOW_TS;
	if (BPF_CORE_READ_BITFIELD_PROBED(t, req.sack_ok))
		kind |= TBG_TCB_SACK;
	if (BPF_CORE_READ_BITFIELD_PROBED(t, req.ecn_ok))
		kind |= TBG_TCB_ECN;
	if (BPF_CORE_READ_BITFIELD_PROBED(t, req.wscale_ok)) {
		kind |= TBG_TCB_WSCALE;
		a->snd_wscale = BPF_CORE_READ_BITFIELD_PROBED(t, req.snd_wscale);
		a->rcv_wscale = BPF_CORE_READ_BITFIELD_PROBED(t, req.rcv_wscale);
	}
	a->flags = kind;
	a->flowinfo = bpf_htonl(0x60000000 | (bpf_get_prandom_u32() & 0xfffff));
	return true;
}

/* Returns the TBG_OFFER_* of a connection's flags. */
static __always_inline __u16 tbg_offer_kind(__u32 flags)
{
	return (flags & TBG_FLOW_TS ? TBG_OFFER_TS : 0) |
	       (flags & TBG_TCB_WSCALE ? TBG_OFFER_WSCALE : 0) |
	       (flags & TBG_TCB_SACK ? TBG_OFFER_SACK : 0) |
	       (flags & TBG_TCB_ECN ? TBG_OFFER_ECN : 0);
}

static __always_inline void tbg_offer_key_of(struct __sk_buff *skb, const struct tbg_pkt *p,
					     __u16 kind, struct tbg_offer_key *ret)
{
	__builtin_memcpy(ret->local, p->key.local, sizeof(ret->local));
	ret->ifindex = skb->ifindex;
	ret->port = p->key.local_port;
	ret->kind = kind;
}

/* Remembers what the kernel has negotiated: wire offers the same in its own SYN-ACKs. */
__attribute__((noinline)) int tbg_offer_learn(struct __sk_buff *skb, const struct tbg_pkt *p,
					      const struct tbg_agreed *a)
{
	struct tbg_offer offer = {};
	struct tbg_offer_key key;

	if (!p || !a)
		return 0;
	offer.learned_ms = a->now_ms;
	offer.window = a->window;
	offer.kind = tbg_offer_kind(a->flags);
	offer.wscale = a->rcv_wscale;
	tbg_offer_key_of(skb, p, offer.kind, &key);
	return bpf_map_update_elem(&tbg_offers, &key, &offer, BPF_ANY);
}

/*
 * Reads what the kernel has offered to the client of a connection in a VRF, of which nothing but
 * the handshake has arrived: its window is that of the SYN-ACK. sk: an established socket. Sets
 * a->window to 0 if wire can't offer the same.
 */
static __always_inline void tbg_vrf_offer_read(struct bpf_sock *sk, const struct tbg_pkt *p,
					       struct tbg_agreed *a)
{
	struct tcp_sock___vrf *t = (void *)bpf_skc_to_tcp_sock(sk);
	__u32 ecn;

	a->window = 0;
	if (!t || BPF_CORE_READ(t, bytes_received) ||
	    BPF_CORE_READ(t, rcv_nxt) != BPF_CORE_READ(t, rcv_wup) ||
	    BPF_CORE_READ(t, rcv_nxt) != p->seq)
		return;
	if (bpf_core_field_exists(t->is_mptcp) && BPF_CORE_READ(t, is_mptcp))
		return;
	if (bpf_core_field_exists(t->tcp_usec_ts) &&
	    BPF_CORE_READ_BITFIELD_PROBED(t, tcp_usec_ts))
		return;
	ecn = BPF_CORE_READ(t, ecn_flags);
	if (ecn & TBG_ECN_ACCURATE)
		return;
	a->flags = (BPF_CORE_READ_BITFIELD_PROBED(t, rx_opt.tstamp_ok) ? TBG_FLOW_TS : 0) |
		   (BPF_CORE_READ_BITFIELD_PROBED(t, rx_opt.sack_ok) ? TBG_TCB_SACK : 0) |
		   (BPF_CORE_READ_BITFIELD_PROBED(t, rx_opt.wscale_ok) ? TBG_TCB_WSCALE : 0) |
		   (ecn & TBG_ECN_OK ? TBG_TCB_ECN : 0);
	if (a->flags & TBG_TCB_WSCALE)
		a->rcv_wscale = BPF_CORE_READ_BITFIELD_PROBED(t, rx_opt.rcv_wscale);
	a->window = BPF_CORE_READ(t, rcv_wnd);
}

/* Returns whether wire can serve this connection. */
static __always_inline bool tbg_agreed_fits(const struct tbg_agreed *a, const struct tbg_pkt *p)
{
	if (a->peer_mss < (p->v6 ? TBG_MSS_V6_LEAST : TBG_MSS_LEAST))
		return false;
	return a->flags & TBG_FLOW_TS ? p->plain_ts : p->no_opt;
}

/* Turns the segment into a reset with the same sequence number, and updates its checksum. */
static __always_inline void tbg_ack_to_rst(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	__be16 old, new;

	if (bpf_skb_load_bytes(skb, p->l4 + 12, &old, 2))
		return;
	new = bpf_htons((bpf_ntohs(old) & 0xff00) | TBG_TCP_RST);
	bpf_l4_csum_replace(skb, p->l4 + 16, old, new, 2);
	bpf_skb_store_bytes(skb, p->l4 + 12, &new, 2, 0);
}

/*
 * Puts NOPs in place of the timestamps: the kernel ignores a reset that echoes another one than
 * its own (since 6.14).
 */
static __attribute__((noinline)) int tbg_times_drop(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	const __be32 nops = bpf_htonl(0x01010101);
	__be32 was;
	int i;

	for (i = 0; p && p->timed && i < 3; i++) {
		if (bpf_skb_load_bytes(skb, p->l4 + 20 + 4 * i, &was, 4))
			return 0;
		bpf_l4_csum_replace(skb, p->l4 + 16, was, nops, 4);
		bpf_skb_store_bytes(skb, p->l4 + 20 + 4 * i, &nops, 4, 0);
	}
	return 0;
}

#endif
