// SPDX-License-Identifier: GPL-2.0
/*
 * For which pairs of addresses the kernel is asked, and how often (userd/tiers/pairs.c). Maps
 * and connections are the test's; the kernel gives no answer, which is one, too.
 */
#include "ktap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <libmnl/libmnl.h>

#include "tiers/pairs.h"
#include "tiers/tcb.h"
#include "tiers/ways.h"

#define PAIRS_FD	1
#define ASKS_FD		2
#define CLIENTS		65536		/* named by the last word of the address */
#define MS		1000000ull	/* nanoseconds */
#define SECOND		(1000 * MS)
#define BEGIN		(1000 * SECOND)

/* The maps. That of the questions is in the order in which the kernel reads it. */
static struct {
	struct tbg_pair pairs[CLIENTS];
	bool known[CLIENTS];
	struct tbg_pair_key asks[TBG_PAIR_ASKS_MAX];
	unsigned int asks_nr, asked;
	bool unsealed;
	unsigned int conns_nr, conns_state;	/* connections, one of each of the first clients */
} it;

static struct tbg_pair_key key_of(uint32_t client)
{
	return (struct tbg_pair_key){ .client = { 0, 0, htonl(0xffff), client },
				      .local = { 0, 0, htonl(0xffff), 1 }, .port = 80 };
}

static uint32_t place_of(const struct tbg_pair_key *key)
{
	return key->client[3] * 2654435761u;
}

/* Where the question is, or would be. */
static unsigned int ask_find(const struct tbg_pair_key *key)
{
	unsigned int i = 0;

	while (i < it.asks_nr && place_of(&it.asks[i]) < place_of(key))
		i++;
	return i;
}

static bool ask_is(unsigned int i, const struct tbg_pair_key *key)
{
	return i < it.asks_nr && !memcmp(&it.asks[i], key, sizeof(*key));
}

/* As BPF does. */
static void ask_for(uint32_t client)
{
	struct tbg_pair_key key = key_of(client);
	unsigned int i = ask_find(&key);

	if (it.asks_nr == TBG_PAIR_ASKS_MAX || ask_is(i, &key))
		return;
	memmove(it.asks + i + 1, it.asks + i, (it.asks_nr++ - i) * sizeof(key));
	it.asks[i] = key;
}

/* Behind a key that is gone, the kernel begins again. */
int bpf_map_get_next_key(int fd, const void *key, void *ret)
{
	unsigned int i = key ? ask_find(key) : 0;

	i = key && ask_is(i, key) ? i + 1 : 0;
	if (fd != ASKS_FD || i >= it.asks_nr)
		return -ENOENT;
	memcpy(ret, &it.asks[i], sizeof(it.asks[i]));
	return 0;
}

int bpf_map_delete_elem(int fd, const void *key)
{
	uint32_t client = ((const struct tbg_pair_key *)key)->client[3];
	unsigned int i = ask_find(key);

	if (fd == PAIRS_FD) {
		it.known[client] = false;
		return 0;
	}
	if (!ask_is(i, key))
		return -ENOENT;
	memmove(it.asks + i, it.asks + i + 1, (--it.asks_nr - i) * sizeof(it.asks[0]));
	return 0;
}

int bpf_map_update_elem(int fd, const void *key, const void *value, __u64 flags)
{
	uint32_t client = ((const struct tbg_pair_key *)key)->client[3];

	it.asked += fd == PAIRS_FD;
	it.known[client] = true;
	memcpy(&it.pairs[client], value, sizeof(it.pairs[client]));
	it.unsealed |= memcmp(&it.pairs[client].key, key, sizeof(struct tbg_pair_key));
	return 0;
}

int bpf_map_lookup_elem(int fd, const void *key, void *value)
{
	uint32_t client = ((const struct tbg_pair_key *)key)->client[3];

	if (!it.known[client])
		return -ENOENT;
	memcpy(value, &it.pairs[client], sizeof(it.pairs[client]));
	return 0;
}

