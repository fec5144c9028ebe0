/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The request's own skb turned into the reply's segments: grown or cut to size,
 * headers rewritten, body copied from the blob, Date or Age patched in. All but the
 * last leave as clones. Split in two, since only the first half can fail:
 * tbg_reply_room() before the flow is claimed, tbg_reply_send() after; what
 * fails there is like a segment lost on the way.
 */
#ifndef TBG_WIRE_REPLY_BPF_H
#define TBG_WIRE_REPLY_BPF_H

#include <bpf/bpf_core_read.h>

#include "../lookup.bpf.h"
#include "flow.bpf.h"

/*
 * skb->mark of our own replies, from here to our egress program. Set by the
 * daemon before loading, another for each: where two daemons share an
 * interface, neither may take the other's replies for its own.
 */
const volatile __u32 tbg_mark = 0x74620000;

/* What a reply takes from its flow, under the flow's lock. */
static __always_inline void tbg_reply_flow(struct tbg_reply *r,
					   struct tbg_flow_locked *f,
					   __u32 now_ms)
{
	r->tsval = tbg_seq_max(f->tsval, now_ms + f->tsoff);
	f->tsval = r->tsval;
	r->ts = !!(f->flags & TBG_FLOW_TS);
	r->win = f->win;
	r->ttl = f->ttl;
	r->tos = f->tos;
	r->flowinfo = f->flowinfo;
}

static __always_inline void tbg_count_sent(enum tbg_why why, __u32 bytes)
{
	__u32 zero = 0;
	struct tbg_stats *st = bpf_map_lookup_elem(&tbg_stats, &zero);

	if (st)
		st->wire_bytes += bytes;
	tbg_count(why);
}

/* Sum of the 29 Date bytes, zero-padded in the ring, from an even offset. */
static __always_inline __u64 tbg_date_sum(const struct tbg_date *d)
{
	const __u32 *half = (const __u32 *)d->text;
	__u64 sum = 0;
	int i;

#pragma unroll
	for (i = 0; i < 8; i++)
		sum += half[i];
	return sum;
}

/*
 * Whether the device takes an IP packet of len bytes now: its MTU may have
 * shrunk since the handshake, and a redirected frame is checked by nobody.
 */
static __always_inline bool tbg_mtu_holds(struct __sk_buff *skb, __u32 len)
{
	__u32 mtu_len = len;

	return !bpf_check_mtu(skb, 0, &mtu_len, 0, 0);
}

#define TBG_AF_INET 2
#define TBG_AF_INET6 10
#define TBG_HOLLOW 512		/* no skb is as small; skb_set_tcp_pure_ack says 2 */

struct sk_buff___wire {
	unsigned int truesize;
} __attribute__((preserve_access_index));

static __always_inline __u32 tbg_truesize(struct __sk_buff *skb)
{
	__u32 size = TBG_HOLLOW;

	bpf_probe_read_kernel(&size, sizeof(size), (void *)skb +
		bpf_core_field_offset(struct sk_buff___wire, truesize));
	return size;
}

/*
 * Whether skb is of a client on this machine. It still has its socket, and then
 * its truesize does not grow with it (pskb_expand_head).
 */
static __always_inline bool tbg_is_local(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;

	return sk && (sk->family == TBG_AF_INET || sk->family == TBG_AF_INET6);
}

/*
 * The most of len payload bytes that skb may grow to. The receiver's TCP takes
 * length by truesize, in eight bits of 256ths, for the part of its buffer that
 * holds payload (tcp_measure_rcv_mss, 6.5 on): up to a quarter past a multiple,
 * its window all but closes, and where it gets 0, tcp_rcvbuf_grow divides by it.
 */
static __always_inline __u32 tbg_reply_true(struct __sk_buff *skb, __u32 len)
{
	__u32 size, over;

	if (!tbg_is_local(skb))
		return len;
	size = tbg_truesize(skb);
	if (!size || len < size)
		return len;
	over = len % size;
	return over < size / 4 ? len - over - 4 : len;
}

/*
 * Makes the frame as long as the reply will be. soft: the checksum was not
 * offloaded, and a cut must not leave CHECKSUM_COMPLETE behind, which only
 * growing clears. A hollow skb grows by what its truesize leaves out, and is cut
 * again. Returns 0 or negative: the frame is as it was, but maybe longer.
 */
