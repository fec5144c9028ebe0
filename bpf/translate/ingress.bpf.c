// SPDX-License-Identifier: GPL-2.0
/*
 * TC ingress: a segment to one of our ports is either answered here or passed
 * to the stack, translated to the socket's numbers. tbg_ingress parses it and
 * updates the flow; tbg_answer, after a tail call that ends with the daemon,
 * replies. Neither may drop a segment that is news to the socket.
 */
#include <linux/if_packet.h>

#include "birth.bpf.h"
#include "claim.bpf.h"
#include "icmp.bpf.h"
#include "loss.bpf.h"
#include "ack.bpf.h"

#define TBG_GIVEN_MAX (1u << 22)	/* a segment further ahead is out of window */
#define TBG_SEQ_WINDOW 65535	/* how far beyond the last request a client may send */
#define TBG_FRAG_MAX 65535	/* bytes of a packet that came in fragments */
#define TBG_EDGE_MAX (1u << 20)		/* an edge this far behind is forgotten */
#define TBG_TW_STEP 65537		/* the stack's step from TIME_WAIT to a new connection */

/*
 * Whether a bare acknowledgement within wire's last reply is acceptable: nothing
 * else checks it. Its sequence number must be in the window (RFC 9293 3.10.7.4),
 * or a blindly forged ACK could stop retransmission.
 */
static __always_inline bool tbg_ack_is_sound(struct __sk_buff *skb,
					     struct tbg_scratch *s,
					     const struct tbg_flow *f)
{
	__u32 end = f->last.req_seq + f->last.req_len;

	return s->pkt.seq - end <= TBG_SEQ_WINDOW && tbg_segment_sound(skb, s);
}

/* The verdict on a reset, see tbg_reset_look(). */
enum tbg_reset { TBG_RESET_NOT, TBG_RESET_EXACT, TBG_RESET_ALONE };

/*
 * Whether the socket will accept a reset with this (translated) number: only if it
 * is the next expected one (RFC 5961 3.2), or that of the FIN before it (macOS).
 * ALONE: unknown, because there is no socket, or segments on their way to it come
 * first.
 */
__attribute__((noinline)) int
tbg_reset_look(struct __sk_buff *skb, const struct tbg_pkt *p, __u32 seq)
{
	struct bpf_tcp_sock *tp;
	int ret = TBG_RESET_ALONE;
	struct bpf_sock *sk;
	__s32 ahead;
	bool half;

	if (!p)
		return ret;
	sk = tbg_socket_find(skb, &p->key, p->v6);
	if (!sk)
		return ret;
	half = sk->state == BPF_TCP_CLOSE_WAIT || sk->state == BPF_TCP_LAST_ACK ||
	       sk->state == BPF_TCP_CLOSING;
	tp = sk->state == BPF_TCP_LISTEN ? NULL : bpf_tcp_sock(sk);
	if (tp) {
		ahead = seq - tp->rcv_nxt;
		if (!ahead || (half && ahead == -1))
			ret = TBG_RESET_EXACT;
		else if (ahead < 0)
			ret = TBG_RESET_NOT;
	}
	bpf_sk_release(sk);
	return ret;
}

/*
 * Whether a segment is a bare acknowledgement that the client's next request has
 * overtaken: XDP has answered the request while this one was delayed in its
 * batch (GRO, RPS). It carries nothing new, and the socket knew everything by
 * then. Called under the flow's lock.
 */
static __always_inline bool tbg_ack_is_late(const struct tbg_flow *f,
					    const struct tbg_pkt *p)
{
	return f->way & TBG_WAY_XDP && p->tcp_flags == TBG_TCP_ACK &&
	       !p->payload_len &&
	       f->last.req_seq - p->seq <= TBG_SEQ_WINDOW &&
	       f->last.seq - p->ack <= TBG_OLD_ACK;
}

/*
 * Whether the socket may still accept the segment that begins with a fragment at
 * this byte count, once it is reassembled after this hook, which sees only its first
 * fragment.
 */
