// SPDX-License-Identifier: GPL-2.0
/*
 * The XDP program on crafted frames (BPF_PROG_TEST_RUN), together with the TC programs
 * whose flows and cache it shares: its answers are identical to TC's, other frames are
 * unchanged, and a device must first prove that its frames arrive. Needs root. Attaches
 * nothing.
 */
#include "peer.h"

#include "bpf/translate_xdp.skel.h"

#define LO 1			/* the interface of test runs */
#define FRAME_ROOM 3520		/* space for a frame there, in one page */
#define VERIFIED_MAX 500000	/* of at most a million */

static struct tbg_translate_xdp_bpf *xdp;

static bool xdp_load(void)
{
	const struct bpf_map *map;

	if (xdp)
		return true;
	if (!load())
		return false;
	xdp = tbg_translate_xdp_bpf__open();
	if (!xdp)
		return false;
	bpf_object__for_each_map(map, bpf->obj) {
		struct bpf_map *mine = bpf_object__find_map_by_name(xdp->obj,
						bpf_map__name(map));

		if (mine && !bpf_map__is_internal(map))
			bpf_map__reuse_fd(mine, bpf_map__fd(map));
	}
	if (tbg_translate_xdp_bpf__load(xdp))
		return false;
	publish("/a", 1, 7, 'a', 1000);
	return true;
}

static struct tbg_port port_get(void)
{
	struct tbg_port port = {};
	uint32_t lo = LO;

	bpf_map_lookup_elem(bpf_map__fd(bpf->maps.tbg_ports), &lo, &port);
	return port;
}

static void port_put(struct tbg_port port)
{
	uint32_t lo = LO;

	memset(port.mac, 0xaa, sizeof(port.mac));	/* as in segment() */

	bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_ports), &lo, &port, 0);
}

static void port_set(uint32_t proven, uint32_t lost)
{
	port_put((struct tbg_port){ .proven = proven, .lost = lost });
}

#define NEED_XDP()							\
	do {								\
		if (geteuid())						\
			KTAP_SKIP("not root");				\
		KTAP_CHECK(xdp_load());					\
		port_set(1, 0);						\
		set_clock(784111777);	/* verifying may take long */	\
	} while (0)

/* Counters of requests: answered, and left to TC for this reason. */
struct tally {
	uint64_t hits, left;
};

static struct tally tally_of(enum tbg_why why)
{
	int cpus = libbpf_num_possible_cpus();
	struct tbg_stats *all = calloc(cpus, sizeof(*all));
	struct tally ret = {};
	uint32_t zero = 0;

	bpf_map_lookup_elem(bpf_map__fd(bpf->maps.tbg_stats), &zero, all);
	for (int i = 0; i < cpus; i++) {
		ret.hits += all[i].xdp_hits;
		ret.left += all[i].xdp_left[why];
	}
	free(all);
	return ret;
}

static int driver(struct frame *f)
{
	return run(xdp->progs.tbg_xdp, f);
}

static void flow_set(const struct peer *p, const struct tbg_flow *flow)
{
	struct tbg_flow_key k = key_of(p);

	bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_flows), &k, flow, 0);
}

/*
 * Returns whether a frame is passed up unchanged with its flow unchanged; why: if it is
 * counted.
 */
static bool left(struct peer *p, struct frame *f, int why)
{
	struct tally before = tally_of(why < 0 ? 0 : why), after;
	struct tbg_flow was = {}, is = {};
	struct frame came = *f;
	int verdict;

	flow_of(p, &was);
	verdict = driver(f);
	flow_of(p, &is);
	after = tally_of(why < 0 ? 0 : why);
	if (verdict != XDP_PASS || f->len != came.len ||
	    memcmp(f->b, came.b, f->len) || memcmp(&was, &is, sizeof(is))) {
		ktap_note("verdict %d, %u bytes of %u", verdict, f->len, came.len);
		return false;
	}
	return after.hits == before.hits &&
	       after.left == before.left + (why >= 0);
}

static bool leaves(struct peer *p, const char *req, enum tbg_why why)
{
	struct frame f;

	client(&f, p, TH_ACK | TH_PUSH, req);
	return left(p, &f, why);
}

