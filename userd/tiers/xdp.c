// SPDX-License-Identifier: GPL-2.0
/*
 * Loads and attaches the XDP program besides wire's programs. After an error
 * only TC answers.
 */
#include "tiers/xdp.h"

#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/translate_xdp.skel.h"
#include "bpf/wire_xdp.skel.h"
#include "tiers/maps.h"

struct tbg_xdp {
	struct tbg_translate_xdp_bpf *translate;	/* one of these two */
	struct tbg_wire_xdp_bpf *own;
	int ports_fd, prog_fd;
};

/* All of wire's maps: its connections as well as the cache's. */
static int share_all(struct bpf_object *obj, const struct bpf_object *wire)
{
	struct bpf_map *map;
	int err = 0;

	bpf_object__for_each_map(map, obj) {
		const struct bpf_map *from;

		if (bpf_map__is_internal(map))
			continue;
		from = bpf_object__find_map_by_name(wire, bpf_map__name(map));
		err = err ?: from ? bpf_map__reuse_fd(map, bpf_map__fd(from)) : -ENOENT;
	}
	return err;
}

/* Opens one of the two skeletons. */
static struct bpf_object *open_either(struct tbg_xdp *x, bool translated,
				      volatile uint32_t **ret_class_base)
{
	if (translated) {
		x->translate = tbg_translate_xdp_bpf__open();
		if (!x->translate)
			return NULL;
		*ret_class_base = x->translate->rodata->tbg_class_base;
		return x->translate->obj;
	}
	x->own = tbg_wire_xdp_bpf__open();
	if (!x->own)
		return NULL;
	*ret_class_base = x->own->rodata->tbg_class_base;
	return x->own->obj;
}

static int load(struct tbg_xdp *x, const struct bpf_object *wire,
		const struct tbg_plan *plan, bool translated)
{
	volatile uint32_t *class_base;
	struct bpf_object *obj = open_either(x, translated, &class_base);
	int err = obj ? tbg_maps_size(obj, class_base, plan) : -errno;

	err = err ?: share_all(obj, wire);
	if (!err)
		err = translated ? tbg_translate_xdp_bpf__load(x->translate) :
				   tbg_wire_xdp_bpf__load(x->own);
	if (err)
		return err;
	x->ports_fd = bpf_object__find_map_fd_by_name(obj, "tbg_ports");
	x->prog_fd = bpf_program__fd(bpf_object__find_program_by_name(obj, "tbg_xdp"));
	return 0;
}

int tbg_xdp_open(struct tbg_xdp **ret, const struct bpf_object *wire,
		 const struct tbg_plan *plan, bool translated, char *ret_why, size_t why_len)
{
	libbpf_print_fn_t print = libbpf_set_print(NULL);
	struct tbg_xdp *x = calloc(1, sizeof(*x));
	int err = x ? load(x, wire, plan, translated) : -ENOMEM;

	libbpf_set_print(print);
	if (err) {
		snprintf(ret_why, why_len, "this kernel does not load the program: %s",
			 strerror(-err));
		tbg_xdp_close(x);
		return err;
	}
	*ret = x;
	return 0;
}

static const char *reason(int err)
{
	switch (-err) {
	case EOPNOTSUPP:
		return "its driver has no native XDP, or not with its settings";
	case EBUSY:
		return "another XDP program is there";
	case ERANGE:
		return "its driver's frames are too small for the MTU";
	case ENOSPC:
		return "it has too few queues for XDP";
	default:
		return strerror(-err);
	}
}

static bool is_bond(int ifindex)
{
	struct ifreq req = {};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ret = fd >= 0 && if_indextoname(ifindex, req.ifr_name) &&
		   !ioctl(fd, SIOCGIFFLAGS, &req) && req.ifr_flags & IFF_MASTER;

	if (fd >= 0)
		close(fd);
	return ret;
}

/* Reads the interface's address into ret; zeros: unknown. */
static void mac_of(int ifindex, void *ret)
{
	struct ifreq req = {};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && if_indextoname(ifindex, req.ifr_name) &&
	    !ioctl(fd, SIOCGIFHWADDR, &req))
		memcpy(ret, req.ifr_hwaddr.sa_data, ETH_ALEN);
	else
		memset(ret, 0, ETH_ALEN);
	if (fd >= 0)
		close(fd);
}

int tbg_xdp_attach(struct tbg_xdp *x, int ifindex, char *ret_why, size_t why_len)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = XDP_FLAGS_DRV_MODE);
	struct tbg_port port = { 0 };
	int fd;

	if (is_bond(ifindex)) {
		snprintf(ret_why, why_len, "a bond's programs run on its ports, which have no connections");
		return -EOPNOTSUPP;
	}
	mac_of(ifindex, port.mac);
	/* first, because without it the program answers nothing */
	fd = bpf_map_update_elem(x->ports_fd, &ifindex, &port, BPF_ANY);
	if (!fd)
		fd = bpf_link_create(x->prog_fd, ifindex, BPF_XDP, &opts);
	if (fd == -EEXIST)	/* a generic XDP program */
		fd = -EBUSY;
	if (fd < 0) {
		snprintf(ret_why, why_len, "%s", reason(fd));
		tbg_xdp_forget(x, ifindex);
	}
	return fd;
}

bool tbg_xdp_is_detached(int fd)
{
	struct bpf_link_info info = {};
	uint32_t len = sizeof(info);

	return !bpf_obj_get_info_by_fd(fd, &info, &len) && !info.xdp.ifindex;
}

void tbg_xdp_forget(struct tbg_xdp *x, int ifindex)
{
	bpf_map_delete_elem(x->ports_fd, &ifindex);
}

void tbg_xdp_follow(struct tbg_xdp *x, int ifindex)
{
	struct tbg_port port;
	uint8_t mac[ETH_ALEN];

	mac_of(ifindex, mac);
	if (bpf_map_lookup_elem(x->ports_fd, &ifindex, &port) ||
	    !memcmp(port.mac, mac, sizeof(mac)))
		return;
	memcpy(port.mac, mac, sizeof(mac));
	bpf_map_update_elem(x->ports_fd, &ifindex, &port, BPF_EXIST);
}

bool tbg_xdp_is_lost(const struct tbg_xdp *x, int ifindex)
{
	struct tbg_port port;

	return !bpf_map_lookup_elem(x->ports_fd, &ifindex, &port) &&
	       port.lost >= TBG_PORT_LOST;
}

void tbg_xdp_close(struct tbg_xdp *x)
{
	if (!x)
		return;
	tbg_translate_xdp_bpf__destroy(x->translate);
	tbg_wire_xdp_bpf__destroy(x->own);
	free(x);
}
