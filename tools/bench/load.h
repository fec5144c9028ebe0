/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The client's state, and the interfaces of its parts: load.c runs the clock and reports,
 * load_request.c sends requests, load_reply.c reads replies, load_options.c reads the options.
 */
#ifndef TBG_TOOLS_BENCH_LOAD_H
#define TBG_TOOLS_BENCH_LOAD_H

#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define HEAD_MAX	4096
#define REQUEST_MAX	4096
#define SOURCE_MAX	256
#define TICK_NS		10000000L	/* interval of reading slow lines */
#define SECOND_NS	1000000000L
#define STATUS_MAX	999

#define ERRORS(X) \
	X(timeout) X(refused) X(reset) X(closed) X(fd) X(addr) X(status) X(length) \
	X(body) X(framing) X(other)

enum error {
#define X(name) ERR_##name,
	ERRORS(X)
#undef X
	ERR_NR
};

enum state { CLOSED, CONNECTING, IDLE, READING };

/* Ranges of a body in which any digit is valid. */
struct digits {
	long first, len, every, times;
};

struct target {
	char *path;
	char *cookie, *post;		/* NULL: none; '#' is any digit */
	double up_to;			/* cumulative share of the requests */
	long body_len;			/* -1: not known */
	uint32_t crc;
	bool crc_known;
	struct digits *digits;		/* NULL: none */
};

struct conn {
	int fd;
	enum state state;
	unsigned int calls_left;	/* UINT32_MAX: no end */
	bool queued, asleep, close_after, used, old;	/* old: HTTP/1.0 */
	const struct target *target;
	long due_ns, sent_ns, heard_ns;	/* heard: of the reply, its last bytes so far */
	int head_len;
	long body_left, body_len, offset;	/* offset: where in the body the reply begins */
	enum chunk { UNCHUNKED, SIZE, EXTENSION, DATA, END, TRAILER, TO_CLOSE } chunk;
	long chunk_left;		/* or bytes of a trailer line */
	int status;
	uint32_t crc;
	double tokens;			/* bytes that the line has left */
	double bits, busy_s;		/* of requests, from when they were due */
	char *head;			/* only while a reply is read: most connections wait */
};

extern struct load_options {
	struct sockaddr_storage to, sources[SOURCE_MAX];
	socklen_t to_len;
	char authority[300];
	int source_nr, connections, active, calls_min, calls_max, expect;
	double seconds, rate, line_bps, conform_bps, timeout_s, single, old, opening_s;
	const char *list, *path, *headers;
	bool once, verify, wait, offsets;
} opt;

extern struct target *targets;
extern long target_nr, next_once;
extern struct conn *conns;
extern int *queue, queue_head, queue_len;	/* of connections that wait for work */
extern int *sleepers, sleeper_nr;		/* whose line is used up */
extern int epfd, in_flight, opening, opened, source_next;
extern long start_ns, end_ns, polled_ns, issued;
extern bool measuring, stopped;
extern volatile sig_atomic_t interrupted;
extern long done_nr, byte_nr, sent_nr, used_nr, error_nr, errors[ERR_NR];
extern long wrong_statuses[STATUS_MAX + 1];

long now_ns(void);
double random_share(void);
int die(const char *what);
void latency_count(long us);

void enqueue(struct conn *c);
void conn_open(struct conn *c);
void conn_close(struct conn *c);
void conn_fail(struct conn *c, enum error kind);
void count_error(enum error kind);
enum error error_of(int err);
void conn_send(struct conn *c);
void request_start(long due_ns);
void request_done(struct conn *c);
long reply_len(const struct conn *c);

void conn_ready(struct conn *c, uint32_t events);
void tick(double dt_s);
void scan_timeouts(long now);

void options_read(int argc, char **argv);

#endif
