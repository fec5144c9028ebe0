// SPDX-License-Identifier: GPL-2.0
/*
 * The answers that wire keeps: random sequences of similar requests are answered as if each of
 * them had been parsed and searched for, while objects are published, withdrawn and expire.
 * Needs root. Attaches nothing.
 *
 * TBG_REQUESTS=1000000 total number of requests
 * TBG_SEED=7 repeats a run
 */
#include "late.h"

#include "core/conditional.h"
#include "core/host.h"
#define LIVE 24			/* requests from which the next one is chosen */
#define LONG 512		/* answers to requests of up to 512 bytes are kept */
#define BODY 100

/* Two paths are published, each version with a body of its own. */
static const char *const paths[] = { "/a", "/longer/path/of/an/object.html" };

/* For each of the two paths, the byte that its published body consists of; 0: not published. */
static char bodies[2];
static uint32_t versions;

static const char *const seeds[] = {
	"GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /b HTTP/1.1\r\nHost: a\r\n\r\n",
	"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /a HTTP/1.0\r\n\r\n",
	"GET /a HTTP/1.1\r\nHost: abcdefghijklmn\r\nIf-None-Match: \"abcd\"\r\nUser-Agent: x\r\n\r\n",
	"GET /a HTTP/1.1\r\nHost: abcdefghijklmn\r\nIf-None-Match: \"abce\"\r\nUser-Agent: x\r\n\r\n",
	"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAccept: text/html, */*;q=0.1\r\n\r\n",
	"GET /longer/path/of/an/object.html?query=1 HTTP/1.1\r\nHost: a\r\nCookie: a=1\r\n\r\n",
	"GET /longer/path/of/an/object.html HTTP/1.1\r\nHost: a\r\nX: 0123456789012345678901\r\n\r\n",
	"GET /a HTTP/1.1\r\nHost: a\r\nIf-Modified-Since: Sat, 05 Nov 1994 08:49:37 GMT\r\n\r\n",
};

struct request {
	char text[LONG + 100];
	unsigned int len;
};

/* What a request leads to; status 0: wire does not answer it. */
struct outcome {
	int status;
	char body;
	bool head, last;
};

/* By parser and objects, as if nothing had been kept. */
static struct outcome expected(const struct request *r)
{
	static const unsigned char etag[40] = "\"abcd\"";
	static struct tbg_head head;
	struct outcome ret = {};
	struct tbg_scan scan;
	struct tbg_path name;
	struct tbg_req req;

	memset(&head, 0, sizeof(head));
	memcpy(head.b, r->text, r->len);
	if (tbg_request_scan(&head, &scan, r->len, 1, &req) || knob->vhost ||
	    (knob->hosts && tbg_host_load(&head, req.host_off, req.host_len, &name) < 0))
		return ret;
	for (unsigned int i = 0; i < 2; i++) {
		if (req.path_len != strlen(paths[i]) ||
		    memcmp(head.b + req.path_off, paths[i], req.path_len))
			continue;
		if (!bodies[i])
			return ret;
		ret.body = bodies[i];
		ret.status = tbg_condition(&head, &req, etag, 6, 784025377);
	}
	if (ret.status < 0)
		ret.status = 0;
	if (!ret.status)
		return (struct outcome){};
	ret.head = req.flags & TBG_REQ_HEAD;
	ret.last = tbg_request_persist(req.flags) == TBG_PERSIST_NOT;
	return ret;
}

/* Makes a connection that has had no request. */
static void begin(struct peer *p)
{
	struct tbg_tcb_key key;
	struct tbg_tcb t = {
		.tsoff = 777, .tsrecent = 5000, .ifindex = 1, .win = htons(500), .mss = 1440,
		.peer_mss = 1452, .wscale = 0x77, .ttl = 64, .seen_ms = now_ms(),
		.born_ms = now_ms(), .flags = TBG_TCB_WSCALE | TBG_TCB_DF,
		.rcv_nxt = 1000, .snd_nxt = 2000, .acked = 2000,
		.mac = { 0xbbbb, 0xbbbb, 0xbbbb }, .own = { 0xaaaa, 0xaaaa, 0xaaaa },
	};

	*p = (struct peer){ .port = 1024 + draw(60000), .window = 500 };
	key = (struct tbg_tcb_key){ .flow = key_of(p) };
	bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_tcbs), &key, &t, 0);
}

