// SPDX-License-Identifier: GPL-2.0
/*
 * sk_msg: runs for everything that is sent on an enrolled socket. Messages of the
 * daemon pass. A message of the kernel's worker is a disguised request (pend.bpf.h)
 * and becomes the response: one element for each TBG_PIECE of it, which the
 * kernel's TCP then owns. It must never be sent unchanged: SK_DROP ends the
 * connection.
 */
#include "../log.bpf.h"
#include "../metric.bpf.h"
#include "pend.bpf.h"

#define TBG_COPY	64	/* bytes copied in one step */

#define X(name, bytes, percent)						\
	_Static_assert(TBG_BLOB_ROOM(bytes) <= TBG_PIECES * TBG_PIECE, "reply");
TBG_CLASS_LIST(X)
#undef X
_Static_assert(TBG_PIECE % TBG_COPY == 0, "steps");
_Static_assert(TBG_HEAD_ROOM <= TBG_PIECE, "what is patched is in the first");

struct tbg_copy {
	struct sk_msg_md *msg;
	const void *blob;		/* or a pending hit */
	__u32 off, len;			/* of the piece, in the blob's data */
};

/* One step: copies up to TBG_COPY bytes from src to offset at of the message. */
static __always_inline long tbg_copy_step(struct sk_msg_md *msg,
					  const __u8 *src, __u64 at)
{
	__u8 *data = (void *)(long)msg->data;
	__u8 *end = (void *)(long)msg->data_end;
	__u8 *to = data + at;
	int i;

	if (to + TBG_COPY <= end) {
#pragma unroll
		for (i = 0; i < TBG_COPY / 8; i++)
			((__u64 *)to)[i] = ((const __u64 *)src)[i];
		return 0;
	}
	for (i = 0; i < TBG_COPY - 1; i++) {
		if (to + i + 1 > end)
			break;
		to[i] = src[i];
	}
	return 1;
}

#define X(name, bytes, percent)						\
	static long tbg_copy_##name(__u32 i, void *arg)			\
	{								\
		const struct tbg_slot_##name *b;			\
		struct tbg_copy *c = arg;				\
		__u64 at = (__u64)i * TBG_COPY, from = at + c->off;	\
									\
		b = c->blob;						\
		if (at >= c->len)					\
			return 1;					\
		tbg_keep(at);						\
		tbg_keep(from);						\
		if (at > TBG_PIECE - TBG_COPY ||			\
		    from > sizeof(*b) - sizeof(b->head) - TBG_COPY)	\
			return 1;					\
		return tbg_copy_step(c->msg, b->data + from, at); \
	}
TBG_CLASS_LIST(X)
#undef X

/*
 * Fills the message's first element with the len bytes of the response from
 * offset at on, from its blob. Returns 0, or negative: the blob no longer has
 * these bytes.
 */
