// SPDX-License-Identifier: GPL-2.0
/*
 * The client for loads that no packaged generator makes: many connections of which a
 * few are active, lines of a given speed, an exact number of requests on each
 * connection, requests drawn by weight, an open loop whose latency counts from
 * when a request was due, and every byte of every reply checked. Run by `bench`,
 * which reads the line of JSON at the end; `load --help` has the options.
 *
 * One thread, one epoll loop, HTTP/1.1 and 1.0. It counts faults by kind and never
 * retries; the reader of the report decides about them.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

#define EVENTS_MAX	512
#define OPENING_MAX	256		/* handshakes at a time before the load */
#define SCAN_NS		200000000L	/* interval of checks for timeouts */
#define SYN_AGAIN_NS	1500000000L	/* by then TCP has repeated a lost SYN once */
#define SUB_BITS	5		/* resolution of latencies: 3 % */

static const char *const error_names[] = {
#define X(name) #name,
	ERRORS(X)
#undef X
};

struct load_options opt = {
	.connections = 1, .seconds = 1, .timeout_s = 8, .expect = 200, .path = "/",
	.headers = "", .verify = true, .opening_s = 60,
};

struct target *targets;
long target_nr, next_once;
struct conn *conns;
int *queue, queue_head, queue_len;	/* of connections that wait for work */
int *sleepers, sleeper_nr;		/* whose line is used up */
int epfd, in_flight, opening, opened, source_next;
long start_ns, end_ns, polled_ns, issued;
bool measuring, stopped;
volatile sig_atomic_t interrupted;
long done_nr, byte_nr, sent_nr, used_nr, error_nr, errors[ERR_NR];
long wrong_statuses[STATUS_MAX + 1];
static long latencies[64 << SUB_BITS], latency_nr, latency_max_us, latency_sum_us;
static uint64_t seed = 88172645463325252ULL;

long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * SECOND_NS + ts.tv_nsec;
}

double random_share(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (seed >> 11) * (1.0 / 9007199254740992.0);
}

