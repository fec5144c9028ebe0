/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A simulated connection for the tests of the wire programs by BPF_PROG_TEST_RUN:
 * frames of both ends, objects in the cache, and checks of replies. The files of a test
 * program share the loaded programs: in an emulated kernel, the verifier takes ten
 * seconds.
 */
#ifndef TBG_TESTS_BPF_PEER_H
#define TBG_TESTS_BPF_PEER_H

#include "ktap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <netinet/icmp6.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "abi/cache.h"
#include "abi/conn.h"
#include "abi/event.h"
#include "abi/knob.h"
#include "abi/stats.h"
#ifdef PEER_LATE		/* connections without a socket */
#include "abi/tcb.h"
#include "bpf/wire.skel.h"
#define PEER_BPF(x) tbg_wire_bpf##x
#else
#include "bpf/translate.skel.h"
#define PEER_BPF(x) tbg_translate_bpf##x
#endif
#include "core/csum.h"
#include "core/key.h"

#define SLOTS 512
#define REDIRECT 7
#define SHOT 2
#define PASS -1
#define SERVER_ISN 900000
#define CLIENT_ISN 4294967000u	/* wraps soon */

KTAP_SHARED struct PEER_BPF() *bpf;
KTAP_SHARED struct tbg_knob *knob;
KTAP_SHARED struct tbg_conn_word *conns;
KTAP_SHARED unsigned char *blobs_2k, *blobs_68k;
KTAP_SHARED uint16_t peer_port = 20000;		/* of the next client */

/* A client, and the server's socket. */
struct peer {
	bool v6, ts, sack;
	uint16_t port;
	uint32_t isn;			/* added to both initial sequence numbers */
	uint32_t seq, ack;		/* the client's next numbers */
	uint32_t kseq, kack;		/* the socket's */
	uint32_t tsval, ktsval;
	uint16_t window;
	uint16_t mss;			/* 0: 1460 */
};

/* A frame and its length. */
struct frame {
	unsigned char b[20000];
	unsigned int len;
};

static uint64_t mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static void *map_mmap(struct bpf_map *map)
{
	size_t len = ((size_t)bpf_map__value_size(map) + 7) / 8 * 8 *
		     bpf_map__max_entries(map);
	void *at = mmap(NULL, (len + 4095) & ~4095ull, PROT_READ | PROT_WRITE,
			MAP_SHARED, bpf_map__fd(map), 0);

	return at == MAP_FAILED ? NULL : at;
}

__attribute__((unused))
static void set_clock(int64_t second)
{
	knob->real_ns = second * 1000000000ull - mono_ns();
	for (int i = -2; i < 5; i++) {
		struct tbg_date *d = &knob->date[(second + i) % TBG_DATE_RING];

		d->second = second + i;
		snprintf((char *)d->text, sizeof(d->text),
			 "Sun, 06 Nov 1994 08:%02d:%02d GMT",
			 (int)((second + i) / 60 % 60), (int)((second + i) % 60));
	}
}

static bool load(void)
{
	struct bpf_map *map;
	uint32_t zero = 0;
	int answer;

	if (bpf)
		return true;
	bpf = PEER_BPF(__open)();
	if (!bpf)
		return false;
	bpf->rodata->tbg_sockets = 0;
	bpf_object__for_each_map(map, bpf->obj) {
		const char *name = bpf_map__name(map);

		if (strstr(name, "blob") || strstr(name, "index") ||
		    strstr(name, "heat") || strstr(name, "conns") ||
		    strstr(name, "owners") ||
		    strstr(name, "slots") || strstr(name, "retired") ||
		    strstr(name, "flows") || strstr(name, "tcbs"))
			bpf_map__set_max_entries(map, SLOTS);
	}
	if (PEER_BPF(__load)(bpf))
		return false;
	knob = map_mmap(bpf->maps.tbg_knob);
	blobs_2k = map_mmap(bpf->maps.tbg_blob_2K);
	blobs_68k = map_mmap(bpf->maps.tbg_blob_68K);
	answer = bpf_program__fd(bpf->progs.tbg_answer);
	bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_tail), &zero, &answer, 0);
