/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes a segment as the client of a connection would send it, as input of wire's
 * programs that the daemon runs (BPF_PROG_TEST_RUN). It never reaches a network.
 */
#ifndef TBG_USERD_TIERS_SEGMENT_H
#define TBG_USERD_TIERS_SEGMENT_H

#include <linux/if_ether.h>
#include <linux/tcp.h>
#include <netinet/ip6.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/tcb.h"
#include "core/span.h"

/* The longest frame: a VLAN tag, IPv6, a timestamp, a request that is too long by one byte. */
struct tbg_segment {
	uint8_t b[ETH_HLEN + 4 + sizeof(struct ip6_hdr) + sizeof(struct tcphdr) + 12 +
		  TBG_REQ_MAX + 1];
	size_t len;
};

/*
 * Makes a segment of the client of *t with len bytes of payload, which acknowledges what
 * the client has acknowledged. Reads flags, sequence numbers, timestamps, and addresses
 * and VLAN of frames from *t.
 */
void tbg_segment_make(struct tbg_segment *ret, const struct tbg_tcb_key *key,
		      const struct tbg_tcb *t, const uint8_t *b, uint32_t len);

#endif