static __always_inline bool tbg_is_taken_whole(const struct tbg_flow *f,
					       __u32 at)
{
	return (__s32)(at - f->window) <= 0 &&
	       (__s32)(at + TBG_FRAG_MAX - f->given) > 0;
}

/* How the segment is translated, once the flow has it. Under the flow's lock. */
static __always_inline void tbg_ingress_shift(const struct tbg_flow *f, const struct tbg_pkt *p,
					      __u32 next, __u32 slack, struct tbg_shift *ret)
{
	ret->seq = -f->in_delta;
	ret->ack = ret->sack = -f->out_delta;
	ret->ceil = next;
	ret->slack = slack;
	ret->floor = tbg_flow_edge(f);
	/* without a socket the stack resets with this number: it must be the client's own */
	ret->floored = f->last.len && !(f->flags & TBG_FLOW_RST);
	ret->window = tbg_window_left(f, p);
	ret->narrowed = ret->window != p->window;
}

/* Notes a FIN or reset of the client that the socket accepts. Under the flow's lock. */
static __always_inline void tbg_ingress_end(struct tbg_flow *f, const struct tbg_pkt *p,
					    __u32 at, bool fits, int reset)
{
	/* a FIN takes one sequence number */
	if (reset == TBG_RESET_EXACT ||
	    (reset == TBG_RESET_ALONE &&
	     at == f->given + !!(f->flags & TBG_FLOW_FIN_IN)))
		f->flags |= TBG_FLOW_RST;
	/* the stack keeps an early FIN, with its present number */
	if (fits && p->tcp_flags & TBG_TCP_FIN)
		f->flags |= at + p->payload_len == f->given ? TBG_FLOW_FIN_IN : TBG_FLOW_LEFT;
}

/*
 * Updates the flow by a segment to the stack; *ret is its translation. False:
 * it cannot be translated. Called under the flow's lock, so that a claim on
 * another CPU happens entirely before or after. A segment that the socket will
 * not accept changes nothing: sound and reset are results of
 * tbg_segment_sound() and tbg_reset_look(). own_window: the segment is from
 * tbg_window_pass(), and is useful only until the client's next bytes.
 */
static __always_inline bool tbg_ingress_note(struct tbg_flow *f,
					     struct tbg_conn_word *conn,
					     const struct tbg_pkt *p, bool sound,
					     int reset, bool own_window,
					     struct tbg_shift *ret)
{
	__u64 now_ns = bpf_ktime_get_ns();
	__u32 at, end, next, slack, known;
	/* a segment too long to be checked here may still be accepted */
	bool taken = sound || p->payload_len > TBG_REQ_MAX;
	bool late, fits, more;

	bpf_spin_lock(&f->lock);
	at = p->seq - f->in_delta - f->irs;
	late = tbg_ack_is_late(f, p) ||
	       (own_window && at != f->given + !!(f->flags & TBG_FLOW_FIN_IN));
	if (late)
		goto out;
	end = at + p->payload_len;
	next = f->iss + f->sent + f->out_delta;
	slack = tbg_flow_slack(f, next);
	if (!slack)
		f->last.owed = 0;
	fits = taken && p->tcp_flags & TBG_TCP_ACK &&
	       (__s32)(p->ack - next - slack) <= 0 &&
	       (__s32)(at - f->window) <= 0;
	more = fits && p->payload_len && end - f->given - 1 < TBG_GIVEN_MAX;
	if (own_window)
		f->flags |= TBG_FLOW_WINDOW;
	if (more) {
		f->flags &= ~TBG_FLOW_WINDOW;
		f->given = end;
	}
	fits = fits && (__s32)(end - f->given) >= 0;
	if (fits && sound && (__s32)(p->ack - f->acked) > 0 &&
	    (__s32)(p->ack - next) <= 0) {
		f->acked = p->ack;
		f->dups = 0;
	}
	if (fits && sound && p->plain_ts && at == f->given - p->payload_len &&
	    (__s32)(p->tsval - f->tsrecent) > 0)
		f->tsrecent = p->tsval;
	if (conn && (__s32)(f->acked - f->last.seq - f->last.len) >= 0)
		conn->sent_ms = 0;
	tbg_ingress_end(f, p, at, fits, reset);
	if (p->frag && tbg_is_taken_whole(f, at))
		f->flags |= TBG_FLOW_LEFT;
	if (f->last.len &&
	    (__s32)(f->acked - f->last.seq - f->last.len) > (__s32)TBG_EDGE_MAX)
		f->last.len = 0;
	f->seen_ns = now_ns;
	f->up_ms = now_ns / 1000000;
	tbg_ingress_shift(f, p, next, slack, ret);
	known = f->acked;
	if (ret->floored)
		known = tbg_seq_max(known, ret->floor);
	known -= f->out_delta + f->iss;
	/*
	 * the socket accepts a window with a new acknowledgement or bytes, or if it is
	 * larger
	 */
	if (fits && (known != f->known || more || ret->window > f->heard))
		f->heard = ret->window;
	f->known = known;
out:
	bpf_spin_unlock(&f->lock);
	return !late;
}

