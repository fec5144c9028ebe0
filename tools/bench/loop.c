// SPDX-License-Identifier: GPL-2.0
/*
 * The load that runs in the kernel (loop.bpf.c): attaches it to an interface, opens the
 * connections, repeats lost requests, compares every sampled reply with its checksum, and
 * prints a line of JSON. Run by `bench` in the clients' namespace; `loop --help` lists the
 * options. The reader of the report decides about faults.
 *
 * The list is that of load.c: a line for each request, `weight path size
 * CRC-32`; only these four.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <zlib.h>

#include "loop_internal.h"

#define POLL_NS		5000000LL	/* interval of reading samples */
#define WINDOW_MS	100		/* each has a rate */
#define AGAIN_NS	300000000LL	/* minimum before a request without an answer is repeated */
#define STALLED_NS	(2 * SECOND_NS)	/* minimum before a request counts as unanswered */
#define LONGEST_NS	(10 * SECOND_NS) /* and maximum: of a server that hardly answers */
#define OPEN_NS		(5 * SECOND_NS)	/* for the first answer on each connection */
#define WARM_NS		200000000LL
/*
 * Bytes of frames that are on their way. A TC program at the other end turns a frame into its
 * answer, and ours turns that into the next request, so one may never come to its end.
 */
#define FRAMES_ROOM	(256 << 20)
#define BURST		32		/* SYNs in a row: a queue has room for them */
#define WINDOWS_MAX	4096
#define CPUS_MAX	1024
#define HEAD_MAX	4096		/* of a sampled reply */
#define PIECES		4096		/* of samples, between two looks at the clock */

struct partial {			/* a sampled reply */
	unsigned int sample, at;
	unsigned char head[HEAD_MAX];
	unsigned int head_len;		/* 0: its end has not arrived yet */
	uint32_t crc;
	long length;			/* Content-Length; -1: none */
};

struct loop_options opt = {
	.path = "/", .seconds = 1, .window_ms = WINDOW_MS, .status = 200,
	.minor = 1, .source = "10.99.1.0", .object = "loop.bpf.o",
};

struct loop_conf conf = {
	.flow_nr = 64, .sample_every = 100, .ack_bytes = 14000, .timestamps = 1, .hold = 1,
};
char authority[300];
static struct partial **partials;
struct loop_flow *flows;
int packet_fd;
struct sockaddr_ll to;
static int conf_fd, counters_fd;
static long wrong_body, wrong_length, verified;
static volatile sig_atomic_t asked_to_end;

struct totals {
	struct loop_counts n;
	int64_t at_ns;
	double idle_s[CPUS_MAX], stolen_s[CPUS_MAX];
	int cpu_nr;
};

