// SPDX-License-Identifier: GPL-2.0
/*
 * The wire programs on crafted frames (BPF_PROG_TEST_RUN): connections after hits.
 * Translation in both directions, repetition of lost replies, the end of connections,
 * and ICMP errors. Needs root. Attaches nothing.
 */
#include "peer.h"

/* After a hit, the deltas are applied in both directions. */
KTAP_TEST(t_translation_after_a_hit)
{
	unsigned char o[40];
	struct frame f;
	unsigned int n;
	NEED_A();
	for (int v6 = 0; v6 < 2; v6++) {
		struct peer p = peer_new(v6, true);
		uint32_t seq0 = p.seq, ack0 = p.ack;
		KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 ", 'a', 1000));
		uint32_t in = p.seq - seq0, out = p.ack - ack0;
		/* a miss is passed up in the socket's numbers */
		client(&f, &p, TH_ACK | TH_PUSH, REQ("/no"));
		KTAP_EQ(ingress(&f), PASS);
		KTAP_EQ(tcp_sum(&f, v6), 0xffff);
		KTAP_EQ(ntohl(tcp_of(&f, &p)->seq), p.seq - in);
		KTAP_EQ(ntohl(tcp_of(&f, &p)->ack_seq), p.ack - out);
		/* the socket's answer, with a SACK block */
		n = ts_opt(o, p.ktsval, p.tsval);
		memcpy(o + n, "\x01\x01\x05\x0a\x00\x00\x10\x00\x00\x00\x20\x00", 12);
		segment(&f, &p, false, TH_ACK | TH_PUSH, p.kseq, p.kack + 40, o,
			n + 12, "HTTP/1.1 404", 12);
		KTAP_EQ(egress(&f), PASS);
		KTAP_EQ(tcp_sum(&f, v6), 0xffff);
		KTAP_EQ(ntohl(tcp_of(&f, &p)->seq), p.kseq + out);
		KTAP_EQ(ntohl(tcp_of(&f, &p)->ack_seq), p.kack + 40 + in);
		uint32_t block[2];
		memcpy(block, (char *)tcp_of(&f, &p) + 20 + n + 4, 8);
		KTAP_EQ(ntohl(block[0]), 0x1000 + in);
		KTAP_EQ(ntohl(block[1]), 0x2000 + in);
	}
}

/*
 * A segment of the socket made before wire's reply but sent after it: the client must
 * not drop it, nor the next reply.
 */
KTAP_TEST(t_timestamps_never_go_back)
{
	unsigned char o[24];
	struct frame f;
	uint32_t val;
	NEED_A();
	for (unsigned int sack = 0; sack <= 12; sack += 12) {
		struct peer p = peer_new(false, true);
		memcpy(o + 12, "\x01\x01\x05\x0a\x00\x00\x10\x00\x00\x00\x20\x00", 12);
		KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 ", 'a', 1000));
		unsigned int n = ts_opt(o, p.ktsval - 7, p.tsval) + sack;
		segment(&f, &p, false, TH_ACK, p.kseq, p.kack, o, n, "", 0);
		KTAP_EQ(egress(&f), PASS);
		KTAP_EQ(tcp_sum(&f, false), 0xffff);
		memcpy(&val, (char *)tcp_of(&f, &p) + 24, 4);
		KTAP_EQ(ntohl(val), p.ktsval);
		/* a newer one is unchanged, and is the new minimum */
		ts_opt(o, p.ktsval + 900, p.tsval);
		segment(&f, &p, false, TH_ACK, p.kseq, p.kack, o, n, "", 0);
		KTAP_EQ(egress(&f), PASS);
		memcpy(&val, (char *)tcp_of(&f, &p) + 24, 4);
		KTAP_EQ(ntohl(val), p.ktsval + 900);
		p.ktsval += 900;
		KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 ", 'a', 1000));
	}
}

