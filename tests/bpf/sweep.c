// SPDX-License-Identifier: GPL-2.0
/*
 * The sweeper with BPF maps: flows that are replaced or become active again between its
 * read and its delete, and silent ones whose sockets still exist. Maps and the
 * sweeper's questions are real, the other BPF programs are simulated. Needs root.
 */
#include "ktap.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "abi/conn.h"
#include "bpf/translate.skel.h"

static void (*meanwhile)(void);

/* The sweeper's data is outdated when it receives it. */
static int read_batch(int fd, void *in, void *out, void *keys, void *values,
		      __u32 *nr, const struct bpf_map_batch_opts *opts)
{
	int err = bpf_map_lookup_batch(fd, in, out, keys, values, nr, opts);

	if (meanwhile)
		meanwhile();
	meanwhile = NULL;
	return err;
}

static uint8_t *asked;		/* number of questions by remote port, if counted */
static struct tbg_translate_bpf *bpf;

/* Answers with a socket for each flow, or with the program's result. */
static int ask(int fd, struct bpf_test_run_opts *opts)
{
	const struct tbg_flow_key *key = (void *)((char *)opts->data_in + 14);

	if (!asked || fd != bpf_program__fd(bpf->progs.tbg_has_socket))
		return bpf_prog_test_run_opts(fd, opts);
	asked[ntohs(key->remote_port)]++;
	opts->retval = 1;
	return 0;
}

#define bpf_map_lookup_batch read_batch
#define bpf_prog_test_run_opts ask
#include "../../userd/tiers/flow.c"

#define SLOTS 8
#define FLOWS 2000
#define LONG_AGO 1
#define NOW (1000 * 1000000000ull)

static struct tbg_flows flows;
static const struct tbg_flow_key key = { .local_port = 80, .remote_port = 4 };

static bool make(void)
{
	struct bpf_program *prog;

	bpf = tbg_translate_bpf__open();
	if (!bpf)
		return false;
	bpf_object__for_each_program(prog, bpf->obj)
		bpf_program__set_autoload(prog, prog == bpf->progs.tbg_has_socket ||
						prog == bpf->progs.tbg_bury);
	if (bpf_map__set_max_entries(bpf->maps.tbg_flows, FLOWS) ||
	    bpf_map__set_max_entries(bpf->maps.tbg_slots, SLOTS) ||
	    bpf_map__set_max_entries(bpf->maps.tbg_retired, SLOTS) ||
	    tbg_translate_bpf__load(bpf))
		return false;
	flows = (struct tbg_flows){
		.flows_fd = bpf_map__fd(bpf->maps.tbg_flows),
		.slots_fd = bpf_map__fd(bpf->maps.tbg_slots),
		.retired_fd = bpf_map__fd(bpf->maps.tbg_retired),
		.socket_fd = bpf_program__fd(bpf->progs.tbg_has_socket),
		.bury_fd = bpf_program__fd(bpf->progs.tbg_bury),
	};
	return !tbg_flows_open(&flows, SLOTS);
}

static void unmake(void)
{
	tbg_flows_close(&flows);
	tbg_translate_bpf__destroy(bpf);
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

/* As tbg_embryo_synack() and tbg_flow_born() do when a port is reused. */
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

/* Returns whether each slot without a flow is in the pool exactly once. */
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

/* How long a closed flow is kept: depends on its deltas, and on who closed first. */
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
	/* the client closed first; its FIN is acknowledged or not */
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

/* How long a daemon that ends waits for a flow with deltas. */
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
		KTAP_EQ(flows.nr, 1);
		KTAP_EQ(flows.open_nr, ends[i].open_nr);
	}
	f.flags = f.out_delta = 0;
	bpf_map_update_elem(flows.flows_fd, &key, &f, 0);
	tbg_flows_sweep(&flows, NOW);
	KTAP_EQ(flows.open_nr, 0);
	unmake();
}

