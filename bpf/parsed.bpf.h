/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The requests that this CPU has parsed lately: clients send the same bytes again and
 * again. For programs that the softirq runs: none of them interrupts another one on its
 * CPU.
 */
#ifndef TBG_PARSED_BPF_H
#define TBG_PARSED_BPF_H

#include "core/parsed.h"
#include "maps.bpf.h"

/* By the low bits of a digest. Writer: BPF. Full: a request replaces another one. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TBG_PARSED_NR);
	__type(key, __u32);
	__type(value, struct tbg_parsed_head);
} tbg_parsed_heads SEC(".maps");

static __always_inline struct tbg_parsed_head *tbg_parsed_at(__u64 digest)
{
	__u32 index = digest % TBG_PARSED_NR;

	return bpf_map_lookup_elem(&tbg_parsed_heads, &index);
}

/*
 * Looks for the request of len bytes in s->head. Returns 1 if it is here: s->req is set, and
 * s->key is the key of its path for the site s->vhost. Sets s->digest if the request should be
 * kept: only where the last one that was not here seems to have been the same, since a request
 * that never comes again is not worth a copy. (One that XDP passes up comes again, to TC.)
 */
__attribute__((noinline)) int tbg_find_parsed(struct tbg_scratch *s, __u32 len)
{
	struct tbg_parsed_head *m;
	__u64 n = len, digest;
	__u32 i;

	if (!s)
		return 0;
	s->digest = 0;
	tbg_keep(n);
	if (n < TBG_PARSED_MIN || n > TBG_PARSED_MAX)
		return 0;
	TBG_UNROLLED
	for (i = 0; i < TBG_PARSED_STEP; i += 8)
		tbg_word_put(s->head.b + n + i, 0);
	digest = tbg_parsed_digest(&s->head, n);
	m = tbg_parsed_at(digest);
	if (!m)
		return 0;
	if (m->digest == digest && tbg_parsed_is(m, &s->head, n)) {
		s->digest = digest;
		s->req = m->req;
		s->key = m->key;
		s->vhost = m->vhost;
		return 1;
	}
	if (m->last == digest)
		s->digest = digest;
	m->last = digest;
	return 0;
}

/* Keeps the request in s->head, with s->req, and with s->key of its path for s->vhost. */
__attribute__((noinline)) int tbg_parsed_keep(struct tbg_scratch *s)
{
	struct tbg_parsed_head *m = s ? tbg_parsed_at(s->digest) : NULL;

	if (!m)
		return 0;
	m->digest = s->digest;
	m->vhost = s->vhost;
	m->key = s->key;
	m->req = s->req;
	tbg_parsed_copy(m, &s->head, s->req.len);
	return 0;
}

#endif
