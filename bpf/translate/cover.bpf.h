/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether a device runs our programs before all others on its hooks. Read from
 * the kernel's structures at the moment of use, because the daemon's list of
 * interfaces is always older than the packet. Supports tcx (6.6) and clsact.
 */
#ifndef TBG_TRANSLATE_COVER_BPF_H
#define TBG_TRANSLATE_COVER_BPF_H

#include <stdbool.h>

#include "../wire/frame.bpf.h"

#define TBG_FRONT_MAX 8		/* programs on a hook that are examined */
#define TBG_LOWER_MAX 16	/* devices directly below one */
#define TBG_UPPER_MAX 4		/* masters above one another */
#define TBG_KIND_BPF 0x667062	/* "bpf" */
#define TBG_IFF_UP 1

/* Whether packets that leave by a device pass our hooks. */
enum tbg_cover { TBG_COVER_NONE, TBG_COVER_SOME, TBG_COVER_ALL };

/* Hooks, in the order of enum tbg_hook of the daemon. */
#define TBG_COVER_INGRESS 0
#define TBG_COVER_EGRESS 1

/* Ids of our programs by hook. Writer: daemon, before it attaches. */
__u32 tbg_hook_ids[2];

struct bpf_prog_aux___cover {
	__u32 id;
	char name[16];
} __attribute__((preserve_access_index));

struct bpf_prog___cover {
	struct bpf_prog_aux___cover *aux;
} __attribute__((preserve_access_index));

struct list_head___cover {
	struct list_head___cover *next;
} __attribute__((preserve_access_index));

struct tcf_proto_ops___cover {
	char kind[16];
} __attribute__((preserve_access_index));

struct tcf_proto___cover {
	void *root;
	struct tcf_proto_ops___cover *ops;
} __attribute__((preserve_access_index));

struct mini_Qdisc___cover {
	struct tcf_proto___cover *filter_list;
} __attribute__((preserve_access_index));

struct rtnl_link_ops___cover {
	const char *kind;
} __attribute__((preserve_access_index));

struct net_device___cover {
	void *tcx_ingress, *tcx_egress;		/* struct bpf_mprog_entry, from 6.6 */
	struct mini_Qdisc___cover *miniq_ingress, *miniq_egress;	/* before */
	struct {
		struct list_head___cover upper, lower;
	} adj_list;
	unsigned int flags;
	int ifindex;
	void *rx_handler, *l3mdev_ops;
	struct rtnl_link_ops___cover *rtnl_link_ops;
} __attribute__((preserve_access_index));

struct netdev_adjacent___cover {
	struct net_device___cover *dev;
	struct list_head___cover list;
} __attribute__((preserve_access_index));

/* Reads a pointer at a kernel address; 0: NULL, or unreadable. */
static __always_inline __u64 tbg_kernel_pointer(__u64 at)
{
	__u64 ret = 0;

	bpf_probe_read_kernel(&ret, sizeof(ret), (void *)(long)at);
	return ret;
}

/*
 * The owner of a program. A sister is another daemon's program, which lets every packet
 * continue to ours.
 */
enum tbg_whose { TBG_OURS, TBG_SISTERS, TBG_OTHERS };

static __always_inline enum tbg_whose tbg_whose(__u64 at, __u32 hook)
{
	struct bpf_prog___cover *prog = (void *)(long)at;
	struct bpf_prog_aux___cover *aux = BPF_CORE_READ(prog, aux);
	__u64 name = 0, wanted;

	if (BPF_CORE_READ(aux, id) == tbg_hook_ids[hook & 1])
		return TBG_OURS;
	bpf_core_read(&name, sizeof(name), &aux->name);
	if (hook == TBG_COVER_EGRESS)
		__builtin_memcpy(&wanted, "tbg_egre", sizeof(wanted));
	else
		__builtin_memcpy(&wanted, "tbg_ingr", sizeof(wanted));
	return name == wanted ? TBG_SISTERS : TBG_OTHERS;
}

/* 1: ours is the first program of tcx. entry: struct bpf_mprog_entry, an array of pointers. */
__attribute__((noinline)) int tbg_tcx_is_ours(__u64 entry, __u32 hook)
{
	enum tbg_whose whose;
	__u64 prog;
	int i;

	for (i = 0; i < TBG_FRONT_MAX; i++) {
		prog = tbg_kernel_pointer(entry + i * 8);
		if (!prog)
			return 0;
		whose = tbg_whose(prog, hook);
		if (whose != TBG_SISTERS)
			return whose == TBG_OURS;
	}
	return 0;
}

/*
 * The same for clsact: the filters of cls_bpf's first priority. CO-RE does not relocate
 * its types, since cls_bpf may be a module that is loaded later. From 4.1 to 7.2 a head
 * begins with its list; struct cls_bpf_prog begins with the program, then the list.
 */
__attribute__((noinline)) int tbg_clsact_is_ours(__u64 filters, __u32 hook)
{
	struct tcf_proto___cover *tp = (void *)(long)filters;
	enum tbg_whose whose;
	__u64 at, head;
	__u32 kind = 0;
	int i;

	bpf_probe_read_kernel(&kind, sizeof(kind), BPF_CORE_READ(tp, ops, kind));
	head = (__u64)(long)BPF_CORE_READ(tp, root);
	at = head;
	for (i = 0; i < TBG_FRONT_MAX && kind == TBG_KIND_BPF; i++) {
		at = tbg_kernel_pointer(at);
		if (!at || at == head)
			return 0;
		whose = tbg_whose(tbg_kernel_pointer(at - 8), hook);
		if (whose != TBG_SISTERS)
			return whose == TBG_OURS;
	}
	return 0;
}