#ifndef PEER_LATE
	conns = map_mmap(bpf->maps.tbg_conns);
	if (!conns)
		return false;
	for (uint32_t i = 0; i < SLOTS; i++)
		bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_slots), NULL, &i, 0);
#endif
	knob->answer = 1;
	knob->listener[0].port = htons(80);
	knob->listener[1].port = htons(80);
	knob->listener[1].v6 = 1;
	knob->ports[1] |= 1ull << (80 - 64);
	return knob && blobs_2k && blobs_68k;
}

/* The dates of set_clock() last for four seconds: a slow machine needs them in each test. */
#define NEED_BPF()							\
	do {								\
		if (geteuid())						\
			KTAP_SKIP("not root");				\
		KTAP_CHECK(load());					\
		set_clock(784111777);					\
	} while (0)

/* Also publishes /a, independent of earlier tests. */
#define NEED_A()	do { NEED_BPF(); publish("/a", 1, 7, 'a', 1000); } while (0)

/* Returns the sum over all CPUs of the counter at that offset of their stats. */
static uint64_t stat_at(size_t off)
{
	int cpus = libbpf_num_possible_cpus();
	struct tbg_stats *all = calloc(cpus, sizeof(*all));
	uint32_t zero = 0;
	uint64_t sum = 0;

	bpf_map_lookup_elem(bpf_map__fd(bpf->maps.tbg_stats), &zero, all);
	for (int i = 0; i < cpus; i++)
		sum += *(uint64_t *)((char *)&all[i] + off);
	free(all);
	return sum;
}

__attribute__((unused))
static uint64_t counted(enum tbg_why why)
{
	return stat_at(offsetof(struct tbg_stats, why) + why * sizeof(uint64_t));
}

/* Computes the partial sums of a blob of this many bytes. */
static void blob_sums(struct tbg_blob *b, uint32_t bytes, uint32_t data_len)
{
	uint16_t *sums = (uint16_t *)(b->data + TBG_BLOB_ROOM(bytes));

	for (uint32_t at = 0; at < data_len; at += TBG_SUM_STRIDE)
		sums[at / TBG_SUM_STRIDE] = tbg_csum_bytes(b->data, at);
}

/* Computes the sums of a blob's parts, and makes the index entry of a text. */
static void entry_put(struct tbg_entry *e, struct tbg_blob *b, uint32_t bytes,
		      const char *text)
{
	const struct tbg_blob_part *last = &b->part[TBG_PART_304];
	struct tbg_path padded = {};
	struct tbg_key key;

	for (int i = 0; i < TBG_PART_NR; i++) {
		struct tbg_blob_part *p = &b->part[i];

		memset(b->data + p->off + p->date_off, 0, tbg_blob_timed(b));
		p->csum = tbg_csum_bytes(b->data + p->off, p->len);
	}
	blob_sums(b, bytes, last->off + last->len);
	memcpy(e->path, text, e->path_len);
	memcpy(&padded, e->path, sizeof(padded));
	tbg_key_make(knob->key, 0, &padded, e->path_len, &key);
	b->gen = e->gen;
	b->key0 = key.h[0];
	bpf_map_update_elem(bpf_map__fd(bpf->maps.tbg_index), &key, e, 0);
	knob->published++;
}

/* of a slot of each class */
enum {
#define X(name, bytes, percent) BYTES_##name = (bytes),
	TBG_CLASS_LIST(X)
#undef X
};

/*
 * Publishes path with a simple head in a slot of the 2K class, or of the 68K class if
 * it is too large. fill 0: each byte differs from its neighbours.
 */
