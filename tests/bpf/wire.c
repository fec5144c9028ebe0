// SPDX-License-Identifier: GPL-2.0
/*
 * The wire programs on crafted frames (BPF_PROG_TEST_RUN): births, answers, passes and
 * their reasons, translation in both directions, repetitions. Each resulting frame is
 * checked completely, including lengths and both checksums. Needs root. Attaches
 * nothing.
 */
#include "peer.h"
#include "requires.h"

KTAP_TEST(t_hit_ipv4)
{
	NEED_BPF();
	publish("/a", 1, 7, 'a', 1000);
	struct peer p = peer_new(false, true);
	KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 OK\r\n", 'a', 1000));
	KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 OK\r\n", 'a', 1000));
}

KTAP_TEST(t_hit_ipv6)
{
	NEED_A();
	struct peer p = peer_new(true, true);
	KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 OK\r\n", 'a', 1000));
	KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 OK\r\n", 'a', 1000));
}

/* The request may arrive from another host than the next hop to its client. */
KTAP_TEST(t_reply_goes_where_the_socket_s_frames_go)
{
	unsigned char o[12];
	struct frame f, again;
	NEED_A();
	for (int v6 = 0; v6 < 2; v6++) {
		struct peer p = peer_new(v6, true);
		client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
		memset(f.b + 6, 0xcc, 6);
		again = f;
		KTAP_EQ(ingress(&f), REDIRECT);
		KTAP_CHECK(!memcmp(f.b, "\xbb\xbb\xbb\xbb\xbb\xbb\xaa\xaa\xaa\xaa\xaa\xaa", 12));
		p.tsval++;
		KTAP_EQ(ingress(&again), SHOT);		/* too soon: a duplicate */
		usleep((TBG_AGAIN_MS + 5) * 1000);
		client(&again, &p, TH_ACK | TH_PUSH, REQ("/a"));
		memset(again.b + 6, 0xcc, 6);
		KTAP_EQ(ingress(&again), REDIRECT);
		/* sent back to where it came from: the gateway may be another host by now */
		KTAP_CHECK(!memcmp(again.b, "\xcc\xcc\xcc\xcc\xcc\xcc\xaa\xaa\xaa\xaa\xaa\xaa", 12));
		/* a frame of the socket confirms the new gateway */
		p = peer_new(v6, true);
		unsigned int n = ts_opt(o, p.ktsval, p.tsval);
		segment(&f, &p, false, TH_ACK, p.kseq, p.kack, o, n, "", 0);
		memset(f.b, 0xdd, 6);
		KTAP_EQ(egress(&f), PASS);
		client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
		memset(f.b + 6, 0xcc, 6);
		KTAP_EQ(ingress(&f), REDIRECT);
		KTAP_CHECK(!memcmp(f.b, "\xdd\xdd\xdd\xdd\xdd\xdd\xaa\xaa\xaa\xaa\xaa\xaa", 12));
	}
}

KTAP_TEST(t_hit_without_timestamps)
{
	NEED_A();
	struct peer p = peer_new(false, false), q = peer_new(true, false);
	KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 OK\r\n", 'a', 1000));
	KTAP_CHECK(hit(&q, REQ("/a"), "HTTP/1.1 200 OK\r\n", 'a', 1000));
}

KTAP_TEST(t_every_body_length_is_summed_right)
{
	NEED_BPF();
	struct peer p = peer_new(false, true);
	for (unsigned int n = 0; n < 70; n++) {
		publish("/n", 2, 100 + n, 'n', n);
		KTAP_CHECK(hit(&p, REQ("/n"), "HTTP/1.1 200", 'n', n));
	}
}

KTAP_TEST(t_head_has_no_body)
{
	NEED_A();
	struct peer p = peer_new(false, true);
	KTAP_CHECK(hit(&p, "HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n",
		       "HTTP/1.1 200 OK\r\n", 0, 0));
}

