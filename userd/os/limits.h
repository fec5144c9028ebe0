/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Limits for all workers together: descriptors, connections, and memory for output. At
 * the limit, new connections wait until others end.
 */
#ifndef TBG_USERD_OS_LIMITS_H
#define TBG_USERD_OS_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#define TBG_BODY_FOLDER	   "/var/tmp"	/* for the part of a body that is not kept in memory */
#define TBG_CONNECTIONS	   50000	/* default; less if descriptors do not suffice */
#define TBG_LINGER_MS	   2000		/* for the client to read a last response */

/* Counts the descriptors that the daemon itself uses: call it before there are connections. */
void tbg_conn_limit_own(void);

/*
 * Raises RLIMIT_NOFILE as far as `wanted` connections need and as permitted, and sets
 * the limit of connections accordingly. Returns that limit; 0: none fits, but one is
 * accepted nevertheless. upstreams: requests may need another descriptor for each
 * connection (also for programs and modules).
 */
unsigned int tbg_conn_limit_set(unsigned int wanted, bool upstreams);

/* Returns the smallest RLIMIT_NOFILE that allows one connection. */
unsigned int tbg_conn_limit_least(void);

/* Counts one more connection. Returns false, and does not count it, at the limit. */
bool tbg_conn_limit_conn_get(void);
void tbg_conn_limit_conn_put(void);
unsigned int tbg_conn_limit_conn_left(void);

/*
 * The limit for answers that clients have not accepted yet. tbg_output_hold() adds
 * bytes, which may be negative; it returns false, and adds nothing, if the limit would
 * be exceeded.
 */
void tbg_output_limit_set(uint64_t bytes);
bool tbg_output_hold(int64_t bytes);
/* Returns whether more than half is used: then callers leave data in sockets if they can. */
bool tbg_output_tight(void);

#endif
