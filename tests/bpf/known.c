// SPDX-License-Identifier: GPL-2.0
/*
 * The table of connections that are known to have a socket: what enters it and what
 * removes it, with real sockets on lo and crafted segments, and while several CPUs do both.
 * Needs root. Attaches nothing.
 */
#include "late.h"

#include "abi/known.h"

#include <net/if.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define ROUNDS 1000		/* of the race */
#define LOOKS 40		/* at the slot, in each */
#define OTHER 77		/* mark of a connection that has the slot */

/* A connection on lo between the addresses of the peers, and its slot in the table. */
struct pair {
	struct peer p;
	int listener, client, server;
	uint32_t slot;
	uint64_t mark;
};

static int table(void)
{
	return bpf_map__fd(bpf->maps.tbg_knowns);
}

static struct tbg_known at(uint32_t slot)
{
	struct tbg_known ret = {};

	bpf_map_lookup_elem(table(), &slot, &ret);
	return ret;
}

static void put(uint32_t slot, struct tbg_known k)
{
	bpf_map_update_elem(table(), &slot, &k, 0);
}

/* Returns the first slot that is not empty, or -1. */
static int64_t first_used(void)
{
	for (uint32_t i = 0; i < 1 << TBG_KNOWN_BITS; i++)
		if (at(i).mark)
			return i;
	return -1;
}

/* Gives lo the IPv4 network of the peers. */
static bool lo_up(void)
{
	struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	struct sockaddr_in *a = (void *)&r.ifr_addr;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	bool ret = !ioctl(fd, SIOCSIFFLAGS, &r);

	*a = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201) };
	ret = ret && !ioctl(fd, SIOCSIFADDR, &r);
	a->sin_addr.s_addr = htonl(0xffffff00);
	ret = ret && !ioctl(fd, SIOCSIFNETMASK, &r);
	close(fd);
	return ret;
}

static bool pair_open(struct pair *c)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(80),
				   .sin_addr.s_addr = htonl(0xc0000201) };
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000202) };
	socklen_t len = sizeof(from);
	int one = 1;

	*c = (struct pair){ .p = { .window = 500 } };
	c->listener = socket(AF_INET, SOCK_STREAM, 0);
	c->client = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(c->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(c->listener, (void *)&own, sizeof(own)) || listen(c->listener, 1) ||
	    bind(c->client, (void *)&from, sizeof(from)) ||
	    connect(c->client, (void *)&own, sizeof(own)) ||
	    getsockname(c->client, (void *)&from, &len))
		return false;
	c->server = accept(c->listener, NULL, NULL);
	c->p.port = ntohs(from.sin_port);
	return c->server >= 0;
}

/* Closes it by a reset, so that no socket is left in TIME_WAIT. */
static void pair_close(struct pair *c)
{
	struct linger now = { .l_onoff = 1 };

	setsockopt(c->client, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	setsockopt(c->server, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(c->client);
	close(c->server);
	close(c->listener);
}

/* The program's verdict on a segment of the connection. */
static int segment_of(const struct pair *c, uint8_t flags)
{
	struct frame f;

	segment(&f, &c->p, true, flags, 1, 1, "", 0, "", 0);
	return ingress(&f);
}

/* Opens the connection, and sends the segment that makes it known. */
static bool known_open(struct pair *c)
{
	int64_t slot;

	if (!pair_open(c) || segment_of(c, TH_ACK) != PASS)
		return false;
	slot = first_used();
	if (slot < 0)
		return false;
	c->slot = slot;
	c->mark = at(slot).mark;
	return c->mark > TBG_KNOWN_VOID;
}

static void known_close(struct pair *c)
{
	pair_close(c);
	put(c->slot, (struct tbg_known){ 0 });
}

/* What the daemon does when it begins to give a connection back. Returns what wire answers. */
static int give_begin(const struct pair *c)
{
	struct tbg_tcb_key key = { .flow = key_of(&c->p) };
	struct tbg_tcb f = { .state = TBG_TCB_GIVING };
	struct __sk_buff ctx = { .cb = { TBG_PUSH_SEEK } };
	struct frame seg;
	LIBBPF_OPTS(bpf_test_run_opts, opts, .ctx_in = &ctx, .ctx_size_in = sizeof(ctx),
		    .data_in = seg.b, .repeat = 1);

	segment(&seg, &c->p, true, TH_ACK, 1, 1, "", 0, "", 0);
	opts.data_size_in = seg.len;
	bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_tcbs), &key, &f, 0);
	if (bpf_prog_test_run_opts(bpf_program__fd(bpf->progs.tbg_push), &opts))
		return -1;
	return opts.retval;
}

