// SPDX-License-Identifier: GPL-2.0
/*
 * The TC ingress programs where wire owns its connections. A segment to one of our
 * ports begins a connection, is answered, ends one, or hands it over to the kernel; all
 * others pass unchanged. tbg_answer sends the replies. It is called through a program
 * array, which loses its entry when the daemon ends. No segment is translated, and there
 * is no egress program.
 */
#include <linux/if_packet.h>

#include "control.bpf.h"
#include "fragment.bpf.h"
#include "hit.bpf.h"
#include "icmp.bpf.h"
#include "known.bpf.h"
#include "port.bpf.h"
#include "push.bpf.h"
#include "synack.bpf.h"
#include "way.bpf.h"

/*
 * What socket the kernel has for a segment of an unknown connection. LISTENER: one of this
 * daemon; HALF: a request socket of one; STALE: the same, with other numbers; SHARED: one of these,
 * at a port of other processes, too; WHOLE: an established one of anybody; HIDDEN: another one of a
 * connection in a VRF.
 */
enum tbg_found {
	TBG_FOUND_NONE, TBG_FOUND_HALF, TBG_FOUND_STALE, TBG_FOUND_LISTENER, TBG_FOUND_SHARED,
	TBG_FOUND_WHOLE, TBG_FOUND_HIDDEN, TBG_FOUND_OTHER
};

/* Of a listener or a request socket. */
static __always_inline enum tbg_found tbg_found_of(struct bpf_sock *sk, __u32 state,
						  __u32 vrf)
{
	enum tbg_found ret = state == BPF_TCP_LISTEN ? TBG_FOUND_LISTENER : TBG_FOUND_HALF;

	switch (tbg_owner_of(sk, vrf)) {
	case TBG_OWNER_US:
		return ret;
	case TBG_OWNER_SHARED:
		return TBG_FOUND_SHARED;
	default:
		return TBG_FOUND_OTHER;
	}
}

__attribute__((noinline)) int tbg_found(struct __sk_buff *skb, const struct tbg_pkt *p,
					struct tbg_agreed *a)
{
	int ret = TBG_FOUND_OTHER;
	struct bpf_sock *sk;
	__u32 state;

	if (!p || !a)
		return ret;
	sk = tbg_socket_get(skb, p, &state);
	if (!sk)
		return TBG_FOUND_NONE;
	/* another daemon's may have the port, and wire's connections there have no socket */
	if (state == BPF_TCP_LISTEN ||
	    (state == BPF_TCP_NEW_SYN_RECV && !p->payload_len && tbg_request_read(sk, p, a)))
		ret = tbg_found_of(sk, state, p->vrf);
	else if (state == BPF_TCP_NEW_SYN_RECV && !p->vrf && tbg_is_ours(sk, 0))
		ret = TBG_FOUND_STALE;
	else if (state == BPF_TCP_ESTABLISHED)
		ret = TBG_FOUND_WHOLE;
	if (p->vrf && ret == TBG_FOUND_WHOLE)
		tbg_vrf_offer_read(sk, p, a);
	bpf_sk_release(sk);
	/* in a VRF, the kernel may have another socket than that */
	if (p->vrf && (state == BPF_TCP_LISTEN ? tbg_vrf_hides(p) : ret == TBG_FOUND_OTHER))
		ret = TBG_FOUND_HIDDEN;
	return ret;
}

/* A segment of a connection in a VRF that the kernel has a socket for. */
__attribute__((noinline)) int tbg_begin_vrf(struct __sk_buff *skb, const struct tbg_pkt *p,
					    const struct tbg_tcb_key *key,
					    const struct tbg_agreed *a)
{
	if (!p || !key || !a)
		return 0;
	tbg_vrf_note(key);
	if (a->window && !tbg_is_tagged(skb, p))
		tbg_offer_learn(skb, p, a);
	return 0;
}

/*
 * Creates the connection of a segment that belongs to none. Returns 0 or a reason.
 * *taken: the kernel has a request socket, which is to be withdrawn by the segment.
 */