/* Makes Date constant: otherwise the second of two answers could be in the next second. */
static void stop_date(void)
{
	const struct tbg_date *first = &knob->date[784111777 % TBG_DATE_RING];

	set_clock(784111777);
	for (int i = 1; i < 5; i++)
		memcpy(knob->date[(784111777 + i) % TBG_DATE_RING].text, first->text,
		       sizeof(first->text));
}

/*
 * Returns whether XDP answers req correctly and identically to TC with the same flow.
 * Advances the client. The flow's timestamp clock is ahead of the time, so both replies
 * carry the same timestamp.
 */
static bool same(struct peer *p, const char *req)
{
	uint64_t hits = tally_of(0).hits, wire = counted(TBG_WHY_HIT_WIRE);
	struct frame by_xdp, by_tc;
	struct tbg_flow flow;
	const char *fault;

	if (!flow_of(p, &flow))
		return false;
	flow.tsval += 10000;
	flow_set(p, &flow);
	stop_date();
	client(&by_tc, p, TH_ACK | TH_PUSH, req);
	by_xdp = by_tc;
	if (ingress(&by_tc) != REDIRECT || !flow_of(p, &flow))
		return ktap_note("TC does not answer"), false;
	flow.in_delta -= strlen(req);
	flow.out_delta -= flow.last.len;
	flow_set(p, &flow);
	if (driver(&by_xdp) != XDP_TX)
		return ktap_note("XDP does not answer"), false;
	if (by_xdp.len != by_tc.len || memcmp(by_xdp.b, by_tc.b, by_tc.len))
		return ktap_note("%u bytes, not as the %u of TC", by_xdp.len, by_tc.len), false;
	if (tally_of(0).hits != hits + 1 || counted(TBG_WHY_HIT_WIRE) != wire + 2)
		return ktap_note("not counted right"), false;
	fault = reply_fault(&by_xdp, p, strlen(req));
	if (fault)
		ktap_note("wrong %s", fault);
	return !fault;
}

KTAP_TEST(t_verifier_takes_it)
{
	struct bpf_prog_info info = {};
	uint32_t len = sizeof(info);
	NEED_XDP();
	KTAP_CHECK(!bpf_obj_get_info_by_fd(bpf_program__fd(xdp->progs.tbg_xdp),
					   &info, &len));
	ktap_note("%u instructions verified", info.verified_insns);
	KTAP_CHECK(info.verified_insns < VERIFIED_MAX);
}

KTAP_TEST(t_answers_as_tc_does)
{
	NEED_XDP();
	for (int i = 0; i < 4; i++) {
		struct peer p = peer_new(i & 1, i & 2);
		KTAP_CHECK(same(&p, REQ("/a")));
		KTAP_CHECK(same(&p, "HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n"));
		KTAP_CHECK(same(&p, "GET /a HTTP/1.1\r\nHost: x\r\n"
				"If-None-Match: \"abcd\"\r\n\r\n"));
		KTAP_CHECK(same(&p, "GET /a HTTP/1.1\r\nHost: x\r\nIf-Modified-Since: "
				"Sat, 05 Nov 1994 08:49:37 GMT\r\n\r\n"));
		KTAP_CHECK(same(&p, REQ("/a")));
	}
}

KTAP_TEST(t_every_length_is_summed_right)
{
	char req[400];
	NEED_XDP();
	struct peer p = peer_new(false, true), q = peer_new(true, false);
	for (unsigned int n = 0; n < 70; n++) {
		publish("/n", 2, 100 + n, 0, n);
		/* also the request's length, since XDP computes its checksum */
		snprintf(req, sizeof(req), "GET /n HTTP/1.1\r\nHost: x\r\n"
			 "User-Agent: %0*u\r\n\r\n", 200 + n, 0);
		KTAP_CHECK(same(&p, req));
		KTAP_CHECK(same(&q, req));
	}
}

KTAP_TEST(t_age_as_tc_writes_it)
{
	NEED_XDP();
	struct peer p = peer_new(false, true);
	publish_aged("/old", 12, 300, mono_ns() - 1234500000000ull, 5);
	KTAP_CHECK(same(&p, REQ("/old")));
}

