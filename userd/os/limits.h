/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the daemon may use up: descriptors and connections, all workers
 * together. At the limit connections wait; it goes on by itself.
 */
#ifndef TBG_USERD_OS_LIMITS_H
#define TBG_USERD_OS_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#define TBG_BODY_FOLDER	   "/var/tmp"	/* for what of a body is not kept in memory */
#define TBG_CONNECTIONS	   50000	/* unless told, or as many as descriptors allow */
#define TBG_LINGER_MS	   2000		/* for the client to read a last response */
#define TBG_DRAIN_MS	   10000	/* for clients, before what stands still is given up */

/* What is open now is the daemon's own: to be called before there are connections. */
void tbg_conn_limit_own(void);

/*
 * Raises RLIMIT_NOFILE as far as `wanted` connections need and we may, and
 * sets the limit of connections to what fits beside the daemon's own. Returns
 * that limit; 0: none fits, and one is let in all the same. upstreams: others may
 * be asked (programs and modules too), at a descriptor for each connection.
 */
unsigned int tbg_conn_limit_set(unsigned int wanted, bool upstreams);

/* The least RLIMIT_NOFILE that leaves room for a connection. */
unsigned int tbg_conn_limit_least(void);

/* One connection more; false: there is no room, and it was not counted. */
bool tbg_conn_limit_conn_get(void);
void tbg_conn_limit_conn_put(void);
unsigned int tbg_conn_limit_conn_left(void);

/*
 * Memory for answers that clients have not taken yet, all workers together. bytes: of
 * what is held (more or, negative, less). False: there is no room, and it was not counted.
 */
void tbg_output_limit_set(uint64_t bytes);
bool tbg_output_hold(int64_t bytes);
/* Whether most of it is used: what can be left where it is, is. */
bool tbg_output_tight(void);

#endif
