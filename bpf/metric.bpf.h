/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counts a hit for monitoring. The kernel tiers call this once for each hit
 * that they have sent, before log.bpf.h, which takes the latency from here.
 */
#ifndef TBG_METRIC_BPF_H
#define TBG_METRIC_BPF_H

#include <stdbool.h>

#include "abi/metric.h"
#include "maps.bpf.h"

/* By tier: wire, sock. Writer: BPF. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct tbg_metric_tier);
} tbg_tier_hits SEC(".maps");

/* By TBG_METRIC_INDEX(). Writer: BPF. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * TBG_METRIC_SITES);
	__type(key, __u32);
	__type(value, struct tbg_metric_site);
} tbg_site_hits SEC(".maps");

/*
 * Measures the latency of this hit, if the last one that was measured is too old; exact: in
 * any case. Counts it.
 */
static __always_inline void tbg_metric_time(struct tbg_scratch *s, struct tbg_metric_tier *t,
					    bool exact)
{
	__u64 at;

	if (exact || s->now_ns - t->timed_ns >= TBG_METRIC_TIMED_NS) {
		__u64 took = bpf_ktime_get_ns() - s->now_ns;

		t->timed_ns = s->now_ns;
		t->timed_took = took;
		t->timed_bucket = tbg_metric_bucket(took);
	}
	s->event.took_ns = t->timed_took;
	t->took_ns += t->timed_took;
	at = t->timed_bucket;
	tbg_keep(at);
	at &= TBG_METRIC_BUCKETS - 1;
	t->bucket[at]++;
}

/* exact: the latency of this hit is needed in s->event. */
static __always_inline void tbg_metric_hit(struct tbg_scratch *s, __u32 tier, bool exact)
{
	__u32 index = TBG_METRIC_INDEX(tier, s->vhost);
	struct tbg_metric_tier *t = bpf_map_lookup_elem(&tbg_tier_hits, &tier);
	struct tbg_metric_site *v = bpf_map_lookup_elem(&tbg_site_hits, &index);
	__u32 status = s->reply.part.status;
	__u64 at;

	if (!t || !v)
		return;
	tbg_metric_time(s, t, exact);
	at = TBG_METRIC_CODE(status);
	tbg_keep(at);
	at &= TBG_METRIC_CODES - 1;
	if (s->reply.asked & TBG_REQ_HEAD)
		t->code[1][at]++;
	else
		t->code[0][at]++;
	v->requests++;
	v->body += s->reply.len - s->reply.head_len;
	at = status / 100;
	tbg_keep(at);
	if (at < 6)
		v->status[at]++;
}

#endif