KTAP_TEST(t_reply_shorter_than_its_request)
{
	char req[1400];
	NEED_XDP();
	struct peer p = peer_new(false, true);
	snprintf(req, sizeof(req), "GET /a HTTP/1.1\r\nHost: x\r\nCookie: %01200d\r\n"
		 "If-None-Match: \"abcd\"\r\n\r\n", 0);
	KTAP_CHECK(same(&p, req));
	KTAP_CHECK(same(&p, REQ("/a")));
}

KTAP_TEST(t_hits_of_both_hooks_in_turn)
{
	struct frame f;
	NEED_XDP();
	struct peer p = peer_new(false, true);
	for (int i = 0; i < 6; i++) {
		client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
		KTAP_EQ(i & 1 ? driver(&f) : ingress(&f), i & 1 ? XDP_TX : REDIRECT);
		KTAP_CHECK(!reply_fault(&f, &p, strlen(REQ("/a"))));
	}
}

KTAP_TEST(t_hit_reaches_the_log_ring)
{
	struct frame f;
	NEED_XDP();
	struct peer p = peer_new(false, true);
	volatile unsigned long *produced = mmap(NULL, 4096, PROT_READ, MAP_SHARED,
			bpf_map__fd(bpf->maps.tbg_events), 4096);
	KTAP_CHECK(produced != MAP_FAILED);
	unsigned long before = *produced;
	knob->log = 1;
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	int verdict = driver(&f);
	knob->log = 0;
	KTAP_EQ(verdict, XDP_TX);
	KTAP_CHECK(*produced - before >= sizeof(struct tbg_event) + strlen(REQ("/a")));
	munmap((void *)produced, 4096);
}

/* A request whose checksum is left to a device: it contains the sum of the pseudo-header. */
static void client_partial(struct frame *f, struct peer *p, const char *req)
{
	unsigned int l4 = p->v6 ? 54 : 34;
	uint64_t sum;

	client(f, p, TH_ACK | TH_PUSH, req);
	sum = htons(IPPROTO_TCP) + htons(f->len - l4);
	sum += tbg_csum_bytes(f->b + (p->v6 ? 22 : 26), p->v6 ? 32 : 8);
	tcp_of(f, p)->check = tbg_csum_fold(sum);
}

KTAP_TEST(t_partial_checksum_is_made_whole)
{
	struct frame f;
	NEED_XDP();
	port_put((struct tbg_port){ .proven = 1, .partial = 1 });
	for (int v6 = 0; v6 < 2; v6++) {
		struct peer p = peer_new(v6, true);
		client_partial(&f, &p, REQ("/a"));
		KTAP_EQ(driver(&f), XDP_TX);
		const char *fault = reply_fault(&f, &p, strlen(REQ("/a")));
		KTAP_CHECK(!fault || (ktap_note("wrong %s", fault), 0));
	}
}

/* On a device that has never sent such frames to TC, it is a wrong checksum. */
KTAP_TEST(t_pseudo_sum_from_a_network_is_left)
{
	struct frame f;
	NEED_XDP();
	for (int v6 = 0; v6 < 2; v6++) {
		struct peer p = peer_new(v6, true);
		client_partial(&f, &p, REQ("/a"));
		KTAP_CHECK(left(&p, &f, TBG_WHY_CSUM));
		KTAP_CHECK(same(&p, REQ("/a")));
	}
}

KTAP_TEST(t_wrong_checksum_is_left)
{
	struct frame f;
	NEED_XDP();
	struct peer p = peer_new(false, true);
	for (int at = 34; at < 34 + 32; at++) {
		client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
		f.b[at] ^= 0x10;
		if (at < 38)	/* another flow, which does not exist */
			KTAP_CHECK(left(&p, &f, at < 36 ? TBG_WHY_NO_FLOW : -1));
		else
			KTAP_EQ(driver(&f), XDP_PASS);
	}
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	f.b[f.len - 1] ^= 1;
	KTAP_CHECK(left(&p, &f, TBG_WHY_CSUM));
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	f.b[24] ^= 1;		/* the IP header's */
	KTAP_CHECK(left(&p, &f, TBG_WHY_IP_ODD));
	KTAP_CHECK(same(&p, REQ("/a")));
}

