// SPDX-License-Identifier: GPL-2.0
/*
 * Connections without a socket as a state machine (RFC 9293 3.10.7): random segments by
 * BPF_PROG_TEST_RUN, and a small model that predicts the possible outcomes of each
 * segment and the state after it. Two segments never carry different bytes for the same
 * sequence number. Needs root. Attaches nothing.
 *
 * TBG_SEGMENTS=3000000 total number of segments
 * TBG_SEED=7 repeats a run
 */
#include "late.h"

#define EACH 40			/* segments per connection, unless it ends earlier */
#define WINDOW 500		/* window field of both sides; scaled by 7 bits */
#define STREAM 65536
#define CLOSE "Connection: close\r\n"

/* Possible outcomes of a segment. */
enum { UP = 1, DROP = 2, ACK = 4, FIN = 8, RST = 16, DATA = 32 };

static const char *const outcomes[] = { "up", "dropped", "acknowledged", "FIN", "RST", "data" };

/* What clients send, and whether wire answers it. */
static const struct {
	const char *text;
	bool hit, close;
} payloads[] = {
	{ "GET /a HTTP/1.1\r\nHost: test\r\n\r\n", true, false },
	{ "GET /a HTTP/1.1\r\nHost: test\r\nAccept: */*\r\n\r\n", true, false },
	{ "GET /a HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n", true, true },
	{ "GET /none HTTP/1.1\r\nHost: test\r\n\r\n", false, false },
	{ "GET /a HT", false, false },
	{ "\r\n", false, false },
};

struct model {
	/* unsure: the outcome depends on the time of a retransmission */
	bool there, timed, lossy, unsure;
	int state;
	uint32_t iss, rcv, snd, acked, recent, dups;
	uint32_t req_seq, req_len, seq, len;	/* the last exchange */
	unsigned char stream[STREAM];		/* from iss on */
	bool sent[STREAM];
};

struct seg {
	uint8_t flags;
	uint32_t seq, ack, tsval, len;
	int payload;			/* index into payloads, or -1 */
};

static struct model m;
static uint32_t reply_len;

static bool after(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
}

/* --- the model ------------------------------------------------------------ */

static bool has_closed(void)
{
	return m.state >= TBG_TCB_LAST_ACK;
}

static uint32_t next(void)
{
	return m.snd + has_closed();
}

static bool is_within(uint32_t ack)
{
	return ack - m.seq < m.len && !after(m.acked, ack);
}

static bool is_old(const struct seg *g)
{
	return m.timed && after(m.recent, g->tsval);
}

static void take_ack(uint32_t ack, uint32_t most)
{
	if (after(ack, m.acked) && !after(ack, most))
		m.acked = ack;
}

static int on_syn(const struct seg *g)
{
	if (m.state != TBG_TCB_TIME_WAIT || is_old(g) ||
	    !(after(g->seq, m.rcv) || (m.timed && after(g->tsval, m.recent))))
		return ACK;
	m.there = false;
	return UP;
}

static int on_rst(const struct seg *g)
{
	bool behind_fin = g->seq + 1 == m.rcv && has_closed() && m.state != TBG_TCB_FIN_WAIT;
	/* all segments of a reply except the last one acknowledge this */
	bool of_reply = g->seq == m.req_seq && m.acked - m.seq < m.len;

	if (g->seq == m.rcv || behind_fin || of_reply) {
		m.there = false;
		return DROP;
	}
	return g->seq - m.rcv < WINDOW << 7 ? ACK : DROP;
}

static int on_fin(const struct seg *g)
{
	uint32_t most = next();

	if (g->seq == m.rcv && m.state <= TBG_TCB_FIN_WAIT && m.state != TBG_TCB_LAST_ACK) {
		m.state = m.state == TBG_TCB_OPEN ? TBG_TCB_LAST_ACK : TBG_TCB_TIME_WAIT;
		m.rcv++;
	}
	take_ack(g->ack, most);
	if (m.timed && after(g->tsval, m.recent))
		m.recent = g->tsval;
	return g->ack != next() && m.state != TBG_TCB_FIN_WAIT ? FIN : ACK;
}

