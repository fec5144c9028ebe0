/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The frame as a hook gets it: an skb at TC, or with TBG_XDP defined a driver's buffer.
 * The code that both hooks share (packet.bpf.h to reply.bpf.h) accesses frames only
 * through these functions.
 */
#ifndef TBG_WIRE_FRAME_BPF_H
#define TBG_WIRE_FRAME_BPF_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "../core/csum.h"
#include "maps.bpf.h"

#ifdef TBG_XDP
#define tbg_frame xdp_md
#define tbg_load(frame, off, to, len) bpf_xdp_load_bytes(frame, off, to, len)
#define tbg_store(frame, off, from, len) bpf_xdp_store_bytes(frame, off, (void *)(from), len)
#define tbg_frame_len(frame) ((__u32)bpf_xdp_get_buff_len(frame))
#define tbg_frame_ifindex(frame) ((frame)->ingress_ifindex)
#define tbg_frame_gso(frame) 0
#else
#define tbg_frame __sk_buff
#define tbg_load(frame, off, to, len) bpf_skb_load_bytes(frame, off, to, len)
#define tbg_store(frame, off, from, len) bpf_skb_store_bytes(frame, off, from, len, 0)
#define tbg_frame_len(frame) ((frame)->len)
#define tbg_frame_ifindex(frame) ((frame)->ifindex)
#define tbg_frame_gso(frame) ((frame)->gso_size)
#endif

/* Largest offset for which the verifier accepts direct access to the packet. */
#define TBG_LINEAR_MAX 0x7fff

/*
 * Returns the len bytes at off of the frame, a constant number; NULL if not all are in
 * its linear part.
 */
static __always_inline __u8 *tbg_linear(struct tbg_frame *frame, __u64 off, const __u32 len)
{
	__u8 *data = (void *)(long)frame->data, *end = (void *)(long)frame->data_end;

	tbg_keep(off);
	if (off > TBG_LINEAR_MAX)
		return NULL;
	data += off;
	tbg_keep(data);
	return data + len > end ? NULL : data;
}

/*
 * Puts the first len bytes of the frame into its linear part, as changing its length would.
 * Returns 0 or negative. Pointers into the frame are to be read again.
 */
static __always_inline long tbg_frame_gather(struct tbg_frame *frame, __u32 len)
{
	__u64 linear = (__u64)(long)frame->data_end - (__u64)(long)frame->data;

	if (linear >= len)
		return 0;
#ifdef TBG_XDP
	return -1;
#else
	return bpf_skb_pull_data(frame, len);
#endif
}

/*
 * Reads nr words of 32 bits at off of the frame; nr is a constant. Needs no helper call
 * where they are in the linear part, as headers nearly always are. Returns 0 or
 * negative.
 */
static __always_inline long tbg_load_words(struct tbg_frame *frame, __u32 off, void *to,
					   const __u32 nr)
{
	const __u8 *data = tbg_linear(frame, off, nr * 4);
	__u32 i;

	if (!data)
		return tbg_load(frame, off, to, nr * 4);
	TBG_UNROLLED
	for (i = 0; i < nr; i++) {
		__u32 w = ((const __u32 *)data)[i];

		__builtin_memcpy(to + i * 4, &w, 4);
	}
	return 0;
}

/*
 * Writes nr words of 32 bits at off of the frame's linear part. Negative: they are not all in it.
 * No helper gets the address of the words, so clang can keep them in registers.
 */
static __always_inline long tbg_put_words(struct tbg_frame *frame, __u32 off, const void *from,
					  const __u32 nr)
{
	__u8 *data = tbg_linear(frame, off, nr * 4);
	__u32 i;

	if (!data)
		return -1;
	TBG_UNROLLED
	for (i = 0; i < nr; i++) {
		__u32 w;

		__builtin_memcpy(&w, from + i * 4, 4);
		((__u32 *)data)[i] = w;
	}
	return 0;
}

/* Writes nr words of 32 bits at off of the frame, as tbg_load_words() reads them. */
static __always_inline long tbg_store_words(struct tbg_frame *frame, __u32 off,
					    const void *from, const __u32 nr)
{
	if (!tbg_put_words(frame, off, from, nr))
		return 0;
	return tbg_store(frame, off, from, nr * 4);
}

/* Returns the EtherType. That of a VLAN tag only if the tag is in the frame's data. */
static __always_inline __be16 tbg_frame_proto(struct tbg_frame *frame)
{
#ifdef TBG_XDP
	__be16 proto = 0;

	bpf_xdp_load_bytes(frame, 2 * ETH_ALEN, &proto, sizeof(proto));
	return proto;
#else
	return frame->protocol;
#endif
}

/* Sets the length of the frame; new bytes are zeros. Returns 0 or negative. */
static __always_inline long tbg_frame_resize(struct tbg_frame *frame, __u32 len)
{
#ifdef TBG_XDP
	return bpf_xdp_adjust_tail(frame, (int)(len - tbg_frame_len(frame)));
#else
	return bpf_skb_change_tail(frame, len, 0);
#endif
}

/* Values of skb->ip_summed (include/linux/skbuff.h) */
#define TBG_CHECKSUM_UNNECESSARY 1
#define TBG_CHECKSUM_COMPLETE 2
#define TBG_CHECKSUM_PARTIAL 3

struct net_device___wire {
	unsigned int mtu;
	struct {
		void *net;
	} nd_net;
} __attribute__((preserve_access_index));

struct dst_entry___wire {
	struct net_device___wire *dev;
	unsigned long _metrics;
} __attribute__((preserve_access_index));

/* Any socket: a full one, a request socket or one in TIME_WAIT. */
struct sock_common___wire {
	struct {
		void *net;
	} skc_net;
	unsigned char skc_state;
} __attribute__((preserve_access_index));

struct sk_buff___wire {
	struct net_device___wire *dev;
	struct sock_common___wire *sk;
	unsigned long _skb_refdst;
	unsigned int truesize;
	unsigned char ip_summed:2;
} __attribute__((preserve_access_index));

/*
 * Returns ip_summed of the frame's skb. XDP programs can't read it: the skb of a SYN on
 * this interface was CHECKSUM_PARTIAL or not.
 */
static __always_inline __u32 tbg_frame_summed(struct tbg_frame *frame)
{
#ifdef TBG_XDP
	__u32 ifindex = frame->ingress_ifindex;
	struct tbg_port *port = bpf_map_lookup_elem(&tbg_ports, &ifindex);

	return port && port->partial ? TBG_CHECKSUM_PARTIAL : 0;
#else
	struct sk_buff___wire *skb = (void *)frame;

	return BPF_CORE_READ_BITFIELD_PROBED(skb, ip_summed);
#endif
}

/* CHECKSUM_PARTIAL: the checksum is left to the sending device. */
static __always_inline bool tbg_frame_partial(struct tbg_frame *frame)
{
	return tbg_frame_summed(frame) == TBG_CHECKSUM_PARTIAL;
}

/*
 * Returns whether a device completes the checksum of a segment made from the frame;
 * never with XDP.
 */
static __always_inline bool tbg_frame_completed(struct tbg_frame *frame)
{
#ifdef TBG_XDP
	return false;
#else
	return tbg_frame_partial(frame);
#endif
}

#endif
