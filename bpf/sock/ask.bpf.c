// SPDX-License-Identifier: GPL-2.0
/*
 * Answers what sock would count for a hypothetical request (abi/ask.h): the steps of
 * tbg_sock_try() that concern the request, not a connection. Loaded only without
 * wire, which answers this, too. Claims and counts nothing.
 */
#include <linux/if_ether.h>

#include "../abi/ask.h"
#include "../lookup.bpf.h"
#include "maps.bpf.h"

/* Scratch memory of this program alone. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tbg_scratch);
} tbg_ask_scratch SEC(".maps");

SEC("tc")
int tbg_ask(struct __sk_buff *skb)
{
	struct tbg_knob *knob = tbg_knob_get();
	__u32 zero = 0, len = skb->cb[0];
	struct tbg_scratch *s = bpf_map_lookup_elem(&tbg_ask_scratch, &zero);
	__u64 n = len;
	int why;

	if (!s || !knob)
		return TBG_ASKED | TBG_WHY_OFF;
	why = tbg_sock_may(knob, len);
	if (why)
		return TBG_ASKED | why;
	TBG_BOUND(n, TBG_REQ_MAX, return TBG_ASKED | TBG_WHY_GRAMMAR);
	if (bpf_skb_load_bytes(skb, ETH_HLEN, s->head.b, n))
		return TBG_ASKED | TBG_WHY_GRAMMAR;
	s->pkt.key.remote[0] = skb->cb[1];
	s->pkt.key.remote[1] = skb->cb[2];
	s->pkt.key.remote[2] = skb->cb[3];
	s->pkt.key.remote[3] = skb->cb[4];
	s->now_ns = bpf_ktime_get_ns();
	return TBG_ASKED | tbg_find(s, knob, len);
}
