/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a service manager (systemd) asks of a daemon: word of its state, a sign of
 * life, and that it takes the sockets it is given. Nothing without a manager.
 * Protocols: sd_notify(3), sd_listen_fds(3).
 */
#ifndef TBG_USERD_OS_SERVICE_H
#define TBG_USERD_OS_SERVICE_H

#include <stdint.h>

#define TBG_SERVICE_FDS 3		/* the first socket given */

/* Reads the environment, once, before there are threads, and takes it out of it. */
void tbg_service_begin(void);

/* "READY=1" and the like; lines. */
void tbg_service_notify(const char *state);
/* With the monotonic time that such a message must carry. */
void tbg_service_reloading(void);
/* That the end may take so long, whatever the manager would wait for by itself. */
void tbg_service_stopping(unsigned int most_ms);

/* A sign of life, if one is wanted and due; any time, one thread. */
void tbg_service_beat(uint64_t now_ns);

/* Sockets given, from TBG_SERVICE_FDS on. */
unsigned int tbg_service_sockets(void);

#endif