KTAP_TEST(t_requests_that_are_left)
{
	NEED_XDP();
	struct peer p = peer_new(false, true);
	struct tbg_flow flow;
	KTAP_CHECK(leaves(&p, REQ("/no"), TBG_WHY_MISS));
	KTAP_CHECK(leaves(&p, "POST /a HTTP/1.1\r\nHost: x\r\n\r\n", TBG_WHY_METHOD));
	KTAP_CHECK(leaves(&p, "GET /a HTTP/1.1\r\nHost: x\r\n", TBG_WHY_SPLIT));
	KTAP_CHECK(leaves(&p, REQ("/a") REQ("/a"), TBG_WHY_PIPELINED));
	KTAP_CHECK(leaves(&p, "GET /a HTTP/1.1\r\nHost: x\r\nRange: bytes=0-1\r\n\r\n",
			  TBG_WHY_FIELD));
	knob->answer = 0;
	bool off = leaves(&p, REQ("/a"), TBG_WHY_OFF);
	knob->answer = 1;
	KTAP_CHECK(off);
	/* more than one segment: left to TC */
	publish("/big", 3, 9, 'b', 1500);
	KTAP_CHECK(leaves(&p, REQ("/big"), TBG_WHY_SIZE));
	p.window = 5;
	KTAP_CHECK(leaves(&p, REQ("/a"), TBG_WHY_SIZE));
	p.window = 1500 / 128;
	KTAP_CHECK(leaves(&p, REQ("/a"), TBG_WHY_SIZE));
	/* a client on this machine would have to wait */
	p.window = 8191 / 128;
	KTAP_CHECK(leaves(&p, REQ("/a"), TBG_WHY_SIZE));
	p.window = 500;
	struct peer q = p;
	q.seq++;
	KTAP_CHECK(leaves(&q, REQ("/a"), TBG_WHY_BUSY));
	q = p;
	q.ack--;
	KTAP_CHECK(leaves(&q, REQ("/a"), TBG_WHY_UNACKED));
	q = p;
	q.ts = false;
	KTAP_CHECK(leaves(&q, REQ("/a"), TBG_WHY_TCP_ODD));
	q = (struct peer){ .port = 1, .window = 500, .ts = true };
	KTAP_CHECK(leaves(&q, REQ("/a"), TBG_WHY_NO_FLOW));
	KTAP_CHECK(flow_of(&p, &flow));
	flow.flags |= TBG_FLOW_LEFT;
	flow_set(&p, &flow);
	KTAP_CHECK(leaves(&p, REQ("/a"), TBG_WHY_LEFT));
	flow.flags &= ~TBG_FLOW_LEFT;
	flow.flags |= TBG_FLOW_FIN_OUT;
	flow_set(&p, &flow);
	KTAP_CHECK(leaves(&p, REQ("/a"), TBG_WHY_CLOSING));
	flow.flags &= ~TBG_FLOW_FIN_OUT;
	flow.ifindex++;
	flow_set(&p, &flow);
	KTAP_CHECK(leaves(&p, REQ("/a"), TBG_WHY_IFACE));
	flow.ifindex--;
	flow_set(&p, &flow);
	KTAP_CHECK(same(&p, REQ("/a")));
}

