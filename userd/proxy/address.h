/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The addresses of servers that a configuration names. A name server may take
 * seconds to answer, or not answer at all. The start waits for it. A reload only
 * notes the names at first, has them looked up by a thread of its own, and reads
 * the configuration once more. Not to be called by several threads at a time.
 */
#ifndef TBG_USERD_ADDRESS_H
#define TBG_USERD_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#define TBG_ADDRESSES_MAX 32	/* of a name; those behind them are left out */

/*
 * The nr-th address of a name, from 0. 0, or an error for gai_strerror(), and
 * EAI_NONAME if it has no more of them. Of a name that has been noted, one of
 * nobody. port: a number.
 */
int tbg_address_find(const char *host, const char *port, unsigned int nr,
		     struct sockaddr_storage *ret, socklen_t *ret_len);

/* What is known is forgotten, and from now on names are noted. */
void tbg_addresses_note(void);
bool tbg_addresses_noted(void);		/* some are not looked up yet */
void tbg_addresses_look(void);		/* may take long */

#endif
