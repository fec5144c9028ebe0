// SPDX-License-Identifier: GPL-2.0
/*
 * Replies of several segments (BPF_PROG_TEST_RUN): how they are cut, the headers of
 * each segment, which ones are sent again after a loss, and what is given to the
 * socket. Clones leave by the loopback device of a separate namespace, where a packet
 * socket receives them. Needs root. Attaches nothing.
 */
#include "peer.h"

#include <linux/if_packet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define SEGS 16

/* The result of one ingress run: the clones, then the segment in place. */
struct burst {
	struct frame f[SEGS];
	unsigned int nr;
	int verdict;
};

static struct burst burst;
static int sniffer = -1;

static bool sniff(void)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET,
				  .sll_protocol = htons(ETH_P_ALL) };
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	cpu_set_t one;

	if (sniffer >= 0)
		return true;
	/* stay on one CPU: clones are then sent and received before the run returns */
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof(one), &one);
	if (unshare(CLONE_NEWNET))
		return false;
	sniffer = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
	at.sll_ifindex = if_nametoindex("lo");
	return sniffer >= 0 && !ioctl(sniffer, SIOCSIFFLAGS, &lo) &&
	       !bind(sniffer, (void *)&at, sizeof(at));
}

#define NEED_SNIFFER()		\
	do {			\
		NEED_BPF();	\
		KTAP_CHECK(sniff()); \
	} while (0)

/* Reads the frames sent since the last call into burst. */
static void caught(const struct peer *p)
{
	struct sockaddr_ll from;
	socklen_t len = sizeof(from);
	struct frame f;
	ssize_t n;

	burst.nr = 0;
	while ((n = recvfrom(sniffer, f.b, sizeof(f.b), 0, (void *)&from, &len)) > 0) {
		f.len = n;
		if (from.sll_pkttype != PACKET_OUTGOING || f.len < 54 ||
		    tcp_of(&f, p)->dest != htons(p->port) || burst.nr == SEGS - 1)
			continue;
		burst.f[burst.nr++] = f;
	}
}

static void send_to_wire(struct peer *p, struct frame *f)
{
	caught(p);
	burst.verdict = ingress(f);
	caught(p);
	if (burst.verdict == REDIRECT)
		burst.f[burst.nr++] = *f;
}

static void ask(struct peer *p, const char *req)
{
	struct frame f;

	client(&f, p, TH_ACK | TH_PUSH, req);
	send_to_wire(p, &f);
}

/* An acknowledgement with up to four SACK blocks, in the client's numbers. */
static void acknowledge(struct peer *p, uint32_t ack, const uint32_t (*sack)[2],
			unsigned int nr)
{
	unsigned char o[40];
	unsigned int n = p->ts ? ts_opt(o, ++p->tsval, p->ktsval) : 0;
	struct frame f;

	if (nr) {
		memcpy(o + n, "\x01\x01\x05", 3);
		o[n + 3] = 2 + 8 * nr;
		n += 4;
	}
	for (unsigned int i = 0; i < nr; i++, n += 8) {
		uint32_t b[2] = { htonl(sack[i][0]), htonl(sack[i][1]) };

		memcpy(o + n, b, 8);
	}
	segment(&f, p, true, TH_ACK, p->seq, ack, o, n, "", 0);
	send_to_wire(p, &f);
}

/*
 * As acknowledge(), so soon after the last repetition that its segments still count as
 * in flight. On a slow machine this takes several attempts.
 */
static bool acknowledge_soon(struct peer *p, uint32_t ack, const uint32_t (*sack)[2],
			     unsigned int nr)
{
	struct tbg_flow_key key = key_of(p);
	struct tbg_flow was, flow;

	if (!flow_of(p, &was))
		return false;
	for (int i = 0; i < 1000; i++) {
		uint32_t began = now_ms();

		flow = was;
		flow.repeat_ms = began;
		if (bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_flows), &key, &flow, 0))
			return false;
		acknowledge(p, ack, sack, nr);
		if (now_ms() - began < TBG_AGAIN_MS)
			return true;
	}
	return false;
}

/* Makes the response expected for the path, Date included. */
static unsigned int expected(char *ret, unsigned int body, unsigned int second)
{
	unsigned int n = sprintf(ret, "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:%02u:%02u GMT\r\n"
				 "Content-Length: %u\r\n"
				 "Cache-Status: toboggan; hit; detail=wire\r\n\r\n",
				 second / 60 % 60, second % 60, body);

	for (unsigned int i = 0; i < body; i++)
		ret[n + i] = i * 7 + i / 251;
	return n + body;
}

