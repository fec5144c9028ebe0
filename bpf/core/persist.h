/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether a connection persists after an answer, and the Connection line of the answer
 * (RFC 9112 9.3, 9.6): the same text for the daemon and for wire, which inserts it
 * before the empty line that ends the head.
 */
#ifndef TBG_CORE_PERSIST_H
#define TBG_CORE_PERSIST_H

#define TBG_PERSIST_LIST(X) \
	X(PERSIST,	"")				/* HTTP/1.1, no Connection field */ \
	X(PERSIST_OLD,	"Connection: keep-alive\r\n")	/* HTTP/1.0 that asked for it */ \
	X(PERSIST_NOT,	"Connection: close\r\n")

enum tbg_persist {
#define X(name, line) TBG_##name,
	TBG_PERSIST_LIST(X)
#undef X
};

#define TBG_PERSIST_ROOM 24	/* bytes of the longest line */

#endif
