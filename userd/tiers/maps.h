/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The maps of the cache, which the kernel tiers share and the rest of the
 * daemon writes. They are sized by plan before a BPF object is loaded, and
 * mapped into memory afterwards. The first loaded tier creates them, the next
 * one uses the same.
 */
#ifndef TBG_USERD_TIERS_MAPS_H
#define TBG_USERD_TIERS_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/conn.h"
#include "abi/knob.h"
#include "abi/stats.h"
#include "cache/slots.h"

struct bpf_map;
struct bpf_object;
struct sockaddr_storage;
struct tbg_guard;

struct tbg_mapping {
	void *at;
	size_t len;
};

/* The maps that the rest of the daemon uses. Pointers are mmapped. */
struct tbg_maps {
	struct tbg_cache_maps cache;
	int hosts_fd;			/* tbg_key -> tbg_host, see hosts.h */
	int bans_fd;			/* tbg_ban_key -> TBG_BAN_*, see bans.h */
	int events_fd;			/* ring buffer of tbg_event */
	int stats_fd;			/* tbg_stats, per CPU */
	int tier_hits_fd, site_hits_fd;	/* see abi/metric.h, per CPU */
	struct tbg_knob *knob;
	struct tbg_bucket_set *buckets;	/* of clients, see tiers/rate.h */
	struct tbg_mapping mapping[TBG_CLASS_NR + 3];
	unsigned int mapping_nr;
	/* of wire alone */
	struct tbg_conn_word *conns;	/* by slot */
	uint32_t conns_nr;
	int owners_fd;			/* slot -> tbg_flow_key */
	int take_back_fd;			/* program, see tiers/take_back.h */
	struct tbg_guard *guard;	/* resets connections that it has cut off */
};

/* Advice for an error of the kernel that keeps a tier off. */
const char *tbg_maps_advice(int err);

/* Before loading: sets sizes, and the first index of each class in an object's constants. */
int tbg_maps_size(struct bpf_object *obj, volatile uint32_t *class_base,
		  const struct tbg_plan *plan);

/* Before loading: lets obj use the maps of from. */
int tbg_maps_share(struct bpf_object *obj, const struct bpf_object *from);

/* After loading: opens them. 0 or negative errno; call tbg_maps_close() in either case. */
int tbg_maps_open(struct tbg_maps *ret, const struct bpf_object *obj);
void tbg_maps_close(struct tbg_maps *m);

/* Maps an array into memory; tbg_map_munmap() undoes it. 0 or negative errno. */
int tbg_map_mmap(const struct bpf_map *map, struct tbg_mapping *ret);
void tbg_map_munmap(struct tbg_mapping *m);

/* Sums the per-CPU counters. */
int tbg_maps_stats(const struct tbg_maps *m, struct tbg_stats *ret);

/* Passes our listeners to BPF, TBG_LISTENER_MAX at most: wire answers no others. */
void tbg_maps_listen(const struct tbg_maps *m, const struct sockaddr_storage *listeners,
		     unsigned int nr);

/* Stops new answers of the kernel tiers. */
void tbg_maps_drain(const struct tbg_maps *m);

/* Sets whether the kernel tiers make this check of clients: TBG_CLIENTS_*. Control thread. */
static inline void tbg_maps_clients(const struct tbg_maps *m, uint32_t what, bool is)
{
	uint32_t was = m->knob->clients & ~what;

	__atomic_store_n(&m->knob->clients, is ? was | what : was, __ATOMIC_SEQ_CST);
}

#endif
