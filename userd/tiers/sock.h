/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The sock tier as the daemon sees it: loads the BPF object, attaches it, and
 * keeps the slots of the connections that are enrolled. A connection's counts
 * are in abi/sock.h; client/connection.c keeps the daemon's half of them.
 */
#ifndef TBG_USERD_SOCK_H
#define TBG_USERD_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/sock.h"
#include "tiers/maps.h"

struct bpf_object;
struct tbg_sock;

/*
 * Loads and attaches, with a ring for each of workers. wire: the object to share
 * maps with; NULL: the maps are sock's own. unlisted: also on a kernel of a series
 * whose fixes nobody has listed. Returns 0 or negative errno; on error ret_msg says
 * what is missing and what to do, and nothing is left attached.
 */
int tbg_sock_open(struct tbg_sock **ret, const struct tbg_plan *plan,
		  unsigned int workers, const struct bpf_object *wire,
		  bool unlisted, char *ret_msg, size_t msg_len);

/* Connections that this listening socket accepts are enrolled. */
int tbg_sock_listen(struct tbg_sock *s, int fd);

const struct tbg_maps *tbg_sock_maps(const struct tbg_sock *s);

/* The program that answers questions (tiers/ask.h); not where wire is, which does. */
int tbg_sock_ask_fd(const struct tbg_sock *s);

/* NULL is allowed. Connections must have been closed. */
void tbg_sock_close(struct tbg_sock *s);

uint32_t tbg_sock_slots(const struct tbg_sock *s);

/*
 * A worker's ring buffer: slots (uint32_t) of connections for which something has
 * come while they rested; now and then of one that has ended.
 */
int tbg_sock_news_fd(const struct tbg_sock *s, unsigned int worker);

/* Housekeeping, about once a second, by the control thread alone. */
void tbg_sock_tick(struct tbg_sock *s);

/*
 * The slot of an accepted socket, held until tbg_sock_release(), which is
 * called once the socket has been closed; -1: it is not enrolled. Any thread.
 */
int tbg_sock_claim(struct tbg_sock *s, int fd);
void tbg_sock_release(struct tbg_sock *s, int slot);

/* Of a held slot. */
struct tbg_sock_conn *tbg_sock_conn(const struct tbg_sock *s, int slot);

/* Bytes or answers are still on their way through the kernel's queues. */
bool tbg_sock_owes(const struct tbg_sock_conn *c);

/* No more hits. False: some are still on their way; ask again. */
bool tbg_sock_shut(struct tbg_sock_conn *c);

/* Undoes tbg_sock_shut(). */
void tbg_sock_reopen(struct tbg_sock_conn *c);

/* From here on the worker's ring tells when there is something to receive. */
void tbg_sock_rest(struct tbg_sock_conn *c);

/* There is nothing to receive, and the ring will tell. */
bool tbg_sock_rests(const struct tbg_sock_conn *c);

static inline void tbg_sock_received(struct tbg_sock_conn *c, uint32_t n)
{
	__atomic_store_n(&c->received, c->received + n, __ATOMIC_RELEASE);
}

#endif