void __attribute__((noreturn, format(printf, 1, 2))) die(const char *form, ...)
{
	va_list args;

	va_start(args, form);
	fputs("loop: ", stderr);
	vfprintf(stderr, form, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * SECOND_NS + t.tv_nsec;
}

static void sleep_ns(int64_t ns)
{
	struct timespec t = { ns / SECOND_NS, ns % SECOND_NS };

	nanosleep(&t, NULL);
}

/* ------------------------------------------------------------- the samples */

static void sample_head(struct partial *p)
{
	const char *end = memmem(p->head, p->at, "\r\n\r\n", 4), *line;

	if (!end)
		return;
	p->head_len = end + 4 - (char *)p->head;
	p->length = -1;
	for (line = (char *)p->head; line < end; line = strchr(line, '\n') + 1)
		if (!strncasecmp(line, "content-length:", 15))
			p->length = atol(line + 15);
	p->crc = crc32(0, p->head + p->head_len, p->at - p->head_len);
}

static void sample_piece(void *data, size_t size)
{
	const struct loop_piece *piece = data;
	const struct loop_request *r;
	struct partial *p;

	if (size < sizeof(*piece) || piece->flow >= conf.flow_nr || piece->request >= request_nr)
		return;
	if (!partials[piece->flow])
		partials[piece->flow] = calloc(1, sizeof(*p));
	p = partials[piece->flow];
	if (!p)
		die("no memory for the samples");
	r = &requests[piece->request];
	if (!piece->at) {
		p->sample = piece->sample;
		p->at = p->head_len = 0;
	}
	if (p->sample != piece->sample || p->at != piece->at)
		return;	/* there was no room for a part of it */
	if (p->head_len) {
		p->crc = crc32(p->crc, piece->bytes, piece->len);
		p->at += piece->len;
	} else {
		if (p->at + piece->len >= HEAD_MAX) {
			wrong_length++;
			p->sample = 0;
			return;
		}
		memcpy(p->head + p->at, piece->bytes, piece->len);
		p->at += piece->len;
		p->head[p->at] = 0;
		sample_head(p);
	}
	if (!piece->last)
		return;
	p->sample = 0;
	verified++;
	if (!p->head_len || p->at - p->head_len != r->body_len ||
	    (opt.status == 200 && p->length >= 0 && p->length != (long)r->body_len))
		wrong_length++;
	else if (expected[piece->request].crc_known && expected[piece->request].crc != p->crc)
		wrong_body++;
}

static unsigned int pieces_left;

static int sample_read(void *ctx, void *data, size_t size)
{
	(void)ctx;
	sample_piece(data, size);
	return --pieces_left ? 0 : -EAGAIN;
}

/*
 * Some of what is there: while the load runs more comes meanwhile, without end where
 * the core is full. false: all of it.
 */
static bool samples_read(struct ring_buffer *ring)
{
	pieces_left = opt.pieces ?: PIECES;
	return ring_buffer__consume(ring) == -EAGAIN;
}

/* ---------------------------------------------------------------- counting */

static void cpu_times(struct totals *t)
{
	FILE *f = fopen("/proc/stat", "r");
	long hz = sysconf(_SC_CLK_TCK), v[8];
	char line[512];
	int cpu;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "cpu%d %ld %ld %ld %ld %ld %ld %ld %ld", &cpu, v, v + 1, v + 2,
			   v + 3, v + 4, v + 5, v + 6, v + 7) != 9 || cpu >= CPUS_MAX)
			continue;
		t->idle_s[cpu] = (double)(v[3] + v[4]) / hz;
		t->stolen_s[cpu] = (double)v[7] / hz;
		if (cpu >= t->cpu_nr)
			t->cpu_nr = cpu + 1;
	}
	if (f)
		fclose(f);
}

static void count(struct totals *ret, bool cpus)
{
	static struct loop_counts *each;
	int nr = libbpf_num_possible_cpus();
	unsigned int zero = 0;

	if (!each)
		each = calloc(nr, sizeof(*each));
	memset(ret, 0, sizeof(*ret));
	if (!each || bpf_map_lookup_elem(counters_fd, &zero, each))
		die("no counters: %s", strerror(errno));
	ret->at_ns = now_ns();
	for (int i = 0; i < nr; i++) {
#define X(name) ret->n.name += each[i].name;
		LOOP_COUNTS(X)
#undef X
	}
	if (cpus)
		cpu_times(ret);
}

/* A measurement: counts at its start, at its last look, and at the start of the window. */
struct measurement {
	struct totals start, last, window;
	long windows[WINDOWS_MAX];	/* requests per second */
	int window_nr;
	bool running, over;
	int64_t until_ns, next_window_ns, patience_ns;
	int64_t looked_ns, held_ns;	/* time of the last look; the longest time without one */
};