KTAP_TEST(t_not_modified)
{
	NEED_A();
	struct peer p = peer_new(false, true);
	KTAP_CHECK(hit(&p, "GET /a HTTP/1.1\r\nHost: x\r\nIf-None-Match: \"abcd\"\r\n\r\n",
		       "HTTP/1.1 304 ", 0, 0));
	KTAP_CHECK(hit(&p, "GET /a HTTP/1.1\r\nHost: x\r\nIf-None-Match: \"abce\"\r\n\r\n",
		       "HTTP/1.1 200 ", 'a', 1000));
	KTAP_CHECK(hit(&p, "GET /a HTTP/1.1\r\nHost: x\r\nIf-Modified-Since: "
		       "Sat, 05 Nov 1994 08:49:37 GMT\r\n\r\n",
		       "HTTP/1.1 304 ", 0, 0));
}

KTAP_TEST(t_longer_request_than_reply)
{
	char req[1400];
	NEED_A();
	struct peer p = peer_new(false, true);
	snprintf(req, sizeof(req), "GET /a HTTP/1.1\r\nHost: x\r\nCookie: %01200d\r\n"
		 "If-None-Match: \"abcd\"\r\n\r\n", 0);
	KTAP_CHECK(hit(&p, req, "HTTP/1.1 304 ", 0, 0));
	KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 ", 'a', 1000));
}

KTAP_TEST(t_miss_passes_unchanged_and_closes_wire_until_answered)
{
	struct tbg_flow flow;
	NEED_BPF();
	struct peer p = peer_new(false, true);
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/no"), TBG_WHY_MISS));
	KTAP_CHECK(flow_of(&p, &flow));
	KTAP_EQ(flow.given, strlen(REQ("/no")));
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/a"), TBG_WHY_BUSY));
}

KTAP_TEST(t_idle_equation)
{
	struct tbg_flow flow;
	NEED_A();
	struct peer p = peer_new(false, true);
	unsigned int len = strlen(REQ("/no"));
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/no"), TBG_WHY_MISS));
	KTAP_CHECK(flow_of(&p, &flow));
	/* the daemon has published and the socket has sent 50 bytes */
	conns[flow.slot].word = TBG_CONN_WORD(len, 50);
	/* not acknowledged yet */
	{
		struct peer early = p;
		KTAP_CHECK(passes(&early, TH_ACK | TH_PUSH, "GET", TBG_WHY_UNACKED));
	}
	/* `given` includes these three bytes: count them as answered */
	conns[flow.slot].word = TBG_CONN_WORD(len + 3, 50);
	p.seq += 3;
	p.ack += 50;
	/*
	 * A hit. Its request is the first segment that acknowledges the 50 bytes, so
	 * the stack gets that acknowledgement without the request.
	 */
	struct frame f;
	uint64_t hits = counted(TBG_WHY_HIT_WIRE);
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	KTAP_EQ(ingress(&f), PASS);
	KTAP_EQ(counted(TBG_WHY_HIT_WIRE), hits + 1);
	unsigned int left;
	data_of(&f, &p, &left);
	KTAP_EQ(left, 0);
	KTAP_EQ(tcp_sum(&f, false), 0xffff);
	KTAP_EQ(tbg_csum_bytes(f.b + 14, 20), 0xffff);
	KTAP_EQ(f.b[0], 0xaa);
	KTAP_EQ(ntohs(tcp_of(&f, &p)->dest), 80);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->seq), p.seq);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->ack_seq), SERVER_ISN + 1 + 50);
	KTAP_EQ(((unsigned char *)tcp_of(&f, &p))[13], TH_ACK);
	/* the stack is informed only once */
	p.seq += strlen(REQ("/a"));
	KTAP_CHECK(flow_of(&p, &flow));
	p.ack = flow.iss + 50 + flow.out_delta;
	KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 ", 'a', 1000));
}

KTAP_TEST(t_forged_numbers_get_nothing)
{
	NEED_BPF();
	for (int ds = -1; ds <= 1; ds++) {
		for (int da = -1; da <= 1; da++) {
			struct peer p = peer_new(false, true), q = p;
			struct frame f;
			if (!ds && !da)
				continue;
			q.seq += ds;
			q.ack += da;
			client(&f, &q, TH_ACK | TH_PUSH, REQ("/a"));
			KTAP_EQ(ingress(&f), PASS);
		}
	}
}

