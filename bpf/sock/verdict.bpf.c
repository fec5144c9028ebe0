// SPDX-License-Identifier: GPL-2.0
/*
 * sk_skb stream verdict: what the client sent is either a hit, and then goes to
 * the socket's own egress, where expand.bpf.c makes the response of it, or the
 * daemon's to read. The skb's length must not change here after its duplicate
 * bytes are off: the kernel counts what it is at the end as read.
 */
#include "../log.bpf.h"
#include "pend.bpf.h"

#define TBG_TRIM_STEP	4095	/* most that bpf_skb_adjust_room() takes off */
#define TBG_TRIM_STEPS	32
#define TBG_SKB_ROOM	2048	/* of the send buffer, for each skb of a reply */
#define TBG_GOAL_MAX	32768	/* bytes of a reply in an skb: at least, if it is long */
#define TBG_TCP_OPTIONS	40	/* bytes that a segment may lose to them: RFC 9293 3.1, */
#define TBG_SEGMENT_MIN	8	/* and bytes that it has left: tcp_min_snd_mss is 48 */

/* First half of a short disguise, and of one with room for more fields. */
static const char tbg_disguise_short[] = "HTTP/1.1 503 \r\nX:";
static const char tbg_disguise_long[] =
	"HTTP/1.1 503 \r\nX:tttttt\r\nConnection:close\r\nContent-Length:0\r\nY:";
#define TBG_LONG_LEN (sizeof(tbg_disguise_long) - 1)

static const struct {
	__u8 b[TBG_REQ_MAX];
} tbg_fill = { { [0 ... TBG_REQ_MAX - 1] = 'x' } };

struct tbg_cut {
	struct __sk_buff *skb;
	__u32 dup;			/* bytes still to go; all of them, if fewer */
};

static long tbg_cut_step(__u32 i, void *arg)
{
	struct tbg_cut *c = arg;
	__u64 step = c->dup;

	if (step > c->skb->len)
		step = c->skb->len;
	if (step > TBG_TRIM_STEP)
		step = TBG_TRIM_STEP;
	if (!step || bpf_skb_adjust_room(c->skb, -(__s32)step, 0, 0))
		return 1;
	/* of no interest to the verifier, which would follow every number of steps */
	c->dup = tbg_opaque(c->dup - step, c->skb->len);
	return 0;
}

/*
 * A segment that overlaps what was read before is queued untrimmed, and the
 * program gets it whole. Takes the duplicate bytes off. Negative: no memory.
 */
__attribute__((noinline)) int tbg_trim(struct __sk_buff *skb,
				       struct tbg_sock_conn *conn)
{
	struct tbg_cut c = { .skb = skb };
	__u32 seq = 0;

	if (!conn || bpf_probe_read_kernel(&seq, sizeof(seq), (void *)skb +
				  bpf_core_field_offset(struct sk_buff, cb)))
		return -1;
	c.dup = conn->next_seq - seq;
	if ((__s32)c.dup < 0)		/* a gap: what no TCP would hand over */
		return -1;
	if (c.dup)
		bpf_loop(TBG_TRIM_STEPS, tbg_cut_step, &c, 0);
	conn->next_seq += skb->len;
	return c.dup && skb->len ? -1 : 0;
}

/* Overwrites the request, len bytes, with the disguise of pending hit nr. */
__attribute__((noinline)) int tbg_disguise(struct __sk_buff *skb,
					   struct tbg_pend *p, __u32 nr)
{
	struct tbg_token t = {};
	__u64 len = skb->len, fill;

	if (!p || len < TBG_DISGUISE_MIN || bpf_skb_pull_data(skb, len))
		return -1;
	tbg_token_write(&t, nr, p->h.gen);
	if (len >= TBG_LONG_LEN + 4) {
		fill = len - TBG_LONG_LEN - 4;
		if (bpf_skb_store_bytes(skb, 0, tbg_disguise_long, TBG_LONG_LEN, 0))
			return -1;
		len = TBG_LONG_LEN;
	} else {
		fill = len - TBG_DISGUISE_MIN;
		if (bpf_skb_store_bytes(skb, 0, tbg_disguise_short,
					sizeof(tbg_disguise_short) - 1, 0))
			return -1;
		len = TBG_TOKEN_AT + TBG_TOKEN_LEN;
	}
	/* from here on it is writable: nothing more can fail */
	bpf_skb_store_bytes(skb, TBG_TOKEN_AT, t.b, TBG_TOKEN_LEN, 0);
	if (fill) {
		TBG_BOUND(fill, TBG_REQ_MAX, return -2);
		bpf_skb_store_bytes(skb, len, tbg_fill.b, fill, 0);
	}
	bpf_skb_store_bytes(skb, skb->len - 4, "\r\n\r\n", 4, 0);
	return 0;
}

