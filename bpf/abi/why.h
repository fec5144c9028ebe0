/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Why a tier passed a request up (or did not have to): every exit of a kernel
 * program counts exactly one of these in tbg_stats. The one place where they
 * are listed; the enum, the counters and the texts come from here.
 */
#ifndef TBG_ABI_WHY_H
#define TBG_ABI_WHY_H

#define TBG_WHY_LIST(X) \
	X(HIT_WIRE,	"answered at the packet") \
	X(HIT_SOCK,	"answered at the socket") \
	X(REPEAT,	"lost reply sent again at the packet") \
	X(DOUBLED,	"request again while its reply is on its way, dropped") \
	X(YIELD,	"unacknowledged reply given to the socket") \
	X(ACK,		"acknowledgement of wire's own bytes, done with here") \
	X(NOT_OURS,	"not TCP to or from a port that we serve") \
	X(NO_FLOW,	"connection not seen born, or not to be followed: no room, another protocol") \
	X(CONTROL,	"no request in it: handshake, ACK, FIN or RST") \
	X(BORN,		"connection established, now followed") \
	X(SYN_ACK,	"SYN answered at the packet") \
	X(HANDED,	"segment of a connection that the kernel has taken over") \
	X(HAND_FAIL,	"the kernel did not take a connection: listener gone or full; tried again") \
	X(HAND_HELD,	"segment dropped: its connection was given back, and the old socket still exists") \
	X(UNTRACKED,	"segment waits until conntrack knows its connection, and then arrives again") \
	X(HAND_LOST,	"connection reset: the kernel makes no socket of it, or a firewall drops its segments") \
	X(GIVEN,	"idle connection given back by the daemon") \
	X(GIVE_LATE,	"connection not given back: a segment came meanwhile") \
	X(FIN,		"connection closed at the packet, or its end acknowledged") \
	X(CHALLENGE,	"segment out of window, answered with an acknowledgement") \
	X(DROPPED,	"segment of a connection of wire that arrives too early or is invalid, dropped") \
	X(EGRESS,	"segment of the socket, numbers translated") \
	X(OWN,		"wire's own reply on its way out") \
	X(OFF,		"draining or switched off") \
	X(CLOSING,	"one side has closed or reset") \
	X(LEFT,		"flow has left wire for good") \
	X(FLAGS,	"not plain ACK|PSH: URG, SYN, FIN, RST, ECN marks") \
	X(IP_ODD,	"IP options, extension headers or a fragment") \
	X(TCP_ODD,	"TCP options other than timestamps") \
	X(IFACE,	"its replies may take another interface, or its address here was removed") \
	X(CSUM,		"bad checksum, left to the stack to judge") \
	X(BUSY,		"not idle: earlier bytes are still being dealt with") \
	X(UNACKED,	"not idle: earlier response bytes are unacknowledged") \
	X(UNTOLD,	"the socket is yet to learn what the client acknowledges") \
	X(SPLIT,	"request not complete in one segment") \
	X(PIPELINED,	"more than one request in the segment") \
	X(GRAMMAR,	"request outside the fast grammar") \
	X(METHOD,	"method other than GET and HEAD") \
	X(VERSION,	"HTTP version that this tier does not answer") \
	X(PATH,		"path not canonical or too long") \
	X(FIELD,	"header field that only the daemon handles") \
	X(HOST,		"host that only the daemon knows the site of") \
	X(CONDITION,	"condition that only the daemon evaluates") \
	X(MISS,		"not in the cache") \
	X(EXPIRED,	"in the cache, but no longer fresh") \
	X(BLOB,		"entry and blob do not match") \
	X(SIZE,		"response larger than wire-size or the client's window") \
	X(CLOCK,	"clock not kept: the daemon has stopped") \
	X(ROOM,		"no memory to build the reply") \
	X(RACE,		"connection changed while the reply was built") \
	X(STALE_REPEAT,	"lost reply no longer held; connection reset") \
	X(ICMP,		"ICMP error about a flow, translated") \
	X(ENROLLED,	"connection established, sock may answer it") \
	X(SNDBUF,	"no room in the socket's send buffer for the response") \
	X(TRACKED,	"conntrack sees it before wire does: br_netfilter, or a client on this host") \
	X(REFRESH,	"a while since the stack had one: conntrack is to know the connection") \
	X(ASTRAY,	"socket sends by a way without translation; connection reset") \
	X(UNREAD,	"more bytes than the daemon can read; connection reset") \
	X(DENIED,	"client that a list denies") \
	X(LISTED,	"place with a list of clients of its own, which the daemon asks") \
	X(LIMITED,	"client beyond its limit of requests") \
	X(SHARED,	"connection to a port at which another process listens, too; left to the kernel") \
	X(FULL,		"no place for one more connection; dropped, so that its client tries again") \
	X(ROUTE,	"the kernel is yet to be asked for the route to this client; left to the kernel")

enum tbg_why {
#define X(name, text) TBG_WHY_##name,
	TBG_WHY_LIST(X)
#undef X
	TBG_WHY_NR
};

#endif
