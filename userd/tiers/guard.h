/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The guard of translated connections, as the daemon sees it: a program on its cgroup
 * (bpf/translate/guard.bpf.c) drops what would leave without translation, and the
 * connection is reset from here. Used by wire.c and take_back.c.
 */
#ifndef TBG_USERD_GUARD_H
#define TBG_USERD_GUARD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/conn.h"

#define TBG_RESETS_MAX 256

/* A reset that the client may not have got yet. */
struct tbg_reset {
	struct tbg_flow_key key;
	uint32_t seq, ack;
	unsigned int sent, ticks;
};

struct tbg_guard {
	int prog_fd;
	int cgroup_fd;		/* where prog_fd is attached; -1: nowhere */
	int reset_fd[2];	/* raw sockets of IPv4 and IPv6; -1: none */
	pthread_mutex_t lock;	/* of what follows */
	struct tbg_reset reset[TBG_RESETS_MAX];
	unsigned int reset_nr;
};

/*
 * Attaches prog_fd to the cgroup that this process makes its sockets in. The program
 * outlives the daemon, as those of the interfaces do. 0 or negative errno, and ret_why
 * says what is missing.
 */
int tbg_guard_open(struct tbg_guard *ret, int prog_fd, char *ret_why, size_t why_len);

/* Detaches. Needs CAP_NET_ADMIN. */
void tbg_guard_close(struct tbg_guard *g);

/* Detaches what dead daemons left on the cgroup, unless their flows need it still. */
void tbg_guard_sweep(const struct tbg_guard *g,
		     bool (*needed)(int flows_fd, uint64_t now_ns), uint64_t now_ns);

/*
 * Sends the client a reset at the number it waits for, which the socket does not know:
 * now, and with the next ticks, as there may be no route at the moment. Without a raw
 * socket (CAP_NET_RAW) the client learns of the end with its next segment. Any thread.
 */
void tbg_guard_reset(struct tbg_guard *g, const struct tbg_flow_key *key,
		     uint32_t seq, uint32_t ack);

/* About once a second, by the control thread. */
void tbg_guard_tick(struct tbg_guard *g);

#endif