__attribute__((noinline)) int tbg_expand_piece(struct sk_msg_md *msg,
					       struct tbg_pend *p, __u32 at,
					       __u32 len)
{
	struct tbg_copy c = { .msg = msg };
	__u32 slot;

	if (!p)
		return -1;
	slot = TBG_BLOB_SLOT(p->s.reply.blob);
	c.off = p->s.reply.part.off + at;
	c.len = len;
	switch (TBG_BLOB_CLASS(p->s.reply.blob)) {
#define X(name, bytes, percent)						\
	case TBG_CLASS_##name: {					\
		struct tbg_slot_##name *b =				\
			bpf_map_lookup_elem(&tbg_blob_##name, &slot);	\
									\
		if (!b || b->head.gen != p->s.reply.gen)		\
			return -1;					\
		c.blob = b;						\
		bpf_loop(TBG_PIECE / TBG_COPY, tbg_copy_##name, &c, 0);	\
		return 0;						\
	}
	TBG_CLASS_LIST(X)
#undef X
	}
	return -1;
}

/* Writes what differs from the blob: Date or Age, and the tier's name. */
__attribute__((noinline)) int tbg_expand_patch(struct sk_msg_md *msg,
					       struct tbg_pend *p)
{
	struct tbg_knob *knob = tbg_knob_get();
	__u64 date_off, tier_off;
	__u8 *date, *tier, *end;
	const __u8 *text;
	__u64 age;
	__u32 i;

	if (!p || !knob)
		return -1;
	text = knob->date[p->s.reply.date_s & (TBG_DATE_RING - 1)].text;
	date_off = p->s.reply.part.date_off;
	tier_off = p->s.reply.part.tier_off;
	tbg_keep(date_off);
	tbg_keep(tier_off);
	if (date_off >= TBG_HEAD_ROOM || tier_off >= TBG_HEAD_ROOM)
		return -1;
	date = (__u8 *)(long)msg->data + date_off;
	tier = (__u8 *)(long)msg->data + tier_off;
	end = (void *)(long)msg->data_end;
	tbg_keep(date);
	tbg_keep(tier);
	if (date + TBG_DATE_LEN > end || tier + 4 > end)
		return -1;
	if (p->s.reply.age_len) {
		age = tbg_age_text(p->s.reply.date_s, p->s.reply.age_len);
		for (i = 0; i < TBG_AGE_MAX && i < p->s.reply.age_len; i++)
			date[i] = age >> 8 * i;
	} else {
		for (i = 0; i < TBG_DATE_LEN; i++)
			date[i] = text[i];
	}
	if (tier_off)
		__builtin_memcpy(tier, "sock", 4);
	return 0;
}

static long tbg_copy_head(__u32 i, void *arg)
{
	struct tbg_copy *c = arg;
	const struct tbg_pend *p = c->blob;
	__u64 at = (__u64)i * TBG_COPY;

	tbg_keep(at);
	if (at > TBG_REQ_MAX - TBG_COPY)
		return 1;
	return tbg_copy_step(c->msg, p->s.head.b + at, at);
}

/* Restores the bytes of the request. */
__attribute__((noinline)) int tbg_undisguise(struct sk_msg_md *msg,
					     struct tbg_pend *p)
{
	struct tbg_copy c = { .msg = msg, .blob = p };

	if (!p)
		return -1;
	bpf_loop(TBG_REQ_MAX / TBG_COPY, tbg_copy_head, &c, 0);
	return 0;
}

/* The hit is finished: answered, or given to the daemon. */
static __always_inline void tbg_hit_done(struct tbg_sock_conn *c,
					 struct tbg_pend *p, __u32 nr)
{
	c->reserved -= p->h.need;
	__sync_fetch_and_add(&c->done, 1);
	tbg_pend_free_(p, nr);
}

/* Gives the original request to the daemon, in order. */
static __always_inline int tbg_hand_over(struct sk_msg_md *msg,
					 struct tbg_sock_conn *c,
					 struct tbg_pend *p, __u32 nr,
					 enum tbg_why why)
{
	__u32 slot = p->h.slot;

	/* split at the end of a page: only the first piece is visible here */
	if (bpf_msg_pull_data(msg, 0, p->s.req.len, 0) || tbg_undisguise(msg, p))
		return tbg_sock_break(c, slot);
	c->handed++;
	c->passed += p->s.req.len;
	c->settled = 0;
	tbg_hit_done(c, p, nr);
	tbg_sock_report(c, slot);
	tbg_count(why);
	return bpf_msg_redirect_map(msg, &tbg_socks, slot, BPF_F_INGRESS);
}

/* Whether the send buffer still has room. */
static __always_inline bool tbg_room_holds(struct sk_msg_md *msg,
					   const struct tbg_pend *p)
{
	struct bpf_sock *sk = msg->sk;
	const struct tcp_sock *tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;

	return tp && tp->inet_conn.icsk_inet.sk.sk_wmem_queued + (__s64)p->h.need <=
		     tp->inet_conn.icsk_inet.sk.sk_sndbuf;
}

/*
 * Puts the response in front of the request, beginning with its last piece,
 * because the program can access only the first element. Returns 0; 1 if the
 * kernel has no memory for all of it, with the message unchanged; negative: the
 * blob no longer has the bytes.
 */
static __always_inline int tbg_expand_push(struct sk_msg_md *msg,
					   struct tbg_pend *p)
{
	__u32 len = p->s.reply.len, end = len, at, i;

	for (i = 0; i < TBG_PIECES && end; i++) {
		at = (end - 1) / TBG_PIECE * TBG_PIECE;
		if (bpf_msg_push_data(msg, 0, end - at, 0))
			return end < len && bpf_msg_pop_data(msg, 0, len - end, 0) ? -1 : 1;
		if (tbg_expand_piece(msg, p, at, end - at))
			return -1;
		end = at;
	}
	return 0;
}

static __always_inline void tbg_hit_count(struct tbg_sock_conn *c,
					  struct tbg_pend *p)
{
	struct tbg_knob *knob = tbg_knob_get();
	__u32 zero = 0;
	struct tbg_stats *st = bpf_map_lookup_elem(&tbg_stats, &zero);

	if (st)
		st->sock_bytes += p->s.reply.len;
	*(volatile __u64 *)&c->hits =
		TBG_CONN_WORD(TBG_CONN_TAKEN(c->hits) + p->s.req.len,
			      TBG_CONN_WRITTEN(c->hits) + p->s.reply.len);
	tbg_count(TBG_WHY_HIT_SOCK);
	tbg_reply_heat(&p->s.reply);
	c->seen_ns = p->s.now_ns;
	tbg_metric_hit(&p->s, TBG_TIER_sock, true);
	if (knob && knob->log)
		tbg_log_hit(&p->s, TBG_TIER_sock);
}

/* The pending hit whose disguise the message is; or NULL. */
static __always_inline struct tbg_pend *tbg_pend_of(struct sk_msg_md *msg,
						    __u32 *ret_nr)
{
	__u8 *data = (void *)(long)msg->data;
	__u8 *end = (void *)(long)msg->data_end;
	struct tbg_pend *p;
	__u32 gen;

	if (data + TBG_DISGUISE_MIN > end)
		return NULL;
	*ret_nr = tbg_token_read(data + TBG_TOKEN_AT, &gen);
	p = bpf_map_lookup_elem(&tbg_pends, ret_nr);
	if (!p || !p->h.cookie || (p->h.gen & ((1u << TBG_GEN_BITS) - 1)) != gen ||
	    msg->size != p->s.req.len)
		return NULL;
	return p;
}

/*
 * A disguise without a pending hit: the kernel ran out of memory within an
 * answer and tries to send the request again. The client must not take its part
 * of the answer for complete.
 */
static __always_inline int tbg_hit_lost(struct sk_msg_md *msg)
{
	struct bpf_sock *sk = msg->sk;
	struct tbg_sock_conn *c = NULL;
	struct tbg_sock_id *id;
	__u32 slot = 0;

	id = sk ? bpf_sk_storage_get(&tbg_sock_ids, sk, NULL, 0) : NULL;
	if (id) {
		slot = id->slot;
		c = bpf_map_lookup_elem(&tbg_sock_conns, &slot);
	}
	if (c && id->cookie && c->cookie == id->cookie)
		return tbg_sock_break(c, slot);
	return SK_DROP;
}

SEC("sk_msg")
int tbg_expand(struct sk_msg_md *msg)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct tbg_sock_conn *c;
	struct tbg_pend *p;
	__u32 nr, slot;
	int err;

	if (!(task->flags & PF_KTHREAD))
		return SK_PASS;
	p = tbg_pend_of(msg, &nr);
	if (!p)
		return tbg_hit_lost(msg);
	slot = p->h.slot;
	c = bpf_map_lookup_elem(&tbg_sock_conns, &slot);
	if (!c || c->cookie != p->h.cookie)
		return SK_DROP;
	/* an earlier one was given to the daemon: keep the order */
	if (p->h.handed != c->handed)
		return tbg_hand_over(msg, c, p, nr, TBG_WHY_BUSY);
	if (!tbg_room_holds(msg, p))
		return tbg_hand_over(msg, c, p, nr, TBG_WHY_SNDBUF);
	err = tbg_expand_push(msg, p);
	if (err > 0)
		return tbg_hand_over(msg, c, p, nr, TBG_WHY_ROOM);
	if (err || bpf_msg_pop_data(msg, p->s.reply.len, p->s.req.len, 0) ||
	    tbg_expand_patch(msg, p))
		return tbg_sock_break(c, slot);
	tbg_hit_count(c, p);
	tbg_hit_done(c, p, nr);
	/* not SK_PASS: if the send then failed, the next message would skip this program */
	return bpf_msg_redirect_map(msg, &tbg_socks, slot, 0);
}
