/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A reply of one or more segments out of the request's own skb: grown or cut to
 * size, all but the last segment leave as clones. Split in two, since only the
 * first half can fail: tbg_reply_room() before the flow is claimed,
 * tbg_reply_send() after; what fails there is like a segment lost on the way.
 */
#ifndef TBG_WIRE_SEND_BPF_H
#define TBG_WIRE_SEND_BPF_H

#include "reply.bpf.h"

/*
 * skb->mark of our own replies, from here to our egress program. Set by the
 * daemon before loading, with 16 random bits for each: where two daemons share
 * an interface, neither may take the other's replies for its own.
 */
#ifdef TBG_TRANSLATE
const volatile __u32 tbg_mark = 0x74620000;
#else
#define tbg_mark 0	/* nothing of ours looks at what leaves: it is like the kernel's */
#endif

#define TBG_MARK_TELL (~tbg_mark)	/* of what leaves by lo to come in with tbg_mark */
#define TBG_AF_INET 2
#define TBG_AF_INET6 10
#define TBG_LO 1			/* LOOPBACK_IFINDEX, in every namespace */
#define TBG_HOLLOW 512		/* no skb is as small; skb_set_tcp_pure_ack says 2 */

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
 * Whether the window, which may be that of a client on this machine, holds neither
 * two segments nor TBG_TIGHT. It opens by what skbs take of the client's memory, and
 * wire's take more than its socket's, whose next segment would wait for a timer.
 * Behind XDP nobody can tell where the client is.
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

/* skb as it is, out by its interface or in again; what may yet go up keeps its mark. */
static __always_inline void tbg_send_clone(struct __sk_buff *skb, __u64 flags)
{
	__u32 mark = skb->mark;

	skb->mark = tbg_mark;
	bpf_clone_redirect(skb, skb->ifindex, flags);
	skb->mark = mark;
}

/*
 * Sends the segments that mask names, all but the last of them as clones, and
 * leaves skb as that last one. Negative: skb is not fit to be sent.
 */
static __always_inline int tbg_reply_send(struct __sk_buff *skb,
					  struct tbg_scratch *s, __u32 mask)
{
	__u32 i;

	/* a tag of priority alone is not on the socket's frames either */
	if (skb->vlan_present && !(skb->vlan_tci & 0xfff))
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

/* The last piece: out by the way it came, past our own egress program. */
static __always_inline int tbg_reply_last(struct __sk_buff *skb)
{
	skb->mark = tbg_mark;
	return bpf_redirect(skb->ifindex, 0);
}

#endif
