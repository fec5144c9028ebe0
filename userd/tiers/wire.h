/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The daemon's side of the wire tier: loads the BPF objects, attaches them to
 * interfaces (tcx if the kernel has it, else clsact), drains and detaches
 * them.
 */
#ifndef TBG_USERD_TIERS_WIRE_H
#define TBG_USERD_TIERS_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "abi/pair.h"
#include "tiers/births.h"
#include "tiers/interfaces.h"
#include "tiers/maps.h"
#include "tiers/routes.h"
#include "tiers/tcb.h"
#include "tiers/track.h"
#include "tiers/unfollowed.h"

struct bpf_object;
struct tbg_tcbs;

struct tbg_wire;

/*
 * Loads and attaches. ifaces: comma-separated words or "auto" (every Ethernet and
 * loopback interface that is up and has an address of a listener). owner: the user that
 * the daemon will run as. Listeners must be bound. late_sockets: use them if the kernel
 * has them. births: who then answers SYNs. size: of the longest reply; 0: ten segments.
 * On error returns negative errno, with a message (what is missing, what to do) in
 * ret_msg, and leaves nothing attached.
 */
int tbg_wire_open(struct tbg_wire **ret, const char *ifaces, uid_t owner, bool late_sockets,
		  enum tbg_births_wanted births, unsigned int size, const struct tbg_plan *plan,
		  const struct sockaddr_storage *listeners, unsigned int nr,
		  char *ret_msg, size_t msg_len);

/*
 * Lets wire answer on connections of this listening socket. nr: the number of the
 * daemon's sockets that share its port; where there are more, another process listens, too.
 */
int tbg_wire_listen(struct tbg_wire *w, int fd, uint32_t nr);

/* After the last of them. */
void tbg_wire_given(struct tbg_wire *w);

/* What serves VRFs; NULL: with translation, or w is NULL. */
struct tbg_vrfs *tbg_wire_vrfs(struct tbg_wire *w);

const struct tbg_maps *tbg_wire_maps(const struct tbg_wire *w);

/* The loaded object, for another tier that shares its maps. */
const struct bpf_object *tbg_wire_object(const struct tbg_wire *w);

/* Number of interfaces. NULL allowed. */
unsigned int tbg_wire_ifaces(const struct tbg_wire *w,
			     struct tbg_wire_iface ret[TBG_IFACES_MAX]);

/* Number of flows now, including closed connections. */
unsigned int tbg_wire_flows(struct tbg_wire *w);

/*
 * Number of flows whose sockets still need translation (with deltas, not fully
 * closed). drain_ns: since when every socket is being closed.
 */
unsigned int tbg_wire_flows_open(struct tbg_wire *w, uint64_t drain_ns);

/*
 * Closes connections without a socket as soon as no reply is under way; to be called
 * repeatedly.
 */
void tbg_wire_drain(struct tbg_wire *w);

/* Its connections without a socket, see tcb.h; NULL: without late sockets, or without wire. */
struct tbg_tcbs *tbg_wire_tcbs(struct tbg_wire *w);

/* Sets how long a connection may be idle, and wait for its first request. */
void tbg_wire_limits(struct tbg_wire *w, unsigned int idle_ms, unsigned int header_ms);

/* The kernel's id of the program that answers; 0: unknown. */
uint32_t tbg_wire_program(const struct tbg_wire *w);

/* The program for tiers/ask.h. */
int tbg_wire_ask_fd(const struct tbg_wire *w);

/* The routes as they were last read; NULL: with translation. Control thread. */
const struct tbg_routes *tbg_wire_routes(const struct tbg_wire *w);

/*
 * Asks the kernel for the way to a client that comes by the interface: fills in port and VRF of
 * *key. Control thread.
 */
void tbg_wire_pair_ask(struct tbg_wire *w, struct tbg_pair_key *key, int ifindex);

/* Calls fn for every connection that wire owns, until it returns false. Any thread. */
void tbg_wire_own_each(const struct tbg_wire *w,
		       bool (*fn)(const struct tbg_tcb_key *key, const struct tbg_tcb *tcb,
				  void *arg),
		       void *arg);

/* Whether late sockets are in use. */
bool tbg_wire_owns(const struct tbg_wire *w);

/* Why late sockets are not in use; "": they are. */
const char *tbg_wire_late_off(const struct tbg_wire *w);

/* Who answers SYNs with late sockets; NULL: without, it is the kernel. Control thread. */
const struct tbg_births *tbg_wire_births(const struct tbg_wire *w);

/* Retransmits overdue replies; called several times a second by one thread. */
void tbg_wire_again(struct tbg_wire *w, uint64_t now_ns);

/*
 * Takes a connection that was handed over, once its socket has something to read; *ret:
 * its state in wire. Negative: it was never wire's. Any thread.
 */
int tbg_conn_take(struct tbg_wire *w, int fd, struct tbg_taken *ret);

/*
 * Offers wire the request of len bytes in b on a connection that was handed over and
 * has nothing else under way; taken: bytes of earlier requests. True: the configured
 * number of requests in a row could be answered by wire, wire has answered this one and
 * owns the connection again; close fd.
 */
bool tbg_conn_give(struct tbg_wire *w, struct tbg_taken *k, int fd, uint32_t taken,
		   const uint8_t *b, uint32_t len, unsigned int answers);

/* Detaches from all interfaces and frees. NULL is allowed. */
void tbg_wire_close(struct tbg_wire *w);

/* Housekeeping, about once a second, by the control thread alone. */
void tbg_wire_tick(struct tbg_wire *w, uint64_t now_ns);

/* The same a few times a second: what the kernel does not report. */
void tbg_wire_beat(struct tbg_wire *w, uint64_t now_ns);

/*
 * Descriptors, or -1, that become readable when interfaces, addresses, routes, the rules of
 * nftables or IPsec policies have changed. The control thread calls tbg_wire_news() then; and
 * every few milliseconds while tbg_wire_waits(): during many changes, these are read more
 * rarely.
 */
#define TBG_WIRE_NEWS_NR 4
void tbg_wire_news_fds(const struct tbg_wire *w, int ret[TBG_WIRE_NEWS_NR]);
void tbg_wire_news(struct tbg_wire *w, uint64_t now_ns);
bool tbg_wire_waits(const struct tbg_wire *w);

/* What tells conntrack of connections; the control thread calls tbg_track_admit(). */
struct tbg_track *tbg_wire_track(struct tbg_wire *w);

/*
 * "", or a sentence: wire is attached but follows no connection, and the likely
 * reason. Control thread; raises CAP_NET_ADMIN.
 */
void tbg_wire_unfollowed(struct tbg_wire *w, char ret[TBG_UNFOLLOWED_LEN]);

/* Why wire, although attached, answers nothing at the moment; "": it answers. */
const char *tbg_wire_held(const struct tbg_wire *w);

/*
 * A connection's slot. tbg_conn_claim() looks the flow of the accepted socket
 * fd up (two system calls) and marks its slot held; it returns the slot, or
 * -1 if wire does not follow the connection. Any thread. Every claim is
 * undone by tbg_conn_release() when the connection closes.
 */
int tbg_conn_claim(struct tbg_wire *w, int fd);
void tbg_conn_release(struct tbg_wire *w, int slot);

/* Whether the last reply of the slot's flow may have to be taken back. Any thread. */
bool tbg_slot_waits(struct tbg_wire *w, uint32_t slot);

/*
 * CLOCK_MONOTONIC of wire's last reply on a connection; keepalive probes of the
 * client do not count. 0: wire has answered nothing.
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
