/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The IPsec policies (xfrm) of this network namespace. The kernel's TCP accepts and sends
 * only what they allow; wire would answer in clear what may only be sent encrypted, or a
 * client that they block.
 */
#ifndef TBG_USERD_TIERS_IPSEC_H
#define TBG_USERD_TIERS_IPSEC_H

#include <stdbool.h>
#include <stddef.h>

struct mnl_socket;

/* A socket that becomes readable when policies change; NULL: the kernel has no IPsec. */
struct mnl_socket *tbg_ipsec_news_open(void);

/*
 * Whether there are policies, or they cannot be read: wire must not answer, and ret_why is
 * set. Needs CAP_NET_ADMIN.
 */
bool tbg_ipsec_look(char *ret_why, size_t why_len);

#endif
