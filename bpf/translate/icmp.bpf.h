/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ICMP errors about segments that wire or a socket has sent: translated at TC ingress,
 * before the stack looks for the socket.
 */
#ifndef TBG_TRANSLATE_ICMP_BPF_H
#define TBG_TRANSLATE_ICMP_BPF_H

#include "../wire/icmp.bpf.h"
#include "flow.bpf.h"

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
	__u32 seq, mtu, inner = tbg_icmp_quote(skb, p, &seq, &mtu), at, delta, next;
	struct tbg_flow *f;
	__be32 old, new;

	if (!inner || !tbg_port_served(knob, p->key.local_port))
		goto other;
	f = bpf_map_lookup_elem(&tbg_flows, &p->key);
	if (!f)
		goto other;
	at = seq;
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
	old = bpf_htonl(seq);
	new = bpf_htonl(at - delta);
	if (new != old) {
		bpf_l4_csum_replace(skb, p->l4 + 2, old, new, 4);
		bpf_skb_store_bytes(skb, inner + 4, &new, 4, 0);
	}
	tbg_count(TBG_WHY_ICMP);
	return TBG_PASS;
other:
	tbg_count(TBG_WHY_NOT_OURS);
	return TBG_PASS;
}

#endif
