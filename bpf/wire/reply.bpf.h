/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Turns a frame into a segment of the reply: writes headers, copies the body out of the
 * blob, fills in Date or Age. Both hooks write the same bytes. The frame has its length
 * already and the exchange is claimed, so a failure here has the effect of a lost
 * segment.
 */
#ifndef TBG_WIRE_REPLY_BPF_H
#define TBG_WIRE_REPLY_BPF_H

#include "../lookup.bpf.h"
#include "flow.bpf.h"

/* Copies into *r what a reply needs of its connection. Under the lock. */
static __always_inline void tbg_reply_flow(struct tbg_reply *r,
					   struct tbg_line *f,
					   __u32 now_ms)
{
	r->tsval = tbg_seq_max(f->tsval, now_ms + f->tsoff);
	f->tsval = r->tsval;
	r->ts = !!(f->flags & TBG_FLOW_TS);
	r->win = f->win;
	__builtin_memcpy(r->mac, f->mac, sizeof(r->mac));
	r->ttl = f->ttl;
	r->tos = f->tos;
	r->flowinfo = f->flowinfo;
}

/* Returns the bytes of the response, with the Connection line. */
static __always_inline __u32 tbg_reply_total(const struct tbg_reply *r)
{
	return r->len + r->line_len;
}

/* Returns whether wire may send this reply, which is divided into segments (--wire-size). */
static __always_inline bool tbg_reply_fits(const struct tbg_knob *knob,
					   const struct tbg_reply *r)
{
	__u32 len = knob->reply_max;

	return r->nr <= TBG_SEG_MAX && (!len || r->len <= len);
}

static __always_inline void tbg_count_sent(enum tbg_why why, __u32 bytes)
{
	__u32 zero = 0;
	struct tbg_stats *st = bpf_map_lookup_elem(&tbg_stats, &zero);

	if (!st)
		return;
	st->wire_bytes += bytes;
	st->why[why]++;
}

/* Returns the sum of the 29 bytes of a Date, which is padded with zeros, at an even offset. */
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

/* Writes the TBG_DATE_LEN bytes of the Date at off of the frame. */
static __always_inline void tbg_date_store(struct tbg_frame *frame, __u32 off,
					   const struct tbg_date *d)
{
	__u8 *data = tbg_linear(frame, off, TBG_DATE_LEN);
	const __u32 *half = (const __u32 *)d->text;
	int i;

	if (!data) {
		tbg_store(frame, off, d->text, TBG_DATE_LEN);
		return;
	}
	TBG_UNROLLED
	for (i = 0; i < TBG_DATE_LEN / 4; i++)
		((__u32 *)data)[i] = half[i];
	data[TBG_DATE_LEN - 1] = d->text[TBG_DATE_LEN - 1];
}

/*
 * Returns whether the device takes an IP packet of len bytes. Its MTU may have shrunk
 * since the handshake, and the kernel does not check frames that are redirected.
 */
static __always_inline bool tbg_mtu_holds(struct tbg_frame *frame, __u32 len)
{
#ifdef TBG_DIRECT_BPF_H
	struct sk_buff___wire *b = (void *)frame;

	return len <= BPF_CORE_READ(b, dev, mtu);
#else
	__u32 mtu_len = len;

	return !bpf_check_mtu(frame, 0, &mtu_len, 0, 0);
#endif
}

/*
 * Copies payload that does not begin a blob. The verifier can't relate an offset to a
 * length; the dynptr checks both at run time.
 */
static __always_inline int tbg_reply_chunk(struct tbg_frame *frame, __u32 off,
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
	return tbg_store(frame, off, c->b, n);
}

/*
 * Most payload of an Ethernet segment: up to this length, payload needs no copy in
 * tbg_chunks.
 */
#define TBG_SEG_PLAIN 1460

/* Copies the segment's payload out of its blob to off of the frame. */
static __always_inline int tbg_reply_body(struct tbg_frame *frame, __u32 off,
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
			tbg_keep(at);					\
			if (at > sizeof(b->data) - TBG_304_ROOM)	\
				return -1;				\
			TBG_BOUND(n, TBG_304_ROOM, return -1);		\
			return tbg_store(frame, off,		\
						   b->data + at, n);	\
		}							\
		if (r->at && sizeof(b->data) > TBG_SEG_PLAIN &&		\
		    r->at <= sizeof(b->data) - TBG_SEG_PLAIN &&		\
		    n <= TBG_SEG_PLAIN) {				\
			__u64 at = r->at;				\
									\
			tbg_keep(at);					\
			if (at > sizeof(b->data) - TBG_SEG_PLAIN)	\
				return -1;				\
			TBG_BOUND(n, TBG_SEG_PLAIN, return -1);		\
			return tbg_store(frame, off,			\
						   b->data + at, n);	\
		}							\
		if (r->at)						\
			return tbg_reply_chunk(frame, off, b->data,	\
					       sizeof(b->data), r);	\
		TBG_BOUND(n, sizeof(b->data), return -1);		\
		return tbg_store(frame, off, b->data, n);	\
	}
	TBG_CLASS_LIST(X)