/* Passes a segment to the stack: updates the flow, translates, counts. */
static __always_inline int tbg_ingress_pass(struct __sk_buff *skb,
					    struct tbg_scratch *s,
					    struct tbg_flow *f,
					    enum tbg_why why)
{
	struct tbg_shift shift = {};
	bool own_window = skb->mark == tbg_mark, sound;
	struct tbg_conn_word *conn;
	int reset = TBG_RESET_NOT;
	__u32 slot;

	if (own_window)
		skb->mark = 0;
	/* without a socket the stack answers with a reset that the client accepts */
	if (f && !(f->way & TBG_WAY_LOST)) {
		if (tbg_is_narrow(f, &s->pkt) && !tbg_window_pass(skb, s, f))
			return TC_ACT_SHOT;
		slot = f->slot;
		conn = bpf_map_lookup_elem(&tbg_conns, &slot);
		sound = tbg_segment_sound(skb, s);
		if (sound && s->pkt.tcp_flags & TBG_TCP_RST)
			reset = tbg_reset_look(skb, &s->pkt,
					       s->pkt.seq - f->in_delta);
		if (!tbg_ingress_note(f, conn, &s->pkt, sound, reset, own_window,
				      &shift)) {
			tbg_count(TBG_WHY_ACK);
			return TC_ACT_SHOT;
		}
		if (shift.seq | shift.ack)
			tbg_translate(skb, s, &shift);
	}
	tbg_count(why);
	return TBG_PASS;
}

/* The meaning of a bare acknowledgement while a reply was sent last. */
enum tbg_ack { TBG_ACK_OTHER, TBG_ACK_OURS, TBG_ACK_LOSS };

/*
 * A pure acknowledgement of wire's own bytes means nothing to the socket.
 * Everything else must get through: answers to keepalives, window updates
 * for data in the socket, the handshake. An acknowledgement within the reply
 * after later bytes have been received, or a repeated one, indicates a loss.
 */
static __always_inline enum tbg_ack tbg_ack_note(struct __sk_buff *skb,
						 struct tbg_scratch *s,
						 struct tbg_flow *f)
{
	const struct tbg_pkt *p = &s->pkt;
	bool plain = tbg_is_plain(f, p), sack;
	enum tbg_ack ret = TBG_ACK_OTHER;
	struct tbg_conn_word *conn;
	__u32 slot = f->slot;