static __always_inline int tbg_begin(struct __sk_buff *skb, struct tbg_scratch *s,
				     const struct tbg_knob *knob,
				     const struct tbg_tcb_key *key, bool *taken)
{
	struct tbg_agreed a = { .now_ms = s->now_ms, .ways = knob->ways };
	struct tbg_pkt *p = &s->pkt;
	int why, out, found;

	/*
	 * Not with two VLAN tags: a connection stores one, for the segments that it
	 * sends by itself, and the kernel makes no socket late of such a frame.
	 */
	if ((p->tcp_flags & ~(TBG_TCP_PSH | TBG_TCP_FIN)) != TBG_TCP_ACK || p->odd ||
	    p->ecn == TBG_CE || p->ae || !tbg_wire_answers(knob) ||
	    knob->births == TBG_BIRTHS_NONE || (key->vrf && !tbg_vrf_works(knob)) ||
	    tbg_is_link_local(&p->key) || tbg_vlans(skb, p) > 0xfff)
		return TBG_WHY_NO_FLOW;
	found = tbg_found(skb, p, &a);
	switch (found) {
	case TBG_FOUND_HALF:
		out = tbg_way_back(skb, p);
		if (out <= 0)
			return out ? TBG_WHY_ROUTE : TBG_WHY_IFACE;
		/* the last free places are left for handshakes that wire itself has begun */
		if (!tbg_agreed_fits(&a, p) || p->tcp_flags & TBG_TCP_FIN || !tbg_tcb_fits() ||
		    tbg_crowd_full(key) || tbg_track_lags(knob))
			return TBG_WHY_NO_FLOW;
		if (knob->tracks & TBG_TRACKS_FIRST && tbg_track_nats(skb, p))
			return TBG_WHY_NO_FLOW;
		if (!tbg_segment_sound(skb, s))
			return TBG_WHY_CSUM;
		if (!tbg_is_tagged(skb, p))
			tbg_offer_learn(skb, p, &a);
		a.tried = knob->births == TBG_BIRTHS_KERNEL ? TBG_TCB_PASSED : 0;
		*taken = true;
		break;
	case TBG_FOUND_STALE:
	case TBG_FOUND_LISTENER:
		why = tbg_cookie_read(skb, s, key, &a);
		if (why)
			return found == TBG_FOUND_STALE ? TBG_WHY_NO_FLOW : why;
		out = tbg_way_back(skb, p);
		/* dropped, the client's request comes again, and the kernel may have been asked */
		if (out <= 0)
			return out ? TBG_WHY_DROPPED : TBG_WHY_IFACE;
		if (!tbg_segment_sound(skb, s))
			return TBG_WHY_CSUM;
		/* the kernel has answered a second SYN, but the client accepts wire's answer */
		*taken = found == TBG_FOUND_STALE;
		if (*taken)
			tbg_times_drop(skb, p);
		break;
	case TBG_FOUND_SHARED:
		return TBG_WHY_SHARED;
	case TBG_FOUND_HIDDEN:
		/* no reason to ask for a way: a forged SYN suffices to be here */
		if (tbg_segment_sound(skb, s))
			tbg_vrf_note(key);
		return TBG_WHY_NO_FLOW;
	case TBG_FOUND_WHOLE:
		/* asks for the way back, if that is necessary: the client may come again */
		if (tbg_pair_counts(knob, p))
			tbg_way_back(skb, p);
		if (key->vrf)
			tbg_begin_vrf(skb, p, key, &a);
		else
			tbg_known_add(skb, p, key);
		return TBG_WHY_NO_FLOW;
	default:
		return TBG_WHY_NO_FLOW;
	}
	tbg_way_take(skb, p, &a, out);
	why = tbg_tcb_begin(skb, p, key, &a);
	/*
	 * No room. The kernel, which has not seen the SYN, would reset the client. Dropped, the
	 * client's request comes again, and the daemon may have made room.
	 */
	return why == TBG_WHY_NO_FLOW && !*taken ? TBG_WHY_FULL : why;
}

/* Returns the TC action for a segment of no connection of wire's, for that reason. */
static __always_inline int tbg_begin_end(int why)
{
	tbg_count(why);
	return why == TBG_WHY_DROPPED || why == TBG_WHY_FULL ? TC_ACT_SHOT : TBG_PASS;
}

/* Withdraws the request socket. What else the segment has, its client sends again. */
static __always_inline int tbg_begin_taken(struct __sk_buff *skb, struct tbg_scratch *s)
{
	tbg_count(TBG_WHY_BORN);
	tbg_ack_to_rst(skb, &s->pkt);
	return TBG_PASS;
}