static void print(const struct measurement *m, unsigned int open_nr, unsigned int stalled)
{
	const struct totals *a = &m->start, *b = &m->last;
	double seconds = (double)(b->at_ns - a->at_ns) / SECOND_NS;

	printf("{\"requests\": %llu, \"bytes\": %llu, \"seconds\": %.6f, \"errors\": %llu, "
	       "\"statuses\": %llu, \"opened\": %u, \"connects\": %llu, ",
	       b->n.requests - a->n.requests, b->n.bytes - a->n.bytes, seconds,
	       b->n.reset + b->n.closed + b->n.framing + wrong_body + wrong_length + stalled,
	       b->n.status, open_nr, b->n.opened - a->n.opened);
	printf("\"kinds\": {\"reset\": %llu, \"closed\": %llu, \"framing\": %llu, \"body\": %ld, "
	       "\"length\": %ld, \"timeout\": %u}, ", b->n.reset, b->n.closed, b->n.framing,
	       wrong_body, wrong_length, stalled);
	printf("\"segments\": %llu, \"gaps\": %llu, \"repeated\": %llu, \"stray\": %llu, "
	       "\"resent\": %ld, \"room\": %llu, \"verified\": %ld, \"unsampled\": %llu, ",
	       b->n.segments - a->n.segments, b->n.lost, b->n.repeated, b->n.stray, resent,
	       b->n.room, verified, b->n.unsampled);
	printf("\"held_ms\": %lld, \"windows\": [", (long long)m->held_ns / 1000000);
	for (int i = 0; i < m->window_nr; i++)
		printf("%s%ld", i ? ", " : "", m->windows[i]);
	printf("], \"idle\": {");
	for (int i = 0, n = 0; i < b->cpu_nr; i++)
		printf("%s\"%d\": %.4f", n++ ? ", " : "", i,
		       (b->idle_s[i] - a->idle_s[i]) / seconds);
	printf("}, \"stolen\": {");
	for (int i = 0, n = 0; i < b->cpu_nr; i++)
		printf("%s\"%d\": %.4f", n++ ? ", " : "", i,
		       (b->stolen_s[i] - a->stolen_s[i]) / seconds);
	printf("}}\n");
}

/* ------------------------------------------------------------------ the run */

static void open_flows(void)
{
	for (unsigned int i = 0; i < conf.flow_nr; i++) {
		flows[i] = (struct loop_flow){
			.at_ns = now_ns(), .saddr = conf.saddr[3] | htonl(1),
			.sport = htons(LOOP_PORT + i), .state = LOOP_SYN, .index = i,
			.snd = 1000000 + 7919 * i,
		};
		send_frame(&flows[i], TH_SYN, flows[i].snd, NULL);
		if (i % BURST == BURST - 1)
			sleep_ns(1000000);
	}
}

/*
 * Connections that have received a reply. A SYN-ACK is not enough: the kernel of a server
 * that cannot accept any more connections sends it nevertheless.
 */
static unsigned int answered_nr(void)
{
	unsigned int ret = 0;

	for (unsigned int i = 0; i < conf.flow_nr; i++)
		ret += flows[i].answered;
	return ret;
}

static unsigned int waiting_nr(int64_t since_ns)
{
	unsigned int ret = 0;

	for (unsigned int i = 0; i < conf.flow_nr; i++)
		ret += (int64_t)flows[i].at_ns < since_ns;
	return ret;
}

/* Sends the next request on each connection that waits for it. */
static void release(void)
{
	unsigned int zero = 0, nr = 0;

	conf.hold = 0;
	bpf_map_update_elem(conf_fd, &zero, &conf, 0);
	for (unsigned int i = 0; i < conf.flow_nr; i++) {
		if (flows[i].state != LOOP_HELD)
			continue;
		send_next(&flows[i]);
		if (nr++ % BURST == BURST - 1)
			sleep_ns(200000);
	}
}

static void end_flows(void)
{
	unsigned int zero = 0;

	conf.stop = 1;
	bpf_map_update_elem(conf_fd, &zero, &conf, 0);
	sleep_ns(50000000);
	for (unsigned int i = 0; i < conf.flow_nr; i++) {
		if (flows[i].state != LOOP_NONE)
			send_frame(&flows[i], TH_RST | TH_ACK, flows[i].snd, NULL);
		if (i % BURST == BURST - 1)
			sleep_ns(200000);
	}
	sleep_ns(50000000);
}

static int64_t window_ns(void)
{
	return opt.window_ms * 1000000LL;
}

/*
 * Starts the measurement when all connections have had a reply and have warmed up. Until the
 * last one has, the others wait: a server that accepts a connection a round would not get on.
 */