/*
 * Bytes of the send buffer that a response of len needs, whatever its cut: the
 * kernel fills skbs up to half the client's window and to what the interface
 * takes at once, in whole segments, or to one segment (tcp_xmit_size_goal()). It
 * may send each piece as soon as it has it, so that the next begins another skb.
 */
static __always_inline __u32 tbg_need(const struct tcp_sock *tp, __u32 len)
{
	const struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	__u32 goal = tp->max_window / 2, segs;
	__u32 mss = tp->mss_cache;

	mss = mss > TBG_TCP_OPTIONS + TBG_SEGMENT_MIN ? mss - TBG_TCP_OPTIONS : TBG_SEGMENT_MIN;
	if (goal > TBG_GOAL_MAX)
		goal = TBG_GOAL_MAX;
	if (goal > sk->sk_gso_max_size)
		goal = sk->sk_gso_max_size;
	segs = goal / mss;
	if (segs > sk->sk_gso_max_segs)
		segs = sk->sk_gso_max_segs;
	goal = (segs ?: 1) * mss;
	return len + (len / goal + 2 + (len - 1) / TBG_PIECE) * TBG_SKB_ROOM;
}

/* Whether the send buffer has room for it besides the hits on their way. */
static __always_inline bool tbg_has_room(struct __sk_buff *skb,
					 const struct tbg_sock_conn *c,
					 struct tbg_pend *p)
{
	struct bpf_sock *sk = skb->sk;
	const struct tcp_sock *tp;
	__s64 room;

	tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
	if (!tp)
		return false;
	p->h.need = tbg_need(tp, p->s.reply.len);
	room = (__s64)tp->inet_conn.icsk_inet.sk.sk_sndbuf -
	       tp->inet_conn.icsk_inet.sk.sk_wmem_queued;
	return room >= (__s64)p->h.need + c->reserved;
}

/* The request into the scratch of p. */
__attribute__((noinline)) int tbg_pend_load(struct __sk_buff *skb,
					    struct tbg_pend *p)
{
	__u64 len = skb->len;

	if (!p)
		return TBG_WHY_ROOM;
	TBG_BOUND(len, TBG_REQ_MAX, return TBG_WHY_GRAMMAR);
	return bpf_skb_load_bytes(skb, 0, p->s.head.b, len) ? TBG_WHY_ROOM : 0;
}

static __always_inline void tbg_pend_client(struct __sk_buff *skb,
					    struct tbg_pend *p)
{
	TBG_SOCK_END(skb, remote, p->s.pkt.key.remote);
	p->s.pkt.key.remote_port = bpf_htons(bpf_ntohl(skb->remote_port));
}

/* What pending hit p answers, and room for that: 0 or a why. */
static __always_inline int tbg_pend_find(struct __sk_buff *skb,
					 const struct tbg_sock_conn *c,
					 struct tbg_pend *p)
{
	int why = tbg_pend_load(skb, p);

	if (why)
		return why;
	tbg_pend_client(skb, p);
	p->s.now_ns = bpf_ktime_get_ns();
	why = tbg_find(&p->s, skb->len);
	if (why)
		return why;
	return tbg_has_room(skb, c, p) ? 0 : TBG_WHY_SNDBUF;
}

/*
 * The daemon says that it is about to close, and then looks whether hits are on
 * their way; we say that one is, and then look whether it closes. 0 or a why.
 */
static __always_inline int tbg_hit_queue(struct tbg_sock_conn *c)
{
	__u32 queued = __sync_fetch_and_add(&c->queued, 1);
	int why = *(volatile __u32 *)&c->shut ? TBG_WHY_CLOSING :
		  queued - c->done >= TBG_SOCK_HITS ? TBG_WHY_BUSY : 0;

	if (why)
		__sync_fetch_and_add(&c->queued, -1);
	return why;
}

