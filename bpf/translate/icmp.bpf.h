/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ICMP errors about segments that wire or a socket has sent: translated at TC ingress,
 * before the stack looks for the socket.
 */
#ifndef TBG_TRANSLATE_ICMP_BPF_H
#define TBG_TRANSLATE_ICMP_BPF_H

#include "flow.bpf.h"

/*
 * Reads the IP header that an ICMP error quotes: p->key has its addresses. Returns the
 * offset of the quoted TCP header, and the MTU if the error is about it; or 0.
 */
static __always_inline __u32 tbg_icmp_quote(struct __sk_buff *skb, struct tbg_pkt *p,
					    __u32 *ret_mtu)
{
	__u32 inner = p->l4 + 8, addr[2];
	__u8 head[8], ip[40];

	if (bpf_skb_load_bytes(skb, p->l4, head, 8))
		return 0;
	if (p->v6) {
		if (head[0] < 1 || head[0] > 4 ||
		    bpf_skb_load_bytes(skb, inner, ip, 40) || ip[6] != IPPROTO_TCP)
			return 0;
		__builtin_memcpy(p->key.local, ip + 8, 16);
		__builtin_memcpy(p->key.remote, ip + 24, 16);
		*ret_mtu = head[4] << 24 | head[5] << 16 | head[6] << 8 | head[7];
		*ret_mtu = head[0] == 2 ? *ret_mtu : 0;
		return inner + 40;
	}
	if ((head[0] != 3 && head[0] != 11 && head[0] != 12) ||
	    bpf_skb_load_bytes(skb, inner, ip, 20) || ip[9] != IPPROTO_TCP)
		return 0;
	__builtin_memcpy(addr, ip + 12, 8);
	tbg_map_v4(p->key.local, addr[0]);
	tbg_map_v4(p->key.remote, addr[1]);
	*ret_mtu = head[0] == 3 && head[1] == 4 ? head[6] << 8 | head[7] : 0;
	return inner + (ip[0] & 0xf) * 4;
}

/*
 * Translates an ICMP error, which quotes a segment in the client's numbers:
 * the socket must find its own numbers, or path MTU discovery fails. A quoted
 * segment of wire's current reply gets the socket's next number; older ones
 * stay out of its window, since they are forged or late (RFC 5927 4.1).
 */
static __always_inline int tbg_ingress_icmp(struct __sk_buff *skb,
					    struct tbg_scratch *s,
					    const struct tbg_knob *knob)
{
	struct tbg_pkt *p = &s->pkt;
	__u32 mtu = 0, inner = tbg_icmp_quote(skb, p, &mtu), seq, new, at, delta, next;
	struct tbg_flow *f;
	__u16 ports[4];		/* source, destination, sequence number */

	if (!inner || bpf_skb_load_bytes(skb, inner, ports, 8))
		goto other;
	if (!tbg_port_served(knob, ports[0]))
		goto other;
	p->key.local_port = ports[0];
	p->key.remote_port = ports[1];
	f = bpf_map_lookup_elem(&tbg_flows, &p->key);
	if (!f)
		goto other;
	__builtin_memcpy(&seq, ports + 2, 4);
	at = bpf_ntohl(seq);
	bpf_spin_lock(&f->lock);
	delta = f->out_delta;
	next = f->iss + f->sent + delta;
	if (mtu && (__s32)(at - f->acked) >= 0 && (__s32)(at - next) < 0) {
		__u32 heads = (f->flags & TBG_FLOW_V6 ? 60 : 40) +
			      (f->flags & TBG_FLOW_TS ? 12 : 0);

		if (mtu < heads + 512)
			mtu = heads + 512;
		if (mtu - heads < f->mss)
			f->mss = mtu - heads;
	}
	if (tbg_within_reply(f, at))
		at = tbg_flow_edge(f);
	bpf_spin_unlock(&f->lock);
	new = bpf_htonl(at - delta);
	if (new != seq) {
		bpf_l4_csum_replace(skb, p->l4 + 2, seq, new, 4);
		bpf_skb_store_bytes(skb, inner + 4, &new, 4, 0);
	}
	tbg_count(TBG_WHY_ICMP);
	return TBG_PASS;
other:
	tbg_count(TBG_WHY_NOT_OURS);
	return TBG_PASS;
}

#endif
