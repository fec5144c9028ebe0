/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The protocols of a service manager (systemd): state messages and watchdog
 * (sd_notify(3)), and sockets that it passes to the daemon (sd_listen_fds(3)). Without
 * a manager the functions do nothing.
 */
#ifndef TBG_USERD_OS_SERVICE_H
#define TBG_USERD_OS_SERVICE_H

#include <stdint.h>

#define TBG_SERVICE_FDS 3		/* the first socket passed */

/* Reads the environment variables and unsets them. Call it once, before there are threads. */
void tbg_service_begin(void);

/* Sends "READY=1" and similar lines. */
void tbg_service_notify(const char *state);
/* Sends RELOADING=1 with the monotonic time that it requires. */
void tbg_service_reloading(void);
/* Sends STOPPING=1 and extends the manager's timeout to most_ms. */
void tbg_service_stopping(unsigned int most_ms);

/* Sends a watchdog message if one is due. Called at any time, by one thread. */
void tbg_service_beat(uint64_t now_ns);

/* Returns the number of sockets passed, from TBG_SERVICE_FDS on. */
unsigned int tbg_service_sockets(void);

#endif
