/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Looks up the socket of a segment, and its VLAN and link: what must be known before a
 * connection begins, with either tier. Changes nothing.
 */
#ifndef TBG_WIRE_SOCKET_BPF_H
#define TBG_WIRE_SOCKET_BPF_H

#include "packet.bpf.h"

/* Tests have no sockets, and set this to 0 before loading. */
const volatile __u32 tbg_sockets = 1;

/*
 * Returns whether the frame has a VLAN tag, in its data or in skb->vlan_tci. XDP does
 * not see tags that the device has removed. A tag with priority only names no VLAN
 * (IEEE 802.1Q 6.9.1).
 */
static __always_inline bool tbg_is_tagged(struct __sk_buff *skb,
					  const struct tbg_pkt *p)
{
	return (skb->vlan_present && skb->vlan_tci & 0xfff) || p->l3 != ETH_HLEN;
}

/*
 * Returns the VLANs of a frame, the inner one in the lower 12 bits. More than 0xfff if
 * there are two tags, even if one names no VLAN.
 */
static __always_inline __u32 tbg_vlans(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	__u32 ret = skb->vlan_present ? skb->vlan_tci & 0xfff : 0, inner;
	__be16 tci = 0;

	if (p->l3 == ETH_HLEN)
		return ret;
	bpf_skb_load_bytes(skb, p->l3 - 4, &tci, sizeof(tci));
	inner = bpf_ntohs(tci) & 0xfff;
	/* the daemon's segments have their tag in the data */
	return skb->vlan_present ? (ret | 0x1000) << 12 | inner : inner;
}

/*
 * fe80::/10 (RFC 4291 2.5.6): another host may have the same address on another link.
 * The maps of connections do not distinguish links, so these get no connection.
 */
static __always_inline bool tbg_is_link_local(const struct tbg_flow_key *key)
{
	return (key->remote[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

/*
 * Returns the socket for these addresses and ports, of any kind (request socket,
 * TIME_WAIT); if there is none, the listener. The caller releases it.
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