KTAP_TEST(t_client_sack_is_moved_and_clamped)
{
	unsigned char o[40];
	uint32_t b[2];
	struct frame f;
	NEED_A();
	struct peer p = peer_new(false, true);
	uint32_t ack0 = p.ack;
	KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 ", 'a', 1000));
	uint32_t out = p.ack - ack0;
	unsigned int n = ts_opt(o, ++p.tsval, p.ktsval);
	memcpy(o + n, "\x01\x01\x05\x0a", 4);
	b[0] = htonl(p.ack - 10);	/* begins inside wire's bytes */
	b[1] = htonl(p.ack + 300);
	memcpy(o + n + 4, b, 8);
	/* with payload, so that it is not taken for a request for the lost reply */
	segment(&f, &p, true, TH_ACK, p.seq, p.ack - 500, o, n + 12, "G", 1);
	KTAP_EQ(ingress(&f), PASS);
	KTAP_EQ(tcp_sum(&f, false), 0xffff);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->ack_seq), ack0);
	memcpy(b, (char *)tcp_of(&f, &p) + 20 + n + 4, 8);
	KTAP_EQ(ntohl(b[0]), ack0);
	KTAP_EQ(ntohl(b[1]), p.ack + 300 - out);
}

/* The first hit after a miss, on another connection on this CPU. */
static void acknowledge_another(void)
{
	struct peer p = peer_new(true, true);
	struct tbg_flow flow;
	struct frame f;

	client(&f, &p, TH_ACK | TH_PUSH, REQ("/no"));
	ingress(&f);
	if (!flow_of(&p, &flow))
		return;
	p.seq += strlen(REQ("/no"));
	p.ack += 50;
	conns[flow.slot].word = TBG_CONN_WORD(strlen(REQ("/no")), 50);
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	if (ingress(&f) != PASS || tcp_of(&f, &p)->dest != htons(80))
		ktap_note("no acknowledgement was passed on");
}

/* Duplicated by the network while the reply is in flight: no second reply. */
KTAP_TEST(t_doubled_request_is_answered_once)
{
	struct tbg_flow flow;
	struct frame f;
	NEED_A();
	for (int ts = 0; ts < 2; ts++) {
		struct peer p = peer_new(false, ts);
		struct tbg_flow_key k = key_of(&p);
		uint64_t before;
		uint32_t began;
		int verdict;
		client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
		KTAP_EQ(ingress(&f), REDIRECT);
		KTAP_CHECK(flow_of(&p, &flow));
		do {	/* repeated until the machine is fast enough */
			before = counted(TBG_WHY_DOUBLED);
			began = flow.repeat_ms = now_ms();
			bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_flows), &k, &flow, 0);
			p.tsval -= ts;
			client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
			verdict = ingress(&f);
		} while (now_ms() - began >= TBG_AGAIN_MS);
		KTAP_EQ(verdict, SHOT);
		KTAP_EQ(counted(TBG_WHY_DOUBLED), before + 1);
		KTAP_CHECK(flow_of(&p, &flow));
		KTAP_CHECK(!(flow.flags & TBG_FLOW_LEFT));
		/*
		 * a retransmission of the client has a newer timestamp, however soon it
		 * comes
		 */
		if (!ts)
			usleep((TBG_AGAIN_MS + 1) * 1000);
		client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
		KTAP_EQ(ingress(&f), REDIRECT);
	}
}

