// SPDX-License-Identifier: GPL-2.0
/*
 * Makes segments of a client, see segment.h.
 */
#include "tiers/segment.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <netinet/ip.h>
#include <stdbool.h>
#include <string.h>

#include "core/csum.h"

static void frame_add(struct tbg_segment *f, const void *at, size_t len)
{
	memcpy(f->b + f->len, at, len);
	f->len += len;
}

void tbg_segment_make(struct tbg_segment *f, const struct tbg_tcb_key *key,
		      const struct tbg_tcb *t, const uint8_t *b, uint32_t len)
{
	bool ts = t->flags & TBG_FLOW_TS, v6 = t->flags & TBG_FLOW_V6;
	uint16_t proto = htons(v6 ? ETH_P_IPV6 : ETH_P_IP), tag = htons(ETH_P_8021Q);
	struct tcphdr tcp = {
		.source = key->flow.remote_port, .dest = key->flow.local_port,
		.seq = htonl(t->rcv_nxt), .ack_seq = htonl(t->acked),
		.doff = ts ? 8 : 5, .ack = 1, .window = htons(0xffff),
	};
	uint32_t opt[3] = { htonl(0x0101080a), htonl(t->tsrecent), htonl(t->tsval) };
	uint16_t tcp_len = ts ? 32 : 20;

	f->len = 0;
	frame_add(f, t->own, ETH_ALEN);
	frame_add(f, t->mac, ETH_ALEN);
	if (t->vlan) {
		frame_add(f, &tag, 2);
		frame_add(f, &t->vlan, 2);
	}
	frame_add(f, &proto, 2);
	f->l3 = f->len;
	if (v6) {
		struct ip6_hdr ip = { .ip6_flow = htonl(6u << 28), .ip6_plen = htons(tcp_len + len),
				      .ip6_nxt = IPPROTO_TCP, .ip6_hlim = 64 };

		memcpy(&ip.ip6_src, key->flow.remote, 16);
		memcpy(&ip.ip6_dst, key->flow.local, 16);
		frame_add(f, &ip, sizeof(ip));
	} else {
		struct iphdr ip = { .version = 4, .ihl = 5, .ttl = 64,
				    .protocol = IPPROTO_TCP,
				    .tot_len = htons(sizeof(ip) + tcp_len + len),
				    .saddr = key->flow.remote[3],
				    .daddr = key->flow.local[3] };

		frame_add(f, &ip, sizeof(ip));
	}
	f->l4 = f->len;
	frame_add(f, &tcp, sizeof(tcp));
	if (ts)
		frame_add(f, opt, sizeof(opt));
	if (len)
		frame_add(f, b, len);
}

void tbg_segment_seal(struct tbg_segment *f, uint8_t flags, uint16_t window)
{
	uint8_t *ip = f->b + f->l3, *tcp = f->b + f->l4;
	bool v6 = ip[0] >> 4 == 6;
	size_t len = f->len - f->l4, addresses = v6 ? 32 : 8;
	uint16_t field = htons(window);
	uint64_t sum;

	tcp[13] = flags;
	memcpy(tcp + 14, &field, 2);
	/* the header's field is still zero; the pseudo-header has the addresses */
	sum = (uint64_t)tbg_csum_bytes(tcp, len) + tbg_csum_bytes(tcp - addresses, addresses) +
	      htons(IPPROTO_TCP) + htons(len);
	field = ~tbg_csum_fold(sum);
	memcpy(tcp + 16, &field, 2);
	if (v6)
		return;
	field = ~tbg_csum_bytes(ip, sizeof(struct iphdr));
	memcpy(ip + 10, &field, 2);
}
