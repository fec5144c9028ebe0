/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What becomes of a flow whose socket sends by a way that has no translation: found at
 * the socket (guard.bpf.c) or, where the packet is wrapped, at the interface (egress.bpf.c).
 */
#ifndef TBG_TRANSLATE_GUARD_BPF_H
#define TBG_TRANSLATE_GUARD_BPF_H

#include "flow.bpf.h"
#include "maps.bpf.h"

#define TBG_OVERDUE_MS 1000	/* the worker's next tick finds the connection */
#ifndef TBG_AF_INET
#define TBG_AF_INET 2
#endif

/*
 * The flow's ends as its socket has them, of a packet that is no segment: a tunnel or
 * IPsec has wrapped it. False: it is not from a socket of TCP, on a port of ours.
 */
static __always_inline bool tbg_socket_ends(struct __sk_buff *skb, struct tbg_pkt *p,
					      const struct tbg_knob *knob)
{
	struct bpf_sock *sk = skb->sk;
	__u32 local, remote;

	sk = sk ? bpf_sk_fullsock(sk) : NULL;
	if (!sk || sk->protocol != IPPROTO_TCP)
		return false;
	p->key.local_port = bpf_htons(sk->src_port);
	p->key.remote_port = sk->dst_port;
	/* read first, or clang computes what to read: no arithmetic on a socket */
	local = sk->src_ip4;
	remote = sk->dst_ip4;
	tbg_keep(local);
	tbg_keep(remote);
	if (sk->family == TBG_AF_INET) {
		tbg_map_v4(p->key.local, local);
		tbg_map_v4(p->key.remote, remote);
	} else {
		p->key.local[0] = sk->src_ip6[0];
		p->key.local[1] = sk->src_ip6[1];
		p->key.local[2] = sk->src_ip6[2];
		p->key.local[3] = sk->src_ip6[3];
		p->key.remote[0] = sk->dst_ip6[0];
		p->key.remote[1] = sk->dst_ip6[1];
		p->key.remote[2] = sk->dst_ip6[2];
		p->key.remote[3] = sk->dst_ip6[3];
	}
	return tbg_port_served(knob, p->key.local_port);
}

/* The flow's segments leave where nobody translates: its connection is over. */
static __always_inline void tbg_guard_close(struct tbg_flow *f)
{
	struct tbg_conn_word *conn;
	__u32 slot = f->slot;
	bool news;

	conn = bpf_map_lookup_elem(&tbg_conns, &slot);
	bpf_spin_lock(&f->lock);
	news = !(f->way & TBG_WAY_LOST);
	f->way |= TBG_WAY_LOST;
	f->flags |= TBG_FLOW_LEFT;
	bpf_spin_unlock(&f->lock);
	if (!news)
		return;
	if (conn)
		conn->sent_ms = (tbg_now_ms() - TBG_OVERDUE_MS) | 1;
	tbg_count(TBG_WHY_ASTRAY);
}

#endif