/* 1: both hooks of a device run our programs first. dev: struct net_device. */
__attribute__((noinline)) int tbg_device_is_ours(__u64 at)
{
	struct net_device___cover *dev = (void *)(long)at;

	if (bpf_core_field_exists(dev->tcx_egress))
		return tbg_tcx_is_ours((__u64)(long)BPF_CORE_READ(dev, tcx_egress),
				       TBG_COVER_EGRESS) &&
		       tbg_tcx_is_ours((__u64)(long)BPF_CORE_READ(dev, tcx_ingress),
				       TBG_COVER_INGRESS);
	return tbg_clsact_is_ours((__u64)(long)BPF_CORE_READ(dev, miniq_egress, filter_list),
				  TBG_COVER_EGRESS) &&
	       tbg_clsact_is_ours((__u64)(long)BPF_CORE_READ(dev, miniq_ingress, filter_list),
				  TBG_COVER_INGRESS);
}

__attribute__((noinline)) int tbg_cover_below(__u64 at);

/*
 * How many of the devices directly below a device (a VLAN, macvlan, bridge or bond)
 * are covered. deep: a device whose lower devices are all covered counts, too (a VLAN
 * on a bond).
 */
static __always_inline int tbg_cover_lower(__u64 at, bool deep)
{
	struct net_device___cover *dev = (void *)(long)at;
	__u64 head = (__u64)(long)&dev->adj_list.lower, pos = head;
	struct netdev_adjacent___cover *a;
	const char *kind = BPF_CORE_READ(dev, rtnl_link_ops, kind);
	/* no counter: the verifier would combine its values with those of i */
	bool some = false, all = true, ours;
	__u64 name = 0, wanted;
	int i;

	/* its packets are encapsulated when they pass the lower device */
	bpf_probe_read_kernel_str(&name, sizeof(name), kind);
	__builtin_memcpy(&wanted, "macsec\0", sizeof(wanted));
	/* compare seven bytes: the eighth may not belong to the text */
	if (!((name ^ wanted) << 8))
		return TBG_COVER_NONE;
	for (i = 0; i < TBG_LOWER_MAX; i++) {
		pos = tbg_kernel_pointer(pos);
		if (!pos || pos == head)
			break;
		a = (void *)(long)(pos - bpf_core_field_offset(struct netdev_adjacent___cover,
							       list));
		at = (__u64)(long)BPF_CORE_READ(a, dev);
		ours = tbg_device_is_ours(at) ||
		       (deep && tbg_cover_below(at) == TBG_COVER_ALL);
		some |= ours;
		all &= ours;
	}
	if (!some)
		return TBG_COVER_NONE;
	return all && pos == head ? TBG_COVER_ALL : TBG_COVER_SOME;
}

__attribute__((noinline)) int tbg_cover_below(__u64 at)
{
	return tbg_cover_lower(at, false);
}

__attribute__((noinline)) int tbg_cover_deep(__u64 at)
{
	return tbg_cover_lower(at, true);
}

/* Whether a device is a port of another one (a bridge, macvlan or bond). */
static __always_inline bool tbg_device_is_port(__u64 at)
{
	struct net_device___cover *dev = (void *)(long)at;

	return BPF_CORE_READ(dev, rx_handler);
}

/*
 * The ifindex of the VRF that a device belongs to; 0: none. Two VRFs may have
 * connections with the same addresses. A port of a bridge in a VRF belongs to it, too.
 */
__attribute__((noinline)) int tbg_device_domain(__u64 at)
{
	struct net_device___cover *dev = (void *)(long)at, *up;
	struct netdev_adjacent___cover *a;
	__u64 head, pos;
	int i;

	if (!bpf_core_field_exists(dev->l3mdev_ops))
		return 0;
	for (i = 0; i < TBG_UPPER_MAX; i++) {
		head = (__u64)(long)&dev->adj_list.upper;
		pos = tbg_kernel_pointer(head);
		if (!pos || pos == head)
			return 0;
		a = (void *)(long)(pos - bpf_core_field_offset(struct netdev_adjacent___cover,
							       list));
		/* a master comes first */
		up = BPF_CORE_READ(a, dev);
		if (BPF_CORE_READ(up, l3mdev_ops))
			return BPF_CORE_READ(up, ifindex);
		dev = up;
	}
	return 0;
}

/* Whether a device is down or gone: nothing leaves by it. dev: struct net_device. */
static __always_inline bool tbg_device_is_away(__u64 at)
{
	struct net_device___cover *dev = (void *)(long)at;

	/* the placeholder for removed devices has no ifindex */
	return !(BPF_CORE_READ(dev, flags) & TBG_IFF_UP) || !BPF_CORE_READ(dev, ifindex);
}

/* Coverage of packets that leave by a device: struct net_device. */
static __always_inline int tbg_cover(__u64 dev)
{
	return tbg_device_is_ours(dev) ? TBG_COVER_ALL : tbg_cover_deep(dev);
}

#endif