__attribute__((unused))
static void publish(const char *path, uint32_t slot, uint32_t gen, char fill,
		    unsigned int body)
{
	bool large = body > 1600;
	uint32_t bytes = large ? BYTES_68K : BYTES_2K;
	struct tbg_blob *b = (void *)((large ? blobs_68k : blobs_2k) +
				      slot * (uint64_t)bytes);
	char *d = (char *)b->data;
	struct tbg_entry e = {
		.blob = TBG_BLOB_ID(large ? TBG_CLASS_68K : TBG_CLASS_2K, slot),
		.gen = gen,
		.expires_ns = ~0ull,
		.path_len = strlen(path),
		.etag_len = 6,
		.etag = "\"abcd\"",
		.modified_s = 784025377,	/* Sat, 05 Nov 1994 08:49:37 GMT */
	};
	unsigned int head, nm;

	head = sprintf(d, "HTTP/1.1 200 OK\r\nDate: %29s\r\nContent-Length: %u\r\n"
		       "Cache-Status: toboggan; hit; detail=wire\r\n\r\n", "", body);
	memset(d + head, fill, body);
	for (unsigned int i = 0; i < body && !fill; i++)
		d[head + i] = i * 7 + i / 251;
	nm = sprintf(d + head + body, "HTTP/1.1 304 Not Modified\r\nDate: %29s\r\n\r\n", "");
	b->age_len = 0;
	b->part[TBG_PART_GET] = (struct tbg_blob_part){ 0, head + body, 0, 23, 0, 200 };
	b->part[TBG_PART_HEAD] = (struct tbg_blob_part){ 0, head, 0, 23, 0, 200 };
	b->part[TBG_PART_304] = (struct tbg_blob_part){ head + body, nm, 0, 33, 0, 304 };
	entry_put(&e, b, bytes, path);
}

/*
 * Publishes an upstream's response to a URI, in the 2K class: with its own Date, and an
 * Age of this many digits that was 0 at born_ns. Its 304 ends with Age.
 */
__attribute__((unused))
static void publish_aged(const char *uri, uint32_t slot, uint32_t gen,
			 uint64_t born_ns, unsigned int age_len)
{
	static const char date[] = "Date: Sun, 06 Nov 1994 08:00:00 GMT";
	struct tbg_blob *b = (void *)(blobs_2k + slot * (uint64_t)BYTES_2K);
	char *d = (char *)b->data;
	struct tbg_entry e = {
		.blob = TBG_BLOB_ID(TBG_CLASS_2K, slot), .gen = gen,
		.expires_ns = ~0ull, .born_ns = born_ns, .path_len = strlen(uri),
		.etag_len = 6, .etag = "\"abcd\"",
	};
	int at, nat;
	unsigned int head, nm;

	head = sprintf(d, "HTTP/1.1 200 OK\r\n%s\r\nAge: %n%0*u\r\n"
		       "Cache-Status: toboggan; hit; detail=wire\r\n\r\n",
		       date, &at, age_len, 0);
	memset(d + head, 'u', 100);
	nm = sprintf(d + head + 100, "HTTP/1.1 304 Not Modified\r\n%s\r\nAge: %n%0*u\r\n"
		     "Cache-Status: toboggan; hit; detail=wire\r\n\r\n",
		     date, &nat, age_len, 0);
	b->age_len = age_len;
	b->part[TBG_PART_GET] = (struct tbg_blob_part){ 0, head + 100, 0, at, 0, 200 };
	b->part[TBG_PART_HEAD] = (struct tbg_blob_part){ 0, head, 0, at, 0, 200 };
	b->part[TBG_PART_304] = (struct tbg_blob_part){ head + 100, nm, 0, nat, 0, 304 };
	entry_put(&e, b, BYTES_2K, uri);
}

static void map_addr(__u32 ret[4], bool v6, bool server)
{
	memset(ret, 0, 16);
	if (v6) {
		ret[0] = htonl(0x20010db8);
		ret[3] = htonl(server ? 1 : 2);
	} else {
		ret[2] = htonl(0xffff);
		ret[3] = htonl(0xc0000200 | (server ? 1 : 2));
	}
}

static struct tbg_flow_key key_of(const struct peer *p)
{
	struct tbg_flow_key k = { .local_port = htons(80),
				  .remote_port = htons(p->port) };

	map_addr(k.local, p->v6, true);
	map_addr(k.remote, p->v6, false);
	return k;
}