static char want[70000];
static unsigned int want_len;

/*
 * Checks that burst consists of the segments named by mask, of a reply that begins at
 * seq and is cut to seg bytes. The request had req_len bytes at req_seq.
 */
static const char *burst_fault(const struct peer *p, uint32_t seq, unsigned int seg,
			       uint32_t mask, uint32_t req_seq, uint32_t req_len)
{
	unsigned int nr = 0, len, total = (want_len + seg - 1) / seg;

	for (unsigned int i = 0; i < total; i++) {
		bool last = i == total - 1;
		struct frame *f = &burst.f[nr];
		unsigned char *t;
		char *data;

		if (!(mask >> i & 1))
			continue;
		if (nr++ == burst.nr)
			return "number of segments";
		t = (void *)tcp_of(f, p);
		data = data_of(f, p, &len);
		if (tcp_sum(f, p->v6) != 0xffff)
			return "TCP checksum";
		if (!p->v6 && tbg_csum_bytes(f->b + 14, 20) != 0xffff)
			return "IP checksum";
		if (f->b[0] != 0xbb || f->b[6] != 0xaa)
			return "Ethernet addresses";
		if (ntohl(tcp_of(f, p)->seq) != seq + i * seg)
			return "sequence number";
		if (ntohl(tcp_of(f, p)->ack_seq) != req_seq + (last ? req_len : 0))
			return "acknowledgement number";
		if (t[13] != (TH_ACK | (last ? TH_PUSH : 0)))
			return "flags";
		if (len != (last ? want_len - i * seg : seg))
			return "length";
		if (memcmp(data, want + i * seg, len))
			return "bytes";
	}
	return nr == burst.nr ? NULL : "more segments";
}

#define BURST(p, seq, seg, mask, req_seq, req_len)			\
	do {								\
		const char *fault_ = burst_fault(p, seq, seg, mask,	\
						 req_seq, req_len);	\
		if (fault_)						\
			ktap_note("%u segments, wrong %s", burst.nr, fault_); \
		KTAP_CHECK(!fault_);					\
	} while (0)

#define ALL 0xffffffffu
#define DATE_0 784111777u

static struct peer peer_mss(bool v6, bool ts, uint16_t mss)
{
	static uint16_t port = 40000;
	struct peer p = { .v6 = v6, .ts = ts, .sack = true, .port = port++,
			  .window = 500, .mss = mss };

	handshake(&p);
	return p;
}

/* Removes the flow and frees its slot. */
static void bury(const struct peer *p)
{
	struct tbg_flow_key k = key_of(p);
	struct tbg_flow flow;

	if (!flow_of(p, &flow))
		return;
	bpf_map_delete_elem(bpf_map__fd(bpf->maps.tbg_flows), &k);
	bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_slots), NULL, &flow.slot, 0);
}

static unsigned int head_len(unsigned int body)
{
	return expected(want, body, DATE_0) - body;
}

KTAP_TEST(t_every_cut_of_every_kind_of_connection)
{
	static const uint16_t msss[] = { 536, 1220, 1459, 1460, 8960 };
	uint32_t gen = 500;

	NEED_SNIFFER();
	for (int kind = 0; kind < 4; kind++) {
		for (unsigned int m = 0; m < 5; m++) {
			bool ts = kind & 2;
			unsigned int mss = msss[m] - (ts ? 12 : 0), seg = mss & ~3u;

			for (int k = 1; k <= 10; k++) {
				for (int more = -1; more <= 1; more++) {
					unsigned int body = k * seg + more -
							    head_len(k * seg - 115);
					struct peer p = peer_mss(kind & 1, ts, msss[m]);
					uint32_t len = strlen(REQ("/s")), total;

					if (body > 60000)
						continue;
					p.window = 4000;	/* << 7 */
					publish("/s", 8, ++gen, 0, body);
					want_len = expected(want, body, DATE_0);
					total = want_len;
					set_clock(DATE_0);
					ask(&p, REQ("/s"));
					bury(&p);
					if (total > 10 * seg) {
						KTAP_EQ(burst.verdict, PASS);
						KTAP_EQ(burst.nr, 0);
						continue;
					}
					KTAP_EQ(burst.verdict, REDIRECT);
					BURST(&p, p.ack, total <= mss ? total : seg,
					      ALL, p.seq, len);
				}
			}
		}
	}
}