int bpf_map_lookup_batch(int fd, void *in, void *out, void *keys, void *values, __u32 *nr,
			 const struct bpf_map_batch_opts *opts)
{
	uint32_t client = in ? *(uint32_t *)in : 0, found = 0;

	for (; client < CLIENTS && found < *nr; client++)
		if (it.known[client]) {
			((struct tbg_pair_key *)keys)[found] = it.pairs[client].key;
			((struct tbg_pair *)values)[found++] = it.pairs[client];
		}
	*nr = found;
	*(uint32_t *)out = client;
	return client < CLIENTS ? 0 : -ENOENT;
}

void tbg_tcbs_read(const struct tbg_tcbs *t,
		   bool (*fn)(const struct tbg_tcb_key *key, const struct tbg_tcb *tcb, void *arg),
		   void *arg)
{
	struct tbg_tcb tcb = { .state = it.conns_state };

	for (uint32_t client = 1; client <= it.conns_nr; client++) {
		struct tbg_pair_key pair = key_of(client);
		struct tbg_tcb_key key = { .flow.local_port = pair.port };

		memcpy(key.flow.remote, pair.client, sizeof(pair.client));
		memcpy(key.flow.local, pair.local, sizeof(pair.local));
		if (!fn(&key, &tcb, arg))
			return;
	}
}

struct mnl_socket *mnl_socket_open2(int bus, int flags)
{
	return NULL;
}

void tbg_way_read(const struct nlmsghdr *h, struct tbg_way *ret)
{
	abort();
}

/* Maps without elements; all questions of a second before BEGIN have been asked. */
static void begin(struct tbg_pairs *p)
{
	memset(&it, 0, sizeof(it));
	tbg_pairs_open(p, PAIRS_FD, ASKS_FD, 0);
	p->filled_ns = BEGIN;
}

/* The age of the oldest answer for these clients in ms; UINT32_MAX: one has none. */
static uint32_t oldest_ms(uint32_t first, uint32_t last, uint64_t now_ns)
{
	uint32_t ret = 0;

	for (uint32_t client = first; client <= last; client++) {
		uint32_t age_ms = now_ns / MS - it.pairs[client].asked_ms;

		if (!it.known[client])
			return UINT32_MAX;
		ret = age_ms > ret ? age_ms : ret;
	}
	return ret;
}

KTAP_TEST(t_questions_of_a_second_at_once_and_then_as_time_allows)
{
	/* time since the last call, questions that it allows */
	static const struct {
		uint64_t later_ns;
		unsigned int more;
	} steps[] = {
		{ 0, 0 }, { 10 * SECOND, 1000 }, { 0, 0 }, { MS / 2, 0 }, { MS / 2, 1 },
		{ 10 * MS, 10 }, { 500 * MS, 500 }, { 100 * SECOND, 1000 }, { 0, 0 },
	};
	uint64_t now_ns = BEGIN;
	struct tbg_pairs p;
	uint32_t client = 0;

	begin(&p);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		unsigned int before = it.asked;

		while (it.asks_nr < TBG_PAIR_ASKS_MAX)
			ask_for(++client);
		now_ns += steps[i].later_ns;
		tbg_pairs_answer(&p, 1, now_ns);
		KTAP_EQ(it.asked - before, steps[i].more);
	}
	KTAP_CHECK(!it.unsealed);
}

KTAP_TEST(t_a_flood_of_questions_leaves_each_its_turn)
{
	uint32_t client = 0, waiting = 0;
	uint64_t now_ns = BEGIN;
	struct tbg_pairs p;

	begin(&p);
	while (client < 200)
		ask_for(++client);
	for (int ms = 0; ms < 2500; ms++) {
		while (it.asks_nr < TBG_PAIR_ASKS_MAX)
			ask_for(++client);
		now_ns += MS;
		tbg_pairs_answer(&p, 1, now_ns);
	}
	KTAP_EQ(it.asked, 2500);
	for (client = 1; client <= 200; client++)
		waiting += !it.known[client];
	KTAP_EQ(waiting, 0);
}

