/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A segment as a connection's client would send it, for programs of wire's that the
 * daemon runs (BPF_PROG_TEST_RUN). It never reaches a network.
 */
#ifndef TBG_USERD_SEGMENT_H
#define TBG_USERD_SEGMENT_H

#include <linux/if_ether.h>
#include <linux/tcp.h>
#include <netinet/ip6.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/tcb.h"
#include "core/span.h"

/* The longest frame: a tag, IPv6, a timestamp, a request that is too long by a byte. */
struct tbg_segment {
	uint8_t b[ETH_HLEN + 4 + sizeof(struct ip6_hdr) + sizeof(struct tcphdr) + 12 +
		  TBG_REQ_MAX + 1];
	size_t len;
};

/*
 * Of the client of *t, with len bytes of payload, as far as it has acknowledged. Of *t it
 * reads flags, numbers, timestamps, addresses and tag of its frames.
 */
void tbg_segment_make(struct tbg_segment *ret, const struct tbg_tcb_key *key,
		      const struct tbg_tcb *t, const uint8_t *b, uint32_t len);

#endif