KTAP_TEST(t_segments_limit_the_reply)
{
	uint32_t gen = 700;

	NEED_SNIFFER();
	for (unsigned int mss = 536; mss <= 1460; mss += 1460 - 536) {
		for (int more = 0; more <= 1; more++) {
			struct peer p = peer_mss(false, false, mss);
			unsigned int total = TBG_SEG_MAX * mss + more;
			uint32_t len = strlen(REQ("/a"));

			p.window = 4000;	/* << 7 */
			publish("/a", 8, ++gen, 0, total - head_len(total - 115));
			want_len = expected(want, total - head_len(total - 115), DATE_0);
			KTAP_EQ(want_len, total);
			set_clock(DATE_0);
			ask(&p, REQ("/a"));
			bury(&p);
			if (more) {
				KTAP_EQ(burst.verdict, PASS);
				KTAP_EQ(burst.nr, 0);
				continue;
			}
			KTAP_EQ(burst.verdict, REDIRECT);
			BURST(&p, p.ack, mss, ALL, p.seq, len);
		}
	}
}

KTAP_TEST(t_a_window_smaller_than_the_reply_passes)
{
	NEED_SNIFFER();
	struct peer p = peer_mss(false, true, 1460);
	publish("/w", 9, 1, 0, 5000);
	p.window = 5000 / 128;
	ask(&p, REQ("/w"));
	KTAP_EQ(burst.verdict, PASS);
	KTAP_EQ(burst.nr, 0);
}

KTAP_TEST(t_a_reply_longer_than_what_may_be_owed_passes)
{
	NEED_SNIFFER();
	for (int more = 0; more <= 1; more++) {
		unsigned int body = TBG_WIRE_MAX + more - head_len(60000);
		struct peer p = peer_mss(false, true, 8960);
		uint32_t len = strlen(REQ("/m"));

		p.window = 4000;	/* << 7 */
		publish("/m", 11, 1 + more, 0, body);
		want_len = expected(want, body, DATE_0);
		KTAP_EQ(want_len, TBG_WIRE_MAX + more);
		set_clock(DATE_0);
		ask(&p, REQ("/m"));
		bury(&p);
		if (more) {
			KTAP_EQ(burst.verdict, PASS);
			KTAP_EQ(burst.nr, 0);
			continue;
		}
		KTAP_EQ(burst.verdict, REDIRECT);
		BURST(&p, p.ack, 8948, ALL, p.seq, len);
	}
}

/* A reply to p of five segments with 1448 bytes each, none of them acknowledged. */
#define FIVE(p)								\
	uint32_t seq = (p).ack, req = (p).seq, len = strlen(REQ("/f"));	\
	publish("/f", 10, 1, 0, 7000);					\
	want_len = expected(want, 7000, DATE_0);			\
	set_clock(DATE_0);						\
	ask(&(p), REQ("/f"));						\
	BURST(&(p), seq, 1448, ALL, req, len);				\
	KTAP_EQ(burst.nr, 5)

KTAP_TEST(t_request_again_brings_all_that_is_missing)
{
	NEED_SNIFFER();
	for (int v6 = 0; v6 < 2; v6++) {
		struct peer p = peer_mss(v6, true, v6 ? 1440 + 20 : 1460);
		FIVE(p);
		/* two segments were acknowledged; the rest was lost */
		p.seq = req + len;
		acknowledge(&p, seq + 2 * 1448, NULL, 0);
		KTAP_EQ(burst.verdict, SHOT);
		p.seq = req;
		p.ack = seq + 2 * 1448;
		/* three seconds later, with a new object */
		set_clock(DATE_0 + 3);
		publish("/f", 11, 2, 'x', 7000);
		uint64_t bytes = stat_at(offsetof(struct tbg_stats, wire_bytes));
		ask(&p, REQ("/f"));
		set_clock(DATE_0);
		BURST(&p, seq, 1448, 0x1c, req, len);
		KTAP_EQ(stat_at(offsetof(struct tbg_stats, wire_bytes)) - bytes,
			want_len - 2 * 1448);
	}
}

