/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes a segment as the client of a connection would send it, as input of wire's
 * programs that the daemon runs (BPF_PROG_TEST_RUN). It never leaves this machine.
 */
#ifndef TBG_USERD_TIERS_SEGMENT_H
#define TBG_USERD_TIERS_SEGMENT_H

#include <linux/if_ether.h>
#include <linux/tcp.h>
#include <netinet/ip6.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/tcb.h"
#include "abi/untracked.h"
#include "core/span.h"

/*
 * The longest frame: a VLAN tag, IPv6, a timestamp, and the most that is given a second time;
 * that is more than a request of TBG_REQ_MAX and one byte.
 */
struct tbg_segment {
	uint8_t b[ETH_HLEN + 4 + sizeof(struct ip6_hdr) + sizeof(struct tcphdr) + 12 +
		  TBG_UNTRACKED_MAX];
	size_t len;
	size_t l3, l4;		/* where the headers of IP and TCP begin */
};

/*
 * Makes a segment of the client of *t with len bytes of payload, which acknowledges what
 * the client has acknowledged. Reads flags, sequence numbers, timestamps, and addresses
 * and VLAN of frames from *t. Its checksums are zero: wire's programs do not verify them.
 */
void tbg_segment_make(struct tbg_segment *ret, const struct tbg_tcb_key *key,
		      const struct tbg_tcb *t, const uint8_t *b, uint32_t len);

/*
 * Makes of it one that the kernel accepts: sets flags and the field of the window, in host order,
 * and computes the checksums.
 */
void tbg_segment_seal(struct tbg_segment *f, uint8_t flags, uint16_t window);

#endif
