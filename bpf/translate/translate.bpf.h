/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Translation of a segment between the client's numbers and the socket's:
 * sequence, acknowledgement, SACK blocks, and their share of the checksum.
 * Correct for every checksum state and for GSO: bpf_l4_csum_replace()
 * without BPF_F_PSEUDO_HDR does not change CHECKSUM_PARTIAL.
 */
#ifndef TBG_TRANSLATE_TRANSLATE_BPF_H
#define TBG_TRANSLATE_TRANSLATE_BPF_H

#include "flow.bpf.h"

/*
 * What is added in one direction. Acknowledgement numbers not far below floor
 * become floor; those at most slack above ceil become ceil.
 */
struct tbg_shift {
	__u32 seq;	/* added to the sequence number */
	__u32 ack;	/* added to the acknowledgement */
	__u32 sack;	/* added to SACK blocks */
	__u32 floor;	/* in the numbers of the packet as received */
	__u32 ceil, slack;
	__u32 tsval;	/* the timestamp must not be older than this */
	__u16 window;	/* the raw field */
	bool floored;
	bool timed;	/* tsval is set */
	bool narrowed;	/* window is set */
};

#define TBG_OPT_NONE 253	/* for experiments (RFC 4727): the stack skips it */

/* Limits n, an acknowledgement number of the packet, to floor and ceil. */
static __always_inline __u32 tbg_shift_clamp(const struct tbg_shift *t, __u32 n)
{
	if (t->floored && t->floor - n <= TBG_OLD_ACK)
		n = t->floor;
	/* the client has from wire what the socket has not sent yet */
	if (n - t->ceil <= t->slack)
		n = t->ceil;
	return n;
}

/* Writes size bytes (4 or 8) at off of the frame and updates the checksum. */
static __always_inline void tbg_rewrite(struct __sk_buff *skb, __u32 off,
					__u32 l4, __u32 *old, __u32 *new,
					__u32 size)
{
	__u64 diff = (__u64)(__u32)~old[0] + new[0];

	if (size == 8)
		diff += (__u64)(__u32)~old[1] + new[1];
	diff = tbg_csum_fold(diff);
	if ((off - l4) & 1)
		diff = tbg_csum_odd(diff);
	bpf_l4_csum_replace(skb, l4 + 16, 0, diff, 0);
	bpf_skb_store_bytes(skb, off, new, size, 0);
}

/*
 * Translates SACK blocks (RFC 2018). A block with only bytes of wire would be
 * empty for the socket, which would take it for a duplicate; one after a hole of
 * only such bytes would begin at the socket's next number, and the socket would
 * discard it. In both cases the whole option is removed.
 */
static __always_inline void tbg_translate_sack(struct __sk_buff *skb,
					       struct tbg_scratch *s,
					       const struct tbg_shift *t)
{
	__u32 ack = bpf_htonl(tbg_shift_clamp(t, s->pkt.ack) + t->ack);
	__u32 i, off, by, old[2], new[2];
	struct tbg_tcpopt *opt;
	bool empty = false;

	opt = tbg_pkt_options(skb, s);
	for (i = 0; i < 4 && i < opt->sack_nr; i++) {
		off = s->pkt.l4 + 20 + opt->sack_off + i * 8;
		if (bpf_skb_load_bytes(skb, off, old, 8))
			return;
		/* below the ACK it reports a duplicate (RFC 2883), and must stay there */
		by = (__s32)(bpf_ntohl(old[0]) - s->pkt.ack) < 0 ? t->ack : t->sack;
		new[0] = bpf_htonl(tbg_shift_clamp(t, bpf_ntohl(old[0])) + by);
		new[1] = bpf_htonl(tbg_shift_clamp(t, bpf_ntohl(old[1])) + by);
		empty |= new[0] == new[1] || (t->floored && new[0] == ack);
		tbg_rewrite(skb, off, s->pkt.l4, old, new, 8);
	}
	off = s->pkt.l4 + 18 + opt->sack_off;
	if (!empty || bpf_skb_load_bytes(skb, off, old, 4))
		return;
	new[0] = (old[0] & ~0xffu) | TBG_OPT_NONE;	/* the first byte */
	tbg_rewrite(skb, off, s->pkt.l4, old, new, 4);
}

/* Translates the whole segment in s->pkt. */
__attribute__((noinline)) int tbg_translate(struct __sk_buff *skb, struct tbg_scratch *s,
					    const struct tbg_shift *t)
{
	__u32 old[2], new[2];
	struct tbg_pkt *p;

	if (!s || !t)
		return 0;
	p = &s->pkt;
	old[0] = bpf_htonl(p->seq);
	old[1] = bpf_htonl(p->ack);
	new[0] = bpf_htonl(p->seq + t->seq);
	new[1] = old[1];
	if (p->tcp_flags & TBG_TCP_ACK)
		new[1] = bpf_htonl(tbg_shift_clamp(t, p->ack) + t->ack);
	if (old[0] != new[0] || old[1] != new[1])
		tbg_rewrite(skb, p->l4 + 4, p->l4, old, new, 8);
	if (t->timed) {
		old[0] = bpf_htonl(p->tsval);
		new[0] = bpf_htonl(t->tsval);
		tbg_rewrite(skb, p->l4 + 24, p->l4, old, new, 4);
	}
	if (t->narrowed && !bpf_skb_load_bytes(skb, p->l4 + 12, old, 4)) {
		new[0] = bpf_htonl((bpf_ntohl(old[0]) & ~0xffffu) | t->window);
		tbg_rewrite(skb, p->l4 + 12, p->l4, old, new, 4);
	}
	if (p->opt_len && !p->plain_ts)
		tbg_translate_sack(skb, s, t);
	return 0;
}

#endif
