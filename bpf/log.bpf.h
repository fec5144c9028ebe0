/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A hit on its way to the access log: a copy of the request's tuple and text
 * for the ring buffer. Called by the kernel tiers once for each hit that they
 * have sent, while the daemon wants to know. The latency is there: metric.bpf.h.
 */
#ifndef TBG_LOG_BPF_H
#define TBG_LOG_BPF_H

#include "maps.bpf.h"

/* The request's client is s->pkt.key.remote, its text s->head, its begin s->now_ns. */
static __always_inline void tbg_log_hit(struct tbg_scratch *s, enum tbg_tier tier)
{
	__u64 size = sizeof(s->event) + s->req.len;
	__u32 zero = 0;

	s->event.mono_ns = s->now_ns;
	__builtin_memcpy(s->event.remote, s->pkt.key.remote, 16);
	s->event.remote_port = s->pkt.key.remote_port;
	s->event.status = s->reply.part.status;
	s->event.sent = s->reply.len + s->reply.line_len;
	s->event.body = s->reply.len - s->reply.head_len;
	s->event.req_len = s->req.len;
	s->event.tier = tier;
	TBG_BOUND(size, sizeof(s->event) + TBG_REQ_MAX, return);
	if (bpf_ringbuf_output(&tbg_events, s, size, 0)) {
		struct tbg_stats *st = bpf_map_lookup_elem(&tbg_stats, &zero);

		if (st)
			st->log_lost++;
	}
}

#endif
