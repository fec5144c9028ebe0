// SPDX-License-Identifier: GPL-2.0
/*
 * The wire programs with several problems at once: repeated or unusual handshakes, loss
 * while closing, the socket's own retransmissions, races between CPUs, a shrinking MTU.
 * Needs root. Attaches nothing.
 */
#include "peer.h"

#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static const char hit_200[] = "HTTP/1.1 200 ";

/* Sends a SYN and `synacks` SYN-ACKs, with the given MSS of the client. */
static void syn(struct peer *p, uint16_t mss, int synacks)
{
	unsigned char o[40];
	struct frame f;
	unsigned int n = 8;

	p->seq = CLIENT_ISN + 1;
	p->kseq = p->ack = SERVER_ISN + 1;
	p->kack = p->seq;
	p->tsval = 5000;
	p->ktsval = now_ms() + 123456;
	memcpy(o, "\x02\x04\x00\x00\x01\x03\x03\x07", 8);
	o[2] = mss >> 8, o[3] = mss;
	if (p->ts)
		n += ts_opt(o + n, p->tsval, 0);
	segment(&f, p, true, TH_SYN, CLIENT_ISN, 0, o, n, "", 0);
	ingress(&f);
	o[2] = 1460 >> 8, o[3] = 1460 & 255;
	if (p->ts)
		ts_opt(o + n - 12, p->ktsval, p->tsval);
	while (synacks--) {
		segment(&f, p, false, TH_SYN | TH_ACK, SERVER_ISN, p->kack, o,
			n, "", 0);
		egress(&f);
	}
}

static void ack(struct peer *p, int *ret_verdict)
{
	struct frame f;

	client(&f, p, TH_ACK, "");
	*ret_verdict = ingress(&f);
}

/* Sends a segment of the socket with the usual options. */
static int socket_sends(struct frame *f, struct peer *p, uint8_t flags,
			uint32_t seq, uint32_t ack_nr, const char *data)
{
	unsigned char o[12];
	unsigned int n = p->ts ? ts_opt(o, p->ktsval, p->tsval) : 0;

	segment(f, p, false, flags, seq, ack_nr, o, n, data, strlen(data));
	return egress(f);
}

/* Sends a request whose reply is lost. Returns its length; 0: no hit. */
static unsigned int hit_is_lost(struct peer *p, const char *req, struct frame *f)
{
	struct peer q = *p;

	client(f, p, TH_ACK | TH_PUSH, req);
	q.tsval = p->tsval;
	if (ingress(f) != REDIRECT || reply_fault(f, &q, strlen(req)))
		return 0;
	return q.ack - p->ack;
}

static struct peer peer_fresh(bool ts)
{
	static uint16_t port = 30000;

	return (struct peer){ .ts = ts, .port = port++, .window = 500 };
}

KTAP_TEST(t_tiny_mss_gets_no_large_reply)
{
	static const uint16_t mss[] = { 0, 1, 11, 12, 13, 40 };
	struct tbg_flow flow;
	int v;
	NEED_BPF();
	publish("/a", 1, 7, 'a', 1000);
	for (unsigned int i = 0; i < sizeof(mss) / sizeof(*mss); i++) {
		struct peer p = peer_fresh(true);
		syn(&p, mss[i], 1);
		ack(&p, &v);
		KTAP_CHECK(flow_of(&p, &flow));
		KTAP_CHECK(flow.mss <= 40);
		KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/a"), TBG_WHY_SIZE));
	}
}

KTAP_TEST(t_synack_sent_again_changes_nothing)
{
	struct tbg_flow flow;
	int v;
	NEED_BPF();
	struct peer p = peer_fresh(true);
	syn(&p, 1460, 5);
	ack(&p, &v);
	KTAP_CHECK(flow_of(&p, &flow));
	KTAP_EQ(flow.mss, 1448);
}

/*
 * The stack drops the handshake's last ACK, because its accept queue is full, and
 * repeats the SYN-ACK long after wire has answered.
 */