/*
 * A segment without payload of no connection of wire's. Returns a TC action, or
 * TBG_NOT_YET if it has begun a connection and has a FIN that is still to be handled.
 */
static __always_inline int tbg_ingress_new(struct __sk_buff *skb, struct tbg_scratch *s,
					   const struct tbg_knob *knob,
					   const struct tbg_tcb_key *key)
{
	bool taken = false;
	int why = tbg_begin(skb, s, knob, key, &taken);

	if (why)
		return tbg_begin_end(why == TBG_WHY_RACE ? TBG_WHY_NO_FLOW : why);
	if (taken)
		return tbg_begin_taken(skb, s);
	/* the handshake's ACK was lost, or the client closes without a request */
	if (s->pkt.tcp_flags & TBG_TCP_FIN)
		return TBG_NOT_YET;
	tbg_count(TBG_WHY_BORN);
	return TC_ACT_SHOT;
}

/* A SYN: for a connection in the map, or to begin one. */
static __always_inline int tbg_ingress_syn(struct __sk_buff *skb, struct tbg_scratch *s,
					   const struct tbg_knob *knob,
					   const struct tbg_tcb_key *key,
					   struct tbg_tcb *f)
{
	int act = TBG_PASS;

	tbg_port_note(skb);
	if (f) {
		act = tbg_on_shared(skb, s, key, f);
		if (act != TBG_NOT_YET)
			return act;
		act = TBG_PASS;
		if (!tbg_segment_sound(skb, s)) {
			tbg_count(TBG_WHY_CSUM);
			return TC_ACT_SHOT;
		}
		tbg_pkt_options(skb, s);
		if (!tbg_syn_is_next(s, f))
			return tbg_bare_challenge(skb, s, key, f);
		tbg_tcb_forget(key, f);
	}
	if (tbg_end_served(&s->pkt.key, s->pkt.v6) && tbg_synack_fill(skb, s, key) &&
	    tbg_segment_sound(skb, s)) {
		tbg_count(TBG_WHY_SYN_ACK);
		act = tbg_synack_send(skb, s);
	}
	/* behind the look for a socket; a SYN-ACK leaves when this program has ended */
	tbg_known_remove(&s->pkt);
	if (act == TBG_PASS) {
		if (key->vrf)
			tbg_vrf_note(key);
		tbg_count(TBG_WHY_CONTROL);
	}
	return act;
}

/*
 * Returns whether the socket for these addresses and ports has sent this sequence number, and
 * the client has not acknowledged it.
 */
__attribute__((noinline)) int tbg_socket_owes(struct __sk_buff *skb, const struct tbg_pkt *p,
					      __u32 seq)
{
	__u32 state;
	struct bpf_sock *sk = p ? tbg_socket_get(skb, p, &state) : NULL;
	struct bpf_tcp_sock *tp;
	int ret = 0;

	if (!sk)
		return 0;
	tp = state != BPF_TCP_LISTEN ? bpf_tcp_sock(sk) : NULL;
	if (tp)
		ret = seq - tp->snd_una < tp->snd_nxt - tp->snd_una;
	bpf_sk_release(sk);
	return ret;
}

/*
 * Reduces the MSS of a connection to what the path takes: for its next reply, and for repeats
 * of the last one.
 *
 * Repeats have TBG_AGAIN_MAX segments at most, and no DF: where the path takes only
 * smaller ones, IPv4 routers fragment them. TBG_LINE_ROOM: for the Connection line in
 * the first one, and for rounding. Under the lock.
 */
#define TBG_LINE_ROOM 64

static __always_inline void tbg_tcb_narrow(struct tbg_tcb *f, __u32 mtu)
{
	__u32 heads, least = TBG_MSS_LEAST;

	heads = (f->flags & TBG_FLOW_V6 ? 60 : 40) + (f->flags & TBG_FLOW_TS ? 12 : 0);
	if (!(f->flags & TBG_FLOW_V6) && f->last.len / TBG_AGAIN_MAX + TBG_LINE_ROOM > least)
		least = f->last.len / TBG_AGAIN_MAX + TBG_LINE_ROOM;
	if (mtu < heads + least) {
		mtu = heads + least;
		f->flags &= ~TBG_TCB_DF;
	}
	if (mtu - heads < f->mss)
		f->mss = mtu - heads;
}

