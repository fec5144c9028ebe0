/* SPDX-License-Identifier: GPL-2.0 */
/* Both addresses of a connection as text. */
#ifndef TBG_USERD_OS_ENDPOINTS_H
#define TBG_USERD_OS_ENDPOINTS_H

#include <stdint.h>

#define TBG_END_TEXT 48

/* Addresses without ports, IPv6 without [ ]; or "unknown". */
struct tbg_endpoints {
	char peer[TBG_END_TEXT], local[TBG_END_TEXT];
	uint16_t peer_port, local_port;
};

#endif