/* The last reply is repeated, unless it was sent very recently. */
static int repeat(void)
{
	m.unsure = true;
	return DATA | DROP;
}

static int on_ack(const struct seg *g)
{
	bool lost = false;

	if (after(g->ack, m.acked)) {
		m.acked = g->ack;
		m.dups = 0;
		lost = m.lossy && is_within(g->ack);
	} else if (is_within(g->ack) && m.dups < 3) {
		m.dups++;
	}
	if (m.timed && g->seq == m.rcv && after(g->tsval, m.recent))
		m.recent = g->tsval;
	if (m.state == TBG_TCB_LAST_ACK && g->ack == next()) {
		m.there = false;
		return DROP;
	}
	return lost || (is_within(g->ack) && m.dups == 3) ? repeat() : DROP;
}

static int on_bare(const struct seg *g)
{
	bool fin = g->flags & TH_FIN;

	if (g->flags & TH_SYN || after(g->ack, next()) || (int32_t)(g->ack - m.acked) < -65535 ||
	    (!fin && g->seq - m.rcv > WINDOW << 7) || is_old(g))
		return ACK;
	if (!fin)
		return on_ack(g);
	return g->seq == m.rcv || (g->seq + 1 == m.rcv && has_closed()) ? on_fin(g) : ACK;
}

/* Data after our FIN is accepted and discarded. */
static int on_late_data(const struct seg *g)
{
	uint32_t end = g->seq + g->len;

	if (!after(g->seq, m.rcv) && after(end, m.rcv)) {
		m.rcv = end;
		if (g->flags & TH_FIN) {
			m.rcv++;
			m.state = TBG_TCB_TIME_WAIT;
		}
	}
	if (g->ack - m.acked <= next() - m.acked)
		m.acked = g->ack;
	return ACK;
}

/* In order, but not for wire. No socket listens here, so the connection is closed. */
static int on_miss(const struct seg *g)
{
	m.state = g->flags & TH_FIN ? TBG_TCB_LAST_ACK : TBG_TCB_FIN_WAIT;
	m.rcv += g->len + !!(g->flags & TH_FIN);
	m.acked = g->ack;
	return FIN;
}

static int on_hit(const struct seg *g)
{
	m.req_seq = g->seq;
	m.req_len = g->len;
	m.seq = g->ack;
	m.len = reply_len + (payloads[g->payload].close ? strlen(CLOSE) : 0);
	m.rcv += g->len;
	m.snd += m.len;
	m.acked = g->ack;
	m.recent = g->tsval;
	m.dups = 0;
	if (payloads[g->payload].close)
		m.state = TBG_TCB_FIN_WAIT;
	return DATA;
}

static int on_payload(const struct seg *g)
{
	if (is_within(g->ack) && after(m.req_seq + m.req_len, g->seq) &&
	    after(g->seq + g->len, m.req_seq))
		return repeat();
	if (m.state == TBG_TCB_FIN_WAIT)
		return on_late_data(g);
	if (g->seq != m.rcv || m.state != TBG_TCB_OPEN || g->ack - m.acked > m.snd - m.acked ||
	    is_old(g))
		return ACK;
	if ((g->flags & ~TH_PUSH) != TH_ACK || m.lossy || g->ack != m.snd ||
	    !payloads[g->payload].hit)
		return on_miss(g);
	return on_hit(g);
}

static int predict(const struct seg *g)
{
	m.unsure = false;
	if (!m.there)
		return UP;
	if ((g->flags & (TH_SYN | TH_ACK | TH_RST)) == TH_SYN)
		return on_syn(g);
	if (g->flags & TH_RST)
		return on_rst(g);
	if (!(g->flags & TH_ACK))
		return DROP;
	if (g->flags & TH_SYN)
		return ACK;
	return g->len ? on_payload(g) : on_bare(g);
}

/* --- comparison ----------------------------------------------------------- */

