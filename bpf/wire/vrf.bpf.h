/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sockets of VRFs. At TC, bpf_skc_lookup_tcp() searches for the interface that the segment came
 * in by, not for the VRF's device, to which sockets are bound there. So the sockets are in maps
 * of this file: connections from the end of their handshake until they are closed, put in by the
 * program tbg_vrf_birth; listeners put in by the daemon.
 *
 * A socket in such a map cannot get keys for TLS in the kernel. So only sockets of VRFs are in
 * them, and no listener for TLS may be.
 */
#ifndef TBG_WIRE_VRF_BPF_H
#define TBG_WIRE_VRF_BPF_H

#include <stddef.h>

#include "cookie.bpf.h"
#include "socket.bpf.h"
#include "tcb.bpf.h"

/*
 * Connection -> its socket. Writer: BPF; the kernel removes a socket when its descriptor is
 * closed. Full: further ones are not given back; for the rest, tbg_vrf_proven suffices.
 */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, 16384);
	__type(key, struct tbg_tcb_key);
	__type(value, __u64);
} tbg_vrf_socks SEC(".maps");

/*
 * Listeners that are bound to the device of a VRF. Writer: the daemon, which adds each once;
 * the kernel removes closed ones.
 */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, TBG_LISTENER_MAX);
	__type(key, struct tbg_vrf_end);
	__type(value, __u64);
} tbg_vrf_ends SEC(".maps");

/*
 * Listeners, and connections accepted from them, for which tbg_vrf_birth has work. Writer: the
 * daemon, for listeners that may serve VRFs; the kernel copies it to each connection.
 */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, __u32);
} tbg_vrf_own SEC(".maps");

/*
 * Connection that is the kernel's -> time of its last segment, in ms, give or take
 * TBG_VRF_AGAIN_MS. Request sockets, and closed ones that still exist (FIN-WAIT, TIME-WAIT,
 * LAST-ACK), are in no map.
 *
 * There are two maps, because anybody can fill tbg_vrf_seen with forged SYNs. Connections whose
 * client has completed the handshake are in tbg_vrf_proven. Without that entry, a first request
 * that comes twice could begin the connection again with wire's old cookie, although the kernel
 * has answered it.
 *
 * Writer: BPF. LRU. The socket of an evicted connection is found until it is closed. After that,
 * wire may answer a SYN that the kernel would answer. The client's first miss finds no socket then,
 * and after some attempts the client is reset.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct tbg_tcb_key);
	__type(value, __u32);
} tbg_vrf_seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct tbg_tcb_key);
	__type(value, __u32);
} tbg_vrf_proven SEC(".maps");

/*
 * The longest silence before a socket is surely gone (FIN-WAIT-2, then TIME-WAIT), and a cookie
 * invalid.
 */
#define TBG_VRF_AGAIN_MS 1000
#define TBG_VRF_KEPT_MS	 (TBG_COOKIE_AGE_MS + 2 * TBG_VRF_AGAIN_MS)

_Static_assert(TBG_VRF_KEPT_MS > 120000, "net.ipv4.tcp_fin_timeout, and TIME-WAIT");

/* The key of these maps is in each parsed segment. */
_Static_assert(offsetof(struct tbg_pkt, vrf) == offsetof(struct tbg_tcb_key, vrf) &&
	       !offsetof(struct tbg_pkt, key), "tbg_pkt begins with a tbg_tcb_key");

/* Returns whether VRFs are in use, and wire may have connections there. */
static __always_inline bool tbg_vrf_works(const struct tbg_knob *knob)
{
	return knob->vrfs == TBG_VRFS_FOUND;
}

/* Returns when the connection was last noted; NULL: it is not. */
static __always_inline __u32 *tbg_vrf_last(const struct tbg_tcb_key *key)
{
	__u32 *ret = bpf_map_lookup_elem(&tbg_vrf_proven, key);

	return ret ?: bpf_map_lookup_elem(&tbg_vrf_seen, key);
}