static void give_end(const struct pair *c)
{
	struct tbg_tcb_key key = { .flow = key_of(&c->p) };

	bpf_map_delete_elem(bpf_map__fd(bpf->maps.tbg_tcbs), &key);
}

#define NEED_KNOWN(c)							\
	do {								\
		NEED_LATE();						\
		KTAP_CHECK(lo_up() && known_open(c));			\
	} while (0)

KTAP_TEST(t_connection_with_a_socket_is_known_until_it_ends)
{
	static const uint8_t ends[] = { TH_FIN | TH_ACK, TH_RST, TH_RST | TH_ACK, TH_SYN,
					TH_SYN | TH_ACK };
	struct pair c;

	NEED_KNOWN(&c);
	for (unsigned int i = 0; i < sizeof(ends); i++) {
		bool stays = ends[i] == (TH_SYN | TH_ACK);	/* no client sends it */

		KTAP_EQ(segment_of(&c, TH_ACK), PASS);
		KTAP_EQ(at(c.slot).mark, c.mark);
		segment_of(&c, ends[i]);
		if (at(c.slot).mark != (stays ? c.mark : TBG_KNOWN_NONE))
			ktap_fail("flags %#x: mark %#llx", ends[i],
				  (unsigned long long)at(c.slot).mark);
	}
	known_close(&c);
}

KTAP_TEST(t_closed_connection_is_not_known_again)
{
	struct pair c;

	NEED_KNOWN(&c);
	segment_of(&c, TH_RST);
	pair_close(&c);
	segment_of(&c, TH_ACK);
	KTAP_EQ(first_used(), -1);
}

KTAP_TEST(t_only_the_same_addresses_and_ports_are_known)
{
	struct tbg_known other;
	struct pair c;

	NEED_KNOWN(&c);
	/* what a slot holds while two CPUs write it: a mark, and the addresses of another */
	other = at(c.slot);
	for (int i = 0; i < 4; i++) {
		struct tbg_known torn = other;

		torn.ends[i] ^= 1;
		put(c.slot, torn);
		/* is searched for, and has the mark of the slot already */
		KTAP_EQ(segment_of(&c, TH_ACK), PASS);
		KTAP_EQ(at(c.slot).ends[i], other.ends[i]);
		KTAP_EQ(at(c.slot).mark, c.mark);
	}
	known_close(&c);
}

KTAP_TEST(t_slot_of_another_is_taken_one_time_of_eight)
{
	struct pair c;
	int taken = 0;

	NEED_KNOWN(&c);
	for (int i = 0; i < 800; i++) {
		put(c.slot, (struct tbg_known){ .mark = OTHER });
		KTAP_EQ(segment_of(&c, TH_ACK), PASS);
		taken += at(c.slot).mark == c.mark;
	}
	KTAP_CHECK(taken > 40 && taken < 200);
	known_close(&c);
}

KTAP_TEST(t_slot_that_is_being_written_is_left_to_its_writer)
{
	struct pair c;

	NEED_KNOWN(&c);
	put(c.slot, (struct tbg_known){ .mark = TBG_KNOWN_BUSY });
	KTAP_EQ(segment_of(&c, TH_ACK), PASS);
	KTAP_EQ(at(c.slot).mark, TBG_KNOWN_BUSY);
	/* but is not to have this connection when the writer has finished */
	segment_of(&c, TH_SYN);
	KTAP_EQ(at(c.slot).mark, TBG_KNOWN_VOID);
	KTAP_EQ(segment_of(&c, TH_ACK), PASS);
	KTAP_EQ(at(c.slot).mark, TBG_KNOWN_VOID);
	put(c.slot, (struct tbg_known){ .mark = TBG_KNOWN_BUSY });
	give_begin(&c);
	KTAP_EQ(at(c.slot).mark, TBG_KNOWN_VOID);
	give_end(&c);
	known_close(&c);
}

