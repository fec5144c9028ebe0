/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The daemon's side of flows: the pool of connection slots and the sweeper that
 * buries flows whose sockets are gone. Used by wire.c, and by main.c for flows of a
 * dead daemon.
 */
#ifndef TBG_USERD_TIERS_FLOW_H
#define TBG_USERD_TIERS_FLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/conn.h"

/* How long a closed flow is translated after its last segment: TIME_WAIT. */
#define TBG_FLOW_CLOSED_S 120

/* How long a socket that closed first waits for its client (tcp_fin_timeout). */
#define TBG_FLOW_FIN_S 60

/* A socket of a dead daemon with unsent data retransmits within this time (TCP_RTO_MAX). */
#define TBG_FLOW_ORPHAN_S 150

struct tbg_flows {
	int flows_fd, slots_fd, retired_fd;
	int socket_fd;		/* the program tbg_has_socket */
	int bury_fd;		/* the program tbg_bury */
	uint32_t slots_nr;
	uint64_t silent_ns;	/* an open flow silent this long may have no socket */
	unsigned int silent_at;	/* position among silent flows of the next check for a socket */
	uint64_t drain_ns;	/* since when every socket is being closed; or 0 */
	_Atomic uint8_t *held;	/* by slot: a connection of the daemon uses it */
	uint32_t *waiting;	/* slots to be freed once no connection holds them */
	uint32_t waiting_nr;
	unsigned int nr;	/* flows after the last sweep */
	unsigned int open_nr;	/* of them: with deltas and a socket, and not fully closed */
};

/*
 * Fills the pool with slots_nr slots. The descriptors were set before and stay the
 * caller's.
 */
int tbg_flows_open(struct tbg_flows *f, uint32_t slots_nr);
void tbg_flows_close(struct tbg_flows *f);

/*
 * Deletes flows whose slot is not held and that have been closed for TBG_FLOW_CLOSED_S
 * (or _SPENT_S), or silent for silent_ns; returns their slots to the pool. A flow with
 * deltas that is silent or was reset is deleted only if its socket is gone: a firewall
 * may have dropped the reset. A silent socket may exist for ever: one that is not
 * accepted yet, beyond --connections-max.
 */
void tbg_flows_sweep(struct tbg_flows *f, uint64_t now_ns);

/*
 * Whether a flow in the map of a dead daemon still needs its programs: it has
 * deltas, is not fully closed, and was seen within TBG_FLOW_ORPHAN_S. A map of
 * another layout needs nothing.
 */
bool tbg_flows_needed(int flows_fd, uint64_t now_ns);

/* Whether the flow of key has this slot, and a socket that may take back its last reply. */
bool tbg_flow_waits(const struct tbg_flows *f, const struct tbg_flow_key *key,
		    uint32_t slot);

/*
 * The flow of a connected socket; 0 or negative errno. A flow of another connection with
 * the same addresses and ports, in another VRF or later, does not count.
 */
int tbg_flow_lookup(const struct tbg_flows *f, int fd, struct tbg_flow *ret);

/* See tbg_conn_hit_ns(). */
uint64_t tbg_flow_hit_ns(const struct tbg_flows *f, int fd, uint64_t now_ns);

#endif