static int outcome_of(struct frame *f, const struct peer *p, int verdict)
{
	uint8_t flags = ((unsigned char *)tcp_of(f, p))[13];
	unsigned int len;

	if (verdict == PASS)
		return UP;
	if (verdict == SHOT)
		return DROP;
	if (verdict != REDIRECT)
		return 0;
	data_of(f, p, &len);
	return len ? DATA : flags & TH_RST ? RST : flags & TH_FIN ? FIN : ACK;
}

/* Returns what is wrong with a segment that wire has sent. */
static const char *fault_of(struct frame *f, const struct peer *p, int outcome)
{
	struct tcphdr *t = tcp_of(f, p);
	uint32_t seq = ntohl(t->seq), ack = ntohl(t->ack_seq);
	unsigned int len, at = seq - m.iss;
	char *data = data_of(f, p, &len);

	if (tcp_sum(f, p->v6) != 0xffff || (!p->v6 && tbg_csum_bytes(f->b + 14, 20) != 0xffff))
		return "checksum";
	if (f->b[0] != 0xbb || f->b[6] != 0xaa)
		return "Ethernet addresses";
	if (outcome != DATA) {
		if (ack != m.rcv)
			return "acknowledgement";
		return seq == (outcome == FIN ? m.snd : next()) ? NULL : "number";
	}
	if (after(ack, m.rcv) || at + len > STREAM)
		return "acknowledgement, or too much";
	if (after(seq + len, m.snd))
		return "bytes that are not given";
	for (unsigned int i = 0; i < len; i++) {
		if (m.sent[at + i] && m.stream[at + i] != (unsigned char)data[i])
			return "other bytes than before";
		m.stream[at + i] = data[i];
		m.sent[at + i] = true;
	}
	return NULL;
}

/* After an event that ends the client's retransmissions, our timer must cover the reply. */
static bool is_cared_for(const struct peer *p)
{
	struct tbg_tcb_key key = { .flow = key_of(p) };
	uint32_t value;

	return !after(m.snd, m.acked) ||
	       !bpf_map_lookup_elem(bpf_map__fd(bpf->maps.tbg_dues), &key, &value);
}

/* Returns how the connection differs from the model. */
static const char *differs(const struct peer *p)
{
	struct tbg_tcb_key key = { .flow = key_of(p) };
	struct tbg_tcb t;
	bool there = !bpf_map_lookup_elem(bpf_map__fd(bpf->maps.tbg_tcbs), &key, &t);

	if (there != m.there)
		return there ? "it is still there" : "it is gone";
	if (!there)
		return NULL;
	if (m.unsure) {
		if (after(m.acked, t.acked) || after(t.acked, m.snd))
			return "acknowledged";
		m.acked = t.acked;
		m.dups = t.dups;
		m.lossy = t.flags & TBG_TCB_LOSSY;
	}
	return t.state != m.state ? "state" : t.rcv_nxt != m.rcv ? "rcv_nxt" :
	       t.snd_nxt != m.snd ? "snd_nxt" : t.acked != m.acked ? "acknowledged" :
	       m.timed && t.tsrecent != m.recent ? "the client's timestamp" : NULL;
}

/* --- segments ------------------------------------------------------------ */

