// SPDX-License-Identifier: GPL-2.0
/*
 * Looks up whether a silent flow still has its socket, before the sweeper deletes
 * it. Run by the daemon (BPF_PROG_TEST_RUN), in the namespace of the sockets, on a
 * frame that holds a struct tbg_flow_key; attached to nothing.
 */
#include "birth.bpf.h"

SEC("tc")
int tbg_has_socket(struct __sk_buff *skb)
{
	struct tbg_flow_key key = {};
	struct bpf_sock *sk;
	int ret;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &key, sizeof(key)))
		return 1;
	sk = tbg_socket_find(skb, &key, key.local[0] | key.local[1] |
			     (key.local[2] ^ bpf_htonl(0xffff)));
	if (!sk)
		return 0;
	ret = sk->state != BPF_TCP_LISTEN;
	bpf_sk_release(sk);
	return ret;
}
