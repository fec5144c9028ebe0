/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the parts of the start call of each other. For this folder alone.
 */
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
	struct tbg_left_list left;	/* by killed daemons; still needed */
	int signal_fd;
	unsigned int threads_nr;	/* running */
	atomic_uint threads_ended;
	atomic_uint threads_bare;	/* without capabilities */
	atomic_int worker_err;
	unsigned int stops;		/* SIGTERMs so far */
	uint64_t drain_ns, ended_ns;	/* draining began; the workers have ended */
};

/* listeners.c */
int tbg_listeners_open(struct tbg_server *s);
int tbg_listeners_listen(struct tbg_server *s);
/* What our sockets accept is wire's or sock's, whichever is given; or *ret_why. */
int tbg_listeners_give(struct tbg_server *s, struct tbg_wire *wire, struct tbg_sock *sock,
		       char *ret_why, size_t len);

/* tiers.c */
/* Whatever fails only turns wire off. */
void tbg_tiers_wire_open(struct start *t);
void tbg_tiers_sock_open(struct tbg_server *s);
/* What killed daemons left goes as soon as their connections are over. */
void tbg_tiers_sweep(struct start *t);
/*
 * Clients have yet to close what the workers have closed, and without wire neither
 * side knows the other's numbers. Some never do: they are waited for no longer
 * than draining may take, or for a little if it has taken longer.
 */
void tbg_tiers_detach_await(struct start *t, uint64_t now_ns);

#endif
