/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The IPsec policies (xfrm) of this network namespace. The kernel's TCP accepts and sends
 * only what they allow; wire would answer in clear what may only be sent encrypted, or a
 * client that they block.
 */
#ifndef TBG_USERD_TIERS_IPSEC_H
#define TBG_USERD_TIERS_IPSEC_H

#include <stddef.h>

struct mnl_socket;

/* A socket that becomes readable when policies change; NULL: the kernel has no IPsec. */
struct mnl_socket *tbg_ipsec_news_open(void);

/*
 * Sets ret_why to the reason why wire must not answer: there are policies, or they cannot be
 * read. "": it may. Needs CAP_NET_ADMIN.
 */
void tbg_ipsec_look(char *ret_why, size_t why_len);

#endif