KTAP_TEST(t_holes_below_a_sack_are_filled_at_once)
{
	NEED_SNIFFER();
	struct peer p = peer_mss(false, true, 1460);
	struct tbg_flow flow;
	FIVE(p);
	p.seq = req + len;
	/* the second and the last are missing, but the last is not known to be lost */
	uint32_t sack[1][2] = { { seq + 2 * 1448, seq + 4 * 1448 } };
	acknowledge(&p, seq + 1448, sack, 1);
	BURST(&p, seq, 1448, 0x02, req, len);
	KTAP_CHECK(flow_of(&p, &flow));
	KTAP_CHECK(flow.flags & TBG_FLOW_LEFT);
	KTAP_EQ(flow.acked, seq + 1448);
	/* the same again shortly afterwards: it is in flight */
	KTAP_CHECK(acknowledge_soon(&p, seq + 1448, sack, 1));
	KTAP_EQ(burst.nr, 0);
	/* a new hole between them is not */
	uint32_t two[2][2] = { { seq + 4 * 1448, seq + want_len },
			       { seq + 2 * 1448, seq + 3 * 1448 } };
	KTAP_CHECK(acknowledge_soon(&p, seq + 1448, two, 2));
	BURST(&p, seq, 1448, 0x08, req, len);
	/* and after some time the first one again */
	usleep(210000);
	acknowledge(&p, seq + 1448, two, 2);
	BURST(&p, seq, 1448, 0x0a, req, len);
}

KTAP_TEST(t_a_duplicate_report_asks_for_nothing)
{
	struct tbg_flow flow;
	NEED_SNIFFER();
	struct peer p = peer_mss(false, true, 1460);
	FIVE(p);
	p.seq += len;
	uint32_t dsack[1][2] = { { seq, seq + 1448 } };
	acknowledge(&p, seq + 2 * 1448, dsack, 1);
	KTAP_EQ(burst.verdict, PASS);
	KTAP_EQ(burst.nr, 0);
	/* and it does not indicate a loss */
	KTAP_CHECK(flow_of(&p, &flow));
	KTAP_CHECK(!(flow.flags & TBG_FLOW_LEFT));
}

KTAP_TEST(t_third_duplicate_ack_without_sack_brings_the_first_missing)
{
	NEED_SNIFFER();
	struct peer p = peer_mss(false, false, 1448);
	FIVE(p);
	p.seq += len;
	acknowledge(&p, seq + 1448, NULL, 0);
	for (int i = 0; i < 2; i++) {
		acknowledge(&p, seq + 1448, NULL, 0);
		KTAP_EQ(burst.nr, 0);
	}
	acknowledge(&p, seq + 1448, NULL, 0);
	BURST(&p, seq, 1448, 0x02, req, len);
}

KTAP_TEST(t_unsacked_part_of_the_first_segment_has_the_first_date)
{
	NEED_SNIFFER();
	struct peer p = peer_mss(false, true, 1460);
	FIVE(p);
	p.seq = req + len;
	set_clock(DATE_0 + 5);
	uint32_t sack[1][2] = { { seq + 1448, seq + want_len } };
	acknowledge(&p, seq, sack, 1);
	set_clock(DATE_0);
	BURST(&p, seq, 1448, 0x01, req, len);
}