#ifndef PEER_LATE
static bool flow_of(const struct peer *p, struct tbg_flow *ret)
{
	struct tbg_flow_key k = key_of(p);

	return !bpf_map_lookup_elem(bpf_map__fd(bpf->maps.tbg_flows), &k, ret);
}
#endif

static uint16_t tcp_sum(const struct frame *f, bool v6)
{
	const unsigned char *ip = f->b + 14;
	unsigned int l4 = 14 + (v6 ? 40 : (ip[0] & 15) * 4);
	uint32_t len = f->len - l4;
	uint64_t sum = htons(IPPROTO_TCP) + htons(len);

	sum += tbg_csum_bytes(ip + (v6 ? 8 : 12), v6 ? 32 : 8);
	sum += tbg_csum_bytes(f->b + l4, len);
	return tbg_csum_fold(sum);
}

/* Makes a segment in either direction with correct checksums. */
static void segment(struct frame *f, const struct peer *p, bool from_client,
		    uint8_t flags, uint32_t seq, uint32_t ack,
		    const void *opt, unsigned int opt_len, const void *data,
		    unsigned int len)
{
	unsigned int l4 = 14 + (p->v6 ? 40 : 20), tcp_len = 20 + opt_len + len;
	__u32 src[4], dst[4];
	struct tcphdr *t;

	memset(f->b, 0, 200);
	f->len = l4 + tcp_len;
	memset(f->b, from_client ? 0xaa : 0xbb, 6);
	memset(f->b + 6, from_client ? 0xbb : 0xaa, 6);
	map_addr(src, p->v6, !from_client);
	map_addr(dst, p->v6, from_client);
	if (p->v6) {
		struct ip6_hdr *ip = (void *)(f->b + 14);

		f->b[12] = 0x86, f->b[13] = 0xdd;
		ip->ip6_flow = htonl(0x60012345);
		ip->ip6_plen = htons(tcp_len);
		ip->ip6_nxt = IPPROTO_TCP;
		ip->ip6_hlim = 61;
		memcpy(&ip->ip6_src, src, 16);
		memcpy(&ip->ip6_dst, dst, 16);
	} else {
		struct iphdr *ip = (void *)(f->b + 14);

		f->b[12] = 0x08, f->b[13] = 0;
		ip->version = 4;
		ip->ihl = 5;
		ip->tot_len = htons(20 + tcp_len);
		ip->frag_off = htons(0x4000);
		ip->ttl = 61;
		ip->protocol = IPPROTO_TCP;
		ip->saddr = src[3];
		ip->daddr = dst[3];
		ip->check = ~tbg_csum_bytes(ip, 20);
	}
	t = (void *)(f->b + l4);
	t->source = htons(from_client ? p->port : 80);
	t->dest = htons(from_client ? 80 : p->port);
	t->seq = htonl(seq);
	t->ack_seq = htonl(ack);
	t->doff = 5 + opt_len / 4;
	((unsigned char *)t)[13] = flags;
	t->window = htons(p->window);
	memcpy(t + 1, opt, opt_len);
	memcpy((char *)(t + 1) + opt_len, data, len);
	t->check = ~tcp_sum(f, p->v6);
}

__attribute__((unused))
static unsigned int ts_opt(unsigned char *o, uint32_t val, uint32_t ecr)
{
	o[0] = o[1] = 1, o[2] = 8, o[3] = 10;
	val = htonl(val), ecr = htonl(ecr);
	memcpy(o + 4, &val, 4);
	memcpy(o + 8, &ecr, 4);
	return 12;
}

/* Runs a program on f in place. Returns its verdict. */
static int run(struct bpf_program *prog, struct frame *f)
{
	unsigned char out[sizeof(f->b)];
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = f->b,
		    .data_size_in = f->len, .data_out = out,
		    .data_size_out = sizeof(out), .repeat = 1);

	if (bpf_prog_test_run_opts(bpf_program__fd(prog), &opts))
		return -1000 - errno;
	memcpy(f->b, out, opts.data_size_out);
	f->len = opts.data_size_out;
	return opts.retval;
}

