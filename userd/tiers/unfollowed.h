/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Detects that wire is attached but follows no connection, and names the likely reason.
 * Workers note connections, the control thread evaluates.
 */
#ifndef TBG_USERD_TIERS_UNFOLLOWED_H
#define TBG_USERD_TIERS_UNFOLLOWED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct tbg_interfaces;
struct tbg_maps;

#define TBG_UNFOLLOWED_LEN 300

/* Reasons that are counted for each connection, in the order in which they are looked at. */
#define TBG_UNFOLLOWED_LIST(X) \
	X(COOKIES,	"SYN cookies, and connections made from them cannot be followed: tcp_syncookies is 2, or SYNs come too fast") \
	X(SHARED,	"another process listens at their port, too (SO_REUSEPORT), and the kernel chooses who gets a connection") \
	X(TRACKED,	"conntrack sees segments before wire does (br_netfilter)") \
	X(ROUTE,	"rules choose the route to a client, and the kernel keeps its first connection") \
	X(IFACE,	"the routes to clients lead out of interfaces where wire is not")

enum tbg_unfollowed_by {
#define X(name, text) TBG_UNFOLLOWED_##name,
	TBG_UNFOLLOWED_LIST(X)
#undef X
	TBG_UNFOLLOWED_NR
};

struct tbg_unfollowed {
	atomic_uint nr;		/* consecutive requests on connections without a flow */
	atomic_ullong sampled_ns;
	pthread_mutex_t lock;		/* of the members below */
	struct sockaddr_storage local, remote;	/* of one of them */
	int ifindex;			/* by which its packets came at first; 0: unknown */
	struct sockaddr_storage asked;	/* the last one looked up in conntrack; or family 0 */
	/* of the control thread */
	uint64_t born;			/* followed connections at the last check */
	/* how often each reason was counted at the last check, and which check last saw more */
	uint64_t counts[TBG_UNFOLLOWED_NR];
	unsigned int checks, moved[TBG_UNFOLLOWED_NR];	/* 0: not since one was followed */
};

void tbg_unfollowed_open(struct tbg_unfollowed *u);

/* Notes whether the flow of a connection's socket was found. Any thread. */
void tbg_unfollowed_note(struct tbg_unfollowed *u, int fd, int found);

/* Forgets connections from before the last followed one; to be called from time to time. */
void tbg_unfollowed_tick(struct tbg_unfollowed *u, const struct tbg_maps *maps);

/* "", or a sentence: none of the last connections was followed, and the likely reason. */
void tbg_unfollowed_why(struct tbg_unfollowed *u, const struct tbg_interfaces *on,
			const struct tbg_maps *maps, char ret[TBG_UNFOLLOWED_LEN]);

#endif