/* Makes a connection as its birth leaves it. */
static void begin(struct peer *p, uint32_t nr)
{
	struct tbg_tcb_key key;
	struct tbg_tcb t = {
		.tsoff = 777, .tsrecent = 5000, .ifindex = 1, .flowinfo = htonl(0x60000000),
		.win = htons(WINDOW), .mss = 1440, .peer_mss = 1452, .wscale = 0x77,
		.flags = TBG_TCB_SACK | TBG_TCB_WSCALE, .ttl = 64, .seen_ms = now_ms(),
		.mac = { 0xbbbb, 0xbbbb, 0xbbbb }, .own = { 0xaaaa, 0xaaaa, 0xaaaa },
	};

	*p = (struct peer){ .v6 = nr & 1, .ts = nr & 2, .port = 1024 + nr % 60000,
			    .window = WINDOW };
	memset(&m, 0, sizeof(m));
	m.there = true;
	m.timed = p->ts;
	m.state = TBG_TCB_OPEN;
	m.iss = m.snd = m.acked = nr % 3 ? draw(1u << 31) * 2 : -500u;
	m.rcv = nr % 5 ? draw(1u << 31) * 2 : -100u;
	m.recent = 5000;
	t.flags |= (p->v6 ? TBG_FLOW_V6 : TBG_TCB_DF) | (p->ts ? TBG_FLOW_TS : 0);
	t.rcv_nxt = m.rcv;
	t.snd_nxt = t.acked = m.snd;
	t.born_ms = t.seen_ms;
	t.tsval = t.born_ms + t.tsoff;
	key = (struct tbg_tcb_key){ .flow = key_of(p) };
	bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_tcbs), &key, &t, 0);
}

/* Removes the connection in any state. */
static void end(const struct peer *p)
{
	struct tbg_tcb_key key = { .flow = key_of(p) };

	bpf_map_delete_elem(bpf_map__fd(bpf->maps.tbg_tcbs), &key);
	bpf_map_delete_elem(bpf_map__fd(bpf->maps.tbg_dues), &key);
}

static uint32_t number(uint32_t right, uint32_t other)
{
	static const int32_t near[] = { -1, 1, -2, 7, -30, 100, -65535, -65536, -70000,
					WINDOW << 7, (WINDOW << 7) + 1, 1 << 30, INT32_MIN };

	switch (draw(8)) {
	case 0:
		return right + near[draw(sizeof(near) / sizeof(*near))];
	case 1:
		return other;
	case 2:
		return draw(4) ? right : draw(1u << 31) * 2;
	}
	return right;
}

static void segment_draw(struct seg *g)
{
	static const uint8_t odd[] = {
		TH_SYN, TH_RST, TH_RST | TH_ACK, TH_SYN | TH_ACK, 0, TH_FIN, TH_FIN | TH_ACK,
		TH_ACK | TH_URG, TH_SYN | TH_RST, TH_PUSH, TH_FIN | TH_ACK | TH_PUSH,
		TH_SYN | TH_FIN, TH_ACK | 0x40 /* ECE */,
	};

	*g = (struct seg){ .flags = TH_ACK, .payload = -1, .tsval = m.recent + draw(2) };
	if (draw(2)) {
		g->flags |= TH_PUSH;
		g->payload = draw(3) ? draw(2) : draw(sizeof(payloads) / sizeof(*payloads));
		g->len = strlen(payloads[g->payload].text);
	}
	if (!draw(4))
		g->flags = odd[draw(sizeof(odd))];
	g->seq = number(m.rcv, draw(2) ? m.req_seq : m.rcv - 1);
	g->ack = number(draw(4) ? m.snd : next(), m.len ? m.seq + draw(m.len + 1) : m.acked);
	if (!draw(12))
		g->tsval = m.recent - 1 - draw(1000);
}

static const char *text_of(int set, char ret[80])
{
	*ret = 0;
	for (int i = 0; i < 6; i++)
		if (set >> i & 1)
			strcat(strcat(ret, *ret ? " or " : ""), outcomes[i]);
	return ret;
}

/* Sends a segment. Returns true if the result matches the model. */
static bool one(const struct peer *p, const struct seg *g)
{
	struct model was = m;
	unsigned char o[12];
	unsigned int n = p->ts ? ts_opt(o, g->tsval, 1) : 0;
	const char *fault = NULL;
	char got_text[80], want_text[80];
	struct frame f;
	int want, got, verdict;

	segment(&f, p, true, g->flags, g->seq, g->ack, o, n,
		g->len ? payloads[g->payload].text : "", g->len);
	want = predict(g);
	verdict = ingress(&f);
	got = outcome_of(&f, p, verdict);
	if (!(got & want))
		fault = "outcome";
	else if (got & (ACK | FIN | DATA))
		fault = fault_of(&f, p, got);
	fault = fault ?: differs(p);
	if (!fault && got & (ACK | FIN) && !is_cared_for(p))
		fault = "care for the reply";
	if (!fault)
		return true;
	ktap_note("wrong %s: flags %02x, seq rcv%+d, ack snd%+d, %u bytes (%d), tsval %+d; state %d, acked snd%+d, last seq snd%+d len %u: %s (verdict %d), expected %s",
		  fault, g->flags, (int)(g->seq - was.rcv), (int)(g->ack - was.snd), g->len,
		  g->payload, (int)(g->tsval - was.recent), was.state, (int)(was.acked - was.snd),
		  (int)(was.seq - was.snd), was.len, text_of(got, got_text), verdict,
		  text_of(want, want_text));
	return false;
}