__attribute__((unused))
static int ingress(struct frame *f)
{
	return run(bpf->progs.tbg_ingress, f);
}

#ifndef PEER_LATE
static int egress(struct frame *f)
{
	return run(bpf->progs.tbg_egress, f);
}

/*
 * Asks as the daemon does for the rest of a reply. Returns TBG_TAKE_BACK_*; *y has the
 * answer.
 */
__attribute__((unused))
static int take_back_ask(struct tbg_take_back *y)
{
	struct frame f = { .len = 14 + sizeof(*y) };
	int verdict;

	memcpy(f.b + 14, y, sizeof(*y));
	verdict = run(bpf->progs.tbg_take_back, &f);
	memcpy(y, f.b + 14, sizeof(*y));
	return verdict;
}

/* Takes the rest of a reply back, as the daemon does. Returns 1 with *ret. */
__attribute__((unused))
static int take_back(const struct peer *p, uint32_t written, struct tbg_take_back *ret)
{
	struct tbg_flow flow = {};
	int verdict;

	*ret = (struct tbg_take_back){ .key = key_of(p), .written = written };
	bpf_map__lookup_elem(bpf->maps.tbg_flows, &ret->key, sizeof(ret->key), &flow,
			     sizeof(flow), 0);
	ret->slot = flow.slot;
	verdict = take_back_ask(ret);
	if (verdict != TBG_TAKE_BACK_BYTES)
		return verdict;
	ret->commit = 1;
	return take_back_ask(ret);
}
#endif

static struct tcphdr *tcp_of(struct frame *f, const struct peer *p)
{
	return (void *)(f->b + 14 + (p->v6 ? 40 : 20));
}

__attribute__((unused))
static char *data_of(struct frame *f, const struct peer *p,
		     unsigned int *ret_len)
{
	struct tcphdr *t = tcp_of(f, p);
	char *data = (char *)t + t->doff * 4;

	*ret_len = (char *)f->b + f->len - data;
	return data;
}

__attribute__((unused))
static uint32_t now_ms(void)
{
	return mono_ns() / 1000000;
}

#ifndef PEER_LATE
/* The handshake as the programs see it. */
static void handshake(struct peer *p)
{
	unsigned char o[40];
	struct frame f;
	unsigned int n = 0;

	p->seq = CLIENT_ISN + p->isn + 1;
	p->kseq = SERVER_ISN + p->isn + 1;
	p->ack = p->kseq;
	p->kack = p->seq;
	p->tsval = 5000;
	p->ktsval = now_ms() + 123456;
	memcpy(o, "\x02\x04\x05\xb4\x01\x03\x03\x07", 8);
	if (p->mss) {
		o[2] = p->mss >> 8;
		o[3] = p->mss;
	}
	n = 8;
	if (p->sack) {
		memcpy(o + n, "\x01\x01\x04\x02", 4);
		n += 4;
	}
	if (p->ts)
		n += ts_opt(o + n, p->tsval, 0);
	segment(&f, p, true, TH_SYN, CLIENT_ISN + p->isn, 0, o, n, "", 0);
	ingress(&f);
	if (p->ts)
		ts_opt(o + n - 12, p->ktsval, p->tsval);
	segment(&f, p, false, TH_SYN | TH_ACK, SERVER_ISN + p->isn, p->kack, o, n, "", 0);
	egress(&f);
	n = p->ts ? ts_opt(o, p->tsval, p->ktsval) : 0;
	segment(&f, p, true, TH_ACK, p->seq, p->ack, o, n, "", 0);
	ingress(&f);
}

__attribute__((unused))
static struct peer peer_new(bool v6, bool ts)
{
	struct peer p = { .v6 = v6, .ts = ts, .sack = true, .port = peer_port++,
			  .window = 500 };

	handshake(&p);
	return p;
}

/* Makes a segment of the client with payload and the usual options. */
static void client(struct frame *f, struct peer *p, uint8_t flags,
		   const char *data)
{
	unsigned char o[12];
	unsigned int n = p->ts ? ts_opt(o, ++p->tsval, p->ktsval) : 0;

	segment(f, p, true, flags, p->seq, p->ack, o, n, data, strlen(data));
}

