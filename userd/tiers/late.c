// SPDX-License-Identifier: GPL-2.0
/*
 * Checks the requirements of late sockets by the kernel's BTF, without loading a program.
 * See late.h.
 */
#include "tiers/late.h"

#include <stdio.h>
#include <string.h>

#include <bpf/btf.h>
#include <bpf/libbpf.h>

static bool has_function(const struct btf *btf, const char *name)
{
	return btf && btf__find_by_name_kind(btf, name, BTF_KIND_FUNC) > 0;
}

/* Built into the kernel, or in a loaded module. */
static bool has_conntrack(struct btf *kernel)
{
	static const char name[] = "bpf_ct_change_timeout";
	struct btf *module;
	bool ret = has_function(kernel, name);

	module = kernel && !ret ? btf__load_module_btf("nf_conntrack", kernel) : NULL;
	if (module && !libbpf_get_error(module)) {
		ret = has_function(module, name);
		btf__free(module);
	}
	return ret;
}

void tbg_late_look(struct tbg_late *ret, bool wanted)
{
	struct btf *kernel;

	*ret = (struct tbg_late){ 0 };
	if (!wanted) {
		strcpy(ret->why, "set by --late-sockets");
	} else {
		kernel = btf__load_vmlinux_btf();
		ret->can = has_function(kernel, "bpf_sk_assign_tcp_reqsk");
		ret->forgets = ret->can && has_conntrack(kernel);
		if (!ret->can)
			strcpy(ret->why, "the kernel makes no sockets late; Linux 6.9 and newer does");
		btf__free(kernel);
	}
}
