/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Chooses between two forms of a BPF object. From Linux 6.2 on it is the form that reads
 * kernel memory by plain loads (bpf/direct.bpf.h), which cost a tenth of
 * bpf_probe_read_kernel() and are allowed with lockdown=confidentiality. Both have the
 * same programs, maps and variables. Called before an object is sized and loaded.
 */
#ifndef TBG_USERD_TIERS_DIRECT_H
#define TBG_USERD_TIERS_DIRECT_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

struct bpf_object_skeleton;

/* Whether the kernel refuses the helper although it loads programs. */
bool tbg_direct_needed(void);

/* Whether to load the second form: the kernel refuses the helper, or supports the loads. */
bool tbg_direct_wanted(void);

/* Opens the skeleton with another ELF file than its own. 0 or negative errno. */
int tbg_direct_open(struct bpf_object_skeleton *s, const void *elf, size_t len);

/*
 * Defines name_open(), which opens the required form, as the skeleton's open function
 * does: NULL and errno on error. The including file includes bpf/NAME.skel.h and
 * bpf/NAME_direct.skel.h.
 */
#define TBG_DIRECT_OPEN(name)							\
	static struct tbg_##name##_bpf *name##_open(void)			\
	{									\
		struct tbg_##name##_bpf *ret;					\
		const void *elf;						\
		size_t len;							\
		int err;							\
										\
		if (!tbg_direct_wanted())					\
			return tbg_##name##_bpf__open();			\
		ret = calloc(1, sizeof(*ret));					\
		err = ret ? tbg_##name##_bpf__create_skeleton(ret) : -ENOMEM;	\
		elf = tbg_##name##_direct_bpf__elf_bytes(&len);			\
		err = err ?: tbg_direct_open(ret->skeleton, elf, len);		\
		if (!err)							\
			return ret;						\
		tbg_##name##_bpf__destroy(ret);					\
		errno = -err;							\
		return NULL;							\
	}

#endif