KTAP_TEST(t_synack_after_a_hit_keeps_the_flow)
{
	unsigned char o[20];
	struct tbg_flow flow;
	struct frame f;
	NEED_BPF();
	struct peer p = peer_new(false, true);
	uint32_t seq0 = p.seq, ack0 = p.ack;
	KTAP_CHECK(hit(&p, REQ("/a"), hit_200, 'a', 1000));
	memcpy(o, "\x02\x04\x05\xb4\x01\x03\x03\x07", 8);
	ts_opt(o + 8, p.ktsval, p.tsval);
	segment(&f, &p, false, TH_SYN | TH_ACK, SERVER_ISN, seq0, o, 20, "", 0);
	KTAP_EQ(egress(&f), PASS);
	KTAP_CHECK(flow_of(&p, &flow));
	KTAP_EQ(flow.out_delta, p.ack - ack0);
	/* the client acknowledges wire's reply, then answers the SYN-ACK */
	client(&f, &p, TH_ACK, "");
	KTAP_EQ(ingress(&f), SHOT);
	client(&f, &p, TH_ACK, "");
	KTAP_EQ(ingress(&f), PASS);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->seq), seq0);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->ack_seq), ack0);
}

/* Of a request in two segments, only the second is retransmitted. */
KTAP_TEST(t_part_of_a_request_sent_again_shows_loss)
{
	struct frame first, f;
	unsigned int len, len2;
	char req[1700];
	NEED_BPF();
	struct peer p = peer_new(false, true), q;
	snprintf(req, sizeof(req), "GET /a HTTP/1.1\r\nHost: x\r\nCookie: %01600d\r\n\r\n", 0);
	KTAP_CHECK(hit_is_lost(&p, req, &first));
	q = p;
	q.seq += 1448;
	client(&f, &q, TH_ACK | TH_PUSH, req + 1448);
	KTAP_EQ(ingress(&f), REDIRECT);
	char *a = data_of(&first, &p, &len), *b = data_of(&f, &p, &len2);
	KTAP_CHECK(len == len2 && !memcmp(a, b, len));
	KTAP_EQ(tcp_sum(&f, false), 0xffff);
	/* data before the request belongs to the stack */
	p = peer_new(false, true);
	KTAP_CHECK(hit(&p, REQ("/a"), hit_200, 'a', 1000));
	KTAP_CHECK(hit_is_lost(&p, REQ("/a"), &first));
	q = p;
	q.seq -= 10;
	client(&f, &q, TH_ACK | TH_PUSH, "0123456789");
	KTAP_EQ(ingress(&f), PASS);
}

/* The server closes after a reply that was lost. */
KTAP_TEST(t_lost_reply_is_repeated_while_closing)
{
	struct frame first, f;
	unsigned int len, len2;
	NEED_BPF();
	struct peer p = peer_new(false, true);
	KTAP_CHECK(hit_is_lost(&p, REQ("/a"), &first));
	KTAP_EQ(socket_sends(&f, &p, TH_ACK | TH_FIN, p.kseq, p.kack, ""), PASS);
	/* out of order for the client: a duplicate ACK */
	p.seq += strlen(REQ("/a"));
	client(&f, &p, TH_ACK, "");
	KTAP_EQ(ingress(&f), REDIRECT);
	char *a = data_of(&first, &p, &len), *b = data_of(&f, &p, &len2);
	KTAP_CHECK(len == len2 && !memcmp(a, b, len));
	/* the client has shut its direction down: the same */
	p = peer_new(false, true);
	KTAP_CHECK(hit_is_lost(&p, REQ("/a"), &first));
	struct peer q = p;
	q.seq += strlen(REQ("/a"));
	client(&f, &q, TH_ACK | TH_FIN, "");
	KTAP_EQ(ingress(&f), PASS);
	p.tsval = q.tsval;
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	KTAP_EQ(ingress(&f), REDIRECT);
	/* and no new request is answered */
	p.seq += strlen(REQ("/a"));
	p.ack += len;
	uint64_t closing = counted(TBG_WHY_CLOSING);
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	KTAP_EQ(ingress(&f), PASS);
	KTAP_EQ(counted(TBG_WHY_CLOSING), closing + 1);
}

/*
 * The socket was reset because a reply cannot be repeated. The client must accept the
 * stack's RST: it carries the number that the client expects next.
 */
