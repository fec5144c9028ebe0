/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The daemon's side of the sock tier: loads and attaches the BPF object, and
 * manages the slots of enrolled connections. The counts of a connection are
 * in abi/sock.h; client/ maintains the daemon's half of them.
 */
#ifndef TBG_USERD_TIERS_SOCK_H
#define TBG_USERD_TIERS_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/sock.h"
#include "tiers/maps.h"

struct bpf_object;
struct tbg_sock;

/*
 * Loads and attaches, with a ring buffer for each worker. wire: the tier to share
 * maps with; NULL: none. unlisted: also on kernel series for which required fixes
 * are not listed. On error returns negative errno, with a message (what is missing,
 * what to do) in ret_msg, and leaves nothing attached.
 */
int tbg_sock_open(struct tbg_sock **ret, const struct tbg_plan *plan,
		  unsigned int workers, const struct bpf_object *wire,
		  bool unlisted, char *ret_msg, size_t msg_len);

/* Connections that this listening socket accepts are enrolled. */
int tbg_sock_listen(struct tbg_sock *s, int fd);

const struct tbg_maps *tbg_sock_maps(const struct tbg_sock *s);

/* The program for tiers/ask.h; unused if wire is loaded, which has its own. */
int tbg_sock_ask_fd(const struct tbg_sock *s);

/* NULL is allowed. Connections must have been closed. */
void tbg_sock_close(struct tbg_sock *s);

uint32_t tbg_sock_slots(const struct tbg_sock *s);

/*
 * A worker's ring buffer: slots (uint32_t) of quiet connections that have
 * received data; sometimes of one that has ended.
 */
int tbg_sock_news_fd(const struct tbg_sock *s, unsigned int worker);

/* Housekeeping, about once a second, by the control thread alone. */
void tbg_sock_tick(struct tbg_sock *s);

/*
 * The slot of an accepted socket, held until tbg_sock_release(), which is
 * called after the socket was closed; -1: not enrolled. Any thread.
 */
int tbg_sock_claim(struct tbg_sock *s, int fd);
void tbg_sock_release(struct tbg_sock *s, int slot);

/* The counts of a held slot. */
struct tbg_sock_conn *tbg_sock_conn(const struct tbg_sock *s, int slot);

/* Whether bytes or answers are still in the kernel's queues. */
bool tbg_sock_owes(const struct tbg_sock_conn *c);

/* Stops hits. False: some are still under way; call again. */
bool tbg_sock_shut(struct tbg_sock_conn *c);

/* Undoes tbg_sock_shut(). */
void tbg_sock_reopen(struct tbg_sock_conn *c);

/* From now on the worker's ring buffer reports when there is something to receive. */
void tbg_sock_rest(struct tbg_sock_conn *c);

/* Whether there is nothing to receive, and the ring buffer will report. */
bool tbg_sock_rests(const struct tbg_sock_conn *c);

static inline void tbg_sock_received(struct tbg_sock_conn *c, uint32_t n)
{
	__atomic_store_n(&c->received, c->received + n, __ATOMIC_RELEASE);
}

#endif
