/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the kernel has between the ends of a segment, and where that came from:
 * what a connection's birth asks, on either way. Changes nothing.
 */
#ifndef TBG_WIRE_SOCKET_BPF_H
#define TBG_WIRE_SOCKET_BPF_H

#include "packet.bpf.h"

/* Tests have no sockets, and set it to 0 before loading. */
const volatile __u32 tbg_sockets = 1;

/*
 * A VLAN tag, wherever it is: XDP does not see one that the device took off. A tag
 * of priority alone names no VLAN (IEEE 802.1Q 6.9.1).
 */
static __always_inline bool tbg_is_tagged(struct __sk_buff *skb,
					  const struct tbg_pkt *p)
{
	return (skb->vlan_present && skb->vlan_tci & 0xfff) || p->l3 != ETH_HLEN;
}

/* The VLANs of a frame, the inner one in the lower 12 bits. */
static __always_inline __u32 tbg_vlans(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	__u32 ret = skb->vlan_present ? skb->vlan_tci & 0xfff : 0;
	__be16 tci = 0;

	if (p->l3 == ETH_HLEN)
		return ret;
	bpf_skb_load_bytes(skb, p->l3 - 4, &tci, sizeof(tci));
	return ret << 12 | (bpf_ntohs(tci) & 0xfff);
}

/*
 * fe80::/10 (RFC 4291 2.5.6): the same address may be on another link, and its
 * connection have the same ends. Flows do not tell links apart, so it gets none.
 */
static __always_inline bool tbg_is_link_local(const struct tbg_flow_key *key)
{
	return (key->remote[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

/*
 * The socket between these ends, of any kind (of a handshake, in TIME_WAIT), else who
 * listens there; the caller releases it.
 */
static __always_inline struct bpf_sock *
tbg_socket_find(struct __sk_buff *skb, const struct tbg_flow_key *key, bool v6)
{
	struct bpf_sock_tuple tuple = {};

	if (v6) {
		__builtin_memcpy(tuple.ipv6.saddr, key->remote, 16);
		__builtin_memcpy(tuple.ipv6.daddr, key->local, 16);
		tuple.ipv6.sport = key->remote_port;
		tuple.ipv6.dport = key->local_port;
		return bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6),
					  BPF_F_CURRENT_NETNS, 0);
	}
	tuple.ipv4.saddr = key->remote[3];
	tuple.ipv4.daddr = key->local[3];
	tuple.ipv4.sport = key->remote_port;
	tuple.ipv4.dport = key->local_port;
	return bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4),
				  BPF_F_CURRENT_NETNS, 0);
}

#endif
