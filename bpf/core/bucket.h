/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Token buckets, the same for every tier. A bucket is a point in time: up to then the
 * client's requests are paid for (the generic cell rate algorithm, ITU-T I.371). So it
 * fills by itself, and a full one may be reused. Several CPUs may change a bucket at the
 * same time; no charge is lost.
 */
#ifndef TBG_CORE_BUCKET_H
#define TBG_CORE_BUCKET_H

#include "../abi/rate.h"
#include "key.h"

/* ns until the next request may come; 0: it may. */
__tbg_inline __u64 tbg_bucket_wait(__u64 until_ns, __u64 slack_ns, __u64 now_ns)
{
	__u64 ahead = until_ns > now_ns ? until_ns - now_ns : 0;

	return ahead > slack_ns ? ahead - slack_ns : 0;
}

__tbg_inline __u64 tbg_bucket_charged(__u64 until_ns, __u64 gap_ns, __u64 now_ns)
{
	return (until_ns > now_ns ? until_ns : now_ns) + gap_ns;
}

/* The bits of an address (IPv4 mapped into IPv6) that identify a client, as in memory. */
__tbg_inline void tbg_rate_client(const struct tbg_rate *rate, const __u32 address[4],
				  __u64 ret[2])
{
	__u64 high = address[0] | (__u64)address[1] << 32;
	__u64 low = address[2] | (__u64)address[3] << 32;
	int v4 = !high && address[2] == 0xffff0000;	/* ::ffff:0:0, as it lies in memory */

	ret[0] = high & rate->mask[v4][0];
	ret[1] = low & rate->mask[v4][1];
}

/*
 * The tag of the client with this address (IPv4 mapped into IPv6), by a secret key,
 * and its set in *ret_set. Clients with the same tag share a bucket; without the
 * key none can search for such an address.
 */
__tbg_inline __u64 tbg_bucket_tag(const __u64 key[2], const struct tbg_rate *rate,
				  const __u32 address[4], __u32 *ret_set)
{
	__u64 client[2];
	__u64 v0 = key[0] ^ 0x736f6d6570736575ull;
	__u64 v1 = key[1] ^ 0x646f72616e646f6dull;
	__u64 v2 = key[0] ^ 0x6c7967656e657261ull;
	__u64 v3 = key[1] ^ 0x7465646279746573ull;

	tbg_rate_client(rate, address, client);
	v3 ^= client[0];
	TBG_SIP_ROUND(v0, v1, v2, v3);
	v0 ^= client[0];
	v3 ^= client[1];
	TBG_SIP_ROUND(v0, v1, v2, v3);
	v0 ^= client[1];
	v3 ^= 16ull << 56;
	TBG_SIP_ROUND(v0, v1, v2, v3);
	v0 ^= 16ull << 56;
	v2 ^= 0xff;
	TBG_SIP_ROUND(v0, v1, v2, v3);
	TBG_SIP_ROUND(v0, v1, v2, v3);
	TBG_SIP_ROUND(v0, v1, v2, v3);
	v0 ^= v1 ^ v2 ^ v3;
	*ret_set = v0 & (TBG_BUCKET_SETS - 1);
	return v0 | 1;
}

/* Nanoseconds until the client may send the next request; 0: now. Charges nothing. */
__tbg_inline __u64 tbg_bucket_look(const struct tbg_bucket_set *s, __u64 tag,
				   const struct tbg_rate *rate, __u64 now_ns)
{
	__u64 until_ns = 0;
	int i;

	TBG_UNROLLED
	for (i = 0; i < TBG_BUCKET_WAYS; i++)
		if (*(const volatile __u64 *)&s->way[i].tag == tag)
			until_ns = *(const volatile __u64 *)&s->way[i].until_ns;
	return tbg_bucket_wait(until_ns, rate->slack_ns, now_ns);
}

/* Index of the client's bucket in its set: its own, or else the fullest. */
__tbg_inline __u32 tbg_bucket_place(const struct tbg_bucket_set *s, __u64 tag)
{
	__u64 least = ~0ull, until_ns;
	__u32 ret = 0;
	int i;

	TBG_UNROLLED
	for (i = 0; i < TBG_BUCKET_WAYS; i++) {
		if (*(const volatile __u64 *)&s->way[i].tag == tag)
			return i;
		until_ns = *(const volatile __u64 *)&s->way[i].until_ns;
		if (until_ns < least) {
			least = until_ns;
			ret = i;
		}
	}
	return ret;
}

/*
 * Makes the bucket at that index the client's: a full one, without the debt of another
 * client.
 */
__tbg_inline void tbg_bucket_claim(struct tbg_bucket *b, __u64 tag)
{
	if (*(volatile __u64 *)&b->tag == tag)
		return;
	*(volatile __u64 *)&b->until_ns = 0;
	*(volatile __u64 *)&b->tag = tag;
}

/*
 * Charges a request that is answered, even if the bucket is empty: the debt is paid by
 * time.
 */
__tbg_inline void tbg_bucket_charge(struct tbg_bucket *b, __u64 gap_ns, __u64 now_ns)
{
	__u64 was = *(volatile __u64 *)&b->until_ns;

	if (was <= now_ns &&
	    __sync_val_compare_and_swap(&b->until_ns, was, now_ns + gap_ns) == was)
		return;
	__sync_fetch_and_add(&b->until_ns, gap_ns);
}

#endif