static struct outcome got(const struct request *r)
{
	struct outcome ret = {};
	struct tbg_tcb_key key;
	unsigned int len;
	struct peer p;
	struct frame f;
	char *data, *end;
	int verdict;

	begin(&p);
	segment(&f, &p, true, TH_ACK | TH_PUSH, 1000, 2000, NULL, 0, r->text, r->len);
	verdict = ingress(&f);
	key = (struct tbg_tcb_key){ .flow = key_of(&p) };
	bpf_map_delete_elem(bpf_map__fd(bpf->maps.tbg_tcbs), &key);
	bpf_map_delete_elem(bpf_map__fd(bpf->maps.tbg_dues), &key);
	data = data_of(&f, &p, &len);
	if (verdict != REDIRECT || len < 20)
		return ret;
	data[len] = 0;
	end = strstr(data, "\r\n\r\n");
	ret.status = atoi(data + 9);
	ret.last = ((unsigned char *)tcp_of(&f, &p))[13] & TH_FIN;
	ret.head = ret.status == 200 && end && !end[4];
	ret.body = end ? end[4] : 0;
	return ret;
}

static bool is_same(const struct outcome *a, const struct outcome *b)
{
	/* a 304 shows neither the method nor the path */
	return a->status == b->status && a->last == b->last &&
	       (a->status != 200 || (a->head == b->head && (a->head || a->body == b->body)));
}

/* Makes *r similar to a seed, of about the same length. */
static void make(struct request *r)
{
	const char *seed = seeds[draw(sizeof(seeds) / sizeof(*seeds))];
	unsigned int at, pad = draw(40) ? 0 : draw(LONG);

	r->len = snprintf(r->text, sizeof(r->text), "%s", seed);
	if (pad)
		r->len = snprintf(r->text, sizeof(r->text), "%.*sX-Pad: %0*d\r\n\r\n",
				  (int)r->len - 2, seed, pad < 400 ? pad : 400, 0);
	at = draw(r->len);
	switch (draw(6)) {
	case 0:
		r->text[at] ^= 1 << draw(7);
		break;
	case 1:
		r->text[at] = "ab/ :\r\n\"ef0?HcC"[draw(15)];
		break;
	case 2:
		memmove(r->text + at, r->text + at + 1, r->len - at);
		r->len--;
		break;
	}
}

/* Publishes another version at that path, or nothing any more; the slots of a test suffice. */
static void change(unsigned int at)
{
	struct tbg_path padded = {};
	struct tbg_key key;

	if (draw(3)) {
		versions++;
		bodies[at] = 'A' + versions % 26;
		publish(paths[at], 1 + versions % (SLOTS - 1), 7 + versions, bodies[at], BODY);
		return;
	}
	bodies[at] = 0;
	memcpy(&padded, paths[at], strlen(paths[at]));
	tbg_key_make(knob->key, 0, &padded, strlen(paths[at]), &key);
	bpf_map_delete_elem(bpf_map__fd(bpf->maps.tbg_index), &key);
	knob->published++;
}

/* Returns how many answers this CPU keeps. */
static unsigned int kept(void)
{
	unsigned int ret = 0, cpus = libbpf_num_possible_cpus();
	size_t size = (bpf_map__value_size(bpf->maps.tbg_kepts) + 7) & ~7ul;
	uint64_t *value = calloc(cpus, size);

	/* an answer begins with its digest */
	for (uint32_t i = 0; i < bpf_map__max_entries(bpf->maps.tbg_kepts); i++)
		if (!bpf_map_lookup_elem(bpf_map__fd(bpf->maps.tbg_kepts), &i, value))
			ret += value[0] > 0;
	free(value);
	return ret;
}

