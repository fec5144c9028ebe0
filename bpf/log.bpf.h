/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The event of a hit for the access log: addresses, ports and text of the
 * request, copied into the ring buffer. The kernel tiers call this once for each
 * hit that they have sent, if knob->log is set. metric.bpf.h has stored the
 * latency before.
 */
#ifndef TBG_LOG_BPF_H
#define TBG_LOG_BPF_H

#include "maps.bpf.h"

/*
 * The client's address is s->pkt.key.remote, the request's text s->head, its arrival
 * s->now_ns.
 */
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