static void measurement_start(struct measurement *m, int64_t began_ns, int64_t now,
			      unsigned int *ret_open_nr)
{
	if (conf.hold) {
		*ret_open_nr = answered_nr();
		if (*ret_open_nr < conf.flow_nr && now < began_ns + OPEN_NS)
			return;
		m->until_ns = now + WARM_NS;
	}
	release();	/* again: the kernel side may have read the old setting */
	if (now < m->until_ns)
		return;
	count(&m->start, true);
	m->window = m->start;
	m->running = true;
	m->until_ns = m->start.at_ns + (int64_t)(opt.seconds * SECOND_NS);
	m->next_window_ns = m->start.at_ns + window_ns();
}

static void window_end(struct measurement *m, bool last)
{
	const struct totals *a = &m->start, *b = &m->last, *w = &m->window;

	count(&m->last, last);
	if (m->window_nr < WINDOWS_MAX && b->at_ns - w->at_ns >= window_ns() / 2)
		m->windows[m->window_nr++] = (b->n.requests - w->n.requests) *
			(double)SECOND_NS / (b->at_ns - w->at_ns);
	/* a full server answers each connection only at intervals */
	if (b->n.requests > a->n.requests)
		m->patience_ns = 8 * conf.flow_nr * (b->at_ns - a->at_ns) /
				 (b->n.requests - a->n.requests);
	if (m->patience_ns < AGAIN_NS)
		m->patience_ns = AGAIN_NS;
	m->window = *b;
	m->next_window_ns = b->at_ns + window_ns();
}

/*
 * After the measurement: whether every connection has got on since, or long enough has passed
 * for that. What a short measurement waits for is seen only then.
 */
static bool all_get_on(const struct measurement *m, int64_t now)
{
	int64_t limit = m->patience_ns;

	if (limit < STALLED_NS)
		limit = STALLED_NS;
	if (limit > LONGEST_NS)
		limit = LONGEST_NS;
	return !waiting_nr(m->until_ns) || now >= m->until_ns + limit;
}

static void measure(struct ring_buffer *ring)
{
	static struct measurement m = { .patience_ns = AGAIN_NS };
	int64_t began_ns = now_ns(), now = began_ns, next_look = began_ns + AGAIN_NS;
	unsigned int open_nr = 0, stalled;
	bool more = false;

	open_flows();
	m.looked_ns = now_ns();
	while (!asked_to_end) {
		if (!more || opt.pieces)
			sleep_ns(POLL_NS);
		more = samples_read(ring);
		now = now_ns();
		if (m.running && !m.over && now - m.looked_ns > m.held_ns)
			m.held_ns = now - m.looked_ns;
		m.looked_ns = now;
		if (now >= next_look) {
			look_for_losses(now, m.patience_ns);
			next_look = now + AGAIN_NS / 4;
		}
		if (!m.running) {
			measurement_start(&m, began_ns, now, &open_nr);
			continue;
		}
		if (!m.over && (now >= m.next_window_ns || now >= m.until_ns)) {
			m.over = now >= m.until_ns;
			window_end(&m, m.over);
		}
		if (m.over && all_get_on(&m, now))
			break;
	}
	stalled = waiting_nr(m.until_ns);
	end_flows();
	if (asked_to_end)
		die("was asked to end");
	while (samples_read(ring))
		;
	print(&m, open_nr, stalled);
}

static void interface(const char *name)
{
	struct ifreq r = {};
	int room = FRAMES_ROOM;

	conf.ifindex = if_nametoindex(name);
	packet_fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (!conf.ifindex || packet_fd < 0)
		die("%s: %s", name, strerror(errno));
	if (setsockopt(packet_fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)))
		die("no room for frames: %s", strerror(errno));
	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
	if (ioctl(packet_fd, SIOCGIFHWADDR, &r))
		die("%s: %s", name, strerror(errno));
	memcpy(conf.smac, r.ifr_hwaddr.sa_data, 6);
	to = (struct sockaddr_ll){ .sll_family = AF_PACKET, .sll_ifindex = conf.ifindex,
				   .sll_halen = 6 };
	memcpy(to.sll_addr, conf.dmac, 6);
}