KTAP_TEST(t_lost_reply_is_repeated_byte_for_byte)
{
	struct frame first, again;
	struct tbg_flow flow;
	unsigned int len, len2;
	NEED_A();
	struct peer p = peer_new(false, true), q;
	client(&first, &p, TH_ACK | TH_PUSH, REQ("/a"));
	KTAP_EQ(ingress(&first), REDIRECT);
	/* three seconds later, after the object was replaced */
	set_clock(784111780);
	publish("/a", 5, 70, 'A', 1000);
	/* other activity of the CPU must have no effect */
	acknowledge_another();
	client(&again, &p, TH_ACK | TH_PUSH, REQ("/a"));
	KTAP_EQ(ingress(&again), REDIRECT);
	char *a = data_of(&first, &p, &len), *b = data_of(&again, &p, &len2);
	KTAP_EQ(len, len2);
	KTAP_CHECK(!memcmp(a, b, len));
	q = p;
	const char *fault = reply_fault(&again, &q, strlen(REQ("/a")));
	KTAP_CHECK(!fault || (ktap_note("wrong %s", fault), 0));
	KTAP_EQ(tcp_sum(&again, false), 0xffff);
	KTAP_CHECK(tcp_of(&again, &p)->seq == tcp_of(&first, &p)->seq);
	KTAP_CHECK(tcp_of(&again, &p)->ack_seq == tcp_of(&first, &p)->ack_seq);
	KTAP_CHECK(flow_of(&p, &flow));
	KTAP_CHECK(flow.flags & TBG_FLOW_LEFT);
	/* merged with the next request: the lost reply is repeated nevertheless */
	usleep(20000);
	client(&again, &p, TH_ACK | TH_PUSH, REQ("/a") REQ("/a"));
	KTAP_EQ(ingress(&again), REDIRECT);
	b = data_of(&again, &p, &len2);
	KTAP_CHECK(len == len2 && !memcmp(a, b, len));
	/* acknowledged: the next request is passed to the socket */
	q = p;
	q.seq += strlen(REQ("/a"));
	q.ack += len;
	uint64_t before = counted(TBG_WHY_LEFT);
	client(&again, &q, TH_ACK | TH_PUSH, REQ("/a"));
	KTAP_EQ(ingress(&again), PASS);
	KTAP_EQ(counted(TBG_WHY_LEFT), before + 1);
	set_clock(784111777);
	publish("/a", 1, 7, 'a', 1000);
}

/* A bare ACK of the stack does not acknowledge the request of a lost reply. */
KTAP_TEST(t_stack_does_not_acknowledge_for_wire)
{
	unsigned char o[24];
	uint32_t b[2];
	struct frame f;
	NEED_A();
	struct peer p = peer_new(false, true), was = p;
	KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 ", 'a', 1000));
	unsigned int n = ts_opt(o, p.ktsval, p.tsval);
	segment(&f, &p, false, TH_ACK, p.kseq, p.kack, o, n, "", 0);
	KTAP_EQ(egress(&f), PASS);
	KTAP_EQ(tcp_sum(&f, false), 0xffff);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->ack_seq), was.seq);
	/* but data after a hole keeps its position */
	memcpy(o + n, "\x01\x01\x05\x0a", 4);
	b[0] = htonl(p.kack + 100);
	b[1] = htonl(p.kack + 200);
	memcpy(o + n + 4, b, 8);
	segment(&f, &p, false, TH_ACK, p.kseq, p.kack, o, n + 12, "", 0);
	KTAP_EQ(egress(&f), PASS);
	KTAP_EQ(tcp_sum(&f, false), 0xffff);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->ack_seq), was.seq);
	memcpy(b, (char *)tcp_of(&f, &p) + 20 + n + 4, 8);
	KTAP_EQ(ntohl(b[0]), p.seq + 100);
	KTAP_EQ(ntohl(b[1]), p.seq + 200);
	/* after the reply is acknowledged, the request is, too */
	client(&f, &p, TH_ACK, "");
	KTAP_EQ(ingress(&f), SHOT);
	segment(&f, &p, false, TH_ACK, p.kseq, p.kack, o, n, "", 0);
	KTAP_EQ(egress(&f), PASS);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->ack_seq), p.seq);
}

KTAP_TEST(t_repeat_of_a_reused_slot_resets)
{
	struct frame f;
	NEED_BPF();
	publish("/r", 6, 20, 'r', 100);
	struct peer p = peer_new(false, true);
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/r"));
	KTAP_EQ(ingress(&f), REDIRECT);
	publish("/s", 6, 21, 's', 100);
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/r"));
	KTAP_EQ(ingress(&f), PASS);
	KTAP_CHECK(tcp_of(&f, &p)->rst);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->seq), p.kack);
	KTAP_EQ(tcp_sum(&f, false), 0xffff);
}

