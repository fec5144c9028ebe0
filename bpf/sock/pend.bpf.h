/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A pending hit and its disguise in the stream. The verdict overwrites the
 * request with a complete error response of the same length, so that a request
 * is never echoed to the client even if the kernel sends it unexpanded. The
 * disguise contains the token by which the expansion finds the pending hit:
 *
 *	HTTP/1.1 503 CRLF X:tttttt...
 */
#ifndef TBG_SOCK_PEND_BPF_H
#define TBG_SOCK_PEND_BPF_H

#include <bpf/bpf_endian.h>

#include "../lookup.bpf.h"
#include "kernel.bpf.h"
#include "maps.bpf.h"

#define TBG_TOKEN_AT	17	/* offset of the token */
#define TBG_TOKEN_LEN	6	/* characters, of 6 bits each */
#define TBG_PEND_BITS	12	/* bits of the number of the pending hit */
#define TBG_GEN_BITS	24
/*
 * A response is sent in elements of this many bytes: the largest size that the
 * kernel allocates without waiting even if memory is fragmented
 * (PAGE_ALLOC_COSTLY_ORDER), and of which a program can access each byte. TBG_PIECES
 * hold the longest response.
 */
#define TBG_PIECE	32768
#define TBG_PIECES	3

#define TBG_DISGUISE_MIN (TBG_TOKEN_AT + TBG_TOKEN_LEN + 4)

_Static_assert(TBG_DISGUISE_MIN == TBG_SOCK_REQ_MIN, "disguise");
_Static_assert(1 << TBG_PEND_BITS == TBG_SOCK_PENDS, "token");
_Static_assert(TBG_PEND_BITS + TBG_GEN_BITS == 6 * TBG_TOKEN_LEN, "token");

struct tbg_token {
	__u8 b[8];		/* the token, then zeros */
};

static __always_inline void tbg_token_write(struct tbg_token *t, __u32 nr,
					    __u32 gen)
{
	__u64 v = (__u64)(gen & ((1u << TBG_GEN_BITS) - 1)) << TBG_PEND_BITS | nr;
	int i;

#pragma unroll
	for (i = 0; i < TBG_TOKEN_LEN; i++)
		t->b[i] = '0' + (v >> 6 * i & 63);
}

/* Returns the number of the pending hit, and *ret_gen. */
static __always_inline __u32 tbg_token_read(const __u8 *b, __u32 *ret_gen)
{
	__u64 v = 0;
	int i;

#pragma unroll
	for (i = 0; i < TBG_TOKEN_LEN; i++)
		v |= (__u64)((b[i] - '0') & 63) << 6 * i;
	*ret_gen = v >> TBG_PEND_BITS;
	return v & ((1u << TBG_PEND_BITS) - 1);
}

static __always_inline void tbg_pend_free_(struct tbg_pend *p, __u32 nr)
{
	p->h.cookie = 0;
	bpf_map_push_elem(&tbg_pend_free, &nr, 0);
}

#endif