KTAP_TEST(t_reset_is_one_that_the_client_accepts)
{
	struct frame f;
	NEED_BPF();
	publish("/r", 6, 20, 'r', 100);
	struct peer p = peer_new(false, true);
	KTAP_CHECK(hit_is_lost(&p, REQ("/r"), &f));
	publish("/s", 6, 21, 's', 100);
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/r"));
	KTAP_EQ(ingress(&f), PASS);
	KTAP_CHECK(tcp_of(&f, &p)->rst);
	/* retransmitted: there is no socket, so the stack resets at the acknowledged number */
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/r"));
	KTAP_EQ(ingress(&f), PASS);
	KTAP_EQ(socket_sends(&f, &p, TH_RST, ntohl(tcp_of(&f, &p)->ack_seq), 0, ""), PASS);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->seq), p.ack);
}

KTAP_TEST(t_reset_behind_a_fin_ends_the_flow)
{
	struct tbg_flow flow;
	struct frame f;
	NEED_BPF();
	struct peer p = peer_new(false, true);
	client(&f, &p, TH_ACK | TH_FIN, "");
	KTAP_EQ(ingress(&f), PASS);
	p.seq++;
	client(&f, &p, TH_RST, "");
	KTAP_EQ(ingress(&f), PASS);
	KTAP_CHECK(flow_of(&p, &flow));
	KTAP_CHECK(flow.flags & TBG_FLOW_RST);
}

/* The side that closes last has no TIME_WAIT, which needs translation for long. */
KTAP_TEST(t_socket_that_closes_last_is_known)
{
	struct tbg_flow flow;
	struct frame f;
	NEED_BPF();
	struct peer p = peer_new(false, true);
	KTAP_CHECK(hit(&p, REQ("/a"), hit_200, 'a', 1000));
	client(&f, &p, TH_ACK | TH_FIN, "");
	KTAP_EQ(ingress(&f), PASS);
	KTAP_EQ(socket_sends(&f, &p, TH_ACK | TH_FIN, p.kseq, p.kack + 1, ""), PASS);
	KTAP_CHECK(flow_of(&p, &flow));
	KTAP_CHECK(flow.flags & TBG_FLOW_LAST);
	KTAP_CHECK(flow.acked - flow.out_delta - flow.iss != flow.sent);
	p.seq++;
	p.ack++;
	client(&f, &p, TH_ACK, "");
	KTAP_EQ(ingress(&f), PASS);
	KTAP_CHECK(flow_of(&p, &flow));
	KTAP_EQ(flow.acked - flow.out_delta - flow.iss, flow.sent);
	/* both at the same time, and again */
	p = peer_new(false, true);
	KTAP_CHECK(hit(&p, REQ("/a"), hit_200, 'a', 1000));
	KTAP_EQ(socket_sends(&f, &p, TH_ACK | TH_FIN, p.kseq, p.kack, ""), PASS);
	client(&f, &p, TH_ACK | TH_FIN, "");
	KTAP_EQ(ingress(&f), PASS);
	KTAP_EQ(socket_sends(&f, &p, TH_ACK | TH_FIN, p.kseq, p.kack + 1, ""), PASS);
	KTAP_CHECK(flow_of(&p, &flow));
	KTAP_CHECK(!(flow.flags & TBG_FLOW_LAST));
	/* the client's FIN has arrived and is not acknowledged yet */
	p = peer_new(false, true);
	KTAP_CHECK(hit(&p, REQ("/a"), hit_200, 'a', 1000));
	client(&f, &p, TH_ACK | TH_FIN, "");
	KTAP_EQ(ingress(&f), PASS);
	KTAP_EQ(socket_sends(&f, &p, TH_ACK | TH_FIN, p.kseq, p.kack, ""), PASS);
	KTAP_CHECK(flow_of(&p, &flow));
	KTAP_CHECK(!(flow.flags & TBG_FLOW_LAST));
}

/*
 * The socket retransmits bytes that the client has acknowledged in a request which wire
 * answered (its timer was faster, or the acknowledgement was lost in the stack). These
 * bytes keep their old sequence numbers.
 */