	if (p->tcp_flags != TBG_TCP_ACK || p->odd || p->ecn == TBG_CE || p->ae ||
	    p->ack - f->last.seq > f->last.len || !tbg_ack_is_sound(skb, s, f))
		return ret;
	sack = !plain && tbg_pkt_options(skb, s)->sack_nr;
	conn = bpf_map_lookup_elem(&tbg_conns, &slot);
	bpf_spin_lock(&f->lock);
	if (tbg_ack_is_late(f, p)) {
		ret = TBG_ACK_OURS;
	} else if (plain && (__s32)(p->ack - f->acked) > 0 &&
	    (__s32)(f->acked - f->last.seq) >= 0 &&
	    (__s32)(p->ack - f->last.seq - f->last.len) <= 0 &&
	    !(f->flags & TBG_FLOW_CLOSED) &&
	    tbg_window_left(f, p) <= f->heard &&
	    p->seq - f->in_delta - f->irs == f->given) {
		f->acked = p->ack;
		f->dups = 0;
		if (conn && p->ack == tbg_flow_edge(f))
			conn->sent_ms = 0;
		ret = TBG_ACK_OURS;
	} else if (tbg_within_reply(f, p->ack)) {
		if (p->ack == f->acked && f->dups < TBG_DUPS)
			f->dups++;
		/* one is enough if the socket has sent bytes after our reply */
		if (sack || (p->ack == f->acked &&
			       (f->dups == TBG_DUPS ||
				f->sent + f->iss + f->out_delta !=
				tbg_flow_edge(f))))
			ret = TBG_ACK_LOSS;
	}
	bpf_spin_unlock(&f->lock);
	return ret;
}

/*
 * Makes a flow for a segment without one, if it ends a handshake; or returns the
 * one that another CPU has made meanwhile. NULL, and *why: no flow yet.
 */
static __always_inline struct tbg_flow *
tbg_flow_begin(struct __sk_buff *skb, struct tbg_scratch *s, enum tbg_why *why)
{
	struct tbg_flow *f;

	*why = TBG_WHY_CSUM;
	/* a segment that cannot be checked may be accepted, and must be counted */
	if (tbg_segment_sound(skb, s) || s->pkt.payload_len > TBG_REQ_MAX)
		*why = tbg_flow_born(&s->pkt);
	if (*why != TBG_WHY_RACE)
		return NULL;
	f = bpf_map_lookup_elem(&tbg_flows, &s->pkt.key);
	if (!f)
		*why = TBG_WHY_NO_FLOW;
	return f;
}

/*
 * Whether the segment has arrived by another VLAN or VRF than its flow, and so does not
 * belong to it.
 */
static __always_inline bool tbg_is_astray(struct __sk_buff *skb,
					  const struct tbg_flow *f,
					  const struct tbg_pkt *p)
{
	return (f->way & TBG_WAY_BARE && tbg_is_tagged(skb, p)) || tbg_is_elsewhere(skb, f);
}

/*
 * A SYN with the addresses of a flow may find its socket in TIME_WAIT. Without
 * timestamps, sequence numbers decide whether it is old, but those of the socket lag
 * behind the client's. A SYN within the requests that wire has consumed is old. The
 * stack gives a new connection a number a fixed step after the socket's last one, which
 * may lie within the bytes that wire has sent; then the SYN is refused, too: the client
 * resets and tries again. *ret_by: what to add to the SYN's number for that.
 */
static __always_inline bool tbg_syn_is_refused(struct __sk_buff *skb,
					       struct tbg_scratch *s,
					       struct tbg_flow *f,
					       __u32 *ret_by)
{
	struct tbg_pkt *p = &s->pkt;
	struct bpf_sock *sk;
	__u32 behind, state;

	if (f->flags & TBG_FLOW_TS && tbg_pkt_options(skb, s)->flags & TBG_OPT_TS)
		return false;
	bpf_spin_lock(&f->lock);
	behind = f->irs + f->given + f->in_delta +
		 !!(f->flags & TBG_FLOW_FIN_IN) - p->seq;
	*ret_by = 0;
	if (behind < f->in_delta)
		*ret_by = -f->in_delta;
	else if ((__s32)behind < 0 && f->out_delta >= TBG_TW_STEP)
		*ret_by = behind - f->in_delta;
	bpf_spin_unlock(&f->lock);
	sk = *ret_by ? tbg_socket_find(skb, &p->key, p->v6) : NULL;
	if (!sk)
		return false;
	state = sk->state;
	bpf_sk_release(sk);
	return state == BPF_TCP_TIME_WAIT;
}

static __always_inline void tbg_ingress_syn(struct __sk_buff *skb,
					    struct tbg_scratch *s)
{
	struct tbg_flow *f = bpf_map_lookup_elem(&tbg_flows, &s->pkt.key);
	struct tbg_shift shift = {};

