// SPDX-License-Identifier: GPL-2.0
/*
 * The sweeper against BPF: flows that are replaced, or come back to life,
 * between its reading and its deleting. Maps are real, BPF's part is played
 * here. Needs root.
 */
#include "ktap.h"

#include <bpf/bpf.h>
#include <unistd.h>

static void (*meanwhile)(void);

/* What the sweeper reads is old when it gets it. */
static int read_batch(int fd, void *in, void *out, void *keys, void *values,
		      __u32 *nr, const struct bpf_map_batch_opts *opts)
{
	int err = bpf_map_lookup_batch(fd, in, out, keys, values, nr, opts);

	if (meanwhile)
		meanwhile();
	meanwhile = NULL;
	return err;
}

#define bpf_map_lookup_batch read_batch
#include "../../userd/flow.c"

#define SLOTS 8
#define LONG_AGO 1
#define NOW (1000 * 1000000000ull)

static struct tbg_flows flows;
static const struct tbg_flow_key key = { .local_port = 80, .remote_port = 4 };

static bool make(void)
{
	int nr = SLOTS, f, s, r;

	f = bpf_map_create(BPF_MAP_TYPE_HASH, "flows", sizeof(struct tbg_flow_key),
			   sizeof(struct tbg_flow), nr, NULL);
	s = bpf_map_create(BPF_MAP_TYPE_QUEUE, "slots", 0, 4, nr, NULL);
	r = bpf_map_create(BPF_MAP_TYPE_QUEUE, "retired", 0, 4, nr, NULL);
	return f >= 0 && s >= 0 && r >= 0 && !tbg_flows_open(&flows, f, s, r, nr);
}

static void unmake(void)
{
	tbg_flows_close(&flows);
	close(flows.flows_fd);
	close(flows.slots_fd);
	close(flows.retired_fd);
}

static uint32_t slot_take(void)
{
	uint32_t slot = UINT32_MAX;

	bpf_map_lookup_and_delete_elem(flows.slots_fd, NULL, &slot);
	return slot;
}

static void put(uint32_t slot, uint8_t flags, uint64_t seen_ns)
{
	struct tbg_flow f = { .slot = slot, .flags = flags, .seen_ns = seen_ns };

	bpf_map_update_elem(flows.flows_fd, &key, &f, 0);
}

static bool get(struct tbg_flow *ret)
{
	return !bpf_map_lookup_elem(flows.flows_fd, &key, ret);
}

/* As tbg_embryo_synack() and tbg_flow_born() do when a port is used again. */
static void replace(void)
{
	struct tbg_flow f;

	get(&f);
	bpf_map_delete_elem(flows.flows_fd, &key);
	bpf_map_update_elem(flows.retired_fd, NULL, &f.slot, 0);
	put(slot_take(), 0, NOW);
}

static void revive(void)
{
	struct tbg_flow f;

	get(&f);
	put(f.slot, f.flags, NOW);
}

/* Whether each slot that no flow has is in the pool exactly once. */
static bool slots_are_right(uint32_t used)
{
	unsigned int seen[SLOTS] = {};

	for (uint32_t slot; (slot = slot_take()) != UINT32_MAX;)
		seen[slot]++;
	for (uint32_t i = 0; i < SLOTS; i++)
		if (seen[i] != (i != used)) {
			ktap_note("slot %u is %u times in the pool", i, seen[i]);
			return false;
		}
	return true;
}

KTAP_TEST(t_closed_flow_is_buried)
{
	struct tbg_flow f;
	if (geteuid())
		KTAP_SKIP("not root");
	KTAP_CHECK(make());
	put(slot_take(), TBG_FLOW_FIN_OUT, LONG_AGO);
	tbg_flows_sweep(&flows, NOW);
	KTAP_CHECK(!get(&f));
	KTAP_CHECK(slots_are_right(SLOTS));
	unmake();
}

