// SPDX-License-Identifier: GPL-2.0
/*
 * The floor under any answer at the packet: a TC ingress program that sends
 * each UDP datagram for PORT back to where it came from, unchanged but for the
 * swapped addresses. It has no parsing, lookup, state or checksum: the rest is the kernel's
 * cost of one packet in and one packet out. `bench`
 * attaches it; it must never run on an interface that anything else uses.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PORT 8080

SEC("classifier")
int reflect(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	unsigned char mac[ETH_ALEN];
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	__be32 addr;
	__be16 port;

	if ((void *)(udp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) ||
	    ip->ihl != 5 || ip->protocol != IPPROTO_UDP ||
	    udp->dest != bpf_htons(PORT))
		return TC_ACT_OK;

	__builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, mac, ETH_ALEN);
	addr = ip->saddr;
	ip->saddr = ip->daddr;
	ip->daddr = addr;
	port = udp->source;
	udp->source = udp->dest;
	udp->dest = port;
	return bpf_redirect(skb->ifindex, 0);
}

char _license[] SEC("license") = "GPL";