static __always_inline int tbg_reply_room(struct __sk_buff *skb, __u32 frame,
					  bool soft)
{
	if (soft && frame <= skb->len &&
	    bpf_skb_change_tail(skb, skb->len + 1, 0))
		return -1;
	if (tbg_truesize(skb) < TBG_HOLLOW &&
	    bpf_skb_change_tail(skb, frame + 2 * TBG_HOLLOW, 0))
		return -1;
	return bpf_skb_change_tail(skb, frame, 0);
}

/*
 * How the reply is cut for segments of at most mss bytes. A later segment
 * begins at a multiple of 4, where its checksum is to be had (TBG_SUM_STRIDE).
 * 0 or a why.
 */
static __always_inline int tbg_reply_cut(struct __sk_buff *skb,
					 struct tbg_reply *r, __u32 mss)
{
	__u32 len = r->len;

	if (mss > TBG_SEG_BYTES)
		mss = TBG_SEG_BYTES;
	len = tbg_reply_true(skb, len < mss ? len : mss);
	r->seg = r->len;
	r->nr = 1;
	if (r->len <= len)
		return 0;
	r->seg = len & ~3u;
	if (r->part.off || r->part.date_off + TBG_DATE_LEN > r->seg)
		return TBG_WHY_SIZE;
	r->nr = (r->len + r->seg - 1) / r->seg;
	return 0;
}

/*
 * Payload that is not the beginning of a blob. The verifier can't relate an
 * offset to a length, the dynptr checks both.
 */
static __always_inline int tbg_reply_chunk(struct __sk_buff *skb, __u32 off,
					   void *data, __u32 size,
					   const struct tbg_reply *r)
{
	struct tbg_chunk *c;
	struct bpf_dynptr d;
	__u64 n = r->bytes;
	__u32 zero = 0;

	c = bpf_map_lookup_elem(&tbg_chunks, &zero);
	if (!c || bpf_dynptr_from_mem(data, size, 0, &d))
		return -1;
	TBG_BOUND(n, sizeof(c->b), return -1);
	if (bpf_dynptr_read(c->b, n, &d, r->at, 0))
		return -1;
	return bpf_skb_store_bytes(skb, off, c->b, n, 0);
}

/* Copies the segment's payload out of its blob to off of the frame. */
static __always_inline int tbg_reply_body(struct __sk_buff *skb, __u32 off,
					  const struct tbg_reply *r)
{
	__u32 slot = TBG_BLOB_SLOT(r->blob);
	__u64 n = r->bytes;

	switch (TBG_BLOB_CLASS(r->blob)) {
#define X(name, bytes, percent)						\
	case TBG_CLASS_##name: {					\
		struct tbg_slot_##name *b =				\
			bpf_map_lookup_elem(&tbg_blob_##name, &slot);	\
									\
		if (!b)							\
			return -1;					\
		if (r->part_id == TBG_PART_304) {				\
			__u64 at = b->head.part[TBG_PART_304].off;	\
									\
			tbg_hide(at);					\
			if (at > sizeof(b->data) - TBG_304_ROOM)	\
				return -1;				\
			TBG_BOUND(n, TBG_304_ROOM, return -1);		\
			return bpf_skb_store_bytes(skb, off,		\
						   b->data + at, n, 0);	\
		}							\
		if (r->at)						\
			return tbg_reply_chunk(skb, off, b->data,	\
					       sizeof(b->data), r);	\
		TBG_BOUND(n, sizeof(b->data), return -1);		\
		return bpf_skb_store_bytes(skb, off, b->data, n, 0);	\
	}
	TBG_CLASS_LIST(X)
#undef X
	}
	return -1;
}

/* Folded sum of the first at bytes of a blob, a multiple of 4; or negative. */
__attribute__((noinline)) int tbg_blob_sum(__u32 blob, __u32 at)
{
	__u32 slot = TBG_BLOB_SLOT(blob), rest = at & (TBG_SUM_STRIDE - 4);
	__u64 i = at / TBG_SUM_STRIDE;

	switch (TBG_BLOB_CLASS(blob)) {
#define X(name, bytes_, percent)					\
	case TBG_CLASS_##name: {					\
		struct tbg_slot_##name *b =				\
			bpf_map_lookup_elem(&tbg_blob_##name, &slot);	\
									\
		tbg_hide(i);						\
		if (!b || i > (sizeof(b->data) - 1) / TBG_SUM_STRIDE)	\
			return -1;					\
		return tbg_csum_fold(b->sums[i] + (__u32)bpf_csum_diff(	\
			NULL, 0, (void *)(b->data + i * TBG_SUM_STRIDE),	\
			rest, 0));					\
	}
	TBG_CLASS_LIST(X)
#undef X
	}
	return -1;
}