KTAP_TEST(t_a_request_like_another_is_answered_as_itself)
{
	uint64_t nr = number_of("TBG_REQUESTS", 20000), hits = 0, seed;
	static struct request live[LIVE];
	cpu_set_t one;

	NEED_LATE();
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	KTAP_CHECK(!sched_setaffinity(0, sizeof(one), &one));
	seed = draw_begin();
	change(0);
	change(1);
	for (unsigned int i = 0; i < LIVE; i++)
		make(&live[i]);
	for (uint64_t i = 0; i < nr; i++) {
		struct request *r = &live[draw(LIVE)];
		struct outcome want, have;

		if (!draw(10))
			make(r);
		if (!draw(100))
			change(draw(2));
		if (!(i % 256)) {
			set_clock(784111777);
			/* as a reload: these paths are of another site, or names are looked up */
			knob->vhost = !draw(8);
			knob->hosts = draw(2) ? TBG_HOSTS_ALL : TBG_HOSTS_NONE;
			knob->published++;
		}
		want = expected(r);
		have = got(r);
		if (!is_same(&want, &have)) {
			ktap_note("status %d body %d head %d last %d, expected %d %d %d %d: %s",
				  have.status, have.body, have.head, have.last, want.status,
				  want.body, want.head, want.last, r->text);
			ktap_fail("TBG_SEED=%llu, request %llu", (unsigned long long)seed,
				  (unsigned long long)i);
			return;
		}
		hits += want.status > 0;
	}
	ktap_note("%llu of %llu answered; %u kept", (unsigned long long)hits,
		  (unsigned long long)nr, kept());
	knob->vhost = 0;
	knob->hosts = TBG_HOSTS_NONE;
	KTAP_CHECK(hits > nr / 8);
	KTAP_CHECK(kept() >= bpf_map__max_entries(bpf->maps.tbg_kepts) / 4);
}

/* Sends the request as often as needed until its answer is kept, and once more. */
static struct outcome kept_answer(const struct request *r)
{
	got(r);
	got(r);
	return got(r);
}

KTAP_TEST(t_a_kept_answer_expires)
{
	struct request r = { .text = "GET /aged HTTP/1.1\r\nHost: localhost\r\n\r\n" };
	struct tbg_key key;
	struct tbg_path padded = {};
	struct tbg_entry e;

	NEED_LATE();
	set_clock(784111777);
	r.len = strlen(r.text);
	publish("/aged", SLOTS - 1, 5, 'Q', BODY);
	memcpy(&padded, "/aged", 5);
	tbg_key_make(knob->key, 0, &padded, 5, &key);
	KTAP_CHECK(!bpf_map_lookup_elem(bpf_map__fd(bpf->maps.tbg_index), &key, &e));
	e.expires_ns = mono_ns() + 300000000;
	bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_index), &key, &e, 0);
	knob->published++;
	KTAP_EQ(kept_answer(&r).status, 200);
	while (mono_ns() < e.expires_ns)
		usleep(1000);
	KTAP_EQ(got(&r).status, 0);
}

static char logged[TBG_REQ_MAX];

static int log_read(void *ctx, void *data, size_t size)
{
	struct tbg_event *e = data;

	if (size >= sizeof(*e) + e->req_len)
		snprintf(logged, sizeof(logged), "%.*s", (int)e->req_len, (char *)(e + 1));
	return 0;
}

KTAP_TEST(t_a_kept_answer_is_logged_with_its_request)
{
	struct request r = { .text = "GET /a HTTP/1.1\r\nHost: localhost\r\nX: kept\r\n\r\n" };
	struct request other = { .text = "GET /none HTTP/1.1\r\nHost: another\r\n\r\n" };
	struct ring_buffer *ring;

	NEED_LATE();
	set_clock(784111777);
	r.len = strlen(r.text);
	other.len = strlen(other.text);
	publish("/a", 1, 9, 'A', BODY);
	KTAP_EQ(kept_answer(&r).status, 200);
	got(&other);
	ring = ring_buffer__new(bpf_map__fd(bpf->maps.tbg_events), log_read, NULL, NULL);
	KTAP_CHECK(ring);
	ring_buffer__consume(ring);
	logged[0] = 0;
	knob->log = 1;
	KTAP_EQ(got(&r).status, 200);
	knob->log = 0;
	ring_buffer__consume(ring);
	ring_buffer__free(ring);
	KTAP_CHECK(!strcmp(logged, r.text));
}