KTAP_TEST(t_only_acks_of_wire_bytes_stop_here)
{
	struct frame f;
	NEED_A();
	struct peer p = peer_new(false, true);
	/* before any hit, a keepalive answer is passed up */
	client(&f, &p, TH_ACK, "");
	KTAP_EQ(ingress(&f), PASS);
	KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 ", 'a', 1000));
	client(&f, &p, TH_ACK, "");
	KTAP_EQ(ingress(&f), SHOT);
	/* wire has seen the same segment already: it is the answer to a keepalive probe */
	client(&f, &p, TH_ACK, "");
	KTAP_EQ(ingress(&f), PASS);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->ack_seq), p.kseq);
}

KTAP_TEST(t_closing_connections_are_not_answered)
{
	struct frame f;
	unsigned char o[12];
	NEED_BPF();
	struct peer p = peer_new(false, true);
	unsigned int n = ts_opt(o, p.ktsval, p.tsval);
	segment(&f, &p, false, TH_ACK | TH_FIN, p.kseq, p.kack, o, n, "", 0);
	KTAP_EQ(egress(&f), PASS);
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/a"), TBG_WHY_CLOSING));
	p = peer_new(false, true);
	segment(&f, &p, false, TH_RST, p.kseq, 0, o, 0, "", 0);
	KTAP_EQ(egress(&f), PASS);
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/a"), TBG_WHY_CLOSING));
}

KTAP_TEST(t_blind_reset_does_not_end_a_flow)
{
	struct frame f;
	NEED_A();
	struct peer p = peer_new(false, true), forged = p;
	forged.seq += 1;
	client(&f, &forged, TH_RST | TH_ACK, "");
	KTAP_EQ(ingress(&f), PASS);
	KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 ", 'a', 1000));
}

KTAP_TEST(t_only_the_right_ack_gives_birth)
{
	struct tbg_flow flow;
	struct frame f;
	unsigned char o[12];
	NEED_BPF();
	struct peer p = peer_new(false, true);
	struct tbg_flow_key k = key_of(&p);
	bpf_map_delete_elem(bpf_map__fd(bpf->maps.tbg_flows), &k);
	/* the embryo is gone: the connection stays on the stack */
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/a"), TBG_WHY_NO_FLOW));
	KTAP_CHECK(!flow_of(&p, &flow));
	/* an ACK with a guessed number */
	segment(&f, &p, true, TH_SYN, CLIENT_ISN, 0, o, 0, "", 0);
	ingress(&f);
	segment(&f, &p, false, TH_SYN | TH_ACK, SERVER_ISN, CLIENT_ISN + 1, o, 0, "", 0);
	egress(&f);
	segment(&f, &p, true, TH_ACK, CLIENT_ISN + 1, SERVER_ISN + 2, o, 0, "", 0);
	ingress(&f);
	KTAP_CHECK(!flow_of(&p, &flow));
	/* the right number, in a reset: a port scan */
	segment(&f, &p, true, TH_RST | TH_ACK, CLIENT_ISN + 1, SERVER_ISN + 1, o, 0, "", 0);
	KTAP_EQ(ingress(&f), PASS);
	KTAP_CHECK(!flow_of(&p, &flow));
}

KTAP_TEST(t_port_reuse_retires_the_old_slot)
{
	struct tbg_flow old, new;
	uint32_t slot;
	NEED_A();
	int retired = bpf_map__fd(bpf->maps.tbg_retired);
	while (!bpf_map_lookup_and_delete_elem(retired, NULL, &slot))
		;
	struct peer p = peer_new(false, true);
	KTAP_CHECK(flow_of(&p, &old));
	KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 ", 'a', 1000));
	p.isn += 100000;
	handshake(&p);
	KTAP_CHECK(flow_of(&p, &new));
	KTAP_CHECK(new.slot != old.slot);
	KTAP_EQ(new.out_delta, 0);
	KTAP_EQ(bpf_map_lookup_and_delete_elem(retired, NULL, &slot), 0);
	KTAP_EQ(slot, old.slot);
	bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_slots), NULL, &slot, 0);
	KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 ", 'a', 1000));
}

