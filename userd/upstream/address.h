/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The addresses of configured servers. A name server may take seconds to answer or not
 * answer at all, and a name may not exist: then only requests to its servers fail.
 * Reading a configuration first only collects the names; they are looked up in another
 * thread or process, and then the sites are made. While the daemon runs, names are
 * looked up again regularly. Changes are logged. Not for use by several threads at a
 * time.
 */
#ifndef TBG_USERD_UPSTREAM_ADDRESS_H
#define TBG_USERD_UPSTREAM_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#define TBG_ADDRESSES_MAX 32	/* per name; further ones are ignored */

/*
 * Returns 0 with the nr-th address of a name, from 0; EAI_NONAME: it has no more
 * addresses, or is not a name; EAI_AGAIN: it has none now; or EAI_MEMORY. port: a
 * number.
 */
int tbg_address_find(const char *host, const char *port, unsigned int nr,
		     struct sockaddr_storage *ret, socklen_t *ret_len);

/*
 * From now on, names are only collected, and all must be looked up again. A name that
 * was not requested since the last call is forgotten. Known addresses are kept until a
 * lookup succeeds, so that an unreachable name server does not disable servers.
 */
void tbg_addresses_note(void);
bool tbg_addresses_noted(void);		/* some names are not looked up yet */

/* Returns whether names must be looked up again, this many seconds after the last time. */
bool tbg_addresses_again(unsigned int passed_s);

/* Looks up names that are not known; may take long. Returns whether any address has changed. */
bool tbg_addresses_look(void);

/* As tbg_addresses_look(), in another process, which is killed after the time limit. */
void tbg_addresses_start(unsigned int limit_ms);

#endif