/* Whether the answers to all that was passed are in the socket: abi/sock.h. */
static __always_inline bool tbg_is_settled(struct __sk_buff *skb,
					   struct tbg_sock_conn *c)
{
	__u64 word = *(volatile __u64 *)&c->word;
	struct bpf_sock *sk = skb->sk;
	const struct tcp_sock *tp;

	if (c->passed != TBG_CONN_TAKEN(word))
		return false;
	if (c->settled)
		return true;
	tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
	if (!tp)
		return false;
	c->settled = tp->write_seq - c->first_seq ==
		     TBG_CONN_WRITTEN(word) + TBG_CONN_WRITTEN(c->hits);
	return c->settled;
}

/* 0: the skb is a disguised hit. Or a why, and it is as it was. */
static __always_inline int tbg_sock_try(struct __sk_buff *skb,
					struct tbg_sock_conn *c, __u32 slot)
{
	struct tbg_knob *knob = tbg_knob_get();
	struct tbg_pend *p;
	__u32 nr;
	int why;

	if (!knob)
		return TBG_WHY_OFF;
	why = tbg_sock_may(knob, skb->len);
	if (why)
		return why;
	if (!tbg_is_settled(skb, c))
		return TBG_WHY_BUSY;
	if (bpf_map_pop_elem(&tbg_pend_free, &nr))
		return TBG_WHY_ROOM;
	p = bpf_map_lookup_elem(&tbg_pends, &nr);
	if (!p)
		return TBG_WHY_ROOM;
	p->h.gen++;
	why = tbg_pend_find(skb, c, p);
	if (why)
		goto free;
	why = tbg_hit_queue(c);
	if (why)
		goto free;
	p->h.slot = slot;
	p->h.handed = c->handed;
	p->h.cookie = c->cookie;
	if (!tbg_disguise(skb, p, nr)) {
		if (knob->clients & TBG_CLIENTS_RATED)
			tbg_client_charge(&p->s);
		c->reserved += p->h.need;
		return 0;
	}
	__sync_fetch_and_add(&c->queued, -1);
	why = TBG_WHY_ROOM;
free:
	tbg_pend_free_(p, nr);
	return why;
}

/* Bytes that can neither be answered nor given to the daemon: the end. */
static __always_inline int tbg_break(struct tbg_sock_conn *c, __u32 slot,
				     enum tbg_why why)
{
	tbg_count(why);
	return tbg_sock_break(c, slot);
}

SEC("sk_skb/stream_verdict")
int tbg_verdict(struct __sk_buff *skb)
{
	__u64 cookie = bpf_get_socket_cookie(skb);
	struct tbg_sock_conn *c = NULL;
	__u32 *at, slot = 0;
	int why;

	/* a FIN: passed on behind a hit it would end the kernel's worker */
	if (!skb->len) {
		tbg_count(TBG_WHY_CONTROL);
		return SK_DROP;
	}
	at = bpf_map_lookup_elem(&tbg_sock_slots, &cookie);
	if (at) {
		slot = *at;
		c = bpf_map_lookup_elem(&tbg_sock_conns, &slot);
	}
	if (!c || c->cookie != cookie) {
		tbg_count(TBG_WHY_NO_FLOW);
		return SK_PASS;
	}
	if (c->flags & TBG_SOCK_BROKEN || tbg_trim(skb, c))
		return tbg_break(c, slot, TBG_WHY_ROOM);
	if (!skb->len) {
		tbg_count(TBG_WHY_CONTROL);
		return SK_DROP;
	}
	why = tbg_sock_try(skb, c, slot);
	if (!why)
		return bpf_sk_redirect_map(skb, &tbg_socks, slot, 0);
	c->passed += skb->len;
	c->settled = 0;
	if (c->passed - *(volatile __u32 *)&c->received > TBG_SOCK_UNREAD)
		return tbg_break(c, slot, TBG_WHY_UNREAD);
	tbg_sock_tell(c, slot);
	tbg_count(why);
	return SK_PASS;
}
