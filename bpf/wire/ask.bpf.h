/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Answers the daemon's question which reason wire would count for a request that nobody
 * has sent (abi/ask.h). Takes the steps of tbg_own() for a connection that has just
 * begun and is in no map. Changes no connection, sends nothing and counts nothing.
 */
#ifndef TBG_WIRE_ASK_BPF_H
#define TBG_WIRE_ASK_BPF_H

#include "hit.bpf.h"
#include "way.bpf.h"

/* Looks up the request in s->pkt. Returns 0 or a reason. */
__attribute__((noinline)) int tbg_load_find(struct __sk_buff *skb, struct tbg_scratch *s)
{
	struct tbg_knob *knob = tbg_knob_get();

	return s && knob ? tbg_hit_find(skb, s, knob, false) : TBG_WHY_OFF;
}

/*
 * Returns the interface that the route to the client leads out of, if it is the segment's or
 * lies on it: the question names no VLAN. 0: another one, as tbg_way_back() returns; not for
 * a question without a client, which has no address. The daemon has asked the kernel before,
 * where that is necessary.
 */
__attribute__((noinline)) int tbg_ask_out(struct __sk_buff *skb, const struct tbg_pkt *p)
{
	struct tbg_above_key on = { .below = skb->ifindex };
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_way *way, of_pair;
	bool client;
	__u32 i;

	if (!p || !knob)
		return on.below;
	client = p->key.remote[0] | p->key.remote[1] | p->key.remote[3];
	if (client && tbg_pair_counts(knob, p))
		way = tbg_pair_way(knob, p, &of_pair) ? &of_pair : NULL;
	else
		way = tbg_way_to(p->key.remote);
	for (i = 0; way && i < TBG_WAY_IFACES; i++) {
		on.above = way->ifindex[i];
		if (on.above == on.below || (on.above && bpf_map_lookup_elem(&tbg_aboves, &on)))
			return on.above;
	}
	if (tbg_sockets && client)
		return 0;
	return on.below;
}

/* Fills *ret with a connection that only the interface's MTU and no window limits. */
static __always_inline void tbg_ask_begin(struct __sk_buff *skb, const struct tbg_knob *knob,
					  const struct tbg_scratch *s, __u32 out,
					  struct tbg_tcb *ret)
{
	const struct tbg_pkt *p = &s->pkt;
	struct tbg_agreed a = {
		.irs = p->seq, .iss = p->ack, .now_ms = s->now_ms, .ways = knob->ways,
		.peer_mss = 0xffff,
		.snd_wscale = 14, .rcv_wscale = 14, .flags = TBG_FLOW_TS | TBG_TCB_WSCALE,
	};

	tbg_way_take(skb, p, &a, out);
	tbg_tcb_make(skb, knob, p, &a, ret);
}

/*
 * Returns 0 if that connection lets wire answer, else the reason. cut: also check the
 * length of the reply. Not inlined: the connection would count for the stack depth of
 * tbg_find().
 */
__attribute__((noinline)) int tbg_ask_line(struct __sk_buff *skb, struct tbg_scratch *s, bool cut)
{
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_tcb f = {};
	__u32 frame, out;

	if (!s || !knob)
		return TBG_WHY_OFF;
	out = tbg_ask_out(skb, &s->pkt);
	tbg_ask_begin(skb, knob, s, out ?: skb->ifindex, &f);
	return cut ? tbg_hit_cut(skb, s, knob, &f, &frame) : tbg_may_hit(knob, &f, &s->pkt);
}

/* Returns the answer to TBG_ASK_WIRE. */
static __always_inline int tbg_ask_wire(struct __sk_buff *skb, struct tbg_scratch *s)
{
	int why = tbg_ask_out(skb, &s->pkt) ? tbg_ask_line(skb, s, false) : TBG_WHY_IFACE;

	why = why ?: tbg_load_find(skb, s);
	return why ?: tbg_ask_line(skb, s, true);
}

/*
 * Returns the answer to TBG_ASK_SOCK. The sock tier uses the same maps and tbg_find(),
 * but never closes a connection: it leaves to the daemon the requests after which wire
 * would close.
 */
static __always_inline int tbg_ask_sock(struct __sk_buff *skb, struct tbg_scratch *s,
					const struct tbg_knob *knob)
{
	int why = tbg_sock_may(knob, s->pkt.payload_len);

	why = why ?: tbg_load_find(skb, s);
	if (why || s->reply.persist == TBG_PERSIST)
		return why;
	return s->req.flags & TBG_REQ_OLD ? TBG_WHY_VERSION : TBG_WHY_FIELD;
}

static __always_inline int tbg_ask(struct __sk_buff *skb, struct tbg_scratch *s,
				   const struct tbg_knob *knob)
{
	return TBG_ASKED | (skb->cb[1] == TBG_ASK_SOCK ? tbg_ask_sock(skb, s, knob) :
							  tbg_ask_wire(skb, s));
}

#endif
