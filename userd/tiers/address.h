/* SPDX-License-Identifier: GPL-2.0 */
/* Addresses in the form that BPF has them in: IPv4 mapped into IPv6, in network order. */
#ifndef TBG_USERD_TIERS_ADDRESS_H
#define TBG_USERD_TIERS_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

/* Whether the address is one of IPv4. */
static inline bool tbg_is_v4(const uint32_t address[4])
{
	return !(address[0] | address[1]) && address[2] == htonl(0xffff);
}

/* Converts an address of IPv4 or IPv6. *ret_port: in network order. */
static inline void tbg_end_of(const struct sockaddr_storage *ss, uint32_t ret_addr[4],
			      uint16_t *ret_port)
{
	const struct sockaddr_in *four = (const void *)ss;
	const struct sockaddr_in6 *six = (const void *)ss;

	if (ss->ss_family == AF_INET) {
		ret_addr[0] = 0;
		ret_addr[1] = 0;
		ret_addr[2] = htonl(0xffff);
		ret_addr[3] = four->sin_addr.s_addr;
		*ret_port = four->sin_port;
	} else {
		memcpy(ret_addr, &six->sin6_addr, 16);
		*ret_port = six->sin6_port;
	}
}

/* Converts the address of a listener. All addresses are 0, also those of IPv4. */
static inline void tbg_end_of_listener(const struct sockaddr_storage *ss, uint32_t ret_addr[4],
				       uint16_t *ret_port)
{
	tbg_end_of(ss, ret_addr, ret_port);
	if (ss->ss_family == AF_INET && !ret_addr[3])
		ret_addr[2] = 0;
}

#endif