	if (f && !tbg_is_astray(skb, f, &s->pkt) &&
	    tbg_syn_is_refused(skb, s, f, &shift.seq))
		tbg_translate(skb, s, &shift);
	else
		tbg_embryo_syn(skb, s);
}

/*
 * A fragment that ends within the TCP header cannot be translated: if it needs
 * translation, it is dropped (RFC 3128); untranslated, the socket would only send a
 * challenge ACK. Otherwise the stack may accept it with the following fragments,
 * uncounted.
 */
static __always_inline int tbg_ingress_cut(struct __sk_buff *skb,
					   const struct tbg_pkt *p)
{
	struct tbg_flow *f = bpf_map_lookup_elem(&tbg_flows, &p->key);
	int act = TBG_PASS;

	tbg_count(TBG_WHY_IP_ODD);
	if (!f && bpf_map_delete_elem(&tbg_embryos, &p->key))
		f = bpf_map_lookup_elem(&tbg_flows, &p->key);
	if (!f || tbg_is_astray(skb, f, p))
		return act;
	bpf_spin_lock(&f->lock);
	if (f->in_delta | f->out_delta)
		act = TC_ACT_SHOT;
	else if (tbg_is_taken_whole(f, p->seq - f->irs))
		f->flags |= TBG_FLOW_LEFT;
	bpf_spin_unlock(&f->lock);
	return act;
}

/*
 * A frame that IP drops because it is addressed to another host, on a device that may still
 * hand it to one that is ours. It is translated if it has a flow.
 */
static __always_inline int tbg_ingress_unmeant(struct __sk_buff *skb, struct tbg_scratch *s)
{
	struct tbg_pkt *p = &s->pkt;
	struct tbg_flow *f = bpf_map_lookup_elem(&tbg_flows, &p->key);

	if (f && !(p->tcp_flags & TBG_TCP_SYN) && !tbg_is_astray(skb, f, p))
		return tbg_ingress_pass(skb, s, f, TBG_WHY_IFACE);
	tbg_count(TBG_WHY_NOT_OURS);
	return TBG_PASS;
}

/*
 * Leaves a segment with payload to tbg_answer. Returns why it is passed up: tbg_answer has
 * not run.
 */
static __always_inline enum tbg_why tbg_ingress_try(struct __sk_buff *skb,
						    const struct tbg_pkt *p)
{
	/* all flags except PSH; CWR and ECE belong to ECN */
	if ((p->tcp_flags & ~TBG_TCP_PSH) == TBG_TCP_ACK) {
		if (!p->payload_len)
			return TBG_WHY_CONTROL;
		bpf_tail_call(skb, &tbg_tail, 0);
		return TBG_WHY_OFF;	/* the daemon is gone */
	}
	if (!p->payload_len)
		return TBG_WHY_CONTROL;
	/* with a FIN, it may be the retransmitted request of a lost reply */
	if ((p->tcp_flags & ~TBG_TCP_PSH) == (TBG_TCP_ACK | TBG_TCP_FIN))
		bpf_tail_call(skb, &tbg_tail, 0);
	return TBG_WHY_FLAGS;
}

/* A segment other than a SYN, of a flow or to begin one. Passed up, it counts why. */
static __always_inline int tbg_ingress_flow(struct __sk_buff *skb, struct tbg_scratch *s,
					    enum tbg_why why)
{
	struct tbg_pkt *p = &s->pkt;
	struct tbg_flow *f = bpf_map_lookup_elem(&tbg_flows, &p->key);

	if (!f) {
		/* a reset begins no flow */
		if ((p->tcp_flags & (TBG_TCP_ACK | TBG_TCP_RST)) == TBG_TCP_ACK)
			f = tbg_flow_begin(skb, s, &why);
	} else if (tbg_is_astray(skb, f, p)) {
		tbg_count(TBG_WHY_NOT_OURS);
		return TBG_PASS;
	} else if (!p->payload_len && f->last.len && skb->mark != tbg_mark &&
		   !(f->way & TBG_WAY_LOST)) {
		switch (tbg_ack_note(skb, s, f)) {
		case TBG_ACK_OURS:
			tbg_count(TBG_WHY_ACK);
			return TC_ACT_SHOT;
		case TBG_ACK_LOSS:
			bpf_tail_call(skb, &tbg_tail, 0);
			break;
		case TBG_ACK_OTHER:
			break;
		}
	}
	return tbg_ingress_pass(skb, s, f, why);
}