#undef X
	}
	return -1;
}

/*
 * Returns the wide sum of the first len bytes of a stride, a multiple of 4. Cheaper
 * than bpf_csum_diff().
 */
static __always_inline __u64 tbg_stride_sum(const __u32 *w, __u32 len)
{
	__u64 sum = 0;
	__u32 i;

	for (i = 0; i < TBG_SUM_STRIDE / 4 - 1 && 4 * i < len; i++)
		sum += w[i];
	return sum;
}

/* Returns the folded sum of the first at bytes of a blob, a multiple of 4; or negative. */
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
		tbg_keep(i);						\
		if (!b || i > (sizeof(b->data) - 1) / TBG_SUM_STRIDE)	\
			return -1;					\
		return tbg_csum_fold(b->sums[i] + tbg_stride_sum(	\
			(void *)(b->data + i * TBG_SUM_STRIDE), rest));	\
	}
	TBG_CLASS_LIST(X)
#undef X
	}
	return -1;
}

#if TBG_MAY_CLOSE
/* Adds the Connection line that shows whether the connection stays open. r->part is set. */
static __always_inline void tbg_reply_persist(struct tbg_reply *r, const struct tbg_blob *b,
					      enum tbg_persist persist)
{
	const struct tbg_blob_part *head = r->part_id == TBG_PART_GET ?
				      &b->part[TBG_PART_HEAD] : &r->part;

	r->persist = persist;
	r->head_len = head->len;
	r->head_sum = head->csum;
	switch (persist) {
#define X(name, text)						\
	case TBG_##name:					\
		r->line_len = sizeof(text) - 1;			\
		break;
	TBG_PERSIST_LIST(X)
#undef X
	}
}

/* The lines, with zeros up to their room; not on the stack, where too little room is left. */
static const __u64 tbg_persist_lines[][TBG_PERSIST_ROOM / 8] = {
#define X(name, text)							\
	[TBG_##name] = { TBG_TEXT(text), TBG_TEXT_AT(text, 8), TBG_TEXT_AT(text, 16) },
	TBG_PERSIST_LIST(X)
#undef X
};

/*
 * Completes the first segment. Its payload is at off + line_len, and sum is that of the
 * payload. Copies the head to off and puts the line after it. Returns the sum of it all, or
 * negative.
 */
static __attribute__((noinline)) int tbg_reply_line(struct tbg_frame *frame,
						    struct tbg_scratch *s, __u32 off,
						    __u64 sum)
{
	__u64 end = TBG_TEXT("\r\n"), n, line = 0, which;
	const __u64 *text;
	struct tbg_reply *r;
	__u32 at, i;

	if (!s)
		return -1;
	r = &s->reply;
	n = r->line_len;
	at = r->head_len - 2;
	r->bytes = at;
	if (r->head_len < 4 || tbg_reply_body(frame, off, r))
		return -1;
	which = r->persist;
	tbg_keep(which);
	if (which >= sizeof(tbg_persist_lines) / sizeof(*tbg_persist_lines))
		return -1;
	text = tbg_persist_lines[which];
	TBG_BOUND(n, TBG_PERSIST_ROOM, return -1);
	if (tbg_store(frame, off + at, text, n))
		return -1;
#pragma unroll
	for (i = 0; i < TBG_PERSIST_ROOM / 8; i++)
		line = tbg_csum_add64(line, text[i]);
	/*
	 * what precedes the line, the line, and what follows, whose bytes swap if the
	 * line is odd
	 */
	end = r->head_sum + (0xffff ^ tbg_csum_at(end, at));
	sum += 0xffff ^ tbg_csum_fold(end);
	return tbg_csum_fold(end + tbg_csum_at(line, at) + tbg_csum_at(sum, n));
}
#endif

#define TBG_IP6_WORDS 10
#define TBG_IP4_WORDS 5
#define TBG_TCP_WORDS 8			/* with the timestamp option */

/* Builds the IP header of a segment of tcp_len bytes, right before the TCP header in h. */
static __always_inline void tbg_reply_ipv4(__u32 *h, const struct tbg_pkt *p,
					   const struct tbg_reply *r, __u32 tcp_len)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.tos = r->tos,
		.tot_len = bpf_htons(sizeof(ip) + tcp_len),
		.frag_off = r->may_fragment ? 0 : bpf_htons(0x4000),
		/* fragments of two segments need different IDs (RFC 6864) */
		.id = r->may_fragment ? bpf_get_prandom_u32() : 0,
		.ttl = r->ttl,
		.protocol = IPPROTO_TCP,
		.saddr = r->to_stack ? p->key.remote[3] : p->key.local[3],
		.daddr = r->to_stack ? p->key.local[3] : p->key.remote[3],
	};
	const __u32 *w = (const void *)&ip;

	ip.check = ~tbg_csum_fold((__u64)w[0] + w[1] + w[2] + w[3] + w[4]);
	__builtin_memcpy(h + TBG_IP6_WORDS - TBG_IP4_WORDS, &ip, sizeof(ip));
}

