/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Parses a frame into struct tbg_pkt, for both directions and both hooks. Works on
 * non-linear frames too. Changes nothing in the frame.
 */
#ifndef TBG_WIRE_PACKET_BPF_H
#define TBG_WIRE_PACKET_BPF_H

#include <stdbool.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>

#include "../compat.bpf.h"
#include "frame.bpf.h"
#include "maps.bpf.h"

/* Continues with the next program on the hook, if any, then with the stack or the device. */
#define TBG_PASS TC_ACT_UNSPEC

#define TBG_TCP_FIN 0x01
#define TBG_TCP_SYN 0x02
#define TBG_TCP_RST 0x04
#define TBG_TCP_PSH 0x08
#define TBG_TCP_ACK 0x10

#define TBG_EXT_MAX 8192	/* IPv6 extension headers: more do not fit into a packet */
#define TBG_OPT_PLAIN_TS bpf_htonl(0x0101080a)	/* NOP NOP TS(10) */

/* What tbg_pkt_parse() found. CUT: a fragment that ends within the TCP header. */
enum tbg_pkt_kind { TBG_PKT_TCP, TBG_PKT_ICMP, TBG_PKT_CUT, TBG_PKT_OTHER };

/* Hop-by-hop options, routing, fragment, destination options (RFC 8200 4.1). */
static __always_inline bool tbg_is_ext(int next)
{
	return next == 0 || next == 43 || next == 44 || next == 60;
}

static __always_inline __u64 tbg_pair(__u32 low, __u32 high)
{
	return low | (__u64)high << 32;
}

static __always_inline void tbg_map_v4(__u32 ret[4], __u32 addr)
{
	ret[0] = 0;
	ret[1] = 0;
	ret[2] = bpf_htonl(0xffff);
	ret[3] = addr;
}

static __always_inline bool tbg_is_mapped(const __u32 addr[4])
{
	return addr[2] == bpf_htonl(0xffff) && !(addr[0] | addr[1]);
}

/* Parses the IPv4 header at p->l3. Returns the protocol, or -1 for packets to leave alone. */
static __always_inline int tbg_pkt_ipv4(struct tbg_frame *frame,
					struct tbg_pkt *p, bool ingress)
{
	const __u32 *w;
	struct iphdr ip;
	__u32 total;

	w = (const void *)&ip;
	if (tbg_load_words(frame, p->l3, &ip, sizeof(ip) / 4))
		return -1;
	if (ip.version != 4 || ip.ihl < 5 || ip.frag_off & bpf_htons(0x1fff))
		return -1;
	total = bpf_ntohs(ip.tot_len);
	if (!total && tbg_frame_gso(frame))	/* BIG TCP */
		total = tbg_frame_len(frame) - p->l3;
	p->l4 = p->l3 + ip.ihl * 4;
	p->payload_len = total - ip.ihl * 4;
	if (total < ip.ihl * 4 || total > tbg_frame_len(frame) - p->l3)
		return -1;
	/* the header's checksum is not verified before the IP layer */
	p->frag = !!(ip.frag_off & bpf_htons(0x2000));
	p->odd = ip.ihl != 5 || p->frag ||
		 tbg_csum_fold((__u64)w[0] + w[1] + w[2] + w[3] + w[4]) != 0xffff;
	p->ecn = ip.tos & 3;
	p->v6 = 0;
	p->addr_sum = tbg_csum_fold((__u64)ip.saddr + ip.daddr);
	tbg_map_v4(ingress ? p->key.remote : p->key.local, ip.saddr);
	tbg_map_v4(ingress ? p->key.local : p->key.remote, ip.daddr);
	return ip.protocol;
}

/* A chain of IPv6 extension headers and how far it has been followed. */
struct tbg_chain {
	struct tbg_frame *frame;
	struct tbg_pkt *p;	/* l4 and frag are set */
	__u32 total;		/* bytes from l4 on */
	/* type of the header at l4; -1: malformed, or not the first fragment */
	int next;
};

