/* SPDX-License-Identifier: GPL-2.0 */
/* The segment that an ICMP error is about; for both tiers. */
#ifndef TBG_WIRE_ICMP_BPF_H
#define TBG_WIRE_ICMP_BPF_H

#include "packet.bpf.h"

#define TBG_PMTU_V4_LEAST 552	/* net.ipv4.route.min_pmtu */
#define TBG_PMTU_V6_LEAST 1280	/* RFC 8200 5 */

/*
 * Returns the MTU in an error "packet too big", at least the kernel's minimum; 0: another
 * error. For IPv6, a smaller one than every link has is wrong (RFC 8201 4).
 */
static __always_inline __u32 tbg_icmp_mtu(const __u8 head[8], bool v6)
{
	__u32 mtu = v6 ? head[4] << 24 | head[5] << 16 | head[6] << 8 | head[7] :
			 head[6] << 8 | head[7];
	__u32 least = v6 ? TBG_PMTU_V6_LEAST : TBG_PMTU_V4_LEAST;

	if (v6 ? head[0] != 2 || mtu < least : head[0] != 3 || head[1] != 4)
		return 0;
	return mtu < least ? least : mtu;
}

/*
 * Reads the IP header that an ICMP error quotes, and the ports: p->key has them. Returns the
 * offset of the quoted TCP header, or 0. *ret_seq: its sequence number, in host order;
 * *ret_mtu: as tbg_icmp_mtu().
 */
static __always_inline __u32 tbg_icmp_quote(struct __sk_buff *skb, struct tbg_pkt *p,
					    __u32 *ret_seq, __u32 *ret_mtu)
{
	__u32 inner = p->l4 + 8, addr[2], seq;
	__u16 ports[4];		/* source, destination, sequence number */
	__u8 head[8], ip[40];

	if (bpf_skb_load_bytes(skb, p->l4, head, 8))
		return 0;
	if (p->v6) {
		if (head[0] < 1 || head[0] > 4 ||
		    bpf_skb_load_bytes(skb, inner, ip, 40) || ip[6] != IPPROTO_TCP)
			return 0;
		__builtin_memcpy(p->key.local, ip + 8, 16);
		__builtin_memcpy(p->key.remote, ip + 24, 16);
		inner += 40;
	} else {
		if ((head[0] != 3 && head[0] != 11 && head[0] != 12) ||
		    bpf_skb_load_bytes(skb, inner, ip, 20) || ip[9] != IPPROTO_TCP)
			return 0;
		__builtin_memcpy(addr, ip + 12, 8);
		tbg_map_v4(p->key.local, addr[0]);
		tbg_map_v4(p->key.remote, addr[1]);
		inner += (ip[0] & 0xf) * 4;
	}
	if (bpf_skb_load_bytes(skb, inner, ports, 8))
		return 0;
	p->key.local_port = ports[0];
	p->key.remote_port = ports[1];
	__builtin_memcpy(&seq, ports + 2, 4);
	*ret_seq = bpf_ntohl(seq);
	*ret_mtu = tbg_icmp_mtu(head, p->v6);
	return inner;
}

#endif