/*
 * An ICMP error "packet too big" about a segment that is not acknowledged, of wire or of
 * a socket. Forged errors are unlikely to have its sequence number (RFC 5927 4.1). Passes it
 * up in any case.
 */
static __always_inline int tbg_ingress_icmp(struct __sk_buff *skb, struct tbg_scratch *s,
					    const struct tbg_knob *knob)
{
	struct tbg_pkt *p = &s->pkt;
	struct tbg_tcb_key key = {};
	struct tbg_tcb *f;
	bool sent = false;
	__u32 seq, mtu;

	tbg_count(TBG_WHY_NOT_OURS);
	if (!tbg_icmp_quote(skb, p, &seq, &mtu) || !mtu ||
	    !tbg_port_served(knob, p->key.local_port))
		return TBG_PASS;
	/* without DF, no router has a reason */
	if (!p->v6 && knob->no_df)
		return TBG_PASS;
	tbg_tcb_key_of(skb, knob, p, &key);
	f = bpf_map_lookup_elem(&tbg_tcbs, &key);
	if (f) {
		bpf_spin_lock(&f->lock);
		sent = tbg_within_reply(f, seq);
		if (sent)
			tbg_tcb_narrow(f, mtu);
		bpf_spin_unlock(&f->lock);
	}
	if (!key.vrf && (sent || tbg_socket_owes(skb, p, seq)))
		tbg_pmtu_learn(skb, p, mtu, tbg_now_ms());
	return TBG_PASS;
}

/*
 * Returns whether the segment comes from another VLAN than its connection: from another
 * host with the same address.
 */
static __always_inline bool tbg_is_next_door(struct __sk_buff *skb, const struct tbg_pkt *p,
					     const struct tbg_tcb *f)
{
	return bpf_ntohs(f->vlan) != tbg_vlans(skb, p);
}

/*
 * A fragment that ends within the TCP header. Returns a TC action. The kernel
 * reassembles the segment after this hook: if the connection is wire's, or is by then,
 * it finds no socket and resets the client. So the fragment is dropped.
 */
static __attribute__((noinline)) int tbg_ingress_cut(struct __sk_buff *skb,
						     const struct tbg_pkt *p,
						     const struct tbg_tcb *f)
{
	struct bpf_sock *sk;
	__u32 state;
	bool ours;

	if (f) {
		ours = f->state != TBG_TCB_HANDED && f->state != TBG_TCB_GIVING;
	} else {
		sk = tbg_sockets ? tbg_socket_get(skb, p, &state) : NULL;
		ours = sk && (state == BPF_TCP_LISTEN || state == BPF_TCP_NEW_SYN_RECV) &&
		       tbg_is_ours(sk, p->vrf) && !(p->vrf && tbg_vrf_hides(p));
		if (sk)
			bpf_sk_release(sk);
	}
	tbg_count(ours ? TBG_WHY_DROPPED : TBG_WHY_NOT_OURS);
	return ours ? TC_ACT_SHOT : TBG_PASS;
}

/*
 * A segment for which tbg_answer has not run. Returns a TC action, or TBG_NOT_YET: it is
 * tbg_answer's after all.
 */
static __always_inline int tbg_ingress_control(struct __sk_buff *skb, struct tbg_scratch *s,
					       const struct tbg_knob *knob,
					       const struct tbg_tcb_key *key, struct tbg_tcb *f)
{
	struct tbg_pkt *p = &s->pkt;
	int act;

	if (!f && !p->payload_len) {
		act = tbg_ingress_new(skb, s, knob, key);
		if (act != TBG_NOT_YET)
			return act;
		f = bpf_map_lookup_elem(&tbg_tcbs, key);
		if (!f)
			return TC_ACT_SHOT;
	}
	/* a segment without ACK is no request, whatever payload it has */
	if (p->payload_len &&
	    (!f || (p->tcp_flags & (TBG_TCP_SYN | TBG_TCP_RST | TBG_TCP_ACK)) == TBG_TCP_ACK))
		return TBG_NOT_YET;
	act = tbg_on_shared(skb, s, key, f);
	/* a fragment may end right after the TCP header */
	return act == TBG_NOT_YET && !p->frag ? tbg_control(skb, s, key, f) : act;
}