static __always_inline void tbg_reply_ipv6(__u32 *h, const struct tbg_pkt *p,
					   const struct tbg_reply *r, __u32 tcp_len)
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
	__builtin_memcpy(h, &ip, sizeof(ip));
}

/*
 * Builds the TCP header; body_sum is the payload's sum. With CHECKSUM_PARTIAL, the
 * checksum field gets the sum of the pseudo-header: a device completes it.
 */
static __always_inline void tbg_reply_tcp(__u32 *w, const struct tbg_pkt *p,
					  const struct tbg_reply *r, __u64 body_sum)
{
	__u32 head = r->ts ? 32 : 20;
	__u64 sum = body_sum;
	__u16 pseudo;
	int i;

	w[0] = r->to_stack ?
	       (__u32)p->key.remote_port | (__u32)p->key.local_port << 16 :
	       (__u32)p->key.local_port | (__u32)p->key.remote_port << 16;
	w[1] = bpf_htonl(r->seq);
	w[2] = bpf_htonl(r->ack);
	w[3] = bpf_htonl((head / 4) << 28 |
			 (TBG_TCP_ACK | (r->push ? TBG_TCP_PSH : 0) |
			  (r->push || !r->bytes ? r->more : 0)) << 16 |
			 bpf_ntohs(r->win));
	w[5] = TBG_OPT_PLAIN_TS;
	w[6] = bpf_htonl(r->tsval);
	w[7] = bpf_htonl(r->tsecr);
	pseudo = tbg_csum_fold((__u64)p->addr_sum + bpf_htons(IPPROTO_TCP) +
			       bpf_htons(head + r->bytes));
#pragma unroll
	for (i = 0; i < 4; i++)
		sum += w[i];
	if (r->ts)
		sum += (__u64)w[5] + w[6] + w[7];
	/* little-endian: the checksum is the low half of the word */
	w[4] = r->summed == TBG_SUMMED_LATER ? pseudo : (__u16)~tbg_csum_fold(sum + pseudo);
}

/* Writes IP and TCP header into the frame. Returns 0 or negative. */
static __always_inline long tbg_reply_store(struct tbg_frame *frame, struct tbg_pkt *p,
					    const struct tbg_reply *r, const __u32 *h)
{
	const __u32 *ip4 = h + TBG_IP6_WORDS - TBG_IP4_WORDS;

	if (p->v6)
		return r->ts ?
		       tbg_put_words(frame, p->l3, h, TBG_IP6_WORDS + TBG_TCP_WORDS) :
		       tbg_put_words(frame, p->l3, h, TBG_IP6_WORDS + TBG_TCP_WORDS - 3);
	return r->ts ? tbg_put_words(frame, p->l3, ip4, TBG_IP4_WORDS + TBG_TCP_WORDS) :
		       tbg_put_words(frame, p->l3, ip4, TBG_IP4_WORDS + TBG_TCP_WORDS - 3);
}

