/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The members of kernel structures that sock reads; CO-RE finds their
 * offsets in the running kernel. Nothing here is written.
 */
#ifndef TBG_SOCK_KERNEL_BPF_H
#define TBG_SOCK_KERNEL_BPF_H

#include <linux/types.h>
#include <bpf/bpf_core_read.h>

#define tbg_kernel __attribute__((preserve_access_index))

struct sk_buff {
	char cb[48];			/* of TCP: begins with the sequence number */
} tbg_kernel;

struct sock {
	int sk_wmem_queued;
	int sk_sndbuf;
	__u16 sk_gso_max_segs;		/* maximum segments of one skb, */
	__u32 sk_gso_max_size;		/* and its maximum size; 0: no GSO */
} tbg_kernel;

struct inet_sock {
	struct sock sk;
} tbg_kernel;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
} tbg_kernel;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 max_window;		/* largest window that the client has offered */
	__u32 write_seq;		/* end of the data to be sent */
	__u32 mss_cache;
} tbg_kernel;

struct task_struct {
	unsigned int flags;
} tbg_kernel;

#define PF_KTHREAD 0x00200000

#endif
