// SPDX-License-Identifier: GPL-2.0
/*
 * The floor under an answer at the packet: a TC program that answers every
 * segment with payload on one port with the same bytes. It parses no request,
 * looks nothing up, keeps no flow, and reads no option. floor.c attaches it to an
 * interface.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../../bpf/compat.bpf.h"
#include "floor.h"

#define ISS 7777777
#define FIN_SYN 0x03
#define SYN_ACK 0x12
#define PSH_ACK 0x18

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct floor_reply);
} floor_replies SEC(".maps");

static __always_inline __u32 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

SEC("tc")
int tbg_floor(struct __sk_buff *skb)
{
	__u32 zero = 0, h[12], flags, len, was_len, swap, i;
	__u64 sum, pseudo, n;
	struct floor_reply *r = bpf_map_lookup_elem(&floor_replies, &zero);
	unsigned char mac[12], back[12];

	if (!r || skb->protocol != bpf_htons(ETH_P_IP) || bpf_skb_load_bytes(skb, 14, h, 40))
		return TC_ACT_OK;
	if ((bpf_ntohl(h[2]) >> 16 & 0xff) != IPPROTO_TCP || h[5] >> 16 != r->port)
		return TC_ACT_OK;
	flags = bpf_ntohl(h[8]) >> 16 & 0xff;
	was_len = (bpf_ntohl(h[0]) & 0xffff) - 20 - (bpf_ntohl(h[8]) >> 28 << 2);
	/* an acknowledgement, a FIN or a reset needs no answer */
	if (!was_len && (flags & FIN_SYN) != 2)
		return TC_ACT_SHOT;
	n = flags & 2 ? 0 : r->len;
	len = flags & 2 ? 28 : 20;
	if (bpf_skb_change_tail(skb, 34 + len + n, 0) || bpf_skb_load_bytes(skb, 0, mac, 12))
		return TC_ACT_SHOT;
	__builtin_memcpy(back, mac + 6, 6);
	__builtin_memcpy(back + 6, mac, 6);
	h[0] = bpf_htonl(0x45000000 | (20 + len + n));
	h[1] = bpf_htonl(0x4000);
	h[2] = bpf_htonl(64 << 24 | IPPROTO_TCP << 16);
	swap = h[3];
	h[3] = h[4];
	h[4] = swap;
	h[2] |= (~fold((__u64)h[0] + h[1] + h[2] + h[3] + h[4]) & 0xffff) << 16;
	h[5] = h[5] >> 16 | h[5] << 16;
	swap = bpf_ntohl(h[6]);
	h[6] = flags & 2 ? bpf_htonl(ISS) : h[7];
	h[7] = bpf_htonl(swap + was_len + !!(flags & 2));
	h[8] = bpf_htonl((len / 4) << 28 | (flags & 2 ? SYN_ACK : PSH_ACK) << 16 | 0xffff);
	pseudo = fold((__u64)h[3] + h[4] + bpf_htons(IPPROTO_TCP) + bpf_htons(len + n));
	h[9] = pseudo;
	h[10] = bpf_htonl(0x020405b4);		/* MSS 1460 */
	h[11] = bpf_htonl(0x01030307);		/* window scale 7 */
	sum = pseudo + (flags & 2 ? (__u64)h[10] + h[11] : r->sum);
#pragma unroll
	for (i = 5; i < 10; i++)
		sum += h[i];
	if (bpf_skb_store_bytes(skb, 0, back, 12, 0) ||
	    (flags & 2 ? bpf_skb_store_bytes(skb, 14, h, 48, 0) :
			 bpf_skb_store_bytes(skb, 14, h, 40, 0)))
		return TC_ACT_SHOT;
	if (!(flags & 2)) {
		TBG_BOUND(n, FLOOR_REPLY_MAX, return TC_ACT_SHOT);
		if (bpf_skb_store_bytes(skb, 54, r->bytes, n, 0))
			return TC_ACT_SHOT;
	}
	/* no effect if a device completes the sum, otherwise the difference */
	bpf_l4_csum_replace(skb, 50, 0, fold(sum), 0);
	return bpf_redirect(skb->ifindex, 0);
}

char _license[] SEC("license") = "GPL";