KTAP_TEST(t_random_segments_behave_as_the_model)
{
	uint64_t nr = number_of("TBG_SEGMENTS", 60000), done = 0, seed;
	uint64_t states[TBG_TCB_STATES] = { 0 };
	struct peer p;
	struct seg g;

	NEED_LATE();
	set_clock(784111777);
	seed = draw_begin();
	publish("/a", 1, 7, 'a', 300);
	reply_len = 0;
	for (uint32_t conn = 0; done < nr; conn++) {
		begin(&p, conn);
		if (!reply_len) {	/* the same length for all */
			struct frame f;
			unsigned char o[12];

			p.ts = m.timed = false;
			segment(&f, &p, true, TH_ACK | TH_PUSH, m.rcv, m.snd, o, 0,
				payloads[0].text, strlen(payloads[0].text));
			KTAP_EQ(ingress(&f), REDIRECT);
			data_of(&f, &p, &reply_len);
			KTAP_CHECK(reply_len > 300);
			continue;
		}
		for (int i = 0; i < EACH && m.there; i++, done++) {
			segment_draw(&g);
			if (!draw(20))
				set_clock(784111777 + draw(200));	/* another Date */
			if (!one(&p, &g)) {
				ktap_fail("TBG_SEED=%llu, segment %llu",
					  (unsigned long long)seed, (unsigned long long)done);
				return;
			}
			states[m.there ? m.state : TBG_TCB_HANDED]++;
		}
		end(&p);
	}
	ktap_note("%llu segments; behind them open %llu, last-ack %llu, fin-wait %llu, time-wait %llu, gone %llu",
		  (unsigned long long)done, (unsigned long long)states[TBG_TCB_OPEN],
		  (unsigned long long)states[TBG_TCB_LAST_ACK],
		  (unsigned long long)states[TBG_TCB_FIN_WAIT],
		  (unsigned long long)states[TBG_TCB_TIME_WAIT],
		  (unsigned long long)states[TBG_TCB_HANDED]);
	for (int i = 0; i < TBG_TCB_STATES; i++)
		KTAP_CHECK(i == TBG_TCB_GIVING || states[i] > nr / 200);
}

KTAP_TEST(t_reply_that_is_never_acknowledged_ends_in_a_reset)
{
	struct tbg_tcb t;
	unsigned char o[12];
	struct peer p;
	struct frame f;
	struct tbg_tcb_key key;
	struct __sk_buff ctx = { .ifindex = 1, .cb = { TBG_PUSH_AGAIN } };
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = f.b, .ctx_in = &ctx,
		    .ctx_size_in = sizeof(ctx), .repeat = 1);
	int fd, next;

	NEED_LATE();
	set_clock(784111777);
	publish("/a", 1, 7, 'a', 300);
	fd = bpf_map__fd(bpf->maps.tbg_tcbs);
	begin(&p, 0);
	segment(&f, &p, true, TH_ACK | TH_PUSH, m.rcv, m.snd, o, 0, payloads[0].text,
		strlen(payloads[0].text));
	KTAP_EQ(ingress(&f), REDIRECT);
	key = (struct tbg_tcb_key){ .flow = key_of(&p) };
	for (int tries = TBG_PUSH_TRIES - 1; tries <= TBG_PUSH_TRIES; tries++) {
		KTAP_CHECK(!bpf_map_lookup_elem_flags(fd, &key, &t, BPF_F_LOCK));
		t.tries = tries;
		t.repeat_ms = now_ms() - (TBG_DUE_MS << 7);
		KTAP_CHECK(!bpf_map_update_elem(fd, &key, &t, BPF_F_LOCK));
		segment(&f, &p, true, TH_ACK, t.rcv_nxt, t.acked, o, 0, "", 0);
		opts.data_size_in = f.len;
		KTAP_CHECK(!bpf_prog_test_run_opts(bpf_program__fd(bpf->progs.tbg_push), &opts));
		next = opts.retval;
		KTAP_EQ(next > 0, tries < TBG_PUSH_TRIES);
	}
	KTAP_CHECK(bpf_map_lookup_elem(fd, &key, &t));
}