KTAP_TEST(t_connection_that_is_given_back_is_not_known)
{
	struct pair c;

	NEED_KNOWN(&c);
	give_begin(&c);
	KTAP_EQ(at(c.slot).mark, TBG_KNOWN_NONE);
	for (int i = 0; i < 100; i++)
		KTAP_EQ(segment_of(&c, TH_ACK), PASS);
	KTAP_EQ(at(c.slot).mark, TBG_KNOWN_NONE);
	give_end(&c);
	KTAP_EQ(segment_of(&c, TH_ACK), PASS);
	KTAP_EQ(at(c.slot).mark, c.mark);
	known_close(&c);
}

/* The connection in wire's map: where its client is. */
static struct tbg_tcb given(const struct pair *c)
{
	struct tbg_tcb_key key = { .flow = key_of(&c->p) };
	struct tbg_tcb ret = {};

	bpf_map_lookup_elem(bpf_map__fd(bpf->maps.tbg_tcbs), &key, &ret);
	return ret;
}

KTAP_TEST(t_given_back_to_where_its_last_segment_came_from)
{
	struct tbg_known_from from;
	struct frame seg;
	struct tbg_tcb f;
	struct pair c;

	NEED_KNOWN(&c);
	segment(&seg, &c.p, true, TH_ACK, 1, 1, "", 0, "", 0);
	from = at(c.slot).from;
	KTAP_CHECK(!memcmp(from.own, seg.b, 6) && !memcmp(from.mac, seg.b + 6, 6));
	KTAP_CHECK(from.ifindex == 1 && !from.vlan);
	/* the client is behind another router by now */
	for (int i = 0; i < 6; i++) {
		seg.b[6 + i] ^= 0x10;
		KTAP_EQ(ingress(&seg), PASS);
		KTAP_EQ(at(c.slot).mark, c.mark);
		from = at(c.slot).from;
		KTAP_CHECK(!memcmp(from.mac, seg.b + 6, 6));
	}
	give_begin(&c);
	f = given(&c);
	KTAP_CHECK(!memcmp(f.own, seg.b, 6) && !memcmp(f.mac, seg.b + 6, 6) && f.ifindex == 1);
	give_end(&c);
	known_close(&c);
}

KTAP_TEST(t_given_back_from_an_unknown_place_goes_on_where_it_was)
{
	struct tbg_tcb known, unknown;
	struct tbg_known other;
	struct pair c;

	NEED_KNOWN(&c);
	KTAP_EQ(give_begin(&c), 1);
	known = given(&c);
	give_end(&c);
	KTAP_EQ(give_begin(&c), 1);
	unknown = given(&c);
	KTAP_CHECK(memcmp(known.mac, unknown.mac, sizeof(known.mac)));
	give_end(&c);
	/* what a slot holds while two CPUs write it */
	segment_of(&c, TH_ACK);
	other = at(c.slot);
	other.ends[0] ^= 1;
	put(c.slot, other);
	KTAP_EQ(give_begin(&c), 1);
	unknown = given(&c);
	KTAP_CHECK(memcmp(known.mac, unknown.mac, sizeof(known.mac)));
	KTAP_EQ(at(c.slot).mark, TBG_KNOWN_NONE);
	give_end(&c);
	known_close(&c);
}

struct race {
	const struct pair *c;
	_Atomic bool end;
	_Atomic uint64_t segments;
};

static void *segments_send(void *arg)
{
	struct race *r = arg;

	while (!r->end) {
		segment_of(r->c, TH_ACK);
		r->segments++;
	}
	return NULL;
}

/* On one CPU segments make the connection known, on another the daemon gives it back. */
KTAP_TEST(t_given_back_while_its_segments_arrive)
{
	pthread_t thread;
	struct race r;
	struct pair c;
	int known = 0, late = 0;

	NEED_KNOWN(&c);
	r = (struct race){ .c = &c };
	KTAP_CHECK(!pthread_create(&thread, NULL, segments_send, &r));
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t before = r.segments;

		give_end(&c);
		while (r.segments - before < (uint64_t)i % 3)
			sched_yield();
		known += at(c.slot).mark == c.mark;
		give_begin(&c);
		for (int k = 0; k < LOOKS; k++)
			late += at(c.slot).mark == c.mark;
	}
	r.end = true;
	pthread_join(thread, NULL);
	ktap_note("%d rounds, known in %d, %llu segments", ROUNDS, known,
		  (unsigned long long)r.segments);
	KTAP_EQ(late, 0);
	KTAP_CHECK(known > ROUNDS / 20);
	give_end(&c);
	known_close(&c);
}