/* Writes the Ethernet addresses of the reply. Returns 0 or negative. */
static __always_inline int tbg_reply_turn(struct tbg_frame *frame, struct tbg_reply *r)
{
	__u16 *mac = (void *)tbg_linear(frame, 0, 2 * ETH_ALEN);	/* destination, source */
	__u16 own[3], to[3];
	__u32 i;

	if (!mac)
		return -1;
	/* the frame's sender need not be the next hop to the client */
	TBG_UNROLLED
	for (i = 0; i < 3; i++) {
		own[i] = mac[i];
		to[i] = r->to_stack ? mac[3 + i] : r->mac[i];
	}
	TBG_UNROLLED
	for (i = 0; i < 3; i++) {
		mac[i] = to[i];
		mac[3 + i] = own[i];
	}
	r->turned = !r->to_stack;
	return 0;
}

/*
 * Writes all headers of s->reply; body_sum is the sum of the payload, which is in place. They
 * are in the frame's linear part. Returns 0 or negative.
 */
static __always_inline int tbg_reply_head(struct tbg_frame *frame, struct tbg_scratch *s,
					   __u64 body_sum)
{
	__u32 h[TBG_IP6_WORDS + TBG_TCP_WORDS] = {};
	struct tbg_reply *r = &s->reply;
	struct tbg_pkt *p = &s->pkt;
	__u32 tcp_len;

	tcp_len = (r->ts ? 32 : 20) + r->bytes;
	if (r->turned == r->to_stack && tbg_reply_turn(frame, r))
		return -1;
	if (!r->summed)
		r->summed = tbg_frame_completed(frame) ? TBG_SUMMED_LATER : TBG_SUMMED_HERE;
	if (p->v6)
		tbg_reply_ipv6(h, p, r, tcp_len);
	else
		tbg_reply_ipv4(h, p, r, tcp_len);
	tbg_reply_tcp(h + TBG_IP6_WORDS, p, r, body_sum);
	return tbg_reply_store(frame, p, r, h);
}

/* The same for segments without payload. */
__attribute__((noinline)) int tbg_reply_heads(struct tbg_frame *frame, struct tbg_scratch *s)
{
	if (!s || tbg_frame_gather(frame, s->pkt.l4 + (s->reply.ts ? 32 : 20)))
		return -1;
	return tbg_reply_head(frame, s, 0);
}

/* Fills in the Date or Age that the blob leaves open. Returns its sum. */
static __always_inline __u32 tbg_reply_timed(struct tbg_frame *frame, struct tbg_reply *r,
					     __u32 off)
{
	struct tbg_knob *knob = tbg_knob_get();
	const struct tbg_date *date;
	__u64 text, len;	/* TBG_AGE_MAX bytes of text */

	if (!knob)
		return 0;
	off += r->part.date_off;
	len = r->age_len;
	if (!len) {
		date = &knob->date[r->date_s & (TBG_DATE_RING - 1)];
		tbg_date_store(frame, off, date);
		return tbg_csum_at(tbg_date_sum(date), r->part.date_off);
	}
	text = tbg_age_text(r->date_s, len);
	TBG_BOUND(len, TBG_AGE_MAX, return 0);
	tbg_store(frame, off, &text, len);
	return tbg_csum_at(tbg_csum_add64(0, text), r->part.date_off);
}

/*
 * Makes the frame, which has the length of the first segment, the i-th segment of the
 * reply. Returns negative if the slot does not hold what it should, or without memory.
 */
__attribute__((noinline)) int tbg_reply_write(struct tbg_frame *frame,
					      struct tbg_scratch *s, __u32 i)
{
	struct tbg_reply *r;
	__u32 off, end, line;
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
	line = r->at ? 0 : r->line_len;
	r->seq = r->first_seq + r->at + r->line_len - line;
	r->ack = r->acks[r->push];
	off = s->pkt.l4 + (r->ts ? 32 : 20);
	if (tbg_frame_len(frame) != off + r->bytes + line &&
	    tbg_frame_resize(frame, off + r->bytes + line))
		return -1;
	if (tbg_reply_body(frame, off + line, r))
		return -1;
	if (r->at)
		from = r->sum_at == r->at ? r->sum : tbg_blob_sum(r->blob, r->at);
	to = r->push ? r->part.csum : tbg_blob_sum(r->blob, end);
	if (from < 0 || to < 0)
		return -1;
	sum = (__u32)to + (0xffff - (__u32)from);
	r->sum_at = end;
	r->sum = to;
#if TBG_MAY_CLOSE
	if (line) {
		from = tbg_reply_line(frame, s, off, sum);
		if (from < 0)
			return -1;
		sum = (__u32)from;
		r->bytes = end + line;
	}
#endif
	if (!r->at)
		sum += tbg_reply_timed(frame, r, off);
	return tbg_reply_head(frame, s, sum);
}

#endif
