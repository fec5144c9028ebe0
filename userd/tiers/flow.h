/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The daemon's side of flows: the pool of connection slots and the sweeper
 * that buries flows whose sockets are gone. Used by wire.c; main.c asks it of what a
 * dead daemon left.
 */
#ifndef TBG_USERD_FLOW_H
#define TBG_USERD_FLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/conn.h"

/* A closed flow is translated this long after its last segment: TIME_WAIT. */
#define TBG_FLOW_CLOSED_S 120

/* The same for one that has nothing to translate any more. */
#define TBG_FLOW_SPENT_S 5

/* A socket that closed first waits this long for its client (tcp_fin_timeout). */
#define TBG_FLOW_FIN_S 60

/* A socket of a dead daemon that has anything to send does in less (TCP_RTO_MAX). */
#define TBG_FLOW_ORPHAN_S 150

struct tbg_flows {
	int flows_fd, slots_fd, retired_fd;
	int socket_fd;		/* the program tbg_has_socket */
	int bury_fd;		/* the program tbg_bury */
	uint32_t slots_nr;
	uint64_t silent_ns;	/* an open flow silent this long may have no socket */
	unsigned int silent_at;	/* of the silent ones, whose sockets are asked for next */
	uint64_t drain_ns;	/* since when no socket is silent without a FIN; or 0 */
	_Atomic uint8_t *held;	/* by slot: a connection of ours uses it */
	uint32_t *waiting;	/* slots to free once nobody holds them */
	uint32_t waiting_nr;
	unsigned int nr;	/* that the last sweep left */
	unsigned int open_nr;	/* of them: deltas, a socket, and not through */
};

/* Fills the pool with slots_nr slots. The descriptors, set before, stay the caller's. */
int tbg_flows_open(struct tbg_flows *f, uint32_t slots_nr);
void tbg_flows_close(struct tbg_flows *f);

/*
 * Deletes flows that are closed for TBG_FLOW_CLOSED_S (or _SPENT_S), or silent for silent_ns,
 * with nobody holding their slot; returns their slots to the pool. Of one that is silent or
 * was reset, and has deltas, the socket must be gone: a firewall may drop a reset.
 * A silent socket that is not ours to end is there: not accepted yet, beyond
 * --connections-max, it may be wire's for ever.
 */
void tbg_flows_sweep(struct tbg_flows *f, uint64_t now_ns);

/*
 * Whether the flows of a dead daemon's map still need its programs: one has deltas,
 * is not through its end, and was seen within TBG_FLOW_ORPHAN_S. What is not a map
 * of our shape needs nothing.
 */
bool tbg_flows_needed(int flows_fd, uint64_t now_ns);

/* Whether key's flow has slot, and a socket that may be given its last reply. */
bool tbg_flow_waits(const struct tbg_flows *f, const struct tbg_flow_key *key,
		    uint32_t slot);

/*
 * The flow of a connected socket of ours; 0 or negative errno. That of another connection
 * of the same ends, in another VRF or after it, is none.
 */
int tbg_flow_lookup(const struct tbg_flows *f, int fd, struct tbg_flow *ret);

#endif
