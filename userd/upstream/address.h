/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The addresses of servers that a configuration names. A name server may take
 * seconds to answer, or not answer at all, and a name may be missing: then what
 * its servers answer is missing, and nothing else. Who reads a configuration
 * notes the names at first, has them looked up aside, and makes the sites then;
 * while it runs they are looked up again. Says what has become of each name.
 * Not to be called by several threads at a time.
 */
#ifndef TBG_USERD_UPSTREAM_ADDRESS_H
#define TBG_USERD_UPSTREAM_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#define TBG_ADDRESSES_MAX 32	/* of a name; those behind them are left out */
#define TBG_ADDRESSES_MISSING_S 5	/* a name without addresses is looked up again */
#define TBG_ADDRESSES_AGAIN_S 10	/* as every other is */
#define TBG_ADDRESSES_START_MS 5000	/* for which a start waits for name servers */

/*
 * The nr-th address of a name, from 0, and 0; EAI_NONAME: it has no more of them, or
 * is no name; EAI_AGAIN: it has none now; EAI_MEMORY. port: a number.
 */
int tbg_address_find(const char *host, const char *port, unsigned int nr,
		     struct sockaddr_storage *ret, socklen_t *ret_len);

/*
 * From now on names are noted, and all are to be looked up anew. One that nobody has
 * asked for since the last time is forgotten. An address is kept until there is
 * another: a name server that is away takes no server away.
 */
void tbg_addresses_note(void);
bool tbg_addresses_noted(void);		/* some are not looked up yet */

/* Whether names are to be looked up again, this many seconds after the last time. */
bool tbg_addresses_again(unsigned int passed_s);

/* Looks up what is not known; may take long. Whether anything is not what it was. */
bool tbg_addresses_look(void);

/* The same, in another process, which is ended when that takes too long. */
void tbg_addresses_start(unsigned int limit_ms);

#endif
