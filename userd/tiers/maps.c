// SPDX-License-Identifier: GPL-2.0
/*
 * The cache's maps by name: every BPF object that uses them has all of
 * them.
 */
#include "tiers/maps.h"
#include "tiers/address.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

static const char *const blob_maps[TBG_CLASS_NR] = {
#define X(name, bytes, percent) [TBG_CLASS_##name] = "tbg_blob_" #name,
	TBG_CLASS_LIST(X)
#undef X
};

static const char *const other_maps[] = {
	"tbg_index", "tbg_hosts", "tbg_bans", "tbg_buckets", "tbg_heat", "tbg_knob", "tbg_stats",
	"tbg_events", "tbg_sock_conns", "tbg_conns", "tbg_flows", "tbg_tier_hits", "tbg_site_hits",
};

static struct bpf_map *map_of(const struct bpf_object *obj, const char *name)
{
	return bpf_object__find_map_by_name(obj, name);
}

const char *tbg_maps_advice(int err)
{
	switch (-err) {
	case EPERM:
		return "start as root, or grant CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON";
	case EACCES:
		return "the kernel's verifier or a security module refuses it for every user; `toboggan probe` shows the details";
	case ENOMEM:
		return "give less with --memory";
	case EMFILE:
		return "raise the limit of open files (ulimit -n)";
	case EOPNOTSUPP:
	case EINVAL:
	case ENOENT:
		return "this kernel lacks a feature; `toboggan probe` names it";
	default:
		return "`toboggan probe` lists the kernel's features";
	}
}

int tbg_maps_size(struct bpf_object *obj, volatile uint32_t *class_base,
		  const struct tbg_plan *plan)
{
	uint32_t base = 0;
	int err = 0;

	for (unsigned int c = 0; c < TBG_CLASS_NR; c++) {
		class_base[c] = base;
		base += plan->slots[c];
		err = err ?: bpf_map__set_max_entries(map_of(obj, blob_maps[c]),
						      plan->slots[c]);
	}
	err = err ?: bpf_map__set_max_entries(map_of(obj, "tbg_index"),
					      plan->entries);
	err = err ?: bpf_map__set_max_entries(map_of(obj, "tbg_sock_conns"),
					      plan->sock ? plan->conns : 1);
	return err ?: bpf_map__set_max_entries(map_of(obj, "tbg_heat"), plan->blobs);
}

static int share(struct bpf_object *obj, const struct bpf_object *from,
		 const char *name)
{
	return bpf_map__reuse_fd(map_of(obj, name), bpf_map__fd(map_of(from, name)));
}

int tbg_maps_share(struct bpf_object *obj, const struct bpf_object *from)
{
	int err = 0;

	for (unsigned int c = 0; c < TBG_CLASS_NR; c++)
		err = err ?: share(obj, from, blob_maps[c]);
	for (size_t i = 0; i < sizeof(other_maps) / sizeof(*other_maps); i++)
		err = err ?: share(obj, from, other_maps[i]);
	return err;
}

int tbg_map_mmap(const struct bpf_map *map, struct tbg_mapping *ret)
{
	size_t page = sysconf(_SC_PAGESIZE), len;
	void *at;

	len = (size_t)((bpf_map__value_size(map) + 7) & ~7u) *
	      bpf_map__max_entries(map);
	len = (len + page - 1) & ~(page - 1);
	at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED,
		  bpf_map__fd(map), 0);
	if (at == MAP_FAILED)
		return -errno;
	*ret = (struct tbg_mapping){ at, len };
	return 0;
}

void tbg_map_munmap(struct tbg_mapping *m)
{
	if (m->at)
		munmap(m->at, m->len);
	m->at = NULL;
}

static int map_one(struct tbg_maps *m, const struct bpf_object *obj,
		   const char *name, void **ret)
{
	struct tbg_mapping *mapping = &m->mapping[m->mapping_nr];
	int err = tbg_map_mmap(map_of(obj, name), mapping);

	if (err)
		return err;
	m->mapping_nr++;
	*ret = mapping->at;
	return 0;
}

int tbg_maps_open(struct tbg_maps *ret, const struct bpf_object *obj)
{
	int err = 0;

	*ret = (struct tbg_maps){ .owners_fd = -1, .take_back_fd = -1 };
	for (unsigned int c = 0; c < TBG_CLASS_NR; c++)
		err = err ?: map_one(ret, obj, blob_maps[c], &ret->cache.blobs[c]);
	err = err ?: map_one(ret, obj, "tbg_heat", (void **)&ret->cache.heat);
	err = err ?: map_one(ret, obj, "tbg_knob", (void **)&ret->knob);
	err = err ?: map_one(ret, obj, "tbg_buckets", (void **)&ret->buckets);
	if (!err)
		ret->cache.published = (uint64_t *)&ret->knob->published;
	ret->cache.index_fd = bpf_map__fd(map_of(obj, "tbg_index"));
	ret->hosts_fd = bpf_map__fd(map_of(obj, "tbg_hosts"));
	ret->bans_fd = bpf_map__fd(map_of(obj, "tbg_bans"));
	ret->events_fd = bpf_map__fd(map_of(obj, "tbg_events"));
	ret->stats_fd = bpf_map__fd(map_of(obj, "tbg_stats"));
	ret->tier_hits_fd = bpf_map__fd(map_of(obj, "tbg_tier_hits"));
	ret->site_hits_fd = bpf_map__fd(map_of(obj, "tbg_site_hits"));
	return err;
}

void tbg_maps_close(struct tbg_maps *m)
{
	while (m->mapping_nr)
		tbg_map_munmap(&m->mapping[--m->mapping_nr]);
}

int tbg_maps_stats(const struct tbg_maps *m, struct tbg_stats *ret)
{
	int cpus = libbpf_num_possible_cpus(), err;
	struct tbg_stats *all;
	uint32_t zero = 0;

	if (cpus < 0)
		return cpus;
	all = calloc(cpus, sizeof(*all));
	if (!all)
		return -ENOMEM;
	err = bpf_map_lookup_elem(m->stats_fd, &zero, all);
	if (!err) {
		memset(ret, 0, sizeof(*ret));
		for (int c = 0; c < cpus; c++) {
			for (int i = 0; i < TBG_WHY_NR; i++) {
				ret->why[i] += all[c].why[i];
				ret->xdp_left[i] += all[c].xdp_left[i];
			}
			ret->wire_bytes += all[c].wire_bytes;
			ret->xdp_hits += all[c].xdp_hits;
			ret->sock_bytes += all[c].sock_bytes;
			ret->births += all[c].births;
			ret->handed += all[c].handed;
			ret->given += all[c].given;
			ret->log_lost += all[c].log_lost;
		}
	}
	free(all);
	return err;
}

void tbg_maps_listen(const struct tbg_maps *m, const struct sockaddr_storage *listeners,
		     unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++) {
		struct tbg_listener *l = &m->knob->listener[i];
		uint16_t port;

		l->v6 = listeners[i].ss_family == AF_INET6;
		tbg_end_of_listener(&listeners[i], l->local, &l->port);
		port = ntohs(l->port);
		m->knob->ports[port / 64] |= 1ull << (port % 64);
	}
}

void tbg_maps_drain(const struct tbg_maps *m)
{
	__atomic_store_n(&m->knob->answer, 0, __ATOMIC_RELEASE);
}