KTAP_TEST(t_frames_that_are_left)
{
	static const uint8_t flags[] = { TH_ACK | TH_PUSH | TH_FIN,
		TH_ACK | TH_URG, TH_ACK | 0x40, TH_ACK | 0x80, TH_PUSH, TH_SYN };
	struct frame f;
	NEED_XDP();
	struct peer p = peer_new(false, true), six = peer_new(true, true);
	for (unsigned int i = 0; i < sizeof(flags); i++) {
		client(&f, &p, flags[i], REQ("/a"));
		KTAP_CHECK(left(&p, &f, TBG_WHY_FLAGS));
	}
	/* congestion experienced: the stack must echo it */
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	f.b[15] |= 3;
	((struct iphdr *)(f.b + 14))->check = 0;
	((struct iphdr *)(f.b + 14))->check = ~tbg_csum_bytes(f.b + 14, 20);
	KTAP_CHECK(left(&p, &f, TBG_WHY_FLAGS));
	/* more fragments, and a later one */
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	f.b[20] = 0x20;
	KTAP_CHECK(left(&p, &f, TBG_WHY_IP_ODD));
	f.b[20] = 0;
	f.b[21] = 1;
	KTAP_CHECK(left(&p, &f, -1));
	/* IP options: a NOP of four bytes before the TCP header */
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	memmove(f.b + 38, f.b + 34, f.len - 34);
	memset(f.b + 34, 1, 4);
	f.len += 4;
	((struct iphdr *)(f.b + 14))->ihl = 6;
	((struct iphdr *)(f.b + 14))->tot_len = htons(f.len - 14);
	((struct iphdr *)(f.b + 14))->check = 0;
	((struct iphdr *)(f.b + 14))->check = ~tbg_csum_bytes(f.b + 14, 24);
	KTAP_CHECK(left(&p, &f, TBG_WHY_IP_ODD));
	/* an extension header: destination options with padding only */
	client(&f, &six, TH_ACK | TH_PUSH, REQ("/a"));
	memmove(f.b + 62, f.b + 54, f.len - 54);
	memcpy(f.b + 54, "\x06\x00\x01\x04\x00\x00\x00\x00", 8);
	f.len += 8;
	f.b[20] = 60;
	((struct ip6_hdr *)(f.b + 14))->ip6_plen = htons(f.len - 54);
	KTAP_CHECK(left(&six, &f, TBG_WHY_IP_ODD));
	/* a VLAN tag in the frame */
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	memmove(f.b + 16, f.b + 12, f.len - 12);
	memcpy(f.b + 12, "\x81\x00\x00\x05", 4);
	f.len += 4;
	KTAP_CHECK(left(&p, &f, TBG_WHY_IFACE));
	/* another port, another protocol, a bare ACK: not counted */
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	f.b[37] = 81;
	KTAP_CHECK(left(&p, &f, -1));
	f.b[23] = IPPROTO_UDP;
	KTAP_CHECK(left(&p, &f, -1));
	client(&f, &p, TH_ACK, "");
	KTAP_CHECK(left(&p, &f, -1));
	KTAP_CHECK(same(&p, REQ("/a")));
	KTAP_CHECK(same(&six, REQ("/a")));
}

KTAP_TEST(t_frame_of_another_host_is_left)
{
	struct frame f;
	NEED_XDP();
	for (int v6 = 0; v6 < 2; v6++) {
		struct peer p = peer_new(v6, true);
		for (int at = 0; at < ETH_ALEN; at++) {
			client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
			f.b[at] ^= 1;
			KTAP_CHECK(left(&p, &f, -1));
		}
		/* broadcast: the reply would nevertheless go to the sender */
		client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
		memset(f.b, 0xff, ETH_ALEN);
		KTAP_CHECK(left(&p, &f, -1));
		KTAP_CHECK(same(&p, REQ("/a")));
	}
}

/* A VLAN tag that the device has removed is only in the skb: known since the birth. */
KTAP_TEST(t_flow_of_a_vlan_is_left)
{
	struct tbg_flow flow;
	NEED_XDP();
	struct peer p = peer_new(false, true);
	KTAP_CHECK(flow_of(&p, &flow));
	KTAP_EQ(flow.way, TBG_WAY_BARE);
	flow.way = 0;
	flow_set(&p, &flow);
	KTAP_CHECK(leaves(&p, REQ("/a"), TBG_WHY_IFACE));
}

/* A reply that does not fit the driver's frame leaves the request unchanged for TC. */
KTAP_TEST(t_no_room_in_the_frame)
{
	struct frame f;
	NEED_XDP();
	struct peer p = { .ts = true, .port = 19001, .window = 500, .mss = 9000 };
	handshake(&p);
	publish("/room", 4, 11, 'r', FRAME_ROOM);
	KTAP_CHECK(leaves(&p, REQ("/room"), TBG_WHY_ROOM));
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/room"));
	KTAP_EQ(ingress(&f), REDIRECT);
}

KTAP_TEST(t_frame_of_several_buffers_is_left)
{
	struct frame f;
	char req[FRAME_ROOM + 500];
	NEED_XDP();
	struct peer p = peer_new(false, true);
	snprintf(req, sizeof(req), "GET /a HTTP/1.1\r\nHost: x\r\nCookie: %0*d\r\n\r\n",
		 FRAME_ROOM + 200, 0);
	client(&f, &p, TH_ACK | TH_PUSH, req);
	KTAP_CHECK(left(&p, &f, -1));
}

