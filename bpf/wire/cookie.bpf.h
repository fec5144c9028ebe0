/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The sequence number of wire's SYN-ACK is a SYN cookie: it holds all that is needed to
 * create the connection, and proves that the client receives packets at its address. So
 * nothing is stored before the client's ACK (RFC 4987 3.6). Without the secret key, it
 * looks random.
 *
 * proof (21) | minute (2) | MSS (3) | window scale (4) | SACK | ECN
 *
 * Some bits of the proof depend on addresses and ports only, and not on the client's
 * sequence number. They hold for a segment that arrives before the first one of its
 * connection, but not for one of an unknown connection. With timestamps, the low eight
 * bits of the SYN-ACK's TSval hold the rest of the client's MSS.
 */
#ifndef TBG_WIRE_COOKIE_BPF_H
#define TBG_WIRE_COOKIE_BPF_H

#include "../core/key.h"
#include "tcb.bpf.h"

#define TBG_COOKIE_SHIFT 36	/* of ns: a "minute" is 69 s; a cookie is valid for two */
#define TBG_COOKIE_BITS	 11
#define TBG_COOKIE_AGE_MS 140000 /* most age of the timestamp that comes back with one */
#define TBG_COOKIE_ENDS	 8	/* bits of the proof that depend on the addresses and ports only */
#define TBG_COOKIE_REST	 255	/* mask of the rest of the MSS, in a timestamp's ms */

struct tbg_cookie {
	__u32 mss_at;		/* index in tbg_cookie_steps */
	__u32 wscale;		/* 15: none */
	__u32 sack, ecn;
	__u32 tsoff;		/* offset of the connection's TSval */
	__u32 label;		/* IPv6 flow label */
};

/*
 * The MSS values that a cookie can hold; the client's is rounded down. With timestamps,
 * which hold the rest of it; without, for IPv4; without, for IPv6.
 */
static const __u16 tbg_cookie_steps[3][8] = {
	{ 536, 792, 1048, 1304, 3800, 8680, 8936, 65280 },
	{ 536, 1300, 1360, 1400, 1440, 1452, 1460, 8960 },
	{ 1220, 1340, 1380, 1400, 1420, 1432, 1440, 8940 },
};

static __always_inline __u32 tbg_cookie_mss(__u32 at, bool ts, bool v6)
{
	return tbg_cookie_steps[ts ? 0 : 1 + v6][at & 7];
}

static __always_inline __u32 tbg_cookie_mss_at(__u32 mss, bool ts, bool v6)
{
	__u32 at;

#pragma unroll
	for (at = 7; at; at--)
		if (tbg_cookie_mss(at, ts, v6) <= mss)
			return at;
	return 0;
}

struct tbg_sip {
	__u64 v0, v1, v2, v3;
};

static __always_inline void tbg_sip_add(struct tbg_sip *s, __u64 m)
{
	s->v3 ^= m;
	TBG_SIP_ROUND(s->v0, s->v1, s->v2, s->v3);
	s->v0 ^= m;
}

