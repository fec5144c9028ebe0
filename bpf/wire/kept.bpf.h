/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The answers that this CPU has found lately, by the bytes of their requests: clients send
 * the same bytes again and again. An answer is valid until it expires, or until the daemon
 * publishes or withdraws something (knob->published). For programs that the softirq runs:
 * none of them interrupts another one on its CPU.
 */
#ifndef TBG_WIRE_KEPT_BPF_H
#define TBG_WIRE_KEPT_BPF_H

#include "../lookup.bpf.h"
#include "frame.bpf.h"

#define TBG_KEPT_NR	32	/* answers that are kept */
#define TBG_KEPT_STEP	32	/* bytes of a request that are compared at once */
#define TBG_KEPT_MAX	512	/* bytes of a request; at least one step */
#define TBG_KEPT_MIX	0x9e3779b97f4a7c15ull

struct tbg_kept {
	__u64 digest;			/* of the request */
	__u64 last;			/* of the last other one that belongs here */
	__u64 published;		/* the knob's before the search; 0: empty */
	__u32 vhost;
	__u32 len;			/* of the request */
	__u64 found[TBG_FOUND_WORDS];	/* what the search found */
	__u8 b[TBG_KEPT_MAX] __attribute__((aligned(8)));
};

/* By the low bits of a digest. Writer: BPF. Full: an answer replaces another one. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TBG_KEPT_NR);
	__type(key, __u32);
	__type(value, struct tbg_kept);
} tbg_kepts SEC(".maps");

static __always_inline struct tbg_kept *tbg_kept_at(__u64 digest)
{
	__u32 index = digest % TBG_KEPT_NR;

	return bpf_map_lookup_elem(&tbg_kepts, &index);
}

/* Returns a hash of the bytes of one step. */
static __always_inline __u64 tbg_kept_hash(const __u8 *b)
{
	__u64 hash = 0;
	__u32 i;

	TBG_UNROLLED
	for (i = 0; i < TBG_KEPT_STEP; i += 8)
		hash = hash * TBG_KEPT_MIX ^ tbg_word(b + i);
	return hash;
}

/*
 * Returns a number that tells most requests apart, from the length, the first 64 bytes and the
 * last eight; 0: not all of the n bytes at off are in the linear part of the frame.
 */
static __always_inline __u64 tbg_kept_digest(struct tbg_frame *frame, __u32 off, __u64 n)
{
	__u64 second = n < 2 * TBG_KEPT_STEP ? n - TBG_KEPT_STEP : TBG_KEPT_STEP, hash;
	const __u8 *b;

	b = tbg_linear(frame, off, TBG_KEPT_STEP);
	if (!b)
		return 0;
	hash = tbg_kept_hash(b) * TBG_KEPT_MIX;
	b = tbg_linear(frame, off + second, TBG_KEPT_STEP);
	if (!b)
		return 0;
	hash = (hash ^ tbg_kept_hash(b)) * TBG_KEPT_MIX;
	b = tbg_linear(frame, off + n - 8, 8);
	if (!b)
		return 0;
	hash = (hash ^ tbg_word(b) ^ n) * TBG_KEPT_MIX;
	return hash ^ hash >> 32;
}

/* Returns the difference between the bytes of one step. */
static __always_inline __u64 tbg_kept_differs(const __u8 *kept, const __u8 *b)
{
	__u64 ret = 0;
	__u32 i;

	TBG_UNROLLED
	for (i = 0; i < TBG_KEPT_STEP; i += 8)
		ret |= tbg_word(kept + i) ^ tbg_word(b + i);
	return ret;
}