/* The socket must learn what the client has acknowledged, which only TC can pass on. */
KTAP_TEST(t_first_hit_after_a_miss_is_left)
{
	unsigned char o[12];
	char body[50] = "";
	struct tbg_flow flow;
	struct frame f;
	NEED_XDP();
	struct peer p = peer_new(false, true);
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/no"), TBG_WHY_MISS));
	KTAP_CHECK(flow_of(&p, &flow));
	conns[flow.slot].word = TBG_CONN_WORD(strlen(REQ("/no")), sizeof(body));
	segment(&f, &p, false, TH_ACK | TH_PUSH, p.kseq, p.seq, o,
		ts_opt(o, p.ktsval, p.tsval), body, sizeof(body));
	KTAP_EQ(egress(&f), PASS);
	p.ack += sizeof(body);
	KTAP_CHECK(leaves(&p, REQ("/a"), TBG_WHY_UNTOLD));
	/* after a separate acknowledgement, the next request is a hit */
	client(&f, &p, TH_ACK, "");
	KTAP_CHECK(left(&p, &f, -1));
	KTAP_EQ(ingress(&f), PASS);
	KTAP_CHECK(same(&p, REQ("/a")));
}

KTAP_TEST(t_lost_reply_is_repeated_by_tc)
{
	struct frame first, again;
	NEED_XDP();
	struct peer p = peer_new(false, true);
	unsigned int len, len2;
	client(&first, &p, TH_ACK | TH_PUSH, REQ("/a"));
	KTAP_EQ(driver(&first), XDP_TX);
	/* later, after the object was replaced */
	set_clock(784111780);
	publish("/a", 5, 70, 'A', 1000);
	client(&again, &p, TH_ACK | TH_PUSH, REQ("/a"));
	KTAP_EQ(driver(&again), XDP_PASS);
	KTAP_EQ(port_get().lost, 1);
	KTAP_EQ(ingress(&again), REDIRECT);
	char *a = data_of(&first, &p, &len), *b = data_of(&again, &p, &len2);
	KTAP_CHECK(len == len2 && !memcmp(a, b, len));
	KTAP_EQ(tcp_of(&again, &p)->seq, tcp_of(&first, &p)->seq);
	/* what TC has sent proves nothing about XDP */
	p.seq += strlen(REQ("/a"));
	p.ack += len;
	client(&again, &p, TH_ACK, "");
	KTAP_EQ(driver(&again), XDP_PASS);
	KTAP_EQ(port_get().lost, 1);
	KTAP_CHECK(leaves(&p, REQ("/a"), TBG_WHY_LEFT));
	set_clock(784111777);
	publish("/a", 1, 7, 'a', 1000);
}

KTAP_TEST(t_device_has_to_prove_itself)
{
	struct frame f;
	NEED_XDP();
	struct peer p = peer_new(false, true), q = peer_new(false, true);
	port_set(0, 0);
	/* one at a time */
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	KTAP_EQ(driver(&f), XDP_TX);
	KTAP_CHECK(!reply_fault(&f, &p, strlen(REQ("/a"))));
	KTAP_CHECK(leaves(&q, REQ("/a"), TBG_WHY_BUSY));
	/* acknowledged */
	client(&f, &p, TH_ACK, "");
	KTAP_EQ(driver(&f), XDP_PASS);
	KTAP_EQ(port_get().proven, 1);
	KTAP_CHECK(same(&q, REQ("/a")));
}

KTAP_TEST(t_device_that_loses_all_is_given_up)
{
	struct frame f;
	NEED_XDP();
	port_set(0, 0);
	for (int i = 0; i < TBG_PORT_LOST; i++) {
		struct peer p = peer_new(false, true);
		for (int again = 0; again < 2; again++) {
			client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
			KTAP_EQ(driver(&f), again ? XDP_PASS : XDP_TX);
		}
		KTAP_EQ(port_get().lost, i + 1);
	}
	struct peer p = peer_new(false, true);
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	KTAP_CHECK(left(&p, &f, -1));
	KTAP_EQ(ingress(&f), REDIRECT);
	KTAP_EQ(port_get().proven, 0);
}

