// SPDX-License-Identifier: GPL-2.0
/*
 * sk_skb stream verdict: received data is either a hit, and goes to the
 * socket's own egress, where expand.bpf.c replaces it by the response, or is
 * read by the daemon. After duplicate bytes are removed, the skb's length must
 * not change: the kernel counts its final length as read.
 */
#include "../log.bpf.h"
#include "pend.bpf.h"

#define TBG_TRIM_STEP	4095	/* maximum that bpf_skb_adjust_room() removes */
#define TBG_TRIM_STEPS	32
#define TBG_SKB_ROOM	2048	/* of the send buffer, for each skb of a reply */
#define TBG_GOAL_MAX	32768	/* minimum bytes of a long reply in an skb */
#define TBG_TCP_OPTIONS	40	/* maximum bytes of options in a segment: RFC 9293 3.1, */
#define TBG_SEGMENT_MIN	8	/* and minimum bytes besides: tcp_min_snd_mss is 48 */

/* The beginning of a short disguise, and of a long one with more fields. */
static const char tbg_disguise_short[] = "HTTP/1.1 503 \r\nX:";
static const char tbg_disguise_long[] =
	"HTTP/1.1 503 \r\nX:tttttt\r\nConnection:close\r\nContent-Length:0\r\nY:";
#define TBG_LONG_LEN (sizeof(tbg_disguise_long) - 1)

static const struct {
	__u8 b[TBG_REQ_MAX];
} tbg_fill = { { [0 ... TBG_REQ_MAX - 1] = 'x' } };

struct tbg_cut {
	struct __sk_buff *skb;
	__u32 dup;			/* duplicate bytes to be removed */
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
	/* opaque to the verifier, which would follow every number of steps */
	c->dup = tbg_opaque(c->dup - step, c->skb->len);
	return 0;
}

/*
 * The kernel queues a segment that overlaps earlier bytes untrimmed. Removes
 * the duplicate bytes. Negative: no memory.
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
	if ((__s32)c.dup < 0)		/* a gap, which TCP never delivers */
		return -1;
	if (c.dup)
		bpf_loop(TBG_TRIM_STEPS, tbg_cut_step, &c, 0);
	conn->next_seq += skb->len;
	return c.dup && skb->len ? -1 : 0;
}

/* Overwrites the request of len bytes with the disguise of pending hit nr. */
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
	/* now it is writable: nothing can fail any more */
	bpf_skb_store_bytes(skb, TBG_TOKEN_AT, t.b, TBG_TOKEN_LEN, 0);
	if (fill) {
		TBG_BOUND(fill, TBG_REQ_MAX, return -2);
		bpf_skb_store_bytes(skb, len, tbg_fill.b, fill, 0);
	}
	bpf_skb_store_bytes(skb, skb->len - 4, "\r\n\r\n", 4, 0);
	return 0;
}

/*
 * Bytes of the send buffer that a response of len needs in the worst case. The
 * kernel fills skbs up to half the client's window and to the limit of the
 * interface, in whole segments, or to one segment (tcp_xmit_size_goal()). It may
 * send each piece at once, so that the next one begins another skb.
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

/* Whether the send buffer has room for it besides the pending hits. */
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

/* Loads the request into the scratch memory of p. */
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

/* Looks up the answer of pending hit p, and checks that it fits. Returns 0 or a why. */
static __always_inline int tbg_pend_find(struct __sk_buff *skb,
					 const struct tbg_sock_conn *c,
					 struct tbg_pend *p)
{
	struct tbg_knob *knob = tbg_knob_get();
	int why = knob ? tbg_pend_load(skb, p) : TBG_WHY_OFF;

	if (why)
		return why;
	tbg_pend_client(skb, p);
	p->s.now_ns = bpf_ktime_get_ns();
	why = tbg_find(&p->s, knob, skb->len);
	if (why)
		return why;
	return tbg_has_room(skb, c, p) ? 0 : TBG_WHY_SNDBUF;
}

/*
 * Counts a hit before it checks whether the daemon is about to close, which
 * sets `shut` before it checks for hits under way: one of the two notices.
 * Returns 0 or a why.
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

/* Whether all answers to passed requests are in the socket, see abi/sock.h. */
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

/* Returns 0: the skb is a disguised hit now; or a why: the skb is unchanged. */
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

/* Ends the connection: the bytes can neither be answered nor given to the daemon. */
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

	/* a FIN: passed on after a hit, it would stop the kernel's worker */
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
	tbg_sock_report(c, slot);
	tbg_count(why);
	return SK_PASS;
}
