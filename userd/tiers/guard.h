/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The daemon's side of the guard: a program on its cgroup (bpf/translate/guard.bpf.c)
 * drops segments that would leave without translation, and this file resets the
 * connection. Used by wire.c and take_back.c.
 */
#ifndef TBG_USERD_TIERS_GUARD_H
#define TBG_USERD_TIERS_GUARD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/conn.h"

#define TBG_RESETS_MAX 256

/* A reset that the client may not have received yet. */
struct tbg_reset {
	struct tbg_flow_key key;
	uint32_t seq, ack;
	unsigned int sent, ticks;
};

struct tbg_guard {
	int prog_fd;
	int cgroup_fd;		/* where prog_fd is attached; -1: nowhere */
	int reset_fd[2];	/* raw sockets of IPv4 and IPv6; -1: none */
	pthread_mutex_t lock;	/* of the members below */
	struct tbg_reset reset[TBG_RESETS_MAX];
	unsigned int reset_nr;
};

/*
 * Attaches prog_fd to the cgroup of this process, and so of its sockets. The program
 * outlives the daemon, as those of the interfaces do. On error returns negative errno,
 * and the reason in ret_why.
 */
int tbg_guard_open(struct tbg_guard *ret, int prog_fd, char *ret_why, size_t why_len);

/*
 * Attaches the program again if somebody has detached it. Returns false if that fails:
 * until it succeeds, wire must not answer.
 */
bool tbg_guard_keep(struct tbg_guard *g);

/* Detaches. Needs CAP_NET_ADMIN. */
void tbg_guard_close(struct tbg_guard *g);

/* Detaches programs of dead daemons from the cgroup, unless their flows still need them. */
void tbg_guard_sweep(const struct tbg_guard *g,
		     bool (*needed)(int flows_fd, uint64_t now_ns), uint64_t now_ns);

/*
 * Sends the client a reset with the sequence number that it expects, which the socket
 * does not know. It is sent now and at the next ticks, since there may be no route at
 * the moment. Without a raw socket (CAP_NET_RAW) the client learns of the end with its
 * next segment. Any thread.
 */
void tbg_guard_reset(struct tbg_guard *g, const struct tbg_flow_key *key,
		     uint32_t seq, uint32_t ack);

/* About once a second, by the control thread. */
void tbg_guard_tick(struct tbg_guard *g);

#endif
