/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel side as the daemon sees it: loads the BPF objects, attaches them
 * to interfaces (tcx where the kernel has it, clsact otherwise), drains and
 * detaches them.
 */
#ifndef TBG_USERD_WIRE_H
#define TBG_USERD_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "tiers/births.h"
#include "tiers/interfaces.h"
#include "tiers/maps.h"
#include "tiers/tcb.h"
#include "tiers/unfollowed.h"

struct bpf_object;
struct tbg_tcbs;

struct tbg_wire;

/*
 * Loads and attaches. ifaces: comma-separated words or "auto" (every Ethernet
 * and loopback interface that is up and has an address of a listener).
 * owner: whom the daemon will run as. Listeners must be bound. late_sockets: connections
 * are wire's alone, where the kernel can make their sockets late. births: who then answers
 * their SYNs. size: of the longest reply; 0: ten segments. Returns 0 or negative errno; on
 * error ret_msg says what is missing and what to do, and nothing is left attached.
 */
int tbg_wire_open(struct tbg_wire **ret, const char *ifaces, uid_t owner, bool late_sockets,
		  enum tbg_births_wanted births, unsigned int size, const struct tbg_plan *plan,
		  const struct sockaddr_storage *listeners, unsigned int nr,
		  char *ret_msg, size_t msg_len);

/* Connections that this listening socket accepts are wire's to answer. */
int tbg_wire_listen(struct tbg_wire *w, int fd);

const struct tbg_maps *tbg_wire_maps(const struct tbg_wire *w);

/* What was loaded, for another tier to share its maps. */
const struct bpf_object *tbg_wire_object(const struct tbg_wire *w);

/* Number of interfaces. NULL allowed. */
unsigned int tbg_wire_ifaces(const struct tbg_wire *w,
			     struct tbg_wire_iface ret[TBG_IFACES_MAX]);

/* Flows that wire follows, of connections that are over too, counted now. */
unsigned int tbg_wire_flows(struct tbg_wire *w);

/*
 * Of them, those whose sockets still need translation (deltas, not through their end).
 * drain_ns: since when every socket is being closed.
 */
unsigned int tbg_wire_flows_open(struct tbg_wire *w, uint64_t drain_ns);

/*
 * Closes connections without a socket, as soon as nothing is under way on them; to be
 * called again until the end.
 */
void tbg_wire_drain(struct tbg_wire *w);

/* Its connections without a socket, see tcb.h; NULL: there are none, or no wire. */
struct tbg_tcbs *tbg_wire_tcbs(struct tbg_wire *w);

/* How long a connection may idle, and wait for its first request. */
void tbg_wire_limits(struct tbg_wire *w, unsigned int idle_ms, unsigned int header_ms);

/* The kernel's number of the program that answers; 0: it cannot be told. */
uint32_t tbg_wire_program(const struct tbg_wire *w);

/* The program that answers questions (tiers/ask.h). */
int tbg_wire_ask_fd(const struct tbg_wire *w);

/* Shows fn every connection that wire owns, until it returns false. Any thread. */
void tbg_wire_own_each(const struct tbg_wire *w,
		       bool (*fn)(const struct tbg_tcb_key *key, const struct tbg_tcb *tcb,
				  void *arg),
		       void *arg);

/* Whether connections are wire's or the kernel's, none of them both. */
bool tbg_wire_owns(const struct tbg_wire *w);

/* Why every connection has a socket; "": not every one has. */
const char *tbg_wire_late_off(const struct tbg_wire *w);

/* Who answers SYNs, of such; NULL: the kernel all of them. By the control thread. */
const struct tbg_births *tbg_wire_births(const struct tbg_wire *w);

/* Sends again what nobody has acknowledged in time; several times a second, by one thread. */
void tbg_wire_again(struct tbg_wire *w, uint64_t now_ns);

/*
 * A connection that wire has handed over, once its socket has something to read. *ret is
 * what wire knows of it. Negative: it never was wire's. Any thread.
 */
int tbg_conn_take(struct tbg_wire *w, int fd, struct tbg_taken *ret);

/*
 * A request, the len bytes in b, has come on a connection that was taken, behind taken
 * bytes of others, and nothing else is under way there. True: wire has answered it, the
 * connection is wire's again, and fd is to be closed: that many requests in a row were
 * such as wire could answer.
 */
bool tbg_conn_give(struct tbg_wire *w, struct tbg_taken *k, int fd, uint32_t taken,
		   const uint8_t *b, uint32_t len, unsigned int answers);

/* Detaches from all interfaces and frees. NULL is allowed. */
void tbg_wire_close(struct tbg_wire *w);

/* Housekeeping, about once a second, by the control thread alone. */
void tbg_wire_tick(struct tbg_wire *w, uint64_t now_ns);

/*
 * Readable when interfaces, addresses or routes have changed, or -1. Then, and a few times
 * a second, tbg_wire_news() is to be called, which follows them; by the control thread.
 */
int tbg_wire_news_fd(const struct tbg_wire *w);
void tbg_wire_news(struct tbg_wire *w, uint64_t now_ns);

/*
 * "" or a sentence: wire, which is on, follows none of its connections, and the likely
 * reason. By the control thread; needs CAP_NET_ADMIN, which it raises.
 */
void tbg_wire_unfollowed(struct tbg_wire *w, char ret[TBG_UNFOLLOWED_LEN]);

/* Why wire, which is on, answers nothing for now; "": it answers. */
const char *tbg_wire_held(const struct tbg_wire *w);

/*
 * A connection's slot. tbg_conn_claim() looks the flow of the accepted socket
 * fd up (two system calls) and marks its slot held; it returns the slot, or
 * -1 where wire does not follow the connection. Any thread. Every claim is
 * undone by tbg_conn_release() when the connection closes.
 */
int tbg_conn_claim(struct tbg_wire *w, int fd);
void tbg_conn_release(struct tbg_wire *w, int slot);

/* Whether a socket may have to be given the last reply of slot's flow. Any thread. */
bool tbg_slot_waits(struct tbg_wire *w, uint32_t slot);

/*
 * CLOCK_MONOTONIC of wire's last reply on a connection, not of what came behind it: a
 * client that only asks whether we are there is idle. 0: wire has answered nothing.
 */
uint64_t tbg_conn_hit_ns(struct tbg_wire *w, int fd, uint64_t now_ns);

/*
 * "The requests in the first `taken` bytes are answered by the first
 * `written` bytes": one release store. Call it just before the last bytes of
 * a response are handed to the kernel.
 */
static inline void tbg_conn_publish(__u64 *word, uint32_t taken, uint32_t written)
{
	__atomic_store_n(word, TBG_CONN_WORD(taken, written), __ATOMIC_RELEASE);
}

#endif