KTAP_TEST(t_odd_segments_pass)
{
	struct frame f;
	NEED_BPF();
	struct peer p = peer_new(false, true);
	static const uint8_t flags[] = { TH_ACK | TH_PUSH | TH_FIN,
		TH_ACK | TH_URG, TH_ACK | 0x40, TH_ACK | 0x80,
		TH_ACK | TH_RST, TH_PUSH, 0 };
	for (unsigned int i = 0; i < sizeof(flags); i++) {
		p = peer_new(false, true);
		KTAP_CHECK(passes(&p, flags[i], REQ("/a"), TBG_WHY_FLAGS));
	}
	/* congestion experienced */
	p = peer_new(false, true);
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	f.b[15] |= 3;
	KTAP_EQ(ingress(&f), PASS);
	/* a fragment */
	p = peer_new(false, true);
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	f.b[20] = 0x20;
	KTAP_EQ(ingress(&f), PASS);
	/* timestamps although none were negotiated, and none although they were */
	p = peer_new(false, true);
	p.ts = false;
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/a"), TBG_WHY_TCP_ODD));
	p = peer_new(false, false);
	p.ts = true;
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/a"), TBG_WHY_TCP_ODD));
}

KTAP_TEST(t_bad_checksum_is_the_stacks_to_judge)
{
	struct frame f;
	NEED_BPF();
	struct peer p = peer_new(false, true);
	uint64_t before = counted(TBG_WHY_CSUM);
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	f.b[f.len - 1] ^= 1;
	KTAP_EQ(ingress(&f), PASS);
	KTAP_EQ(counted(TBG_WHY_CSUM), before + 1);
}

KTAP_TEST(t_window_and_mss_bound_the_reply)
{
	NEED_A();
	struct peer p = peer_new(false, true);
	p.window = 5;		/* << 7 */
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/a"), TBG_WHY_SIZE));
	publish("/big", 3, 9, 'b', 14600);
	p = peer_new(false, true);
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/big"), TBG_WHY_SIZE));
}

KTAP_TEST(t_draining_and_a_stopped_clock_pass)
{
	NEED_BPF();
	struct peer p = peer_new(false, true);
	knob->answer = 0;
	bool off = passes(&p, TH_ACK | TH_PUSH, REQ("/a"), TBG_WHY_OFF);
	knob->answer = 1;
	KTAP_CHECK(off);
	p = peer_new(false, true);
	knob->real_ns += 100 * 1000000000ull;
	bool stopped = passes(&p, TH_ACK | TH_PUSH, REQ("/a"), TBG_WHY_CLOCK);
	set_clock(784111777);
	KTAP_CHECK(stopped);
}

KTAP_TEST(t_entry_and_blob_must_agree)
{
	NEED_BPF();
	publish("/g", 4, 11, 'g', 10);
	((struct tbg_blob *)(blobs_2k + 4 * BYTES_2K))->gen = 12;
	struct peer p = peer_new(false, true);
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/g"), TBG_WHY_BLOB));
	publish("/g", 4, 13, 'g', 10);
	((struct tbg_blob *)(blobs_2k + 4 * BYTES_2K))->key0 ^= 1;
	p = peer_new(false, true);
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/g"), TBG_WHY_BLOB));
}

/* Returns the Age in the reply to a request; -1: passed up, or a wrong reply. */
static long age_of(struct peer *p, const char *req)
{
	unsigned int len;
	struct frame f;
	char *data, *age;

	client(&f, p, TH_ACK | TH_PUSH, req);
	if (ingress(&f) != REDIRECT || reply_fault(&f, p, strlen(req)))
		return -1;
	data = data_of(&f, p, &len);
	data[len] = 0;
	age = strstr(data, "\r\nAge: ");
	return age ? strtol(age + 7, NULL, 10) : -1;
}