static void server(const char *host, const char *port)
{
	char *end;
	long nr = strtol(port, &end, 10);

	if (*end || nr < 1 || nr > 65535)
		die("%s: no port", port);
	conf.dport = htons(nr);
	if (inet_pton(AF_INET, host, &conf.daddr[3]) == 1) {
		snprintf(authority, sizeof(authority), "%s:%s", host, port);
	} else if (inet_pton(AF_INET6, host, conf.daddr) == 1) {
		conf.v6 = 1;
		snprintf(authority, sizeof(authority), "[%s]:%s", host, port);
	} else {
		die("%s: no address", host);
	}
	if (inet_pton(conf.v6 ? AF_INET6 : AF_INET, opt.source,
		      conf.v6 ? (void *)conf.saddr : (void *)&conf.saddr[3]) != 1)
		die("--source %s: not of the same family as %s", opt.source, host);
	conf.saddr[3] &= htonl(~0xffu);
}

/* Loads the kernel side, and attaches it to the interface's ingress until we end. */
static struct ring_buffer *attach(void)
{
	DECLARE_LIBBPF_OPTS(bpf_object_open_opts, how);
	DECLARE_LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = conf.ifindex,
			    .attach_point = BPF_TC_INGRESS);
	/* in place of what a load that was killed has left there */
	DECLARE_LIBBPF_OPTS(bpf_tc_opts, opts, .handle = 1, .priority = 1,
			    .flags = BPF_TC_F_REPLACE);
	struct bpf_object *o = bpf_object__open_file(opt.object, &how);
	struct bpf_map *map;
	struct ring_buffer *ring;
	int fd, err;

	if (!o)
		die("%s: %s", opt.object, strerror(errno));
	map = bpf_object__find_map_by_name(o, "loop_requests");
	if (!map || bpf_map__set_max_entries(map, request_nr))
		die("%s: no room for the list", opt.object);
	if (bpf_object__load(o))
		die("%s: the kernel does not load it: %s", opt.object, strerror(errno));
	for (unsigned int i = 0; i < request_nr; i++)
		if (bpf_map_update_elem(bpf_map__fd(map), &i, &requests[i], 0))
			die("request %u: %s", i, strerror(errno));
	conf.request_nr = request_nr;
	conf_fd = bpf_object__find_map_fd_by_name(o, "loop_confs");
	counters_fd = bpf_object__find_map_fd_by_name(o, "loop_counters");
	fd = bpf_object__find_map_fd_by_name(o, "loop_flows");
	flows = mmap(NULL, LOOP_FLOWS * sizeof(*flows), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (flows == MAP_FAILED)
		die("flows: %s", strerror(errno));
	ring = ring_buffer__new(bpf_object__find_map_fd_by_name(o, "loop_samples"), sample_read,
				NULL, NULL);
	if (!ring)
		die("samples: %s", strerror(errno));
	fd = 0;
	if (bpf_map_update_elem(conf_fd, &fd, &conf, 0))
		die("settings: %s", strerror(errno));
	opts.prog_fd = bpf_program__fd(bpf_object__find_program_by_name(o, "tbg_client"));
	err = bpf_tc_hook_create(&hook);
	if (err && err != -EEXIST)
		die("no clsact: %s", strerror(-err));
	err = bpf_tc_attach(&hook, &opts);
	if (err)
		die("not attached: %s", strerror(-err));
	return ring;
}

static void end(int signum)
{
	(void)signum;
	asked_to_end = 1;
}

static void detach(void)
{
	DECLARE_LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = conf.ifindex,
			    .attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS);

	bpf_tc_hook_destroy(&hook);
}

static const char usage[] =
"usage: loop [option ...] INTERFACE SERVER-MAC SERVER-ADDRESS PORT\n"
"\n"
"A closed-loop HTTP client in the kernel, at TC ingress of the interface.\n"
"\n"
"  --connections N   at a time (64)\n"
"  --calls N         requests on each; 0: no limit (0)\n"
"  --seconds S       to count (1)\n"
"  --window MS       length of the windows, each with a rate (100)\n"
"  --pieces N        samples to read at a time; 0: all (0), only with two cores\n"
"  --list FILE       lines of `weight path size CRC-32`\n"
"  --path PATH       instead of a list, with --size\n"
"  --size BYTES      of its body\n"
"  --status CODE     of the right answer (200)\n"
"  --header LINE     another field of each request; can be repeated\n"
"  --http-1.0        instead of 1.1\n"
"  --server-closes   after each reply, as HTTP/1.0 and Connection: close ask for\n"
"  --sample N        compare one of N replies with its CRC-32, at random (100)\n"
"  --ack BYTES       acknowledge a long reply after each of these (14000)\n"
"  --no-timestamps   nor SACK, in the SYN\n"
"  --source ADDRESS  first address of the connections, for every last octet (10.99.1.0)\n"
"  --object FILE     the kernel side (loop.bpf.o)\n"
"  --wait            print `ready`, and begin at the end of stdin\n";

