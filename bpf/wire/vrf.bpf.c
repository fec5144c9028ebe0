// SPDX-License-Identifier: GPL-2.0
/*
 * sock_ops: puts a connection of our listeners that is bound to a VRF into the map of sockets,
 * before its next segment. Attached while there are VRFs. Runs for the TCP sockets of all
 * processes, and must leave those of others alone.
 */
#include "../end.bpf.h"
#include "vrf.bpf.h"

/* Notes at the connection, if wire has handed it over, that its socket exists. */
static __always_inline void tbg_vrf_made(const struct tbg_tcb_key *key)
{
	struct tbg_tcb *f = bpf_map_lookup_elem(&tbg_tcbs, key);

	if (f)
		tbg_hand_made(f);
}

SEC("sockops")
int tbg_vrf_birth(struct bpf_sock_ops *ops)
{
	struct tbg_tcb_key key = {};
	struct bpf_sock *sk;
	__u32 now_ms;

	if (ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	sk = ops->sk;
	if (!sk || !sk->bound_dev_if || !bpf_sk_storage_get(&tbg_vrf_own, sk, NULL, 0))
		return 1;
	key.vrf = sk->bound_dev_if;
	TBG_SOCK_END(ops, local, key.flow.local);
	TBG_SOCK_END(ops, remote, key.flow.remote);
	key.flow.local_port = bpf_htons(ops->local_port);
	key.flow.remote_port = bpf_htons(bpf_ntohl(ops->remote_port));
	now_ms = tbg_now_ms();
	bpf_map_update_elem(&tbg_vrf_proven, &key, &now_ms, BPF_ANY);
	bpf_sock_hash_update(ops, &tbg_vrf_socks, &key, BPF_ANY);
	tbg_vrf_made(&key);
	return 1;
}