#define REQ(path) "GET " path " HTTP/1.1\r\nHost: example.org\r\n\r\n"

/*
 * Checks that the reply in f is complete, in order and has correct checksums. Advances
 * the client.
 */
static const char *reply_fault(struct frame *f, struct peer *p,
			       uint32_t req_len)
{
	struct tcphdr *t = tcp_of(f, p);
	__u32 src[4], dst[4];
	unsigned int len;

	data_of(f, p, &len);
	if (tcp_sum(f, p->v6) != 0xffff)
		return "TCP checksum";
	if (!p->v6 && tbg_csum_bytes(f->b + 14, 20) != 0xffff)
		return "IP checksum";
	if (!p->v6 && ntohs(((struct iphdr *)(f->b + 14))->tot_len) != f->len - 14)
		return "IP length";
	if (p->v6 && ntohs(((struct ip6_hdr *)(f->b + 14))->ip6_plen) != f->len - 54)
		return "IPv6 length";
	if (f->b[0] != 0xbb || f->b[6] != 0xaa)
		return "Ethernet addresses";
	map_addr(src, p->v6, true);
	map_addr(dst, p->v6, false);
	if (p->v6 ? memcmp(f->b + 22, src, 16) || memcmp(f->b + 38, dst, 16) :
		    memcmp(f->b + 26, src + 3, 4) || memcmp(f->b + 30, dst + 3, 4))
		return "IP addresses";
	if (t->source != htons(80) || t->dest != htons(p->port))
		return "ports";
	if (ntohl(t->seq) != p->ack)
		return "sequence number";
	if (ntohl(t->ack_seq) != p->seq + req_len)
		return "acknowledgement number";
	if (((unsigned char *)t)[13] != (TH_ACK | TH_PUSH))
		return "flags";
	if (t->doff != (p->ts ? 8 : 5))
		return "options";
	if (p->ts) {
		uint32_t val, ecr;

		memcpy(&val, (char *)t + 24, 4);
		memcpy(&ecr, (char *)t + 28, 4);
		if (ntohl(ecr) != p->tsval)
			return "TSecr";
		if ((int32_t)(ntohl(val) - p->ktsval) < 0 ||
		    ntohl(val) - p->ktsval > 60000)
			return "TSval";
		p->ktsval = ntohl(val);
	}
	p->seq += req_len;
	p->ack += len;
	return NULL;
}

__attribute__((unused))
static bool hit(struct peer *p, const char *req, const char *status, char fill,
		unsigned int body)
{
	const char *fault, *end;
	struct frame f;
	unsigned int len;
	char *data;
	int verdict;

	client(&f, p, TH_ACK | TH_PUSH, req);
	verdict = ingress(&f);
	if (verdict != REDIRECT) {
		ktap_note("verdict %d", verdict);
		return false;
	}
	fault = reply_fault(&f, p, strlen(req));
	if (fault) {
		ktap_note("wrong %s", fault);
		return false;
	}
	data = data_of(&f, p, &len);
	data[len] = 0;
	end = strstr(data, "\r\n\r\n");
	if (strncmp(data, status, strlen(status)) ||
	    !strstr(data, "\r\nDate: Sun, 06 Nov 1994 08:") || !end ||
	    data + len - end - 4 != body) {
		ktap_note("reply: %s", data);
		return false;
	}
	for (unsigned int i = 0; i < body; i++)
		if (end[4 + i] != fill)
			return false;
	return true;
}

/* Returns whether a client segment is passed up unchanged, for exactly this reason. */
__attribute__((unused))
static bool passes(struct peer *p, uint8_t flags, const char *data,
		   enum tbg_why why)
{
	uint64_t before = counted(why);
	struct frame f, was;

	client(&f, p, flags, data);
	was = f;
	if (ingress(&f) != PASS || counted(why) != before + 1)
		return false;
	if (f.len != was.len || memcmp(f.b, was.b, f.len))
		return false;
	p->seq += strlen(data);
	return true;
}
#endif

#endif