KTAP_TEST(t_what_is_not_acknowledged_is_given_to_the_socket)
{
	unsigned char o[12];
	struct tbg_take_back y;
	struct tbg_flow flow;
	struct frame f;
	NEED_SNIFFER();
	struct peer p = peer_mss(false, true, 1460);
	FIVE(p);
	KTAP_CHECK(flow_of(&p, &flow));
	KTAP_CHECK(conns[flow.slot].sent_ms);
	p.seq += len;
	acknowledge(&p, seq + 1448, NULL, 0);
	KTAP_EQ(burst.verdict, SHOT);
	/* not while the socket has unsent bytes */
	KTAP_EQ(take_back(&p, 10, &y), 0);
	KTAP_EQ(take_back(&p, 0, &y), 1);
	KTAP_EQ(y.len, want_len - 1448);
	KTAP_EQ(y.last.len, want_len);
	KTAP_EQ(y.last.date_s, DATE_0);
	KTAP_EQ(take_back(&p, 0, &y), 0);
	KTAP_EQ(conns[flow.slot].sent_ms, 0);
	/* an acknowledgement of bytes that the socket will send next */
	unsigned int n = ts_opt(o, ++p.tsval, p.ktsval);
	segment(&f, &p, true, TH_ACK, p.seq, seq + want_len, o, n, "", 0);
	KTAP_EQ(ingress(&f), PASS);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->ack_seq), p.kseq);
	KTAP_EQ(tcp_sum(&f, false), 0xffff);
	/* not beyond the end of the reply: the socket would not accept it */
	n = ts_opt(o, ++p.tsval, p.ktsval);
	segment(&f, &p, true, TH_ACK, p.seq, seq + 1448 + (1 << 20), o, n, "", 0);
	KTAP_EQ(ingress(&f), PASS);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->ack_seq), p.kseq + (1 << 20));
	KTAP_EQ(tcp_sum(&f, false), 0xffff);
	/* the socket sends the reply at the same place, and the request is acknowledged */
	n = ts_opt(o, p.ktsval, p.tsval);
	segment(&f, &p, false, TH_ACK | TH_PUSH, p.kseq, p.kack, o, n, want + 1448,
		1448);
	KTAP_EQ(egress(&f), PASS);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->seq), seq + 1448);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->ack_seq), req + len);
	KTAP_EQ(tcp_sum(&f, false), 0xffff);
	/* and its acknowledgement is passed to the socket */
	n = ts_opt(o, ++p.tsval, p.ktsval);
	segment(&f, &p, true, TH_ACK, p.seq, seq + 2 * 1448, o, n, "", 0);
	KTAP_EQ(ingress(&f), PASS);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->ack_seq), p.kseq + 1448);
}

/* The socket has sent bytes after the reply, so the reply cannot be inserted before them. */
KTAP_TEST(t_a_reply_that_the_socket_has_sent_past_is_not_given_to_it)
{
	unsigned char o[12];
	struct tbg_take_back y;
	struct frame f;
	NEED_SNIFFER();
	struct peer p = peer_mss(false, true, 1460);
	FIVE(p);
	unsigned int n = ts_opt(o, p.ktsval, p.tsval);
	segment(&f, &p, false, TH_ACK | TH_PUSH, p.kseq, p.kack, o, n, "later", 5);
	KTAP_EQ(egress(&f), PASS);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->seq), seq + want_len);
	KTAP_EQ(take_back(&p, 5, &y), 0);
}

/* A smaller path MTU may need more segments than can be repeated. */
KTAP_TEST(t_a_reply_of_too_many_segments_is_not_repeated_in_part)
{
	struct tbg_flow flow;
	unsigned char o[12];
	struct frame f;
	NEED_SNIFFER();
	for (int past = 0; past < 2; past++) {
		struct peer p = peer_mss(false, true, 1460);
		struct tbg_flow_key k = key_of(&p);
		publish("/t", 10, 2 + past, 0, 14300);
		set_clock(DATE_0);
		want_len = expected(want, 14300, DATE_0);
		uint32_t seq = p.ack, req = p.seq;
		ask(&p, REQ("/t"));
		BURST(&p, seq, 1448, ALL, req, strlen(REQ("/t")));
		KTAP_EQ(burst.nr, 10);
		if (past) {
			unsigned int n = ts_opt(o, p.ktsval, p.tsval);
			segment(&f, &p, false, TH_ACK | TH_PUSH, p.kseq, p.kack, o, n,
				"later", 5);
			KTAP_EQ(egress(&f), PASS);
		}
		KTAP_CHECK(flow_of(&p, &flow));
		flow.mss -= 100;
		bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_flows), &k, &flow, 0);
		p.seq = req;
		p.ack = seq;
		ask(&p, REQ("/t"));
		KTAP_EQ(burst.nr, 0);
		KTAP_CHECK(flow_of(&p, &flow));
		/* passed to the socket, or dropped if that has sent more */
		KTAP_EQ(burst.verdict, past ? PASS : SHOT);
		KTAP_EQ(!!(flow.flags & TBG_FLOW_RST), past);
		bury(&p);
	}
}

KTAP_TEST(t_an_acknowledged_reply_is_nobodys_to_send)
{
	struct tbg_take_back y;
	struct tbg_flow flow;
	NEED_SNIFFER();
	struct peer p = peer_mss(false, true, 1460);
	FIVE(p);
	KTAP_CHECK(flow_of(&p, &flow));
	p.seq += len;
	acknowledge(&p, seq + want_len, NULL, 0);
	KTAP_EQ(conns[flow.slot].sent_ms, 0);
	KTAP_EQ(take_back(&p, 0, &y), 0);
}