/* Notes that the connection is the kernel's. */
__attribute__((noinline)) int tbg_vrf_note(const struct tbg_tcb_key *key)
{
	__u32 now_ms = tbg_now_ms(), *seen;

	if (!key)
		return 0;
	seen = tbg_vrf_last(key);
	if (!seen)
		return bpf_map_update_elem(&tbg_vrf_seen, key, &now_ms, BPF_ANY);
	if (now_ms - *seen >= TBG_VRF_AGAIN_MS)
		*seen = now_ms;
	return 0;
}

/* Returns whether the kernel may have a socket for the segment, although none is found. */
static __always_inline bool tbg_vrf_hides(const struct tbg_pkt *p)
{
	__u32 *seen = tbg_vrf_last((const void *)p);

	return seen && tbg_now_ms() - *seen < TBG_VRF_KEPT_MS;
}

/* Looks up the listener bound to the segment's VRF: of its address, else of all. */
static __always_inline struct bpf_sock *tbg_vrf_listener(const struct tbg_pkt *p)
{
	struct tbg_vrf_end end = { .vrf = p->vrf, .port = p->key.local_port, .v6 = p->v6 };
	struct bpf_sock *ret;

	__builtin_memcpy(end.local, p->key.local, sizeof(end.local));
	ret = bpf_map_lookup_elem(&tbg_vrf_ends, &end);
	if (ret)
		return ret;
	__builtin_memset(end.local, 0, sizeof(end.local));
	return bpf_map_lookup_elem(&tbg_vrf_ends, &end);
}

/*
 * Loads sk->state. Not in C: the verifier accepts no load that follows both lookups, which clang
 * would make of one after each. They return different types.
 */
static __always_inline __u32 tbg_vrf_state(struct bpf_sock *sk)
{
	__u32 ret;

	asm volatile("%0 = *(u32 *)(%1 + %2)"
		     : "=r"(ret) : "r"(sk), "i"(offsetof(struct bpf_sock, state)));
	return ret;
}

/*
 * Returns the socket of the segment, of any kind, as tbg_socket_find() does; *state is its state.
 * In a VRF, only established sockets and listeners are found: see tbg_vrf_hides(). No field of
 * the socket may be read, but by helpers.
 */
static __always_inline struct bpf_sock *
tbg_socket_get(struct __sk_buff *skb, const struct tbg_pkt *p, __u32 *state)
{
	struct bpf_sock *ret;

	if (p->vrf) {
		ret = bpf_map_lookup_elem(&tbg_vrf_socks, &p->key);
		if (ret) {
			*state = tbg_vrf_state(ret);
			/* disconnected, but its descriptor is not closed yet */
			if (*state != BPF_TCP_CLOSE)
				return ret;
			bpf_sk_release(ret);
		}
		ret = tbg_vrf_listener(p);
		if (ret) {
			*state = tbg_vrf_state(ret);
			return ret;
		}
	}
	/* in a VRF: the listener that serves all (net.ipv4.tcp_l3mdev_accept) */
	ret = tbg_socket_find(skb, &p->key, p->v6);
	if (ret)
		*state = tbg_vrf_state(ret);
	return ret;
}

/* What a connection of the kernel has offered to its client. */
struct tcp_options_received___vrf {
	__u16 tstamp_ok:1, wscale_ok:1, sack_ok:3, rcv_wscale:4;
} __attribute__((preserve_access_index));

struct tcp_sock___vrf {
	__u32 rcv_nxt, rcv_wup, rcv_wnd;
	__u64 bytes_received;
	struct tcp_options_received___vrf rx_opt;
	__u8 ecn_flags, tcp_usec_ts:1;
	bool is_mptcp;
} __attribute__((preserve_access_index));

/* include/net/tcp.h */
#define TBG_ECN_OK	1
#define TBG_ECN_ACCURATE 0x10

#endif
