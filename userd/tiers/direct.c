// SPDX-License-Identifier: GPL-2.0
/*
 * Finds out which form of the BPF objects to load, by its BTF, and by loading a small test
 * program with the helper in question. Called before an object is opened; loads nothing else.
 */
#include "tiers/direct.h"

#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

bool tbg_direct_needed(void)
{
	static const struct bpf_insn reads[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 1, .src_reg = 10 },
		{ .code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = 1, .imm = -8 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 2, .imm = 8 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3 },
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_probe_read_kernel },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	int fd = bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, "tbg_reads", "GPL", reads,
			       sizeof(reads) / sizeof(*reads), NULL);

	if (fd >= 0)
		close(fd);
	return fd == -EINVAL;
}

static bool has_loads(void)
{
	struct btf *kernel = btf__load_vmlinux_btf();
	bool ret = !libbpf_get_error(kernel) &&
		   btf__find_by_name_kind(kernel, "bpf_rdonly_cast", BTF_KIND_FUNC) > 0;

	btf__free(kernel);
	return ret;
}

bool tbg_direct_wanted(void)
{
	static int wanted = -1;		/* tiers are opened one after the other */

	if (wanted < 0)
		wanted = has_loads() || tbg_direct_needed();
	return wanted;
}

int tbg_direct_open(struct bpf_object_skeleton *s, const void *elf, size_t len)
{
	s->data = (void *)elf;
	s->data_sz = len;
	return bpf_object__open_skeleton(s, NULL);
}