SEC("tc")
int tbg_ingress(struct __sk_buff *skb)
{
	struct tbg_tcb_key key;
	struct tbg_scratch *s;
	struct tbg_knob *knob;
	struct tbg_tcb *f;
	struct tbg_pkt *p;
	int act;

	/* frames to other hosts: IP drops them */
	if (tbg_sockets && skb->pkt_type != PACKET_HOST) {
		tbg_count(TBG_WHY_NOT_OURS);
		return TBG_PASS;
	}
	if (tbg_is_known(skb)) {
		tbg_count(TBG_WHY_NO_FLOW);
		return TBG_PASS;
	}
	s = tbg_scratch_get();
	knob = tbg_knob_get();
	if (!s || !knob)
		return TBG_PASS;
	__builtin_memset(&key, 0, sizeof(key));
	p = &s->pkt;
	switch (tbg_pkt_parse(skb, p, true)) {
	case TBG_PKT_ICMP:
		return tbg_ingress_icmp(skb, s, knob);
	case TBG_PKT_CUT:
		tbg_tcb_key_of(skb, knob, p, &key);
		return tbg_ingress_cut(skb, p, bpf_map_lookup_elem(&tbg_tcbs, &key));
	case TBG_PKT_OTHER:
		tbg_count(TBG_WHY_NOT_OURS);
		return TBG_PASS;
	case TBG_PKT_TCP:
		break;
	}
	if (!tbg_port_served(knob, p->key.local_port)) {
		/* sends it through lo again: it comes back with a route attached */
		if (tbg_port_served(knob, p->key.remote_port) && tbg_is_unrouted(skb, p))
			return bpf_redirect_neigh(TBG_LO, NULL, 0, 0);
		tbg_count(TBG_WHY_NOT_OURS);
		return TBG_PASS;
	}
	/* tbg_answer looks up the connection itself */
	if (p->payload_len &&
	    (p->tcp_flags & (TBG_TCP_SYN | TBG_TCP_RST | TBG_TCP_ACK)) == TBG_TCP_ACK)
		bpf_tail_call(skb, &tbg_tail, 0);
	tbg_clock_read(s);
	tbg_tcb_key_of(skb, knob, p, &key);
	f = bpf_map_lookup_elem(&tbg_tcbs, &key);
	if (f && tbg_is_next_door(skb, p, f)) {
		tbg_count(TBG_WHY_NO_FLOW);
		return TBG_PASS;
	}
	if ((p->tcp_flags & (TBG_TCP_SYN | TBG_TCP_ACK | TBG_TCP_RST)) == TBG_TCP_SYN) {
		act = tbg_ingress_syn(skb, s, knob, &key, f);
		if (act == TBG_PASS && knob->tracks & TBG_TRACKS_ENTRIES)
			tbg_track_syn(skb, p, &key);
		return act;
	}
	act = tbg_ingress_control(skb, s, knob, &key, f);
	if (act != TBG_NOT_YET)
		return act;
	bpf_tail_call(skb, &tbg_tail, 0);
	/* the daemon and its listener are gone: the stack resets the connection */
	if (f)
		tbg_tcb_forget(&key, f);
	tbg_count(TBG_WHY_OFF);
	return TBG_PASS;
}

/* Repeats what a segment shows to be lost. Returns a TC action. */
static __always_inline int tbg_own_again(struct __sk_buff *skb, struct tbg_scratch *s,
					 const struct tbg_knob *knob,
					 const struct tbg_tcb_key *key, struct tbg_tcb *f,
					 bool soft)
{
	__u16 from[4] __attribute__((aligned(4)));
	int act, way;

	if (s->pkt.payload_len)
		tbg_hit_follow(skb, &s->pkt, f, from);
	way = tbg_way_again(skb, s, f);
	if (way < 0) {
		tbg_count(TBG_WHY_DROPPED);
		return TC_ACT_SHOT;
	}
	if (!way) {
		/* let the stack reset it, over its own route */
		tbg_tcb_forget(key, f);
		tbg_count(TBG_WHY_IFACE);
		return TBG_PASS;
	}
	tbg_way_renew(skb, knob, &s->pkt, f);
	act = tbg_again(skb, s, knob, f, soft, TBG_AGAIN_CLIENT);
	if (act >= 0)
		return act;
	tbg_count(-act);
	return act == -TBG_WHY_STALE_REPEAT ? tbg_tcb_reset(skb, s, key, f) : TC_ACT_SHOT;
}

