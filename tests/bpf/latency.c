// SPDX-License-Identifier: GPL-2.0
/*
 * How wire counts the latency of its hits: each is in one bucket, and few are measured. Needs
 * root. Attaches nothing.
 */
#include "late.h"

#include "abi/metric.h"

#define NR 200		/* hits */

/* Sends a request on a connection of its own. Returns whether wire has answered it. */
static bool hit_once(unsigned int port)
{
	static const char text[] = "GET /timed HTTP/1.1\r\nHost: localhost\r\n\r\n";
	struct peer p = { .port = port, .window = 500 };
	struct tbg_tcb_key key = { .flow = key_of(&p) };
	struct tbg_tcb t = {
		.ifindex = 1, .win = htons(500), .mss = 1440, .peer_mss = 1452, .wscale = 0x77,
		.ttl = 64, .seen_ms = mono_ns() / 1000000, .born_ms = mono_ns() / 1000000,
		.flags = TBG_TCB_WSCALE | TBG_TCB_DF, .rcv_nxt = 1000, .snd_nxt = 2000,
		.acked = 2000, .mac = { 0xbbbb, 0xbbbb, 0xbbbb }, .own = { 0xaaaa, 0xaaaa, 0xaaaa },
	};
	struct frame f;
	int verdict;

	bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_tcbs), &key, &t, 0);
	segment(&f, &p, true, TH_ACK | TH_PUSH, 1000, 2000, NULL, 0, text, sizeof(text) - 1);
	verdict = ingress(&f);
	bpf_map_delete_elem(bpf_map__fd(bpf->maps.tbg_tcbs), &key);
	bpf_map_delete_elem(bpf_map__fd(bpf->maps.tbg_dues), &key);
	return verdict == REDIRECT;
}

/* Reads wire's counters on this CPU, 0. */
static void counters(struct tbg_metric_tier *ret)
{
	int cpus = libbpf_num_possible_cpus();
	struct tbg_metric_tier *all = calloc(cpus, sizeof(*all));
	uint32_t wire = TBG_TIER_wire;

	bpf_map_lookup_elem(bpf_map__fd(bpf->maps.tbg_tier_hits), &wire, all);
	*ret = all[0];
	free(all);
}

static uint64_t in_buckets(const struct tbg_metric_tier *t)
{
	uint64_t ret = 0;

	for (unsigned int i = 0; i < TBG_METRIC_BUCKETS; i++)
		ret += t->bucket[i];
	return ret;
}

/* Begins on CPU 0, with the counters there. */
#define NEED_COUNTERS(ret)						\
	do {								\
		cpu_set_t one;						\
									\
		NEED_LATE();						\
		CPU_ZERO(&one);						\
		CPU_SET(0, &one);					\
		KTAP_CHECK(!sched_setaffinity(0, sizeof(one), &one));	\
		set_clock(784111777);					\
		publish("/timed", 3, 17, 'T', 100);			\
		counters(ret);						\
	} while (0)

KTAP_TEST(t_each_hit_is_in_a_bucket_and_few_are_measured)
{
	struct tbg_metric_tier before, was, is;
	unsigned int measured = 0;
	uint64_t begin;

	NEED_COUNTERS(&before);
	was = before;
	begin = mono_ns();
	for (unsigned int i = 0; i < NR; i++) {
		KTAP_CHECK(hit_once(30000 + i));
		counters(&is);
		measured += is.timed_ns != was.timed_ns;
		KTAP_EQ(is.took_ns - was.took_ns, is.timed_took);
		KTAP_EQ(is.timed_bucket, tbg_metric_bucket(is.timed_took));
		was = is;
	}
	KTAP_EQ(in_buckets(&is) - in_buckets(&before), NR);
	KTAP_CHECK(measured >= 1);
	/* one for each TBG_METRIC_TIMED_NS, and one at each end */
	KTAP_CHECK(measured <= (mono_ns() - begin) / TBG_METRIC_TIMED_NS + 2);
}

KTAP_TEST(t_hits_that_are_far_apart_are_all_measured)
{
	struct tbg_metric_tier was, is;

	NEED_COUNTERS(&was);
	for (unsigned int i = 0; i < 5; i++) {
		usleep(2 * TBG_METRIC_TIMED_NS / 1000);
		KTAP_CHECK(hit_once(31000 + i));
		counters(&is);
		KTAP_CHECK(is.timed_ns > was.timed_ns);
		was = is;
	}
}

KTAP_TEST(t_hits_of_the_log_are_all_measured)
{
	struct tbg_metric_tier was, is;

	NEED_COUNTERS(&was);
	knob->log = 1;
	for (unsigned int i = 0; i < 20; i++) {
		KTAP_CHECK(hit_once(32000 + i));
		counters(&is);
		KTAP_CHECK(is.timed_ns > was.timed_ns);
		was = is;
	}
	knob->log = 0;
}
