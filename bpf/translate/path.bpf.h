/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How a flow's socket would send a reply: segment size, initial window, fragmentation.
 * Read at the SYN-ACK from the socket and its route, so that a hit needs no look-up.
 * Never reads a packet's payload.
 */
#ifndef TBG_TRANSLATE_PATH_BPF_H
#define TBG_TRANSLATE_PATH_BPF_H

#include "maps.bpf.h"
#include "../wire/socket.bpf.h"

#define TBG_DST_NOREF 1ul	/* SKB_DST_NOREF, in its _skb_refdst */
#define TBG_DST_FLAGS 3ul	/* DST_METRICS_FLAGS, in its _metrics */
#define TBG_NEW_SYN_RECV 12	/* TCP_NEW_SYN_RECV: the socket of a handshake */
#define TBG_INIT_CWND 10	/* TCP_INIT_CWND */
#define TBG_PMTUDISC_WANT 1	/* IP_PMTUDISC_WANT: DF, unless the route's MTU is locked */
#define TBG_PMTUDISC_DO 2	/* IP_PMTUDISC_DO: always DF */

struct sock_common___path {
	struct inet_sock___path *skc_listener;
} __attribute__((preserve_access_index));

struct inet_sock___path {
	__u8 pmtudisc;
} __attribute__((preserve_access_index));

struct request_sock___path {
	__u16 mss;
} __attribute__((preserve_access_index));

struct rtable___path {
	__u32 rt_mtu_locked:1, rt_pmtu:31;
} __attribute__((preserve_access_index));

/* The metrics of a route that matter for replies (RTAX_*, counted from 1); 0: not set. */
enum { TBG_RTAX_LOCK = 1, TBG_RTAX_MTU = 2, TBG_RTAX_INITCWND = 11, TBG_RTAX_NR = 11 };

/* Whether sockets of this listener set DF (ip_dont_fragment()). */
static __always_inline bool tbg_path_df(const struct inet_sock___path *listener, bool locked)
{
	__u8 discovery = BPF_CORE_READ(listener, pmtudisc);

	return discovery == TBG_PMTUDISC_DO || (discovery == TBG_PMTUDISC_WANT && !locked);
}

/*
 * Reads from an outgoing SYN-ACK the MSS that the socket has accepted (Netfilter may
 * have lowered that of the SYN after this hook), and the metrics of the route. A bond
 * has removed the route from the packet: then burst stays 0, and tbg_path_look() asks
 * the socket later. The DF of a SYN-ACK means nothing (ip_build_and_send_pkt()).
 */
static __attribute__((noinline)) void tbg_embryo_path(struct __sk_buff *skb,
						      struct tbg_embryo *e, bool v6)
{
	struct sk_buff___wire *b = (void *)skb;
	struct sock_common___wire *sk = BPF_CORE_READ(b, sk);
	__u32 metrics[TBG_RTAX_NR] = {}, mtu, heads = v6 ? 60 : 40;
	struct sock_common___path *common = (void *)sk;
	struct request_sock___path *req = (void *)sk;
	bool locked, handshake;
	struct dst_entry___wire *dst;
	struct rtable___path *rt;
	__u16 mss;

	e->df = 1;
	e->burst = TBG_INIT_CWND;
	if (!tbg_sockets)
		return;
	handshake = sk && BPF_CORE_READ(sk, skc_state) == TBG_NEW_SYN_RECV;
	if (handshake) {
		mss = BPF_CORE_READ(req, mss);
		if (mss < e->mss)
			e->mss = mss;
	}
	dst = (void *)(BPF_CORE_READ(b, _skb_refdst) & ~TBG_DST_NOREF);
	if (!dst) {
		e->burst = 0;
		if (handshake)
			e->df = tbg_path_df(BPF_CORE_READ(common, skc_listener), false);
		return;
	}
	bpf_probe_read_kernel(metrics, sizeof(metrics),
			      (void *)(BPF_CORE_READ(dst, _metrics) & ~TBG_DST_FLAGS));
	mtu = metrics[TBG_RTAX_MTU - 1];
	locked = metrics[TBG_RTAX_LOCK - 1] & 1u << TBG_RTAX_MTU;
	rt = (void *)dst;
	if (!v6) {
		mtu = BPF_CORE_READ_BITFIELD_PROBED(rt, rt_pmtu) ?: mtu;
		locked |= BPF_CORE_READ_BITFIELD_PROBED(rt, rt_mtu_locked);
	}
	if (handshake)
		e->df = tbg_path_df(BPF_CORE_READ(common, skc_listener), locked);
	mtu = mtu ?: BPF_CORE_READ(dst, dev, mtu);
	if (mtu > heads && mtu - heads < e->mss)
		e->mss = mtu - heads;
	if (metrics[TBG_RTAX_INITCWND - 1] && metrics[TBG_RTAX_INITCWND - 1] < TBG_INIT_CWND)
		e->burst = metrics[TBG_RTAX_INITCWND - 1];
}

/*
 * Reads the initial window and MSS of a flow from its socket, if the route was unknown at
 * its birth. False: there is no socket yet.
 */
static __attribute__((noinline)) bool tbg_path_look(struct __sk_buff *skb,
						    const struct tbg_pkt *p,
						    struct tbg_flow *f)
{
	struct bpf_sock *sk = tbg_socket_find(skb, &p->key, p->v6);
	struct bpf_tcp_sock *tp;
	__u32 burst = 0, mss = 0;

	if (!sk)
		return false;
	tp = sk->state == BPF_TCP_ESTABLISHED ? bpf_tcp_sock(sk) : NULL;
	if (tp) {
		burst = tp->snd_cwnd;
		mss = tp->mss_cache;
	}
	bpf_sk_release(sk);
	if (!burst)
		return false;
	bpf_spin_lock(&f->lock);
	f->burst = burst < TBG_INIT_CWND ? burst : TBG_INIT_CWND;
	if (mss < f->mss)
		f->mss = mss;
	bpf_spin_unlock(&f->lock);
	return true;
}

#endif