KTAP_TEST(t_no_slots_left_stays_on_the_stack)
{
	uint32_t slots[SLOTS], nr = 0;
	struct tbg_flow flow;
	NEED_BPF();
	int fd = bpf_map__fd(bpf->maps.tbg_slots);
	while (nr < SLOTS && !bpf_map_lookup_and_delete_elem(fd, NULL, &slots[nr]))
		nr++;
	struct peer p = peer_new(false, true);
	bool followed = flow_of(&p, &flow);
	bool passed = passes(&p, TH_ACK | TH_PUSH, REQ("/a"), TBG_WHY_NO_FLOW);
	while (nr--)
		bpf_map_update_elem(fd, NULL, &slots[nr], 0);
	KTAP_CHECK(!followed);
	KTAP_CHECK(passed);
}

/*
 * Sends an ICMP error with an MTU of 600 that quotes this number. Returns the number
 * that the socket gets; 0: with a wrong checksum.
 */
static uint32_t quoted(struct peer *p, uint32_t quote)
{
	struct frame f = {}, in;
	uint32_t seq;

	/* quoted: a segment as it was sent */
	segment(&in, p, false, TH_ACK, quote, p->seq, "", 0, "0123456789", 10);
	memcpy(f.b, in.b, 12);
	f.b[12] = 8;
	struct iphdr *ip = (void *)(f.b + 14);
	*ip = (struct iphdr){ .version = 4, .ihl = 5, .ttl = 60,
		.protocol = IPPROTO_ICMP, .tot_len = htons(20 + 8 + 28),
		.saddr = htonl(0xc0000263), .daddr = htonl(0xc0000201) };
	ip->check = ~tbg_csum_bytes(ip, 20);
	unsigned char *icmp = f.b + 34;
	icmp[0] = 3, icmp[1] = 4, icmp[6] = 2, icmp[7] = 88;
	memcpy(icmp + 8, in.b + 14, 28);
	f.len = 34 + 8 + 28;
	*(uint16_t *)(icmp + 2) = ~tbg_csum_bytes(icmp, 36);
	if (ingress(&f) != PASS || tbg_csum_bytes(f.b + 34, 36) != 0xffff)
		return 0;
	memcpy(&seq, f.b + 34 + 8 + 20 + 4, 4);
	return ntohl(seq);
}

KTAP_TEST(t_icmp_error_is_translated)
{
	NEED_A();
	struct peer p = peer_new(false, true);
	uint32_t ack0 = p.ack;
	KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 ", 'a', 1000));
	/*
	 * the socket's next number; it also replaces those of an unacknowledged reply,
	 * which it has not sent
	 */
	KTAP_EQ(quoted(&p, p.ack), ack0);
	KTAP_EQ(quoted(&p, p.ack - 1), ack0);
	KTAP_EQ(quoted(&p, ack0), ack0);
}

KTAP_TEST(t_icmp_error_out_of_window_stays_there)
{
	struct frame f;
	NEED_A();
	struct peer p = peer_new(false, true);
	uint32_t ack0 = p.ack;
	KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 ", 'a', 1000));
	KTAP_EQ(quoted(&p, p.ack - 100000), ack0 - 100000);
	KTAP_EQ(quoted(&p, p.ack + 100000), ack0 + 100000);
	/* and all numbers of an acknowledged reply */
	client(&f, &p, TH_ACK, "");
	KTAP_EQ(ingress(&f), SHOT);
	KTAP_EQ(quoted(&p, p.ack), ack0);
	KTAP_EQ(quoted(&p, p.ack - 1), ack0 - 1);
}