/* Builds the IPv4 header; returns its length. */
static __always_inline __u32 tbg_reply_ipv4(struct __sk_buff *skb,
					    const struct tbg_pkt *p,
					    const struct tbg_reply *r,
					    __u32 tcp_len)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.tos = r->tos,
		.tot_len = bpf_htons(sizeof(ip) + tcp_len),
		.frag_off = r->may_fragment ? 0 : bpf_htons(0x4000),
		.ttl = r->ttl,
		.protocol = IPPROTO_TCP,
		.saddr = r->to_stack ? p->key.remote[3] : p->key.local[3],
		.daddr = r->to_stack ? p->key.local[3] : p->key.remote[3],
	};
	const __u32 *w = (const void *)&ip;

	ip.check = ~tbg_csum_fold((__u64)w[0] + w[1] + w[2] + w[3] + w[4]);
	return bpf_skb_store_bytes(skb, p->l3, &ip, sizeof(ip), 0);
}

static __always_inline __u32 tbg_reply_ipv6(struct __sk_buff *skb,
					    const struct tbg_pkt *p,
					    const struct tbg_reply *r,
					    __u32 tcp_len)
{
	struct ipv6hdr ip;

	*(__u32 *)&ip = r->flowinfo;
	ip.payload_len = bpf_htons(tcp_len);
	ip.nexthdr = IPPROTO_TCP;
	ip.hop_limit = r->ttl;
	__builtin_memcpy(&ip.saddr,
			 r->to_stack ? p->key.remote : p->key.local, 16);
	__builtin_memcpy(&ip.daddr,
			 r->to_stack ? p->key.local : p->key.remote, 16);
	return bpf_skb_store_bytes(skb, p->l3, &ip, sizeof(ip), 0);
}

/*
 * Writes the TCP header. body_sum is the payload's sum. The checksum goes in
 * as the folded pseudo-header first, and then the difference through
 * bpf_l4_csum_replace: with CHECKSUM_PARTIAL that is a no-op and the device
 * completes the sum, otherwise it yields the full checksum.
 */
static __always_inline void tbg_reply_tcp(struct __sk_buff *skb,
					  const struct tbg_pkt *p,
					  const struct tbg_reply *r,
					  __u64 body_sum)
{
	bool ts = r->ts;
	__u32 head = ts ? 32 : 20;
	__u32 w[8];
	__u64 sum, pseudo;
	__u16 folded;
	int i;

	w[0] = r->to_stack ?
	       (__u32)p->key.remote_port | (__u32)p->key.local_port << 16 :
	       (__u32)p->key.local_port | (__u32)p->key.remote_port << 16;
	w[1] = bpf_htonl(r->seq);
	w[2] = bpf_htonl(r->ack);
	w[3] = bpf_htonl((head / 4) << 28 |
			 (TBG_TCP_ACK | (r->push ? TBG_TCP_PSH : 0)) << 16 |
			 bpf_ntohs(r->win));
	pseudo = (__u64)p->addr_sum + bpf_htons(IPPROTO_TCP) +
		 bpf_htons(head + r->bytes);
	folded = tbg_csum_fold(pseudo);
	w[4] = 0;
	w[5] = TBG_OPT_PLAIN_TS;
	w[6] = bpf_htonl(r->tsval);
	w[7] = bpf_htonl(r->tsecr);
	sum = pseudo + folded + body_sum;
#pragma unroll
	for (i = 0; i < 5; i++)
		sum += w[i];
	if (ts)
		sum += (__u64)w[5] + w[6] + w[7];
	w[4] = folded;	/* little-endian: check is the low half of the word */
	if (ts)
		bpf_skb_store_bytes(skb, p->l4, w, 32, 0);
	else
		bpf_skb_store_bytes(skb, p->l4, w, 20, 0);
	bpf_l4_csum_replace(skb, p->l4 + 16, 0, tbg_csum_fold(sum), 0);
}

