// SPDX-License-Identifier: GPL-2.0
/*
 * The daemon asks the kernel for the way to a client. Tests which answers wire accepts, and how
 * long a reply waits for one. The programs under test look up sockets and ways; those of the
 * other files do not. Needs root. Attaches nothing.
 */
#include "late.h"

#include "abi/pair.h"

static struct tbg_wire_bpf *own;

/* Only what the daemon runs. This host has the server's address, and rules choose the routes. */
static bool load_own(void)
{
	struct tbg_way way = { .ifindex = { 1 } };
	struct tbg_way_key local = { .bits = 128 };
	struct bpf_program *prog;
	struct tbg_knob *k;
	uint32_t zero = 0;
	int answer;

	own = tbg_wire_bpf__open();
	if (!own)
		return false;
	bpf_object__for_each_program(prog, own->obj)
		bpf_program__set_autoload(prog, prog == own->progs.tbg_push ||
						prog == own->progs.tbg_answer);
	bpf_map__set_max_entries(own->maps.tbg_tcbs, SLOTS);
	if (tbg_wire_bpf__load(own))
		return false;
	answer = bpf_program__fd(own->progs.tbg_answer);
	bpf_map_update_elem(bpf_map__fd(own->maps.tbg_tail), &zero, &answer, 0);
	k = map_mmap(own->maps.tbg_knob);
	map_addr(local.address, false, true);
	if (!k || bpf_map_update_elem(bpf_map__fd(own->maps.tbg_ways), &local, &way, 0))
		return false;
	k->answer = 1;
	k->ports[1] |= 1ull << (80 - 64);
	k->asks = TBG_ASKS_V4;
	return !munmap(k, 4096);
}

static struct tbg_pair_key pair_of(const struct peer *p)
{
	struct tbg_pair_key ret = { .port = htons(80) };

	map_addr(ret.local, p->v6, true);
	map_addr(ret.client, p->v6, false);
	return ret;
}

/* Lets the timer of a reply expire that the client has not acknowledged for a long time. */
static bool expire(const struct peer *p, struct tbg_tcb *t)
{
	struct tbg_tcb_key key = { .flow = key_of(p) };
	struct __sk_buff ctx = { .ifindex = 1, .cb = { TBG_PUSH_AGAIN } };
	int fd = bpf_map__fd(own->maps.tbg_tcbs);
	struct frame f;
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = f.b, .ctx_in = &ctx,
		    .ctx_size_in = sizeof(ctx), .repeat = 1);

	t->repeat_ms = now_ms() - (TBG_DUE_MS << 7);
	t->seen_ms = now_ms() - 2 * TBG_ASTRAY_MS;
	if (bpf_map_update_elem(fd, &key, t, BPF_ANY))
		return false;
	segment(&f, p, true, TH_ACK, t->rcv_nxt, t->acked, "", 0, "", 0);
	opts.data_size_in = f.len;
	return !bpf_prog_test_run_opts(bpf_program__fd(own->progs.tbg_push), &opts) &&
	       !bpf_map_lookup_elem(fd, &key, t);
}

static struct tbg_tcb waiting(void)
{
	return (struct tbg_tcb){
		.rcv_nxt = 1000, .snd_nxt = 2300, .acked = 2000, .ifindex = 1, .mss = 1440,
		.peer_mss = 1460, .ttl = 64, .win = htons(500), .born_ms = now_ms(),
		.last = { .seq = 2000, .len = 300, .req_seq = 900 },
	};
}

/* Returns whether BPF wants the daemon to ask for the pair, and takes the question. */
static bool is_asked(const struct tbg_pair_key *key)
{
	return !bpf_map_delete_elem(bpf_map__fd(own->maps.tbg_pair_asks), key);
}

/* The kernel reuses an element while a program reads it: the key in it tells them apart. */
KTAP_TEST(t_answer_for_another_pair_is_none)
{
	struct peer p = { .port = peer_port++, .window = 500 };
	struct tbg_pair_key key = pair_of(&p);
	struct tbg_pair pair = { .way.ifindex = { 1 } };
	struct tbg_tcb t;

	NEED_LATE();
	KTAP_CHECK(own || load_own());
	for (size_t at = 0; at <= sizeof(key); at += 4) {
		pair.key = key;
		pair.asked_ms = now_ms();	/* loading has taken half a minute in a guest */
		if (at < sizeof(key))
			((uint32_t *)&pair.key)[at / 4] ^= 1;
		KTAP_CHECK(!bpf_map_update_elem(bpf_map__fd(own->maps.tbg_pairs), &key, &pair, 0));
		t = waiting();
		expire(&p, &t);
		KTAP_EQ(is_asked(&key), at < sizeof(key));
	}
	bpf_map_delete_elem(bpf_map__fd(own->maps.tbg_pairs), &key);
}

KTAP_TEST(t_reply_whose_way_stays_unknown_is_given_up)
{
	struct peer p = { .port = peer_port++, .window = 500 };
	struct tbg_pair_key key = pair_of(&p);
	struct tbg_tcb t;

	NEED_LATE();
	KTAP_CHECK(own || load_own());
	t = waiting();
	for (int tries = 1; tries <= TBG_PUSH_TRIES; tries++) {
		KTAP_CHECK(expire(&p, &t));
		KTAP_EQ(t.tries, tries);
		KTAP_CHECK(is_asked(&key));
	}
	KTAP_CHECK(!expire(&p, &t));
}