/* Returns whether the request of n bytes at off of the frame is that of m. */
static __always_inline bool tbg_kept_is(struct tbg_frame *frame, __u32 off, __u64 n,
					const struct tbg_kept *m)
{
	__u64 last = n - TBG_KEPT_STEP, at;
	const __u8 *b;

	tbg_keep(last);
	if (m->len != n || last > TBG_KEPT_MAX - TBG_KEPT_STEP)
		return false;
	TBG_ROLLED
	for (at = 0; at < TBG_KEPT_MAX - TBG_KEPT_STEP; at += TBG_KEPT_STEP) {
		tbg_keep(at);
		if (at >= last)
			break;
		b = tbg_linear(frame, off + at, TBG_KEPT_STEP);
		if (!b || tbg_kept_differs(m->b + at, b))
			return false;
	}
	b = tbg_linear(frame, off + last, TBG_KEPT_STEP);
	return b && !tbg_kept_differs(m->b + last, b);
}

/*
 * Looks for the request in the frame, which is parsed into s->pkt. Returns 1 if its answer is
 * here: s->reply has what tbg_find() finds. Sets s->digest, which was 0, if the answer should
 * be kept once it is found: only where the last request that was not here seems to have been
 * the same, since one that never comes again is not worth a copy. (One that XDP passes up comes
 * again, to TC.)
 */
static __always_inline int tbg_kept_find(struct tbg_frame *frame, struct tbg_scratch *s,
					 const struct tbg_knob *knob)
{
	const struct tbg_reply *was;
	__u64 n, digest, *found;
	struct tbg_reply *r;
	struct tbg_kept *m;
	__u32 i;

	n = s->pkt.payload_len;
	tbg_keep(n);
	if (n < TBG_KEPT_STEP || n > TBG_KEPT_MAX)
		return 0;
	digest = tbg_kept_digest(frame, s->pkt.payload, n);
	m = tbg_kept_at(digest);
	if (!digest || !m)
		return 0;
	if (m->digest != digest) {
		if (m->last == digest)
			s->digest = digest;
		m->last = digest;
		return 0;
	}
	s->digest = digest;
	r = &s->reply;
	found = (void *)r;
	was = (const void *)m->found;
	/* else s->reply stays as it is: the search may find a response with another kind of date */
	if (m->published != *(volatile __u64 *)&knob->published ||
	    !tbg_fresh(was->expires_ns, s->now_ns) ||
	    !tbg_kept_is(frame, s->pkt.payload, n, m))
		return 0;
	TBG_UNROLLED
	for (i = 0; i < TBG_FOUND_WORDS; i++)
		found[i] = m->found[i];
	s->vhost = m->vhost;
	s->req.len = n;
	if (r->age_len)
		r->date_s = (s->now_ns - r->born_ns) / 1000000000;
	return 1;
}

/* Keeps what was found for the request in s->head. */
__attribute__((noinline)) int tbg_kept_keep(struct tbg_scratch *s)
{
	struct tbg_kept *m = s ? tbg_kept_at(s->digest) : NULL;
	const __u64 *found;
	__u64 at;
	__u32 i;

	if (!m)
		return 0;
	m->digest = s->digest;
	m->published = s->published;
	m->vhost = s->vhost;
	m->len = s->req.len;
	found = (const void *)&s->reply;
	TBG_UNROLLED
	for (i = 0; i < TBG_FOUND_WORDS; i++)
		m->found[i] = found[i];
	TBG_ROLLED
	for (at = 0; at < TBG_KEPT_MAX; at += 8) {
		tbg_keep(at);
		if (at >= s->req.len)
			break;
		tbg_word_put(m->b + at, tbg_word(s->head.b + at));
	}
	return 0;
}

/* Copies the request that tbg_kept_find() has found into s->head. */
__attribute__((noinline)) int tbg_kept_load(struct tbg_scratch *s)
{
	struct tbg_kept *m = s ? tbg_kept_at(s->digest) : NULL;
	__u64 at;

	if (!m)
		return 0;
	TBG_ROLLED
	for (at = 0; at < TBG_KEPT_MAX; at += 8) {
		tbg_keep(at);
		if (at >= m->len)
			break;
		tbg_word_put(s->head.b + at, tbg_word(m->b + at));
	}
	return 0;
}

#endif