KTAP_TEST(t_old_bytes_of_the_socket_keep_their_place)
{
	struct tbg_flow flow;
	struct frame f;
	char big[1400];
	NEED_BPF();
	memset(big, 'k', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	struct peer p = peer_new(false, true);
	uint32_t ack0 = p.ack;
	KTAP_CHECK(passes(&p, TH_ACK | TH_PUSH, REQ("/no"), TBG_WHY_MISS));
	KTAP_CHECK(flow_of(&p, &flow));
	conns[flow.slot].word = TBG_CONN_WORD(strlen(REQ("/no")), strlen(big));
	p.kack = p.seq;
	KTAP_EQ(socket_sends(&f, &p, TH_ACK | TH_PUSH, p.kseq, p.kack, big), PASS);
	p.ack += strlen(big);
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	KTAP_EQ(ingress(&f), PASS);	/* a hit; the acknowledgement is passed up */
	KTAP_CHECK(flow_of(&p, &flow));
	KTAP_CHECK(flow.out_delta);
	KTAP_EQ(socket_sends(&f, &p, TH_ACK | TH_PUSH, p.kseq, p.kack, big), PASS);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->seq), ack0);
	KTAP_EQ(tcp_sum(&f, false), 0xffff);
	/* new bytes of the socket follow wire's */
	KTAP_EQ(socket_sends(&f, &p, TH_ACK | TH_PUSH, p.kseq + strlen(big), p.kack, big), PASS);
	KTAP_EQ(ntohl(tcp_of(&f, &p)->seq), p.ack + flow.out_delta);
	/* both in one segment: no single offset is right for all of it */
	KTAP_EQ(socket_sends(&f, &p, TH_ACK | TH_PUSH, p.kseq + 100, p.kack, big), SHOT);
}

struct flicker {
	volatile uint64_t *word;
	volatile bool stop;
};

static void *flicker(void *arg)
{
	struct flicker *f = arg;

	while (!f->stop) {
		*f->word = 0;
		for (volatile int i = 0; i < 300; i++)
			;
		*f->word = TBG_CONN_WORD(0, 1);
		for (volatile int i = 0; i < 300; i++)
			;
	}
	return NULL;
}

/*
 * The connection changes while a reply that is shorter than its request is built: the
 * request is passed up unchanged, without zeros at its end.
 */
KTAP_TEST(t_request_is_whole_after_a_lost_race)
{
	struct flicker flick = {};
	struct tbg_flow flow;
	unsigned int passed = 0, hits = 0, spoilt = 0;
	struct frame f, was;
	pthread_t thread;
	char req[1400];
	NEED_BPF();
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		KTAP_SKIP("one CPU");
	publish("/a", 1, 7, 'a', 1000);
	snprintf(req, sizeof(req), "GET /a HTTP/1.1\r\nHost: x\r\nCookie: %01200d\r\n"
		 "If-None-Match: \"abcd\"\r\n\r\n", 0);
	struct peer p = peer_new(false, true);
	KTAP_CHECK(flow_of(&p, &flow));
	flick.word = (volatile uint64_t *)&conns[flow.slot].word;
	pthread_create(&thread, NULL, flicker, &flick);
	/* on a busy machine the thread may have to wait */
	for (int i = 0; (i < 5000 || ((!hits || !passed) && i < 1000000)) && spoilt < 20; i++) {
		struct tbg_flow_key k = key_of(&p);
		/* as before: nothing given, nothing answered */
		bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_flows), &k, &flow, 0);
		set_clock(784111777);
		client(&f, &p, TH_ACK | TH_PUSH, req);
		was = f;
		if (ingress(&f) != PASS) {
			hits++;
			continue;
		}
		passed++;
		spoilt += f.len != was.len || memcmp(f.b, was.b, f.len);
	}
	flick.stop = true;
	pthread_join(thread, NULL);
	conns[flow.slot].word = 0;
	KTAP_EQ(spoilt, 0);
	ktap_note("%u hits, %u passes", hits, passed);
	KTAP_CHECK(hits && passed);
}

struct taker {
	struct peer p;
	struct tbg_flow flow;
	unsigned int nr;
	volatile bool stop;
};

