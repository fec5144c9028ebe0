/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Kernel memory without bpf_probe_read_kernel(), which takes long and which
 * lockdown=confidentiality forbids: loads that the verifier makes safe, as of a structure's
 * first member. Included before all else where an object is compiled for kernels that have
 * them (6.2 and newer). What cannot be read is zero; no error is known.
 */
#ifndef TBG_DIRECT_BPF_H
#define TBG_DIRECT_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* Any structure of the kernel does that begins with 64 bits and no pointer. */
struct timespec64 {
	long long tv_sec;
} __attribute__((preserve_access_index));

extern void *bpf_rdonly_cast(void *obj, __u32 btf_id) __ksym;

static __always_inline void *tbg_direct_at(const void *from)
{
	return bpf_rdonly_cast((void *)from, bpf_core_type_id_kernel(struct timespec64));
}

/* size: a constant. */
static __always_inline long tbg_direct_read(void *to, __u32 size, const void *from)
{
	__u32 at;

	for (at = 0; at + 8 <= size; at += 8)
		*(__u64 *)(to + at) = *(volatile __u64 *)tbg_direct_at(from + at);
	if (size & 4) {
		*(__u32 *)(to + at) = *(volatile __u32 *)tbg_direct_at(from + at);
		at += 4;
	}
	if (size & 2) {
		*(__u16 *)(to + at) = *(volatile __u16 *)tbg_direct_at(from + at);
		at += 2;
	}
	if (size & 1)
		*(__u8 *)(to + at) = *(volatile __u8 *)tbg_direct_at(from + at);
	return 0;
}

#define bpf_probe_read_kernel(to, size, from) tbg_direct_read(to, size, from)

/* Eight bytes at most, which may hold more than the text. */
#define bpf_probe_read_kernel_str(to, size, from) tbg_direct_read(to, size, from)

#endif
