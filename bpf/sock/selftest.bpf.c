// SPDX-License-Identifier: GPL-2.0
/*
 * Tests the mechanism of sock on a connection of the daemon to itself
 * (userd/tiers/sock_selftest.c): a request is redirected to its own socket's egress, a
 * worker of the kernel sends it there, and the answer replaces it; or it goes to the
 * socket's reader. These programs never serve clients; those of sock.bpf.c do.
 */
#include <stdbool.h>

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "abi/selftest.h"
#include "kernel.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} tbg_try_socks SEC(".maps");

__u32 tbg_try_seq;		/* of the next byte; 0: not known yet */

SEC("sk_skb/stream_verdict")
int tbg_try_skb(struct __sk_buff *skb)
{
	__u32 seq;

	if (!skb->len || bpf_skb_pull_data(skb, skb->len) ||
	    bpf_probe_read_kernel(&seq, sizeof(seq), (void *)skb +
				  bpf_core_field_offset(struct sk_buff, cb)))
		return SK_DROP;
	if (tbg_try_seq && tbg_try_seq != seq)
		return SK_DROP;
	tbg_try_seq = seq + skb->len;
	return bpf_sk_redirect_map(skb, &tbg_try_socks, 0, 0);
}

SEC("sk_msg")
int tbg_try_msg(struct sk_msg_md *msg)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	__u32 len = msg->size, i;
	__u8 *first = (void *)(long)msg->data;

	if (!(task->flags & PF_KTHREAD))
		return SK_PASS;
	if ((void *)(first + 1) > (void *)(long)msg->data_end)
		return SK_DROP;
	if (*first == TBG_SELFTEST_READER)
		return bpf_msg_redirect_map(msg, &tbg_try_socks, 0, BPF_F_INGRESS);
	if (bpf_msg_push_data(msg, 0, TBG_SELFTEST_LEN, 0) ||
	    bpf_msg_pop_data(msg, TBG_SELFTEST_LEN, len, 0))
		return SK_DROP;
	for (i = 0; i < TBG_SELFTEST_WORDS; i++) {
		__u64 *to = (__u64 *)(long)msg->data + i;

		if ((void *)(to + 1) > (void *)(long)msg->data_end)
			return SK_DROP;
		*to = TBG_SELFTEST_WORD(i);
	}
	return bpf_msg_redirect_map(msg, &tbg_try_socks, 0, 0);
}

char _license[] SEC("license") = "GPL";
