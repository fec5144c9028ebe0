/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Closes sockets without a packet, in repair mode (TCP_REPAIR). This needs
 * CAP_NET_ADMIN, which no worker has: a separate process keeps that capability. It only changes
 * the mode of sockets that it is sent, and ends with the daemon. If that is killed, it resets the
 * connections that were being given back, for which it keeps CAP_NET_BIND_SERVICE, too.
 */
#ifndef TBG_USERD_OS_REPAIR_H
#define TBG_USERD_OS_REPAIR_H

#include <stdbool.h>

struct tbg_identity;

/*
 * Forks the process. Call it before descriptors are open that it must not have. Returns
 * 0 or a negative errno.
 */
int tbg_repair_start(const struct tbg_identity *id);

enum tbg_repaired {
	TBG_REPAIR_NO,		/* the socket is unchanged */
	TBG_REPAIR_DONE,
	TBG_REPAIR_UNKNOWN,	/* no answer: the socket is unusable */
};

/* Any thread: switches repair mode on, or off without a packet. */
enum tbg_repaired tbg_repair_set(int fd, bool on);

/*
 * Ends the process. Call it once, when no thread uses it any more. Does nothing if it
 * was not started.
 */
void tbg_repair_stop(void);

#endif