/* How long a closed flow is needed: by its deltas, and while it is held. */
KTAP_TEST(t_spent_flow_goes_sooner_than_one_in_time_wait)
{
	static const uint64_t s = 1000000000ull;
	struct tbg_flow f = { .flags = TBG_FLOW_FIN_OUT, .seen_ns = NOW - 10 * s };
	if (geteuid())
		KTAP_SKIP("not root");
	KTAP_CHECK(make());
	f.slot = slot_take();
	KTAP_CHECK(is_dead(&flows, &f, NOW));
	KTAP_CHECK(!is_dead(&flows, &f, NOW - 6 * s));
	f.out_delta = 1;
	KTAP_CHECK(!is_dead(&flows, &f, NOW));
	KTAP_CHECK(is_dead(&flows, &f, NOW + 120 * s));
	/* the client closed first, and has the FIN or not */
	f.flags |= TBG_FLOW_FIN_IN | TBG_FLOW_LAST;
	f.iss = 100;
	f.sent = 11;
	f.acked = 111;
	KTAP_CHECK(!is_dead(&flows, &f, NOW));
	f.acked = 112;
	KTAP_CHECK(is_dead(&flows, &f, NOW));
	f.flags = TBG_FLOW_RST;
	KTAP_CHECK(is_dead(&flows, &f, NOW));
	flows.held[f.slot] = 1;
	KTAP_CHECK(!is_dead(&flows, &f, NOW + 1000 * s));
	unmake();
}

/* How long a flow with deltas is waited for by a daemon that ends. */
KTAP_TEST(t_flow_is_open_until_both_sides_have_closed)
{
	struct tbg_flow f = { .iss = 100, .out_delta = 5, .seen_ns = NOW };
	static const struct {
		uint8_t flags;
		uint32_t acked;
		unsigned int open_nr;
	} ends[] = {
		{ 0, 116, 1 },
		{ TBG_FLOW_FIN_IN, 116, 1 },
		{ TBG_FLOW_FIN_OUT, 117, 1 },
		{ TBG_FLOW_FIN_IN | TBG_FLOW_FIN_OUT, 116, 1 },
		{ TBG_FLOW_FIN_IN | TBG_FLOW_FIN_OUT, 117, 0 },
		{ TBG_FLOW_FIN_IN | TBG_FLOW_FIN_OUT | TBG_FLOW_LAST, 116, 1 },
		{ TBG_FLOW_RST, 116, 0 },
	};
	if (geteuid())
		KTAP_SKIP("not root");
	KTAP_CHECK(make());
	f.slot = slot_take();
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		f.flags = ends[i].flags;
		f.acked = ends[i].acked;
		f.sent = f.flags & TBG_FLOW_FIN_OUT ? 12 : 11;
		bpf_map_update_elem(flows.flows_fd, &key, &f, 0);
		tbg_flows_sweep(&flows, NOW);
		KTAP_EQ(flows.open_nr, ends[i].open_nr);
	}
	f.flags = f.out_delta = 0;
	bpf_map_update_elem(flows.flows_fd, &key, &f, 0);
	tbg_flows_sweep(&flows, NOW);
	KTAP_EQ(flows.open_nr, 0);
	unmake();
}

KTAP_TEST(t_flow_replaced_meanwhile_stays)
{
	struct tbg_flow f;
	if (geteuid())
		KTAP_SKIP("not root");
	KTAP_CHECK(make());
	put(slot_take(), TBG_FLOW_FIN_OUT, LONG_AGO);
	meanwhile = replace;
	tbg_flows_sweep(&flows, NOW);
	KTAP_CHECK(get(&f));
	KTAP_EQ(f.slot, 1);
	KTAP_CHECK(slots_are_right(1));
	unmake();
}

KTAP_TEST(t_flow_that_is_seen_again_stays)
{
	struct tbg_flow f;
	if (geteuid())
		KTAP_SKIP("not root");
	KTAP_CHECK(make());
	put(slot_take(), 0, LONG_AGO);
	meanwhile = revive;
	tbg_flows_sweep(&flows, NOW);
	KTAP_CHECK(get(&f));
	KTAP_CHECK(slots_are_right(0));
	unmake();
}

KTAP_MAIN()
