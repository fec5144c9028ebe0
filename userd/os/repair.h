/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sockets in repair (TCP_REPAIR) are let go without a packet. This needs CAP_NET_ADMIN,
 * which no worker has: a process of its own keeps that right and nothing else. It does
 * this alone, to sockets that it is handed, and ends with the daemon.
 */
#ifndef TBG_USERD_OS_REPAIR_H
#define TBG_USERD_OS_REPAIR_H

#include <stdbool.h>

struct tbg_identity;

/* Forks it, before anything is open that it is not to have. Negative errno. */
int tbg_repair_start(const struct tbg_identity *id);

enum tbg_repaired {
	TBG_REPAIR_NO,		/* the socket is as it was */
	TBG_REPAIR_DONE,
	TBG_REPAIR_UNKNOWN,	/* no answer: nobody can go on with the socket */
};

/* Any thread: puts the socket into repair, or out of it without a packet. */
enum tbg_repaired tbg_repair_set(int fd, bool on);

/* No more than once, when no thread asks it any more. Nothing, if it was not started. */
void tbg_repair_stop(void);

#endif