/* Skips one header of the chain. */
static long tbg_chain_step(__u32 i, void *arg)
{
	struct tbg_chain *c = arg;
	struct tbg_pkt *p = c->p;
	__u32 size;
	__u8 ext[8];

	if (!tbg_is_ext(c->next))
		return 1;
	if (tbg_load(c->frame, p->l4, ext, 8))
		goto broken;
	if (c->next == 44 && ((ext[2] << 8 | ext[3]) & 0xfff8))
		goto broken;
	if (c->next == 44)
		p->frag |= ext[3] & 1;
	size = c->next == 44 ? 8 : (ext[1] + 1) * 8;
	if (size > c->total)
		goto broken;
	c->next = ext[0];
	c->total -= size;
	p->l4 += size;
	return 0;
broken:
	c->next = -1;
	return 1;
}

/*
 * Parses the IPv6 header at p->l3, as tbg_pkt_ipv4(). The stack follows a chain of
 * extension headers of any length, so this must too: a segment that it did not
 * recognize would reach a socket with numbers that the socket does not know.
 */
static __always_inline int tbg_pkt_ipv6(struct tbg_frame *frame,
					struct tbg_pkt *p, bool ingress)
{
	struct ipv6hdr ip;
	struct tbg_chain c;
	__u32 total, sum = 0;
	__u64 wide = 0;
	int i;

	if (tbg_load_words(frame, p->l3, &ip, sizeof(ip) / 4))
		return -1;
	if (ip.version != 6)
		return -1;
	total = bpf_ntohs(ip.payload_len);
	if (!total && tbg_frame_gso(frame))	/* BIG TCP */
		total = tbg_frame_len(frame) - p->l3 - sizeof(ip);
	if (total > tbg_frame_len(frame) - p->l3 - sizeof(ip))
		return -1;
	p->l4 = p->l3 + sizeof(ip);
	p->odd = 0;
	p->frag = 0;
	c.next = ip.nexthdr;
	c.total = total;
	if (tbg_is_ext(c.next)) {
		c.frame = frame;
		c.p = p;
		p->odd = 1;
		bpf_loop(TBG_EXT_MAX, tbg_chain_step, &c, 0);
	}
	p->payload_len = c.total;
	p->ecn = ip.flow_lbl[0] >> 4 & 3;
	p->v6 = 1;
#pragma unroll
	for (i = 0; i < 4; i++) {
		__u32 s = ip.saddr.in6_u.u6_addr32[i];
		__u32 d = ip.daddr.in6_u.u6_addr32[i];

		wide += (__u64)s + d;
		p->key.remote[i] = ingress ? s : d;
		p->key.local[i] = ingress ? d : s;
	}
	/* a mapped address would be taken for IPv4: no packet may have one (RFC 4291 2.5.5.2) */
	if (tbg_is_mapped(p->key.remote) || tbg_is_mapped(p->key.local))
		return -1;
	sum = tbg_csum_fold(wide);
	p->addr_sum = sum;
	return c.next;
}

/*
 * Parses the TCP header at p->l4. payload_len is at first the length of header and
 * payload. in_map: *p is in a map. If it is on the stack, the verifier tracks p->l4,
 * and direct access with that offset would make it walk through all chains of extension
 * headers.
 */
static __always_inline int tbg_pkt_tcp(struct tbg_frame *frame, struct tbg_pkt *p,
				       bool ingress, bool in_map)
{
	__u32 raw[8] = {};	/* header and a timestamp option */
	struct tcphdr *tcp = (void *)raw;
	__u32 doff;

	if (in_map ? tbg_load_words(frame, p->l4, raw, 8) && tbg_load_words(frame, p->l4, raw, 5) :
		     tbg_load(frame, p->l4, raw, 32) && tbg_load(frame, p->l4, raw, 20))
		return -1;
	doff = tcp->doff * 4;
	if (doff < 20 || doff > p->payload_len)
		return -1;
	p->payload = p->l4 + doff;
	p->payload_len -= doff;
	p->opt_len = doff - 20;
	p->seq = bpf_ntohl(tcp->seq);
	p->ack = bpf_ntohl(tcp->ack_seq);
	p->window = bpf_ntohs(tcp->window);
	p->checked = TBG_CHECKED_NOT;
	p->loaded = 0;
	p->check = tcp->check;
	p->tcp_flags = ((__u8 *)raw)[13];
	p->ae = ((__u8 *)raw)[12] & 0xf;
	p->no_opt = doff == 20;
	p->timed = doff >= 32 && raw[5] == TBG_OPT_PLAIN_TS;
	p->plain_ts = p->timed && doff == 32;
	p->tsval = p->timed ? bpf_ntohl(raw[6]) : 0;
	p->tsecr = p->timed ? bpf_ntohl(raw[7]) : 0;
	p->key.remote_port = ingress ? tcp->source : tcp->dest;
	p->key.local_port = ingress ? tcp->dest : tcp->source;
	return 0;
}