/* A segment of wire's connection f that has payload or shows a loss. Returns a TC action. */
static __always_inline int tbg_own(struct __sk_buff *skb, struct tbg_scratch *s,
				   const struct tbg_knob *knob,
				   const struct tbg_tcb_key *key, struct tbg_tcb *f)
{
	struct tbg_pkt *p = &s->pkt;
	bool lost = tbg_shows_loss(f, p);
	int why, soft, act;

	__builtin_memset(&s->reply, 0, sizeof(s->reply));
	if (p->frag) {
		act = tbg_on_fragment(skb, s, key, f);
		return tbg_hand_end(skb, s, key, f, act);
	}
	/* a longer segment is no request for us: its checksum is left to the stack */
	soft = p->payload_len > TBG_REQ_MAX ? 0 : tbg_segment_check(skb, s);
	if (soft < 0) {
		tbg_count(TBG_WHY_CSUM);
		return TC_ACT_SHOT;
	}
	if (lost)
		return tbg_own_again(skb, s, knob, key, f, soft);
	if (f->state == TBG_TCB_FIN_WAIT && p->payload_len &&
	    (p->tcp_flags & (TBG_TCP_SYN | TBG_TCP_RST | TBG_TCP_ACK)) == TBG_TCP_ACK)
		return tbg_on_data(skb, s, key, f);
	/* out of order, old, an ACK of unsent data, or data after a FIN */
	if (p->seq != f->rcv_nxt || f->state != TBG_TCB_OPEN ||
	    p->ack - f->acked > f->snd_nxt - f->acked ||
	    (p->timed && f->flags & TBG_FLOW_TS && (__s32)(p->tsval - f->tsrecent) < 0)) {
		if (knob->tracks & TBG_TRACKS_FIRST && tbg_hand_follows(skb, p, key, f)) {
			tbg_count(TBG_WHY_UNTRACKED);
			return TC_ACT_SHOT;
		}
		return tbg_bare_challenge(skb, s, key, f);
	}
	/*
	 * a firewall drops resets: the kernel still has the request socket, and its numbers
	 * are the client's, so it completes the connection
	 */
	if (!f->answers && knob->births == TBG_BIRTHS_KERNEL && tbg_sockets &&
	    tbg_socket_state(skb, p) == BPF_TCP_NEW_SYN_RECV) {
		tbg_hand_report(key);
		tbg_tcb_forget(key, f);
		tbg_count(TBG_WHY_NO_FLOW);
		return TBG_PASS;
	}
	tbg_way_renew(skb, knob, p, f);
	why = tbg_may_hit(knob, f, p);
	if (!why) {
		act = tbg_hit(skb, s, knob, key, f, soft);
		if (act >= 0)
			return act;
		why = -act;
	}
	act = tbg_hand_over(skb, p, key, f);
	if (act == TBG_PASS)
		tbg_count(why);
	return tbg_hand_end(skb, s, key, f, act);
}

SEC("tc")
int tbg_answer(struct __sk_buff *skb)
{
	struct tbg_scratch *s = tbg_scratch_get();
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_tcb_key key = {};
	struct tbg_tcb *f;
	bool taken = false;
	__u32 push;
	int why, act;

	if (!s || !knob)
		return TBG_PASS;
	push = s->push;
	if (push) {
		s->push = 0;
		return tbg_push_do(skb, s, knob, push);
	}
	tbg_clock_read(s);
	tbg_tcb_key_of(skb, knob, &s->pkt, &key);
	f = bpf_map_lookup_elem(&tbg_tcbs, &key);
	if (!f) {
		/* the handshake's ACK was lost, and the request came */
		why = tbg_begin(skb, s, knob, &key, &taken);
		f = why ? NULL : bpf_map_lookup_elem(&tbg_tcbs, &key);
		if (!f)
			return tbg_begin_end(why ?: TBG_WHY_NO_FLOW);
		if (taken)
			return tbg_begin_taken(skb, s);
	}
	if (tbg_is_next_door(skb, &s->pkt, f)) {
		tbg_count(TBG_WHY_NO_FLOW);
		return TBG_PASS;
	}
	/* tbg_ingress has done that for segments without payload */
	act = s->pkt.payload_len ? tbg_on_shared(skb, s, &key, f) : TBG_NOT_YET;
	return act != TBG_NOT_YET ? act : tbg_own(skb, s, knob, &key, f);
}
