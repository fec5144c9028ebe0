/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connections without a socket on interfaces in VRFs (bpf/wire/vrf.bpf.h): gives BPF the
 * listeners that serve VRFs, and attaches the program that notes sockets of VRFs, to the root of
 * the cgroups, while there are VRFs. For wire.c and, at the start, listeners.c.
 */
#ifndef TBG_USERD_TIERS_VRFS_H
#define TBG_USERD_TIERS_VRFS_H

#include <stdint.h>

struct bpf_link;
struct bpf_object;

struct tbg_vrfs {
	struct bpf_object *obj;		/* wire's */
	int root;			/* of the cgroups; negative errno: cannot be opened */
	struct bpf_link *link;		/* of tbg_vrf_birth; NULL: not attached */
	unsigned int nr;		/* interfaces in VRFs */
	unsigned int serving;		/* listeners that serve VRFs */
	int *unbound;			/* others, which tcp_l3mdev_accept may let serve them */
	unsigned int unbound_nr;
	int err;			/* of the last attempt to attach it */
};

/* Between open and load of the object. Needs CAP_SYS_ADMIN, to mount the cgroups. */
void tbg_vrfs_open(struct tbg_vrfs *v, struct bpf_object *obj);
void tbg_vrfs_close(struct tbg_vrfs *v);

/*
 * A socket that wire may answer on: before it listens, and as soon as it does. v NULL: does
 * nothing. 0 or negative errno.
 */
int tbg_vrfs_give(struct tbg_vrfs *v, int fd);
int tbg_vrfs_listen(struct tbg_vrfs *v, int fd);

/*
 * With nr interfaces in VRFs. To be called again from time to time: the sysctl may have changed.
 * Returns TBG_VRFS_*. Needs CAP_NET_ADMIN and CAP_BPF.
 */
uint8_t tbg_vrfs_follow(struct tbg_vrfs *v, unsigned int nr);

/* Why the kernel has all connections in VRFs; NULL: it does not, or there are none. */
const char *tbg_vrfs_why(const struct tbg_vrfs *v);

#endif
