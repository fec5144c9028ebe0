// SPDX-License-Identifier: GPL-2.0
/* Listeners for VRFs, and the program that notes their connections. See vrfs.h. */
#include "tiers/vrfs.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "abi/knob.h"
#include "abi/tcb.h"
#include "os/cgroup.h"
#include "os/sysctl.h"
#include "tiers/address.h"

#define ROOT_INODE 1	/* cgroup_setup_root() of the kernel relies on it */

static struct bpf_program *program_of(const struct tbg_vrfs *v)
{
	return bpf_object__find_program_by_name(v->obj, "tbg_vrf_birth");
}

static int map_fd(const struct tbg_vrfs *v, const char *name)
{
	return bpf_object__find_map_fd_by_name(v->obj, name);
}

/*
 * Opens the root of the cgroups, whose programs run for the sockets of all. The root of a cgroup
 * namespace, or of a folder that is mounted in its place, would not have a listener made outside,
 * nor the connections that it accepts. -EXDEV: only such a root.
 */
static int root_open(void)
{
	int fd = tbg_cgroup_root();
	struct stat st;

	if (fd < 0)
		return fd;
	if (!fstat(fd, &st) && st.st_ino == ROOT_INODE)
		return fd;
	close(fd);
	return -EXDEV;
}

void tbg_vrfs_open(struct tbg_vrfs *v, struct bpf_object *obj)
{
	*v = (struct tbg_vrfs){ .obj = obj, .root = root_open() };
	/* a kernel without CGROUP_BPF */
	if (libbpf_probe_bpf_prog_type(BPF_PROG_TYPE_SOCK_OPS, NULL) == 1)
		return;
	bpf_program__set_autoload(program_of(v), false);
	v->err = -EOPNOTSUPP;
}

static void detach(struct tbg_vrfs *v)
{
	bpf_link__destroy(v->link);
	v->link = NULL;
}

void tbg_vrfs_close(struct tbg_vrfs *v)
{
	detach(v);
	if (v->obj && v->root >= 0)
		close(v->root);
	v->obj = NULL;
	free(v->unbound);
	v->unbound = NULL;
	v->unbound_nr = 0;
}

/* The interface that the socket is bound to; 0: none. */
static uint32_t bound_to(int fd)
{
	socklen_t len = sizeof(int);
	int ifindex = 0;

	return getsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &ifindex, &len) ? 0 : ifindex;
}

/* Whether the socket, which is bound to an interface, is bound to the device of a VRF. */
static bool bound_to_vrf(int fd)
{
	struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };
	struct ifreq of = { .ifr_data = (void *)&info };
	socklen_t len = sizeof(of.ifr_name);

	return !getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, of.ifr_name, &len) &&
	       !ioctl(fd, SIOCETHTOOL, &of) && !strcmp(info.driver, "vrf");
}

/* Connections that the socket accepts from now on are noted. 0 or negative errno. */
static int serve(struct tbg_vrfs *v, int fd)
{
	const uint32_t one = 1;

	if (bpf_map_update_elem(map_fd(v, "tbg_vrf_own"), &fd, &one, BPF_ANY))
		return -errno;
	v->serving++;
	return 0;
}

static int unbound_add(struct tbg_vrfs *v, int fd)
{
	int *more = realloc(v->unbound, (v->unbound_nr + 1) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	v->unbound = more;
	v->unbound[v->unbound_nr++] = fd;
	return 0;
}

int tbg_vrfs_give(struct tbg_vrfs *v, int fd)
{
	if (!v || v->err == -EOPNOTSUPP)
		return 0;
	if (!bound_to(fd))
		return unbound_add(v, fd);
	return bound_to_vrf(fd) ? serve(v, fd) : 0;
}

/*
 * Listeners that are bound to nothing, as soon as the kernel lets them serve VRFs. If it does not
 * any more, it does not find them there, and they stay prepared. Tried again where memory is
 * short.
 */
static void unbound_serve(struct tbg_vrfs *v)
{
	if (!v->unbound_nr || !tbg_sysctl("/proc/sys/net/ipv4/tcp_l3mdev_accept", 0))
		return;
	while (v->unbound_nr && !serve(v, v->unbound[v->unbound_nr - 1]))
		v->unbound_nr--;
}

/* Fills *ret, of a socket that is bound to an interface. */
static int end_of(int fd, uint32_t ifindex, struct tbg_vrf_end *ret)
{
	struct sockaddr_storage at = { .ss_family = AF_UNSPEC };
	socklen_t len = sizeof(at);

	if (getsockname(fd, (struct sockaddr *)&at, &len))
		return -errno;
	*ret = (struct tbg_vrf_end){ .vrf = ifindex, .v6 = at.ss_family == AF_INET6 };
	tbg_end_of_listener(&at, ret->local, &ret->port);
	return 0;
}

int tbg_vrfs_listen(struct tbg_vrfs *v, int fd)
{
	uint32_t ifindex = v ? bound_to(fd) : 0;
	struct tbg_vrf_end end;
	uint64_t own = fd;
	uint32_t serves;
	int err;

	if (!ifindex || bpf_map_lookup_elem(map_fd(v, "tbg_vrf_own"), &fd, &serves))
		return 0;
	err = end_of(fd, ifindex, &end);
	if (err)
		return err;
	/* one of several that share the port will do: the kernel chooses among all of them */
	err = bpf_map_update_elem(map_fd(v, "tbg_vrf_ends"), &end, &own, BPF_NOEXIST);
	return err && errno != EEXIST ? -errno : 0;
}

/* To the root: sockets of a service manager belong to its own cgroup. */
static int attach(struct tbg_vrfs *v)
{
	if (v->root < 0)
		return v->root;
	v->link = bpf_program__attach_cgroup(program_of(v), v->root);
	return v->link ? 0 : -errno;
}

uint8_t tbg_vrfs_follow(struct tbg_vrfs *v, unsigned int nr)
{
	v->nr = nr;
	if (nr)
		unbound_serve(v);
	if (!nr || !v->serving) {
		detach(v);
		return nr ? TBG_VRFS_LOST : TBG_VRFS_NONE;
	}
	if (!v->link && v->err != -EOPNOTSUPP)
		v->err = attach(v);
	return v->link ? TBG_VRFS_FOUND : TBG_VRFS_LOST;
}

const char *tbg_vrfs_why(const struct tbg_vrfs *v)
{
	/* without listeners that serve them, no socket of ours has a connection there */
	if (!v || !v->nr || v->link || !v->serving)
		return NULL;
	return v->err == -EXDEV ?
	       "the daemon is in a cgroup namespace, so it cannot note the connections of all sockets; start it outside (--cgroupns=host of a container)" :
	       strerror(-v->err);
}
