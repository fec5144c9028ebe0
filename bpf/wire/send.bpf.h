/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sends a reply of one or more segments out of the request's own skb, whose length is
 * changed as needed; all segments but the last are clones. It has two steps:
 * tbg_reply_room(), before the exchange is claimed, may fail without consequences.
 * tbg_reply_send() comes after the claim: a failure there has the effect of a lost
 * segment.
 */
#ifndef TBG_WIRE_SEND_BPF_H
#define TBG_WIRE_SEND_BPF_H

#include "reply.bpf.h"

/*
 * The skb->mark of our replies, for our egress program. The daemon sets it before
 * loading, with 16 random bits: of two daemons on one interface, neither may take the
 * other's replies for its own.
 */
#ifdef TBG_TRANSLATE
const volatile __u32 tbg_mark = 0x74620000;
#else
#define tbg_mark 0	/* no egress program of ours needs it */
#endif

#define TBG_MARK_WINDOW (~tbg_mark)	/* sent by lo, to come in again with tbg_mark */
#define TBG_AF_INET 2
#define TBG_AF_INET6 10
#define TBG_LO 1			/* LOOPBACK_IFINDEX, in every namespace */
#define TBG_HOLLOW 512		/* real skbs are larger; skb_set_tcp_pure_ack() sets 2 */

struct tcp_sock___scaling {
	__u8 scaling_ratio;
} __attribute__((preserve_access_index));

static __always_inline __u32 tbg_truesize(struct __sk_buff *skb)
{
	__u32 size = TBG_HOLLOW;

	bpf_probe_read_kernel(&size, sizeof(size), (void *)skb +
		bpf_core_field_offset(struct sk_buff___wire, truesize));
	return size;
}

/*
 * Returns whether skb comes from a client on this machine. It still has the client's
 * socket then, and so its truesize does not grow with its data (pskb_expand_head).
 */
static __always_inline bool tbg_is_local(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;

	return sk && (sk->family == TBG_AF_INET || sk->family == TBG_AF_INET6);
}

/*
 * Returns whether the client may be on this machine and its window holds neither two
 * segments nor TBG_TIGHT bytes. The window opens by the truesize of received skbs, and
 * wire's take more than those of a socket: the next segment of a socket would wait for
 * a timer. With XDP on the interface, nothing shows where the client is.
 */
static __always_inline bool tbg_is_tight(struct __sk_buff *skb,
					 const struct tbg_line *f,
					 const struct tbg_pkt *p)
{
	__u32 window = tbg_pkt_window(f, p), ifindex = skb->ifindex;

	if (window >= TBG_XDP_TIGHT)
		return false;
	if (window < TBG_TIGHT && window < 2 * f->mss &&
	    (ifindex == TBG_LO || tbg_is_local(skb)))
		return true;
	return bpf_map_lookup_elem(&tbg_ports, &ifindex);
}

/*
 * Returns the most of len payload bytes that skb should get. The receiver divides
 * length by truesize, in 1/256, modulo 256, to estimate how much payload its buffer
 * holds (tcp_measure_rcv_mss, with scaling_ratio: not on 6.1). With a length just above
 * a multiple of truesize, its window nearly closes, and with a ratio of 0,
 * tcp_rcvbuf_grow() divides by zero.
 */
static __always_inline __u32 tbg_reply_true(struct __sk_buff *skb, __u32 len)
{
	struct tcp_sock___scaling *tp = NULL;
	__u32 size, over;

	if (!bpf_core_field_exists(tp->scaling_ratio) || !tbg_is_local(skb))
		return len;
	size = tbg_truesize(skb);
	if (!size || len < size)
		return len;
	over = len % size;
	return over < size / 4 ? len - over - 4 : len;
}

/*
 * Gives the frame the length of the reply. soft: the checksum was computed in software;
 * cutting the skb would keep CHECKSUM_COMPLETE, and only growing clears it. An skb with
 * a tiny truesize is first grown by what that omits, then cut. Returns 0 or negative:
 * the frame then has its content, but may be longer.
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
 * Divides the reply into segments of at most mss bytes. Later segments begin at
 * multiples of 4, where tbg_blob_sum() can be used. Returns 0 or a reason.
 */
static __always_inline int tbg_reply_cut(struct __sk_buff *skb,
					 struct tbg_reply *r, __u32 mss)
{
	__u32 len = tbg_reply_total(r), line = r->line_len;

	if (mss > TBG_SEG_BYTES)
		mss = TBG_SEG_BYTES;
	len = tbg_reply_true(skb, len < mss ? len : mss);
	r->seg = r->len;
	r->nr = 1;
	if (r->len + line <= len)
		return 0;
	if (len <= line)
		return TBG_WHY_SIZE;
	r->seg = (len - line) & ~3u;
	if (line && r->head_len > r->seg)
		return TBG_WHY_SIZE;
	if (r->part.off || r->part.date_off + TBG_DATE_LEN > r->seg)
		return TBG_WHY_SIZE;
	r->nr = (r->len + r->seg - 1) / r->seg;
	return 0;
}

/*
 * Sends a clone of skb, out of its interface or in again. skb may still be passed up,
 * so its mark is restored.
 */
static __always_inline void tbg_send_clone(struct __sk_buff *skb, __u64 flags)
{
	__u32 mark = skb->mark;

	skb->mark = tbg_mark;
	bpf_clone_redirect(skb, skb->ifindex, flags);
	skb->mark = mark;
}

/*
 * Sends the segments in mask: all but the last as clones; skb becomes the last one.
 * Returns 0, or negative if skb must not be sent.
 */
static __always_inline int tbg_reply_send(struct __sk_buff *skb,
					  struct tbg_scratch *s, __u32 mask)
{
	__u32 i;

	/*
	 * The kernel's replies do not have the request's priority tag (VLAN 0) either.
	 * With one more tag in the data, it stays: the next one would move to its place.
	 */
	if (skb->vlan_present && !(skb->vlan_tci & 0xfff) && s->pkt.l3 == ETH_HLEN)
		bpf_skb_vlan_pop(skb);
	for (i = 0; i < TBG_AGAIN_MAX; i++) {
		if (!(mask >> i & 1))
			continue;
		if (tbg_reply_write(skb, s, i))
			return -1;
		if (!(mask >> i >> 1))
			return 0;
		tbg_send_clone(skb, 0);
	}
	return -1;
}

/* Sends the last segment out of the interface it came from. Our egress program ignores it. */
static __always_inline int tbg_reply_last(struct __sk_buff *skb)
{
	skb->mark = tbg_mark;
	return bpf_redirect(skb->ifindex, 0);
}

#endif
