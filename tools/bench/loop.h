/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The data that loop.c and loop.bpf.c share: the load that runs in the kernel. While it
 * runs, each is the only writer of the fields that are marked as its own.
 */
#ifndef TBG_TOOLS_BENCH_LOOP_H
#define TBG_TOOLS_BENCH_LOOP_H

#define LOOP_FLOWS	16384	/* connections at a time */
#define LOOP_REQUESTS	65536	/* different ones */
#define LOOP_HEAD_MAX	1400	/* bytes of a request: one segment */
#define LOOP_PORT	1024	/* the first that a connection has */
#define LOOP_PORTS	64000
#define LOOP_HOSTS	250	/* addresses in the clients' last octet, from 1 on */
#define LOOP_PIECE	1536	/* bytes of a reply in one record of the samples */
#define LOOP_MSS	1460	/* IPv4; 20 less in IPv6 */
#define LOOP_WSCALE	7

struct loop_conf {
	unsigned char smac[6], dmac[6];
	unsigned int saddr[4];		/* network order; IPv4: the last word alone */
	unsigned int daddr[4];
	unsigned int ifindex;
	unsigned int flow_nr;
	unsigned int request_nr;
	unsigned int calls;		/* requests on a connection; 0: no end */
	unsigned int sample_every;
	unsigned int ack_bytes;		/* a bare ACK for this many of a long reply */
	unsigned short dport;		/* network order */
	unsigned short v6;
	unsigned short timestamps;
	unsigned short server_closes;	/* after each reply: Connection: close */
	unsigned int stop;		/* 1: each segment is answered by a reset */
	unsigned int hold;		/* 1: a connection waits after its first reply */
};

struct loop_request {
	unsigned int len, sum;		/* of the bytes: its checksum */
	unsigned int body_len;		/* of the right answer */
	unsigned int head_len;		/* of the last answer; 0: none yet */
	unsigned int status;		/* "200 " as a word */
	unsigned int odds;		/* alias method: below it, this one */
	unsigned int alias;		/* else that */
	unsigned int pad;
	unsigned char bytes[LOOP_HEAD_MAX];
};

enum loop_state {
	LOOP_NONE,
	LOOP_SYN,		/* a SYN is out */
	LOOP_WAIT,		/* a request is */
	LOOP_HELD,		/* none is, until loop.c sends the next one */
	LOOP_CLOSING,		/* our FIN is */
	LOOP_ENDING,		/* the server's is to come */
};

struct loop_flow {
	unsigned long long at_ns;	/* time of its last progress */
	unsigned int saddr;		/* last word of the address, network order */
	unsigned short sport;		/* network order */
	unsigned short state;
	unsigned int snd, rcv;		/* next number of ours, and of the server's */
	unsigned int request;
	unsigned int need;		/* bytes of the reply to come; 0: its head */
	unsigned int got;		/* since the last acknowledgement */
	unsigned int calls;		/* requests that are left; 0: no end */
	unsigned int generation;
	unsigned int tsecr;		/* the server's last timestamp; network order */
	unsigned int timestamps;
	unsigned int sample;		/* number of the sample; 0: this is none */
	unsigned int at;		/* offset in the sampled reply */
	unsigned int index;		/* of loop.c: its place in the map */
	unsigned int answered;		/* 1: it has had a whole reply */
};

/* Counters of one CPU. The names are those of the report. */
#define LOOP_COUNTS(X) \
	X(requests) X(bytes) X(segments) X(opened) X(misses) X(samples) \
	X(unsampled) X(lost) X(repeated) X(stray) X(reset) X(closed) X(status) \
	X(framing) X(room)

struct loop_counts {
#define X(name) unsigned long long name;
	LOOP_COUNTS(X)
#undef X
	unsigned int to_sample, sample;	/* to_sample: requests until the next sample */
};

/* A piece of a sampled reply. */
struct loop_piece {
	unsigned int flow, sample, request, at, len, last;
	unsigned char bytes[LOOP_PIECE];
};

#endif