/* How long the programs of a killed daemon stay for one of its flows. */
KTAP_TEST(t_flow_needs_its_programs_until_it_is_over)
{
	static const uint64_t s = 1000000000ull;
	struct tbg_flow f = { .iss = 100, .sent = 11, .acked = 116, .seen_ns = NOW };
	if (geteuid())
		KTAP_SKIP("not root");
	KTAP_CHECK(make());
	KTAP_CHECK(!tbg_flows_needed(flows.flows_fd, NOW));
	bpf_map_update_elem(flows.flows_fd, &key, &f, 0);
	KTAP_CHECK(!tbg_flows_needed(flows.flows_fd, NOW));
	f.out_delta = 5;
	bpf_map_update_elem(flows.flows_fd, &key, &f, 0);
	KTAP_CHECK(tbg_flows_needed(flows.flows_fd, NOW));
	/* a socket that retransmits is silent for at most two minutes */
	KTAP_CHECK(tbg_flows_needed(flows.flows_fd, NOW + 121 * s));
	KTAP_CHECK(!tbg_flows_needed(flows.flows_fd, NOW + 160 * s));
	f.flags = TBG_FLOW_FIN_IN | TBG_FLOW_FIN_OUT;
	bpf_map_update_elem(flows.flows_fd, &key, &f, 0);
	KTAP_CHECK(!tbg_flows_needed(flows.flows_fd, NOW));
	/* a map of another layout */
	KTAP_CHECK(!tbg_flows_needed(flows.slots_fd, NOW));
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

static unsigned int flows_nr(void)
{
	struct tbg_flow_key k;
	unsigned int ret = 0;

	for (void *at = NULL; !bpf_map_get_next_key(flows.flows_fd, at, &k); at = &k)
		ret++;
	return ret;
}

/*
 * Makes both ends of a connection to a local address, and the key of the end that was
 * not accepted. scope: the interface of a link-local address.
 */
static bool connection(int family, const char *addr, uint32_t scope, int ends[2],
		       struct tbg_flow_key *ret)
{
	struct sockaddr_storage a = { .ss_family = family }, b;
	struct sockaddr_in6 *in6 = (void *)&a;
	socklen_t len = sizeof(a);

	if (family == AF_INET) {
		inet_pton(family, addr, &((struct sockaddr_in *)&a)->sin_addr);
	} else {
		inet_pton(family, addr, &in6->sin6_addr);
		in6->sin6_scope_id = scope;
	}
	ends[0] = socket(family, SOCK_STREAM, 0);
	ends[1] = socket(family, SOCK_STREAM, 0);
	if (bind(ends[0], (void *)&a, len) || listen(ends[0], 1) ||
	    getsockname(ends[0], (void *)&a, &len) ||
	    connect(ends[1], (void *)&a, len) ||
	    getsockname(ends[1], (void *)&b, &len))
		return false;
	*ret = (struct tbg_flow_key){};
	tbg_end_of(&a, ret->local, &ret->local_port);
	tbg_end_of(&b, ret->remote, &ret->remote_port);
	return true;
}

KTAP_TEST(t_silent_flow_stays_while_its_socket_does)
{
	static const int families[] = { AF_INET, AF_INET6 };
	static const char *const addrs[] = { "127.0.0.1", "::1" };
	struct tbg_flow f = { .out_delta = 5, .seen_ns = LONG_AGO };
	struct tbg_flow_key k;
	int ends[2];
	if (geteuid())
		KTAP_SKIP("not root");
	for (int i = 0; i < 2; i++) {
		KTAP_CHECK(make());
		KTAP_CHECK(connection(families[i], addrs[i], 0, ends, &k));
		f.slot = slot_take();
		bpf_map_update_elem(flows.flows_fd, &k, &f, 0);
		tbg_flows_sweep(&flows, NOW);
		KTAP_CHECK(!bpf_map_lookup_elem(flows.flows_fd, &k, &f));
		KTAP_CHECK(slots_are_right(f.slot));
		KTAP_EQ(flows_nr(), 1);
		/*
		 * a listener is not the socket of a connection, nor is one of another
		 * address
		 */
		k.remote_port ^= htons(1 << 14);
		bpf_map_update_elem(flows.flows_fd, &k, &f, 0);
		tbg_flows_sweep(&flows, NOW);
		KTAP_CHECK(bpf_map_lookup_elem(flows.flows_fd, &k, &f));
		KTAP_EQ(flows_nr(), 1);
		/* the reset of the end that was not accepted */
		close(ends[0]);
		tbg_flows_sweep(&flows, NOW);
		KTAP_EQ(flows_nr(), 0);
		close(ends[1]);
		unmake();
	}
}

/* A firewall has dropped the reset: the flow is still tracked, but no longer answered. */
KTAP_TEST(t_flow_of_a_reset_that_came_to_nothing_stays)
{
	struct tbg_flow f = { .out_delta = 5, .seen_ns = LONG_AGO, .flags = TBG_FLOW_RST };
	struct tbg_flow_key k;
	int ends[2];
	if (geteuid())
		KTAP_SKIP("not root");
	KTAP_CHECK(make());
	KTAP_CHECK(connection(AF_INET, "127.0.0.1", 0, ends, &k));
	f.slot = slot_take();
	bpf_map_update_elem(flows.flows_fd, &k, &f, 0);
	tbg_flows_sweep(&flows, NOW);
	KTAP_CHECK(!bpf_map_lookup_elem(flows.flows_fd, &k, &f));
	KTAP_EQ(f.flags, TBG_FLOW_LEFT);
	close(ends[0]);
	tbg_flows_sweep(&flows, NOW);
	KTAP_EQ(flows_nr(), 0);
	close(ends[1]);
	unmake();
}

/* Bound to an interface, as by a link-local address; the question does not name it. */
KTAP_TEST(t_silent_flow_of_a_bound_socket_stays)
{
	struct tbg_flow f = { .out_delta = 5, .seen_ns = LONG_AGO };
	int ends[2], back = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	struct tbg_flow_key k;
	bool there, gone;
	if (geteuid())
		KTAP_SKIP("not root");
	KTAP_CHECK(make());
	KTAP_CHECK(!unshare(CLONE_NEWNET));
	f.slot = slot_take();
	there = gone = !system("ip link set lo up && ip link add v0 type veth peer name v1 && "
			       "ip link set v1 up && ip link set v0 up && "
			       "ip address add fe80::1/64 dev v0 nodad");
	f.ifindex = if_nametoindex("v0");
	there = there && connection(AF_INET6, "fe80::1", f.ifindex, ends, &k);
	bpf_map_update_elem(flows.flows_fd, &k, &f, 0);
	tbg_flows_sweep(&flows, NOW);
	there = there && flows_nr() == 1;
	gone = gone && connection(AF_INET6, "::1", 0, ends, &k);
	f.ifindex = 1000;
	bpf_map_update_elem(flows.flows_fd, &k, &f, 0);
	tbg_flows_sweep(&flows, NOW);
	gone = gone && flows_nr() == 2;
	setns(back, CLONE_NEWNET);
	close(back);
	KTAP_CHECK(there);
	KTAP_CHECK(gone);
	unmake();
}

/* Silent flows with sockets, however many, do not prevent that dead ones are found. */
KTAP_TEST(t_each_sweep_asks_for_some_of_the_silent_in_turn)
{
	struct tbg_flow f = { .out_delta = 5, .seen_ns = LONG_AGO };
	uint8_t counts[65536] = {};
	struct tbg_flow_key k = key;
	unsigned int nr, rounds = (FLOWS + TBG_SWEEP_ASKED - 1) / TBG_SWEEP_ASKED;
	if (geteuid())
		KTAP_SKIP("not root");
	KTAP_CHECK(make());
	for (unsigned int i = 0; i < FLOWS; i++) {
		k.remote_port = htons(i);
		bpf_map_update_elem(flows.flows_fd, &k, &f, 0);
	}
	asked = counts;
	for (unsigned int round = 1; round <= rounds; round++) {
		tbg_flows_sweep(&flows, NOW);
		nr = 0;
		for (unsigned int i = 0; i < FLOWS; i++)
			nr += counts[i];
		KTAP_EQ(nr, round < rounds ? round * TBG_SWEEP_ASKED : FLOWS);
	}
	asked = NULL;
	for (unsigned int i = 0; i < FLOWS; i++)
		KTAP_EQ(counts[i], 1);
	KTAP_EQ(flows_nr(), FLOWS);
	unmake();
}

KTAP_MAIN()