int die(const char *what)
{
	fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* --- latencies ------------------------------------------------------------ */

static int latency_slot(long us)
{
	int high = us > 0 ? 63 - __builtin_clzl(us) : 0;

	if (high < SUB_BITS)
		return us;
	return ((high - SUB_BITS + 1) << SUB_BITS) +
	       ((us >> (high - SUB_BITS)) & ((1 << SUB_BITS) - 1));
}

static long slot_us(int slot)
{
	int high = slot >> SUB_BITS;
	long low = slot & ((1 << SUB_BITS) - 1);

	return high ? (low + (1 << SUB_BITS)) << (high - 1) : low;
}

void latency_count(long us)
{
	latencies[latency_slot(us)]++;
	latency_nr++;
	latency_sum_us += us;
	latency_max_us = us > latency_max_us ? us : latency_max_us;
}

static long percentile_us(double share)
{
	long want = share * latency_nr, seen = 0;

	for (size_t i = 0; i < sizeof(latencies) / sizeof(*latencies); i++) {
		seen += latencies[i];
		if (seen > want)
			return slot_us(i);
	}
	return latency_max_us;
}

/* --- the run -------------------------------------------------------------- */

static bool more_to_ask(void)
{
	return !opt.once || next_once < target_nr;
}

/* The time at which the nr-th request of an open loop is due. */
static long nth_due_ns(long nr)
{
	return start_ns + (long)(nr / opt.rate * SECOND_NS);
}

static void requests_start(long now)
{
	if (opt.rate > 0) {
		while (queue_len && more_to_ask() && nth_due_ns(issued) <= now)
			request_start(nth_due_ns(issued));
		return;
	}
	while (queue_len && in_flight < opt.active && more_to_ask() && !stopped)
		request_start(now);
}

static long wait_ms(long now)
{
	long due;

	if (!measuring || opt.rate <= 0)
		return TICK_NS / 1000000;
	due = nth_due_ns(issued) - now;
	if (due < 0)
		due = queue_len ? 0 : TICK_NS;
	return due < TICK_NS ? due / 1000000 : TICK_NS / 1000000;
}

static void poll_once(void)
{
	static struct epoll_event evs[EVENTS_MAX];
	static long ticked_ns, scanned_ns;
	long now = now_ns();
	int nr = epoll_wait(epfd, evs, EVENTS_MAX, wait_ms(now));

	polled_ns = now_ns();
	for (int i = 0; i < nr; i++)
		conn_ready(&conns[evs[i].data.u32], evs[i].events);
	now = now_ns();
	if (opt.line_bps > 0 && now - ticked_ns >= TICK_NS) {
		tick(ticked_ns ? (now - ticked_ns) / 1e9 : 0.01);
		ticked_ns = now;
	}
	if (now - scanned_ns >= SCAN_NS) {
		scan_timeouts(now);
		scanned_ns = now;
	}
}

/* Opens all connections before the clock starts; reopening closed ones is part of the run. */
static void open_all(void)
{
	long give_up_ns = now_ns() + (long)(opt.opening_s * SECOND_NS);
	int next = 0;

	while (opened < opt.connections && !interrupted && !stopped && now_ns() < give_up_ns) {
		while (next < opt.connections && opening < OPENING_MAX && !stopped)
			conn_open(&conns[next++]);
		if (next == opt.connections && !opening)
			break;
		poll_once();
	}
}

/* Waits until the caller has read the clock and closes our stdin. */
static void wait_for_go(void)
{
	char ch;

	printf("ready\n");
	fflush(stdout);
	while (!interrupted && read(STDIN_FILENO, &ch, 1) > 0)
		;
}

/*
 * A request that was due and has no reply takes at least until now. Otherwise a server that
 * stalls until the end would look as if it had received no requests.
 */
static void unanswered_count(long now)
{
	for (int i = 0; i < opt.connections; i++)
		if (conns[i].target)
			latency_count((now - conns[i].due_ns) / 1000);
	for (long nr = issued; nth_due_ns(nr) <= now && (!opt.once || nr < target_nr); nr++)
		latency_count((now - nth_due_ns(nr)) / 1000);
}

/*
 * A closed loop ends before such a request is late: the server has lost requests for which
 * no byte has arrived for so long. Replies over slow lines, and connections with a lost SYN,
 * take longer.
 */
static void forgotten_count(long now)
{
	long half = (now - start_ns) / 2;

	for (int i = 0; i < opt.connections; i++) {
		bool connecting = conns[i].state == CONNECTING;
		long since = connecting ? conns[i].sent_ns : conns[i].heard_ns;
		long most = connecting && half < SYN_AGAIN_NS ? SYN_AGAIN_NS : half;

		if (conns[i].target && now - since > most)
			count_error(ERR_timeout);
	}
}

static void run(void)
{
	long now;

	start_ns = now_ns();
	end_ns = start_ns + (long)(opt.seconds * SECOND_NS);
	measuring = true;
	for (int i = 0; i < opt.connections; i++)
		if (conns[i].state == CLOSED || conns[i].state == IDLE)
			enqueue(&conns[i]);
	while ((now = now_ns()) < end_ns && !interrupted && !stopped) {
		if (opt.once && next_once == target_nr && !in_flight)
			break;
		requests_start(now);
		poll_once();
	}
	measuring = false;
	if (opt.rate > 0)
		unanswered_count(now < end_ns ? now : end_ns);
	else if (opt.line_bps <= 0)
		forgotten_count(now);
}

/*
 * Connections whose replies arrived at that speed, including the received part of the
 * current one; otherwise a server that stalls until the end would look fast.
 */
static int conforming(void)
{
	long now = now_ns();
	int nr = 0;

	for (int i = 0; i < opt.connections; i++) {
		struct conn *c = &conns[i];

		if (c->state == READING)
			c->bits += 8.0 * reply_len(c);
		if (c->target)
			c->busy_s += (now - c->due_ns) / 1e9;
		nr += c->busy_s > 0 && c->bits / c->busy_s >= opt.conform_bps;
	}
	return nr;
}

static void report(double seconds, int opened_nr)
{
	bool more = false;

	printf("{\"requests\": %ld, \"bytes\": %ld, \"seconds\": %.6f, \"errors\": %ld, "
	       "\"statuses\": %ld, \"p50_us\": %ld, \"p90_us\": %ld, \"p99_us\": %ld, "
	       "\"max_us\": %ld, \"mean_us\": %ld, \"sent\": %ld, \"opened\": %d, \"connects\": %ld, "
	       "\"late\": %ld, \"stopped\": %s, \"conforming\": %d, \"kinds\": {",
	       done_nr, byte_nr, seconds, error_nr - errors[ERR_status], errors[ERR_status],
	       percentile_us(0.5), percentile_us(0.9), percentile_us(0.99), latency_max_us,
	       latency_nr ? latency_sum_us / latency_nr : 0, sent_nr, opened_nr, used_nr,
	       opt.rate > 0 ? (long)(seconds * opt.rate) - issued : 0,
	       stopped ? "true" : "false", opt.conform_bps > 0 ? conforming() : 0);
	for (int i = 0; i < ERR_NR; i++) {
		if (!errors[i])
			continue;
		printf("%s\"%s\": %ld", more ? ", " : "", error_names[i], errors[i]);
		more = true;
	}
	printf("}, \"wrong_statuses\": {");
	more = false;
	for (int i = 0; i <= STATUS_MAX; i++) {
		if (!wrong_statuses[i])
			continue;
		printf("%s\"%d\": %ld", more ? ", " : "", i, wrong_statuses[i]);
		more = true;
	}
	printf("}}\n");
}

static void on_signal(int signum)
{
	(void)signum;
	interrupted = 1;
}

int main(int argc, char **argv)
{
	int opened_nr;

	options_read(argc, argv);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	seed ^= (uint64_t)now_ns();
	conns = calloc(opt.connections, sizeof(*conns));
	queue = calloc(opt.connections, sizeof(*queue));
	sleepers = calloc(opt.connections, sizeof(*sleepers));
	epfd = epoll_create1(EPOLL_CLOEXEC);
	if (!conns || !queue || !sleepers || epfd < 0)
		die("memory");
	for (int i = 0; i < opt.connections; i++)
		conns[i].fd = -1;
	open_all();
	opened_nr = opened;
	if (opt.wait)
		wait_for_go();
	if (!stopped)
		run();
	report(start_ns ? (now_ns() < end_ns ? now_ns() : end_ns) / 1e9 - start_ns / 1e9 : 0,
	       opened_nr);
	return 0;
}