KTAP_TEST(t_age_has_as_many_digits_as_the_blob)
{
	NEED_BPF();
	uint64_t ages[] = { 0, 9, 10, 42, 99, 100, 999, 12345, 99999999 };
	struct peer p = peer_new(true, true);
	knob->uris = 1;
	for (unsigned int i = 0; i < sizeof(ages) / sizeof(*ages); i++) {
		char text[16];
		/* 0.3 s later, so that Age does not change during the test */
		uint64_t born = mono_ns() - ages[i] * 1000000000ull - 300000000;
		unsigned int len = sprintf(text, "%lu", (unsigned long)ages[i]);
		publish_aged("example.org/u?a=1", 9, 100 + i, born, len);
		KTAP_EQ(age_of(&p, REQ("/u?a=1")), (long)ages[i]);
		KTAP_EQ(age_of(&p, "GET /u?a=1 HTTP/1.1\r\nHost: example.org\r\n"
			       "If-None-Match: \"abcd\"\r\n\r\n"), (long)ages[i]);
		KTAP_CHECK(hit(&p, REQ("/u?a=1"), "HTTP/1.1 200 OK\r\n", 'u', 100));
	}
	knob->uris = 0;
}

/* A repeated reply is identical, whatever its age. */
KTAP_TEST(t_repeated_reply_has_the_age_of_the_first)
{
	struct frame first, again;
	unsigned int len, len2;
	char *data, *data2;
	NEED_BPF();
	struct peer p = peer_new(false, true);
	knob->uris = 1;
	publish_aged("example.org/w", 9, 60, mono_ns() - 42500000000ull, 2);
	client(&first, &p, TH_ACK | TH_PUSH, REQ("/w"));
	KTAP_EQ(ingress(&first), REDIRECT);
	publish_aged("example.org/w", 9, 60, mono_ns() - 77500000000ull, 2);
	client(&again, &p, TH_ACK | TH_PUSH, REQ("/w"));
	KTAP_EQ(ingress(&again), REDIRECT);
	knob->uris = 0;
	data = data_of(&first, &p, &len);
	data2 = data_of(&again, &p, &len2);
	KTAP_EQ(len, len2);
	KTAP_CHECK(!memcmp(data, data2, len));
	KTAP_CHECK(memmem(data, len, "Age: 42\r", 8));
	KTAP_EQ(tcp_sum(&again, false), 0xffff);
}

KTAP_TEST(t_uri_is_host_path_and_query)
{
	NEED_BPF();
	knob->uris = 1;
	static const char *const others[] = {
		REQ("/u"), REQ("/u?a=2"), REQ("/u?a=1&"), REQ("/u?"), REQ("/v?a=1"),
		"GET /u?a=1 HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"GET /u?a=1 HTTP/1.1\r\nHost: example.org:81\r\n\r\n",
		"GET /u?a=1 HTTP/1.1\r\nHost: Example.org\r\n\r\n",
		"GET /u?a=1 HTTP/1.1\r\nHost: example.org.\r\n\r\n",
	};
	publish_aged("example.org/u?a=1", 9, 120, mono_ns(), 1);
	for (unsigned int i = 0; i < sizeof(others) / sizeof(*others); i++) {
		struct peer p = peer_new(false, true);
		KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, others[i], TBG_WHY_MISS));
	}
	struct peer p = peer_new(false, true), q = peer_new(false, true);
	struct peer r = peer_new(true, true);
	KTAP_CHECK(age_of(&p, REQ("/u?a=1")) >= 0);
	knob->uris = 0;
	KTAP_CHECK(passes(&q, TH_ACK | TH_PUSH, REQ("/u?a=1"), TBG_WHY_MISS));
	/* each length around a word boundary, up to the longest */
	knob->uris = 1;
	for (unsigned int n = 1; n <= TBG_URI_MAX + 1; n++) {
		char uri[TBG_PATH_MAX + 8], req[300];
		unsigned int host = n % 9 + 1;
		if (host + 1 > n)
			continue;
		memset(uri, 'h', sizeof(uri));
		uri[host] = '/';
		uri[n] = 0;
		sprintf(req, "GET %s HTTP/1.1\r\nHost: %.*s\r\n\r\n", uri + host,
			(int)host, uri);
		publish_aged(uri, 9, 200 + n, mono_ns(), 1);
		if (n <= TBG_URI_MAX)
			KTAP_CHECK(age_of(&p, req) >= 0);
		else
			KTAP_CHECK(passes(&r, TH_ACK | TH_PUSH, req, TBG_WHY_MISS));
	}
	knob->uris = 0;
}