/* Lets our timer expire for the reply that the client has not acknowledged. */
static bool expire(const struct peer *p)
{
	struct tbg_tcb_key key = { .flow = key_of(p) };
	struct __sk_buff ctx = { .ifindex = 1, .cb = { TBG_PUSH_AGAIN } };
	int fd = bpf_map__fd(bpf->maps.tbg_tcbs);
	struct tbg_tcb t;
	struct frame f;
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = f.b, .ctx_in = &ctx,
		    .ctx_size_in = sizeof(ctx), .repeat = 1);

	if (bpf_map_lookup_elem_flags(fd, &key, &t, BPF_F_LOCK))
		return false;
	t.repeat_ms = now_ms() - (TBG_DUE_MS << 7);
	bpf_map_update_elem(fd, &key, &t, BPF_F_LOCK);
	segment(&f, p, true, TH_ACK, t.rcv_nxt, t.acked, "", 0, "", 0);
	opts.data_size_in = f.len;
	return !bpf_prog_test_run_opts(bpf_program__fd(bpf->progs.tbg_push), &opts) &&
	       opts.retval > 0;
}

/*
 * A device that drops what XDP sends is given up after some replies. A client that waits for
 * longer than our timer never shows XDP such a loss.
 */
KTAP_TEST(t_reply_of_xdp_that_our_timer_repeats_is_counted_as_lost_once)
{
	struct tbg_port port = { .tried_ms = 1 };
	struct tbg_tcb_key key;
	unsigned char o[12];
	uint32_t ifindex = 1;
	struct tbg_tcb t;
	struct frame f;
	struct peer p;
	int fd, ports;

	NEED_LATE();
	set_clock(784111777);
	publish("/a", 1, 7, 'a', 300);
	fd = bpf_map__fd(bpf->maps.tbg_tcbs);
	ports = bpf_map__fd(bpf->maps.tbg_ports);
	for (int xdp = 0; xdp < 2; xdp++) {
		KTAP_CHECK(!bpf_map_update_elem(ports, &ifindex, &port, BPF_ANY));
		begin(&p, 0);
		key = (struct tbg_tcb_key){ .flow = key_of(&p) };
		segment(&f, &p, true, TH_ACK | TH_PUSH, m.rcv, m.snd, o, 0, payloads[0].text,
			strlen(payloads[0].text));
		KTAP_EQ(ingress(&f), REDIRECT);
		KTAP_CHECK(!bpf_map_lookup_elem_flags(fd, &key, &t, BPF_F_LOCK));
		t.tried = xdp ? TBG_TCB_XDP : 0;
		KTAP_CHECK(!bpf_map_update_elem(fd, &key, &t, BPF_F_LOCK));
		for (int tries = 0; tries < 2; tries++) {
			struct tbg_port now;

			KTAP_CHECK(expire(&p));
			KTAP_CHECK(!bpf_map_lookup_elem(ports, &ifindex, &now));
			KTAP_EQ(now.lost, xdp);
			KTAP_EQ(now.tried_ms, !xdp);	/* the next reply may prove it */
		}
		end(&p);
	}
	bpf_map_delete_elem(ports, &ifindex);
}

KTAP_MAIN()