/* All headers of s->reply; body_sum is the payload's, which is in place. */
__attribute__((noinline)) int tbg_reply_heads(struct __sk_buff *skb,
					      struct tbg_scratch *s,
					      __u64 body_sum)
{
	__u8 mac[12], swapped[12];
	struct tbg_reply *r;
	struct tbg_pkt *p;
	__u32 tcp_len;

	if (!s)
		return -1;
	r = &s->reply;
	p = &s->pkt;
	tcp_len = (r->ts ? 32 : 20) + r->bytes;
	if (r->turned == r->to_stack) {
		bpf_skb_load_bytes(skb, 0, mac, sizeof(mac));
		__builtin_memcpy(swapped, mac + 6, 6);
		__builtin_memcpy(swapped + 6, mac, 6);
		bpf_skb_store_bytes(skb, 0, swapped, sizeof(swapped), 0);
		r->turned = !r->to_stack;
	}
	if (p->v6)
		tbg_reply_ipv6(skb, p, r, tcp_len);
	else
		tbg_reply_ipv4(skb, p, r, tcp_len);
	tbg_reply_tcp(skb, p, r, body_sum);
	return 0;
}

/* Writes the Date or the Age that the blob leaves open; its sum. */
__attribute__((noinline)) int tbg_reply_timed(struct __sk_buff *skb,
					      struct tbg_scratch *s, __u32 off)
{
	struct tbg_knob *knob = tbg_knob_get();
	const struct tbg_date *date;
	__u64 age, text = 0, len;	/* TBG_AGE_MAX bytes of text */
	__u32 i;
	struct tbg_reply *r;

	if (!s || !knob)
		return 0;
	r = &s->reply;
	off += r->part.date_off;
	len = r->age_len;
	if (!len) {
		date = &knob->date[r->date_s & (TBG_DATE_RING - 1)];
		bpf_skb_store_bytes(skb, off, date->text, TBG_DATE_LEN, 0);
		return tbg_csum_at(tbg_date_sum(date), r->part.date_off);
	}
	/* from the last digit to the first, which is the word's lowest byte */
	age = r->date_s;
	for (i = 0; i < TBG_AGE_MAX; i++) {
		text = text << 8 | ('0' + age % 10);
		age /= 10;
	}
	text >>= (TBG_AGE_MAX - len) % TBG_AGE_MAX * 8;
	TBG_BOUND(len, TBG_AGE_MAX, return 0);
	bpf_skb_store_bytes(skb, off, &text, len, 0);
	return tbg_csum_at(tbg_csum_add64(0, text), r->part.date_off);
}

/*
 * Makes skb, whose headers have room for the first segment, the i-th one.
 * Negative where the slot does not hold what was promised, or without memory.
 */
__attribute__((noinline)) int tbg_reply_write(struct __sk_buff *skb,
					      struct tbg_scratch *s, __u32 i)
{
	struct tbg_reply *r;
	__u32 off, end;
	int from = 0, to;
	__u64 sum;

	if (!s)
		return -1;
	r = &s->reply;
	r->at = i * r->seg;
	end = r->at + r->seg;
	r->push = end >= r->len;
	if (r->push)
		end = r->len;
	r->bytes = end - r->at;
	r->seq = r->first_seq + r->at;
	r->ack = r->acks[r->push];
	off = s->pkt.l4 + (r->ts ? 32 : 20);
	if (skb->len != off + r->bytes &&
	    bpf_skb_change_tail(skb, off + r->bytes, 0))
		return -1;
	if (tbg_reply_body(skb, off, r))
		return -1;
	if (r->at)
		from = r->sum_at == r->at ? r->sum : tbg_blob_sum(r->blob, r->at);
	to = r->push ? r->part.csum : tbg_blob_sum(r->blob, end);
	if (from < 0 || to < 0)
		return -1;
	sum = (__u32)to + (0xffff - (__u32)from);
	r->sum_at = end;
	r->sum = to;
	if (!r->at)
		sum += (__u32)tbg_reply_timed(skb, s, off);
	return tbg_reply_heads(skb, s, sum);
}

/*
 * Sends the segments that mask names, all but the last of them as clones, and
 * leaves skb as that last one. Negative: skb is not fit to be sent.
 */
static __always_inline int tbg_reply_send(struct __sk_buff *skb,
					  struct tbg_scratch *s, __u32 mask)
{
	__u32 i;

	for (i = 0; i < TBG_SEG_MAX; i++) {
		if (!(mask >> i & 1))
			continue;
		if (tbg_reply_write(skb, s, i))
			return -1;
		if (!(mask >> i >> 1))
			return 0;
		skb->mark = tbg_mark;
		bpf_clone_redirect(skb, skb->ifindex, 0);
	}
	return -1;
}

/* The last piece: out by the way it came, past our own egress program. */
static __always_inline int tbg_reply_last(struct __sk_buff *skb)
{
	skb->mark = tbg_mark;
	return bpf_redirect(skb->ifindex, 0);
}

#endif
