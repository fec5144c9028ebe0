/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The addresses of a socket, from the context of programs that run for one: sock_ops and
 * sk_skb. For the tiers sock and wire.
 */
#ifndef TBG_END_BPF_H
#define TBG_END_BPF_H

#include <bpf/bpf_endian.h>

/* The local or remote address of a context's socket, in the form of flows. */
#define TBG_SOCK_END(ctx, end, ret)					\
	do {								\
		__u32 __w[4] = { 0, 0, bpf_htonl(0xffff), (ctx)->end##_ip4 }; \
									\
		/* or clang merges two loads from the context */	\
		tbg_keep(__w[3]);					\
		if ((ctx)->family != 2 /* AF_INET */) {			\
			__w[0] = (ctx)->end##_ip6[0];			\
			__w[1] = (ctx)->end##_ip6[1];			\
			__w[2] = (ctx)->end##_ip6[2];			\
			__w[3] = (ctx)->end##_ip6[3];			\
		}							\
		__builtin_memcpy(ret, __w, sizeof(__w));		\
	} while (0)

#endif