/* Parses a fragment that ends within the TCP header. Returns 0 with key and seq set, or -1. */
static __always_inline int tbg_pkt_cut(struct tbg_frame *frame,
				       struct tbg_pkt *p, bool ingress)
{
	__be16 ports[4];	/* ports and sequence number; a shorter fragment is ignored */
	__u32 seq;

	if (!p->frag || tbg_load(frame, p->l4, ports, sizeof(ports)))
		return -1;
	__builtin_memcpy(&seq, ports + 2, 4);
	p->seq = bpf_ntohl(seq);
	p->key.remote_port = ports[!ingress];
	p->key.local_port = ports[ingress];
	return 0;
}

/*
 * Parses the frame. ingress: the destination is our end. TBG_PKT_TCP: all of *p is set.
 * TBG_PKT_ICMP: only l3, l4 and v6. TBG_PKT_CUT: those, key and seq.
 */
static __always_inline enum tbg_pkt_kind
tbg_pkt_parse(struct tbg_frame *frame, struct tbg_pkt *p, bool ingress)
{
	__be16 proto = tbg_frame_proto(frame);
	int l4_proto;

	p->l3 = ETH_HLEN;
	if (proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD)) {
		if (tbg_load(frame, ETH_HLEN + 2, &proto, 2))
			return TBG_PKT_OTHER;
		p->l3 += 4;
	}
	if (proto == bpf_htons(ETH_P_IP))
		l4_proto = tbg_pkt_ipv4(frame, p, ingress);
	else if (proto == bpf_htons(ETH_P_IPV6))
		l4_proto = tbg_pkt_ipv6(frame, p, ingress);
	else
		return TBG_PKT_OTHER;
	if (l4_proto == (p->v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP))
		return TBG_PKT_ICMP;
	if (l4_proto != IPPROTO_TCP)
		return TBG_PKT_OTHER;
	if (!tbg_pkt_tcp(frame, p, ingress, true))
		return TBG_PKT_TCP;
	return tbg_pkt_cut(frame, p, ingress) ? TBG_PKT_OTHER : TBG_PKT_CUT;
}

/* Returns whether any listener has the port. */
static __always_inline bool tbg_port_served(const struct tbg_knob *knob,
					    __be16 port)
{
	__u32 n = bpf_ntohs(port);

	return knob->ports[n >> 6 & 1023] >> (n & 63) & 1;
}

/*
 * Returns whether a listener is bound to exactly this address, or to the wildcard of
 * its family.
 */
__attribute__((noinline)) int tbg_end_served(const struct tbg_flow_key *key, bool v6)
{
	const struct tbg_knob *knob = tbg_knob_get();
	int i;

	if (!knob || !key)
		return false;
	for (i = 0; i < TBG_LISTENER_MAX; i++) {
		const struct tbg_listener *l = &knob->listener[i];

		if (l->port != key->local_port)
			continue;
		if (!(l->local[0] | l->local[1] | l->local[2] | l->local[3])) {
			if (l->v6 == v6)
				return true;
		} else if (l->local[0] == key->local[0] &&
			   l->local[1] == key->local[1] &&
			   l->local[2] == key->local[2] &&
			   l->local[3] == key->local[3]) {
			return true;
		}
	}
	return false;
}

/* Not inlined: the verifier checks it once. */
__attribute__((noinline)) int tbg_pkt_opt(struct tbg_frame *frame, struct tbg_scratch *s)
{
	__u64 len;

	if (!s)
		return 0;
	len = s->pkt.opt_len;
	s->opt.len = 0;
	if (len) {
		TBG_BOUND(len, TBG_OPT_MAX, goto parse);
		if (!tbg_load(frame, s->pkt.l4 + 20, s->opt.opt, len))
			s->opt.len = len;
	}
parse:
	tbg_tcpopt_parse(&s->opt);
	return 0;
}

/* Copies the segment's options into s->opt and parses them. */
static __always_inline struct tbg_tcpopt *
tbg_pkt_options(struct tbg_frame *frame, struct tbg_scratch *s)
{
	tbg_pkt_opt(frame, s);
	return &s->opt;
}

#endif
