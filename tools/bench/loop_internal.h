/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the parts of the load's own side share: loop.c runs and counts, loop_asked.c
 * has the requests, loop_frames.c sends what the kernel side does not.
 */
#ifndef TBG_TOOLS_BENCH_LOOP_INTERNAL_H
#define TBG_TOOLS_BENCH_LOOP_INTERNAL_H

#include <linux/if_packet.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop.h"

#define SECOND_NS	1000000000LL

struct expected {
	uint32_t crc;
	bool crc_known;
};

extern struct loop_options {
	const char *object, *list, *path, *source;
	char headers[LOOP_HEAD_MAX];
	double seconds;
	int status, minor, window_ms;
	unsigned int pieces;
	bool wait;
} opt;

extern struct loop_conf conf;
extern char authority[300];
extern struct loop_request *requests;
extern struct expected *expected;
extern unsigned int request_nr;
extern struct loop_flow *flows;
extern int packet_fd;
extern struct sockaddr_ll to;
extern long resent;

void __attribute__((noreturn, format(printf, 1, 2))) die(const char *form, ...);
int64_t now_ns(void);

void request_add(const char *path, long size, uint32_t crc, bool crc_known);
void read_list(void);
unsigned int request_draw(void);

uint32_t sum_of(uint32_t sum, const void *bytes, size_t len);
void send_frame(const struct loop_flow *f, unsigned int flags, unsigned int seq,
		const struct loop_request *r);
void send_next(struct loop_flow *f);
void look_for_losses(int64_t now, int64_t patience);

#endif