static __always_inline __u64 tbg_sip_end(struct tbg_sip s)
{
	s.v2 ^= 0xff;
	TBG_SIP_ROUND(s.v0, s.v1, s.v2, s.v3);
	TBG_SIP_ROUND(s.v0, s.v1, s.v2, s.v3);
	TBG_SIP_ROUND(s.v0, s.v1, s.v2, s.v3);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

/*
 * Hashes addresses and ports with SipHash-1-3. *ret is the state of the hash before it
 * is finished, for tbg_cookie_proof(). Returns the bits that hide the low bits of a
 * cookie.
 */
__attribute__((noinline)) __u64
tbg_cookie_mask(const struct tbg_tcb_key *k, const struct tbg_knob *knob, struct tbg_sip *ret)
{
	const struct tbg_flow_key *e;
	struct tbg_sip s;

	if (!k || !knob || !ret)
		return 0;
	e = &k->flow;
	s.v0 = knob->cookie[0] ^ 0x736f6d6570736575ull;
	s.v1 = knob->cookie[1] ^ 0x646f72616e646f6dull;
	s.v2 = knob->cookie[0] ^ 0x6c7967656e657261ull;
	s.v3 = knob->cookie[1] ^ 0x7465646279746573ull;
	tbg_sip_add(&s, tbg_pair(e->local[0], e->local[1]));
	tbg_sip_add(&s, tbg_pair(e->local[2], e->local[3]));
	tbg_sip_add(&s, tbg_pair(e->remote[0], e->remote[1]));
	tbg_sip_add(&s, tbg_pair(e->remote[2], e->remote[3]));
	tbg_sip_add(&s, tbg_pair(e->local_port | (__u32)e->remote_port << 16, k->vrf));
	*ret = s;
	return tbg_sip_end(s);
}

/*
 * Returns the proof for the low bits, and the minute, of a cookie: TBG_COOKIE_ENDS bits
 * that depend on addresses and ports only, the rest also on the client's first sequence
 * number.
 */
static __always_inline __u32 tbg_cookie_proof(struct tbg_sip s, __u32 irs, __u64 bits)
{
	__u32 ends;

	tbg_sip_add(&s, bits);
	ends = tbg_sip_end(s) & ((1 << TBG_COOKIE_ENDS) - 1);
	tbg_sip_add(&s, irs);
	return (__u32)tbg_sip_end(s) << TBG_COOKIE_ENDS | ends;
}

/* Returns the sequence number for the SYN-ACK. Sets c->tsoff and c->label. */
static __always_inline __u32 tbg_cookie_make(const struct tbg_tcb_key *k,
					     const struct tbg_knob *knob, __u64 now_ns,
					     __u32 irs, struct tbg_cookie *c)
{
	__u64 minute = now_ns >> TBG_COOKIE_SHIFT, mask;
	__u32 low = (minute & 3) << 9 | c->mss_at << 6 | c->wscale << 2 |
		    c->sack << 1 | c->ecn, proof;
	struct tbg_sip s;

	mask = tbg_cookie_mask(k, knob, &s);
	proof = tbg_cookie_proof(s, irs, minute << 16 | low);
	c->tsoff = mask >> 32;
	c->label = mask >> TBG_COOKIE_BITS & 0xfffff;
	low ^= mask & ((1 << TBG_COOKIE_BITS) - 1);
	return proof << TBG_COOKIE_BITS | low;
}

/*
 * What an acknowledgement number proves: nothing, that the addresses and ports are
 * right, or that the segment is also the first one of its connection.
 */
enum tbg_proven { TBG_PROVEN_NOTHING, TBG_PROVEN_ENDS, TBG_PROVEN_ALL };

/* Checks n, which should be the sequence number of our SYN-ACK to irs. Sets *c. */
static __always_inline enum tbg_proven tbg_cookie_check(const struct tbg_tcb_key *k,
							const struct tbg_knob *knob,
							__u64 now_ns, __u32 irs, __u32 n,
							struct tbg_cookie *c)
{
	__u64 minute = now_ns >> TBG_COOKIE_SHIFT, mask;
	struct tbg_sip s;
	__u32 low, proof;

	mask = tbg_cookie_mask(k, knob, &s);
	low = (n ^ mask) & ((1 << TBG_COOKIE_BITS) - 1);
	if ((minute & 3) != low >> 9)
		minute--;
	if ((minute & 3) != low >> 9)
		return TBG_PROVEN_NOTHING;
	proof = tbg_cookie_proof(s, irs, minute << 16 | low) ^ n >> TBG_COOKIE_BITS;
	if (proof & ((1 << TBG_COOKIE_ENDS) - 1))
		return TBG_PROVEN_NOTHING;
	c->mss_at = low >> 6 & 7;
	c->wscale = low >> 2 & 15;
	c->sack = low >> 1 & 1;
	c->ecn = low & 1;
	c->tsoff = mask >> 32;
	c->label = mask >> TBG_COOKIE_BITS & 0xfffff;
	return proof << TBG_COOKIE_BITS ? TBG_PROVEN_ENDS : TBG_PROVEN_ALL;
}

#endif