static void *taker(void *arg)
{
	int fd = bpf_map__fd(bpf->maps.tbg_flows);
	struct taker *y = arg;
	struct tbg_flow_key k = key_of(&y->p);
	struct tbg_take_back given;
	unsigned int turn = 0;

	while (!y->stop) {
		/* in place, while the other CPU uses it */
		bpf_map_update_elem(fd, &k, &y->flow, BPF_F_LOCK);
		for (volatile unsigned int i = 0; i < turn * 20; i++)
			;
		turn = (turn + 1) % 256;
		y->nr += take_back(&y->p, 0, &given) == 1;
	}
	return NULL;
}

/*
 * The socket gets a lost reply while its retransmitted request is processed: either the
 * reply is repeated, or the request is passed to the socket. The connection is not
 * reset.
 */
KTAP_TEST(t_lost_reply_given_away_meanwhile_resets_nobody)
{
	unsigned int repeats = 0, passed = 0, resets = 0;
	struct taker y = {};
	pthread_t thread;
	struct frame f;
	char req[1400];
	NEED_BPF();
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		KTAP_SKIP("one CPU");
	set_clock(784111777);
	publish("/a", 1, 7, 'a', 1000);
	/* its checksum takes some time */
	snprintf(req, sizeof(req), "GET /a HTTP/1.1\r\nHost: x\r\nCookie: %01200d\r\n\r\n", 0);
	struct peer p = peer_new(false, true);
	KTAP_CHECK(hit_is_lost(&p, req, &f));
	KTAP_CHECK(flow_of(&p, &y.flow));
	y.p = p;
	uint64_t stale = counted(TBG_WHY_STALE_REPEAT), races = counted(TBG_WHY_RACE);
	pthread_create(&thread, NULL, taker, &y);
	/* more than 20,000 if both threads shared one CPU so far */
	for (int i = 0; (i < 20000 || (!passed && i < 2000000)) && resets < 20; i++) {
		client(&f, &p, TH_ACK | TH_PUSH, req);
		if (ingress(&f) != PASS) {
			repeats++;
			continue;
		}
		passed++;
		resets += tcp_of(&f, &p)->rst;
	}
	y.stop = true;
	pthread_join(thread, NULL);
	KTAP_EQ(resets, 0);
	KTAP_EQ(counted(TBG_WHY_STALE_REPEAT), stale);
	ktap_note("%u repeats, %u passes, %u lost races, %u taken back", repeats, passed,
		  (unsigned int)(counted(TBG_WHY_RACE) - races), y.nr);
	KTAP_CHECK(repeats && passed && y.nr);
}

/*
 * The daemon asks for the reply of a connection that had the same addresses earlier:
 * the new one's reply is not given away.
 */