/* A change of routes at any time finds the answers, which it renews. */
KTAP_TEST(t_clients_that_keep_a_connection_stay_known)
{
	uint64_t now_ns = BEGIN;
	struct tbg_pairs p;
	uint32_t ways = 1;

	begin(&p);
	for (uint32_t client = 1; client <= 400; client++)
		ask_for(client);
	now_ns += SECOND;
	tbg_pairs_answer(&p, ways, now_ns);
	KTAP_EQ(it.asked, 400);
	it.conns_nr = 300;
	for (int i = 0; i < 100; i++) {
		now_ns += 2 * SECOND;
		if (i % 25 == 0)
			tbg_pairs_renew(&p, ++ways);
		tbg_pairs_answer(&p, ways, now_ns);
		tbg_pairs_keep(&p, NULL, TBG_ASKS_V4, ways, now_ns);
		KTAP_CHECK(oldest_ms(1, 300, now_ns) < TBG_PAIR_AGAIN_MS);
	}
	/* other clients are forgotten, and nobody is asked for more often than that */
	for (uint32_t client = 301; client <= 400; client++)
		KTAP_CHECK(!it.known[client]);
	KTAP_CHECK(it.asked <= 400 + 300 * 7 + 4 * 400);
	/* as are those whose connections are the kernel's, and where nothing depends on it */
	for (int i = 0; i < 2; i++) {
		it.conns_state = i ? TBG_TCB_OPEN : TBG_TCB_HANDED;
		now_ns += 60 * SECOND;
		tbg_pairs_answer(&p, ways, now_ns);
		tbg_pairs_keep(&p, NULL, i ? TBG_ASKS_V6 : TBG_ASKS_V4, ways, now_ns);
		KTAP_CHECK(!it.known[1]);
	}
}

KTAP_TEST(t_half_of_the_questions_are_left_to_new_clients)
{
	struct tbg_pairs p;

	begin(&p);
	it.conns_nr = 5000;
	tbg_pairs_keep(&p, NULL, TBG_ASKS_V4, 1, BEGIN + 2 * SECOND);
	KTAP_EQ(it.asked, 500);
	for (uint32_t client = 10001; client <= 10400; client++)
		ask_for(client);
	tbg_pairs_answer(&p, 1, BEGIN + 2 * SECOND);
	KTAP_EQ(it.asked, 900);
	/* the others follow */
	for (int i = 2; i < 13; i++)
		tbg_pairs_keep(&p, NULL, TBG_ASKS_V4, 1, BEGIN + 2 * i * SECOND);
	KTAP_CHECK(oldest_ms(1, 5000, BEGIN + 26 * SECOND) < TBG_PAIR_AGAIN_MS);
}

/* How many of the clients 1 to last have no answer for these routes. */
static unsigned int outdated(uint32_t last, uint32_t ways)
{
	unsigned int ret = 0;

	for (uint32_t client = 1; client <= last; client++)
		ret += !it.known[client] || it.pairs[client].ways != ways;
	return ret;
}

/* More connections than are renewed at once: the others follow, within the limit. */
KTAP_TEST(t_a_change_of_routes_is_followed_in_portions)
{
	uint64_t now_ns = BEGIN;
	unsigned int before;
	struct tbg_pairs p;

	begin(&p);
	it.conns_nr = 3000;
	for (int i = 0; i < 6; i++)
		tbg_pairs_keep(&p, NULL, TBG_ASKS_V4, 1, now_ns += 2 * SECOND);
	KTAP_EQ(outdated(3000, 1), 0);
	before = it.asked;
	tbg_pairs_renew(&p, 2);
	KTAP_EQ(outdated(3000, 2), 3000 - 1024);
	for (int i = 1; i <= 4; i++) {
		tbg_pairs_keep(&p, NULL, TBG_ASKS_V4, 2, now_ns += 2 * SECOND);
		KTAP_CHECK(it.asked - before <= 1024 + i * 500);
	}
	KTAP_EQ(outdated(3000, 2), 0);
	KTAP_EQ(it.asked - before, 3000);
}

KTAP_MAIN()
