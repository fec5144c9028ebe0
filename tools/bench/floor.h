/* SPDX-License-Identifier: GPL-2.0 */
/* The reply of floor.bpf.c, made by floor.c. */
#ifndef TBG_TOOLS_BENCH_FLOOR_H
#define TBG_TOOLS_BENCH_FLOOR_H

#define FLOOR_REPLY_MAX 1440

struct floor_reply {
	unsigned int len, sum;		/* of the bytes: its checksum */
	unsigned int port;		/* network order */
	unsigned char bytes[FLOOR_REPLY_MAX];
};

#endif