KTAP_TEST(t_reply_of_another_connection_is_not_given_away)
{
	struct tbg_take_back y = {};
	struct tbg_flow flow;
	struct frame f;
	NEED_BPF();
	set_clock(784111777);
	publish("/a", 1, 7, 'a', 1000);
	struct peer p = peer_new(false, true);
	KTAP_CHECK(hit_is_lost(&p, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n", &f));
	KTAP_CHECK(flow_of(&p, &flow));
	y.key = key_of(&p);
	y.slot = flow.slot + 1;
	KTAP_EQ(take_back_ask(&y), TBG_TAKE_BACK_NOTHING);
	/* a question alone changes nothing, and bytes acknowledged meanwhile are not taken */
	y.slot = flow.slot;
	KTAP_EQ(take_back_ask(&y), TBG_TAKE_BACK_BYTES);
	KTAP_CHECK(flow_of(&p, &flow));
	KTAP_EQ(flow.last.owed, 0);
	y.commit = 1;
	y.len--;
	KTAP_EQ(take_back_ask(&y), TBG_TAKE_BACK_NOTHING);
	y.len++;
	KTAP_EQ(take_back_ask(&y), TBG_TAKE_BACK_BYTES);
	KTAP_CHECK(flow_of(&p, &flow));
	KTAP_EQ(flow.last.owed, y.len);
}

/* Runs ingress on a frame with *mark, which is updated. */
static int ingress_marked(struct frame *f, uint32_t *mark)
{
	struct __sk_buff ctx = { .mark = *mark };
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = f->b,
		    .data_size_in = f->len, .data_out = f->b,
		    .data_size_out = sizeof(f->b), .repeat = 1, .ctx_in = &ctx,
		    .ctx_size_in = sizeof(ctx), .ctx_out = &ctx,
		    .ctx_size_out = sizeof(ctx));

	if (bpf_prog_test_run_opts(bpf_program__fd(bpf->progs.tbg_ingress), &opts))
		return -1000 - errno;
	f->len = opts.data_size_out;
	*mark = ctx.mark;
	return opts.retval;
}

static int marked(struct frame *f)
{
	uint32_t mark = bpf->rodata->tbg_mark;

	return ingress_marked(f, &mark);
}

/*
 * A window update with an old sequence number, because more bytes of the client have
 * arrived: the socket would answer it with an ACK. Other segments with such a number
 * are the client's retransmissions.
 */
KTAP_TEST(t_window_reaches_the_socket_before_the_next_bytes_or_not)
{
	struct frame f, passed;
	NEED_BPF();
	set_clock(784111777);
	struct peer p = peer_new(false, true);
	KTAP_CHECK(hit(&p, REQ("/a"), hit_200, 'a', 1000));
	client(&f, &p, TH_ACK | TH_PUSH, "GET / HTTP/1.1\r\n");
	KTAP_EQ(ingress(&f), PASS);
	p.seq += strlen("GET / HTTP/1.1\r\n");
	client(&passed, &p, TH_ACK, "");
	f = passed;
	KTAP_EQ(marked(&f), PASS);
	client(&f, &p, TH_ACK, "Host: x\r\n\r\n");
	KTAP_EQ(ingress(&f), PASS);
	f = passed;
	KTAP_EQ(marked(&f), SHOT);
	f = passed;
	KTAP_EQ(ingress(&f), PASS);
}

/* The mark that an earlier program set, for rules of the stack. */
KTAP_TEST(t_mark_of_what_goes_up_stays)
{
	unsigned char body[50] = "";
	struct tbg_flow flow;
	uint32_t mark = 5;
	struct frame f;
	NEED_BPF();
	set_clock(784111777);
	struct peer p = peer_new(false, true);
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/no"));
	KTAP_EQ(ingress_marked(&f, &mark), PASS);
	KTAP_EQ(mark, 5);
	p.seq += strlen(REQ("/no"));
	KTAP_CHECK(flow_of(&p, &flow));
	conns[flow.slot].word = TBG_CONN_WORD(strlen(REQ("/no")), sizeof(body) - 1);
	memset(body, 'x', sizeof(body) - 1);
	KTAP_EQ(socket_sends(&f, &p, TH_ACK | TH_PUSH, p.kseq, p.seq, (char *)body), PASS);
	p.ack += sizeof(body) - 1;
	/* a hit: the socket is informed about the acknowledgement */
	uint64_t hits = counted(TBG_WHY_HIT_WIRE);
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	KTAP_EQ(ingress_marked(&f, &mark), PASS);
	KTAP_EQ(counted(TBG_WHY_HIT_WIRE), hits + 1);
	KTAP_EQ(mark, 5);
}

/* Runs in a network namespace of its own, and stays there: this must be the last test. */
KTAP_TEST(t_mtu_that_has_shrunk_bounds_the_reply)
{
	struct ifreq req = { .ifr_name = "lo", .ifr_mtu = 600 };
	struct frame f;
	NEED_BPF();
	set_clock(784111777);
	struct peer p = peer_new(false, true);
	KTAP_CHECK(hit_is_lost(&p, REQ("/a"), &f));
	if (unshare(CLONE_NEWNET))
		KTAP_SKIP("no network namespaces");
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	int saved = ioctl(fd, SIOCSIFMTU, &req);
	close(fd);
	KTAP_EQ(saved, 0);
	struct peer q = peer_new(false, true);
	KTAP_CHECK(passes(&q, TH_ACK | TH_PUSH, REQ("/a"), TBG_WHY_SIZE));
	q = peer_new(false, true);
	KTAP_CHECK(hit(&q, "HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n", hit_200, 0, 0));
	/* a reply that cannot be sent again waits until the socket sends it */
	client(&f, &p, TH_ACK | TH_PUSH, REQ("/a"));
	KTAP_EQ(ingress(&f), SHOT);
}