static void options(int argc, char **argv, long *ret_size)
{
	static const struct option longs[] = {
		{ "connections", 1, 0, 'c' }, { "calls", 1, 0, 'n' }, { "seconds", 1, 0, 's' },
		{ "window", 1, 0, 'W' }, { "pieces", 1, 0, 'P' },
		{ "list", 1, 0, 'l' }, { "path", 1, 0, 'p' }, { "size", 1, 0, 'z' },
		{ "status", 1, 0, 'S' }, { "header", 1, 0, 'H' }, { "http-1.0", 0, 0, '0' },
		{ "server-closes", 0, 0, 'C' }, { "sample", 1, 0, 'e' }, { "ack", 1, 0, 'a' },
		{ "no-timestamps", 0, 0, 't' }, { "source", 1, 0, 'a' + 128 },
		{ "object", 1, 0, 'o' }, { "wait", 0, 0, 'w' }, { "help", 0, 0, 'h' }, {},
	};
	size_t len;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'c': conf.flow_nr = atoi(optarg); break;
		case 'n': conf.calls = atoi(optarg); break;
		case 's': opt.seconds = atof(optarg); break;
		case 'P': opt.pieces = strtoul(optarg, NULL, 10); break;
		case 'W': opt.window_ms = atoi(optarg); break;
		case 'l': opt.list = optarg; break;
		case 'p': opt.path = optarg; break;
		case 'z': *ret_size = atol(optarg); break;
		case 'S': opt.status = atoi(optarg); break;
		case 'H':
			len = strlen(opt.headers);
			snprintf(opt.headers + len, sizeof(opt.headers) - len, "%s\r\n", optarg);
			break;
		case '0': opt.minor = 0; break;
		case 'C': conf.server_closes = 1; break;
		case 'e': conf.sample_every = atoi(optarg); break;
		case 'a': conf.ack_bytes = atoi(optarg); break;
		case 't': conf.timestamps = 0; break;
		case 'a' + 128: opt.source = optarg; break;
		case 'o': opt.object = optarg; break;
		case 'w': opt.wait = true; break;
		case 'h': fputs(usage, stdout); exit(0);
		default: fputs(usage, stderr); exit(2);
		}
	}
	if (argc - optind != 4 || opt.seconds <= 0 || opt.window_ms < 1 ||
	    opt.status < 100 || opt.status > 999) {
		fputs(usage, stderr);
		exit(2);
	}
	if (conf.flow_nr < 1 || conf.flow_nr > LOOP_FLOWS)
		die("--connections: want 1 to %d", LOOP_FLOWS);
}

int main(int argc, char **argv)
{
	struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };
	struct ring_buffer *ring;
	unsigned char *m = conf.dmac;
	long size = 0;
	char c;

	options(argc, argv, &size);
	argv += optind;
	if (sscanf(argv[1], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", m, m + 1, m + 2, m + 3, m + 4,
		   m + 5) != 6)
		die("%s: no MAC address", argv[1]);
	server(argv[2], argv[3]);
	interface(argv[0]);
	if (opt.list)
		read_list();
	else
		request_add(opt.path, size, 0, false);
	partials = calloc(conf.flow_nr, sizeof(*partials));
	if (!partials)
		die("no memory");
	setrlimit(RLIMIT_MEMLOCK, &none);
	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGTERM, &(struct sigaction){ .sa_handler = end }, NULL);
	ring = attach();
	atexit(detach);
	if (opt.wait) {
		puts("ready");
		fflush(stdout);
		while (read(0, &c, 1) > 0)
			;
	}
	if (!asked_to_end)
		measure(ring);
	return asked_to_end;
}