KTAP_TEST(t_part_outside_its_blob_passes)
{
	NEED_BPF();
	struct tbg_blob_part *part = ((struct tbg_blob *)(blobs_2k + 7 * BYTES_2K))->part;
	struct peer p = peer_new(false, true);
	publish("/p", 7, 30, 'p', 10);
	part[TBG_PART_304].off = TBG_BLOB_ROOM(BYTES_2K) - TBG_304_ROOM + 1;
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, "GET /p HTTP/1.1\r\nHost: x\r\n"
			  "If-None-Match: \"abcd\"\r\n\r\n", TBG_WHY_BLOB));
	p = peer_new(false, true);
	part[TBG_PART_GET].len = BYTES_2K;
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/p"), TBG_WHY_BLOB));
	p = peer_new(false, true);
	part[TBG_PART_GET].off = 1;
	part[TBG_PART_GET].len = 20;
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/p"), TBG_WHY_BLOB));
}

KTAP_TEST(t_other_ports_are_left_alone)
{
	struct frame f, was;
	NEED_BPF();
	struct peer p = peer_new(false, true);
	uint64_t before = counted(TBG_WHY_NOT_OURS);
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	f.b[14 + 20 + 3] = 81;
	was = f;
	KTAP_EQ(ingress(&f), PASS);
	KTAP_EQ(counted(TBG_WHY_NOT_OURS), before + 1);
	KTAP_CHECK(f.len == was.len && !memcmp(f.b, was.b, f.len));
}

KTAP_TEST(t_hits_reach_the_log_ring)
{
	NEED_A();
	struct peer p = peer_new(false, true);
	knob->log = 1;
	bool ok = hit(&p, REQ("/a"), "HTTP/1.1 200 ", 'a', 1000);
	knob->log = 0;
	KTAP_CHECK(ok);
	/* the producer position of the ring buffer has advanced by one record */
	void *ring = mmap(NULL, 4096, PROT_READ, MAP_SHARED,
			  bpf_map__fd(bpf->maps.tbg_events), 4096);
	KTAP_CHECK(ring != MAP_FAILED);
	unsigned long produced = *(volatile unsigned long *)ring;
	munmap(ring, 4096);
	KTAP_CHECK(produced >= sizeof(struct tbg_event) + strlen(REQ("/a")));
}

KTAP_TEST(t_random_frames_never_leave_their_flow)
{
	struct tbg_flow before, after;
	struct frame f;
	NEED_A();
	srand(1);
	struct peer p = peer_new(false, true);
	KTAP_CHECK(hit(&p, REQ("/a"), "HTTP/1.1 200 ", 'a', 1000));
	KTAP_CHECK(flow_of(&p, &before));
	for (int i = 0; i < 20000; i++) {
		struct peer q = p;
		client(&f, &q, TH_ACK | TH_PUSH, REQ("/a"));
		/* anything but the addresses; the checksum is then wrong */
		for (int n = rand() % 4 + 1; n; n--) {
			unsigned int at = 12 + rand() % (f.len - 12);
			if (at >= 26 && at < 38)
				continue;
			f.b[at] ^= 1 << rand() % 8;
		}
		int verdict = ingress(&f);
		if (verdict == REDIRECT && tcp_sum(&f, false) != 0xffff)
			ktap_fail("frame %d: reply with a wrong checksum", i);
		KTAP_CHECK(flow_of(&p, &after));
		if (after.out_delta != before.out_delta)
			break;	/* the mutation changed nothing: a real hit */
	}
}

KTAP_TEST(t_helpers_that_it_calls_are_required_of_the_kernel)
{
	NEED_BPF();
	KTAP_EQ(requires_left_out(bpf->obj, "wire"), 0);
}

KTAP_MAIN()