SEC("tc")
int tbg_ingress(struct __sk_buff *skb)
{
	struct tbg_scratch *s = tbg_scratch_get();
	struct tbg_knob *knob = tbg_knob_get();
	struct sk_buff___wire *b = (void *)skb;
	struct tbg_pkt *p;
	enum tbg_why why;
	bool meant;

	if (!s || !knob)
		return TBG_PASS;
	/* IP drops frames for other hosts; XDP knows only the device's own address */
	meant = !tbg_sockets || skb->pkt_type == PACKET_HOST;
	if (!meant && !tbg_device_is_port((__u64)(long)BPF_CORE_READ(b, dev))) {
		tbg_count(TBG_WHY_NOT_OURS);
		return TBG_PASS;
	}
	p = &s->pkt;
	switch (tbg_pkt_parse(skb, p, true)) {
	case TBG_PKT_ICMP:
		return tbg_ingress_icmp(skb, s, knob);
	case TBG_PKT_CUT:
		if (tbg_port_served(knob, p->key.local_port))
			return tbg_ingress_cut(skb, p);
		/* fallthrough */
	case TBG_PKT_OTHER:
		tbg_count(TBG_WHY_NOT_OURS);
		return TBG_PASS;
	case TBG_PKT_TCP:
		break;
	}
	if (!tbg_port_served(knob, p->key.local_port)) {
		tbg_count(TBG_WHY_NOT_OURS);
		return TBG_PASS;
	}
	if (!meant)
		return tbg_ingress_unmeant(skb, s);
	why = tbg_ingress_try(skb, p);
	if (p->tcp_flags & TBG_TCP_SYN) {
		if (!(p->tcp_flags & TBG_TCP_ACK) &&
		    tbg_end_served(&p->key, p->v6))
			tbg_ingress_syn(skb, s);
		tbg_count(TBG_WHY_CONTROL);
		return TBG_PASS;
	}
	return tbg_ingress_flow(skb, s, why);
}

/*
 * Sends the reply as a clone, and turns the received segment into the
 * acknowledgement that the socket waits for: otherwise the socket would
 * retransmit what the client has. Only happens on the first hit after a miss.
 */
static __always_inline int tbg_reply_and_acknowledge(struct __sk_buff *skb,
						     struct tbg_scratch *s,
						     const struct tbg_bare_ack *ack)
{
	tbg_send_clone(skb, 0);
	return tbg_ack_stack(skb, s, ack);
}

/* Whether the reply in s->reply can be sent in its segments. Returns 0 or a why. */
static __always_inline int tbg_hit_cut(struct __sk_buff *skb, struct tbg_scratch *s,
				       const struct tbg_knob *knob,
				       const struct tbg_flow *f, __u32 *ret_frame)
{
	struct tbg_reply *r = &s->reply;
	struct tbg_pkt *p = &s->pkt;

	if (r->len > TBG_WIRE_MAX || r->len > tbg_pkt_window(f, p) ||
	    tbg_is_tight(skb, f, p) ||
	    tbg_reply_cut(skb, r, tbg_flow_mss(f, p)) || r->nr > f->burst ||
	    !tbg_reply_fits(knob, r))
		return TBG_WHY_SIZE;
	*ret_frame = p->l4 + (f->flags & TBG_FLOW_TS ? 32 : 20) + r->seg;
	return tbg_mtu_holds(skb, *ret_frame - p->l3) ? 0 : TBG_WHY_SIZE;
}