/* A client repeats a request and acknowledges nothing: counts as one lost reply. */
KTAP_TEST(t_client_that_loses_all_ends_it_for_nobody)
{
	struct frame f;
	NEED_XDP();
	port_set(1, 0);
	struct peer p = peer_new(false, true), q = peer_new(false, true);
	for (int i = 0; i < 3 * TBG_PORT_LOST; i++) {
		client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
		KTAP_EQ(driver(&f), i ? XDP_PASS : XDP_TX);
	}
	KTAP_EQ(port_get().lost, 1);
	KTAP_CHECK(same(&q, REQ("/a")));
	/* given up, but an acknowledgement revokes that */
	port_set(1, TBG_PORT_LOST);
	client(&f, &q, TH_ACK, "");
	KTAP_EQ(driver(&f), XDP_PASS);
	KTAP_EQ(port_get().lost, 0);
	KTAP_CHECK(same(&q, REQ("/a")));
}

KTAP_TEST(t_other_interfaces_are_left_alone)
{
	struct frame f;
	uint32_t lo = LO;
	NEED_XDP();
	struct peer p = peer_new(false, true);
	bpf_map_delete_elem(bpf_map__fd(bpf->maps.tbg_ports), &lo);
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	KTAP_CHECK(left(&p, &f, -1));
}

/*
 * A bare ACK waits in a batch while XDP answers the request after it. The stack, for
 * which the request's bytes are wire's, would treat it as old.
 */
KTAP_TEST(t_overtaken_ack_does_not_reach_the_stack)
{
	struct frame ack, half, f;
	NEED_XDP();
	for (int by_xdp = 1; by_xdp >= 0; by_xdp--) {
		struct peer p = peer_new(false, true), q;
		client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
		KTAP_EQ(ingress(&f), REDIRECT);
		KTAP_CHECK(!reply_fault(&f, &p, strlen(REQ("/a"))));
		q = p;
		q.ack -= 500;
		client(&half, &q, TH_ACK, "");
		client(&ack, &p, TH_ACK, "");
		client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
		KTAP_EQ(by_xdp ? driver(&f) : ingress(&f), by_xdp ? XDP_TX : REDIRECT);
		KTAP_CHECK(!reply_fault(&f, &p, strlen(REQ("/a"))));
		/* without XDP, the network reordered it, and the stack decides */
		KTAP_EQ(ingress(&half), by_xdp ? SHOT : PASS);
		KTAP_EQ(ingress(&ack), by_xdp ? SHOT : PASS);
		/* the reply's own acknowledgement is not overtaken, and ends the exchange */
		client(&f, &p, TH_ACK, "");
		KTAP_EQ(ingress(&f), SHOT);
		client(&f, &p, TH_ACK | TH_PUSH, REQ("/no"));
		KTAP_EQ(ingress(&f), PASS);
	}
}

KTAP_TEST(t_random_frames_are_answered_right_or_left)
{
	struct tbg_flow before, after;
	struct frame f, came;
	NEED_XDP();
	srand(1);
	struct peer p = peer_new(false, true);
	KTAP_CHECK(same(&p, REQ("/a")));
	KTAP_CHECK(flow_of(&p, &before));
	for (int i = 0; i < 20000; i++) {
		struct peer q = p;
		client(&f, &q, TH_ACK | TH_PUSH, REQ("/a"));
		for (int n = rand() % 4 + 1; n; n--)
			f.b[12 + rand() % (f.len - 12)] ^= 1 << rand() % 8;
		came = f;
		int verdict = driver(&f);
		KTAP_CHECK(flow_of(&p, &after));
		if (verdict == XDP_TX) {	/* the mutation changed nothing */
			KTAP_EQ(tcp_sum(&f, false), 0xffff);
			flow_set(&p, &before);
			continue;
		}
		KTAP_EQ(verdict, XDP_PASS);
		KTAP_CHECK(f.len == came.len && !memcmp(f.b, came.b, f.len));
		KTAP_CHECK(!memcmp(&before, &after, sizeof(after)));
	}
}
