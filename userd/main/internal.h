/* SPDX-License-Identifier: GPL-2.0 */
/* What the files of this folder call of each other. For this folder alone. */
#ifndef TBG_USERD_MAIN_INTERNAL_H
#define TBG_USERD_MAIN_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "serve/server.h"
#include "os/privilege.h"
#include "tiers/attach.h"

struct tbg_reload;

struct start {
	struct tbg_server s;
	struct tbg_identity id;
	char **argv;
	struct tbg_reload *reload;
	struct tbg_left_list left;	/* programs of killed daemons that are still needed */
	int signal_fd;
	unsigned int threads_nr;	/* running */
	atomic_uint threads_ended;
	atomic_uint threads_bare;	/* without capabilities */
	atomic_int worker_err;
	unsigned int stops;		/* SIGTERMs so far */
	uint64_t drain_ns, ended_ns;	/* when draining began; when the workers ended */
};

/* listeners.c */
int tbg_listeners_open(struct tbg_server *s);
int tbg_listeners_listen(struct tbg_server *s);
/* Registers the listeners with wire or sock, whichever is given. False: *ret_why. */
int tbg_listeners_give(struct tbg_server *s, struct tbg_wire *wire, struct tbg_sock *sock,
		       char *ret_why, size_t len);

/* tiers.c */
/* Starts the kernel tiers; an error only turns a tier off. */
void tbg_tiers_wire_open(struct start *t);
void tbg_tiers_sock_open(struct tbg_server *s);
/* Lets the control thread's loop wait for what concerns wire. 0 or negative errno. */
int tbg_tiers_follow(struct tbg_server *s);
/* Removes programs of killed daemons as soon as their connections are over. */
void tbg_tiers_sweep(struct start *t);
/*
 * Waits for clients to close what the workers have closed: without wire, neither
 * side knows the other's sequence numbers. Some clients never close, so the wait
 * ends with the time for draining, or shortly after if that has passed.
 */
void tbg_tiers_detach_await(struct start *t, uint64_t now_ns);

#endif