/* Answers the request that tbg_find() has found. Returns a TC action, or -why to pass up. */
static __always_inline int tbg_try_hit(struct __sk_buff *skb, struct tbg_scratch *s,
				       const struct tbg_knob *knob, struct tbg_flow *f,
				       struct tbg_conn_word *conn,
				       const struct tbg_answered *answered, bool soft)
{
	struct tbg_pkt *p = &s->pkt;
	struct tbg_reply *r = &s->reply;
	struct tbg_bare_ack ack = {};
	__u32 frame;
	int why;

	if (!f->burst && !tbg_path_look(skb, p, f))
		return -TBG_WHY_NO_FLOW;
	why = tbg_hit_cut(skb, s, knob, f, &frame);
	if (why)
		return -why;
	if (tbg_reply_room(skb, frame, soft))
		return -TBG_WHY_ROOM;
	why = tbg_claim(f, p, r, conn, answered, s->now_ns, &ack, false);
	if (why) {
		tbg_request_restore(skb, s);
		return -why;
	}
	if (tbg_reply_send(skb, s, (1u << r->nr) - 1))
		return TC_ACT_SHOT;
	tbg_hit_note(s, knob);
	return ack.needed ? tbg_reply_and_acknowledge(skb, s, &ack) :
			     tbg_reply_last(skb);
}

/* Answers, retransmits or resets. Returns a TC action, TBG_TRIED, or -why to pass up. */
static __always_inline int tbg_try(struct __sk_buff *skb,
				   struct tbg_scratch *s,
				   const struct tbg_knob *knob,
				   struct tbg_flow *f)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct tbg_pkt *p = &s->pkt;
	__u32 slot = f->slot;
	int why, soft, act;
	bool lost;
	struct tbg_conn_word *conn;
	struct tbg_answered answered;

	s->now_ns = now_ns;
	/* nothing of the last reply on this CPU may get into this one */
	__builtin_memset(&s->reply, 0, sizeof(s->reply));
	lost = tbg_shows_loss(f, p);
	why = tbg_may_answer(skb, f, p, lost);
	if (why)
		return -why;
	/* the reply would leave by the request's VLAN, which is not the socket's */
	if (tbg_vlans(skb, p) != f->vlans)
		return -TBG_WHY_IFACE;
	conn = bpf_map_lookup_elem(&tbg_conns, &slot);
	if (!conn)
		return -TBG_WHY_NO_FLOW;
	answered = tbg_answered(conn, slot);
	if (!lost) {
		why = tbg_may_hit(knob, f, p, &answered, now_ns / 1000000);
		if (why)
			return -why;
	}
	if (p->payload_len > TBG_REQ_MAX)
		return -TBG_WHY_GRAMMAR;
	soft = tbg_segment_check(skb, s);
	if (soft < 0)
		return -TBG_WHY_CSUM;
	if (lost) {
		act = tbg_repeat(skb, s, knob, f, soft);
		if (act == -TBG_WHY_STALE_REPEAT) {
			tbg_reset(skb, s, f);
			act = TBG_TRIED;
		}
		return act;
	}
	if (tbg_request_load(skb, s))
		return -TBG_WHY_GRAMMAR;
	why = tbg_find(s, knob, p->payload_len);
	return why ? -why : tbg_try_hit(skb, s, knob, f, conn, &answered, soft);
}

#include "ask.bpf.h"

SEC("tc")
int tbg_answer(struct __sk_buff *skb)
{
	struct tbg_scratch *s = tbg_scratch_get();
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_flow *f;
	enum tbg_why why;
	int act;

	if (!s || !knob)
		return TBG_PASS;
	if (tbg_is_lookup(skb))
		return TBG_ASKED | tbg_ask(skb, knob);
	f = bpf_map_lookup_elem(&tbg_flows, &s->pkt.key);
	if (!f) {
		f = tbg_flow_begin(skb, s, &why);
		return tbg_ingress_pass(skb, s, f, why);
	}
	if (tbg_is_astray(skb, f, &s->pkt)) {
		tbg_count(TBG_WHY_NOT_OURS);
		return TBG_PASS;
	}
	act = tbg_try(skb, s, knob, f);
	if (act == TBG_TRIED)
		return TBG_PASS;
	if (act >= 0)
		return act;
	return tbg_ingress_pass(skb, s, f, -act);
}
