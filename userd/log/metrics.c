// SPDX-License-Identifier: GPL-2.0
/*
 * Workers count with plain additions, and the admin listener adds the counters up. No
 * lock: a reader may miss a request that is just being counted, but no earlier one.
 */
#include "log/metrics.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "tiers/maps.h"

static const char *const names[] = {
#define X(name) #name,
	TBG_METRIC_METHOD_LIST(X)
#undef X
	"other",
};

const char *tbg_metric_method_name(enum tbg_metric_method method)
{
	return names[method];
}

enum tbg_metric_method tbg_metric_method(const char *req, size_t len)
{
	/* RFC 9112 2.2: ignore empty lines before the request line */
	while (len && (*req == '\r' || *req == '\n'))
		req++, len--;
	for (int i = 0; i < TBG_METRIC_METHOD_OTHER; i++) {
		size_t n = strlen(names[i]);

		if (len > n && req[n] == ' ' && !memcmp(req, names[i], n))
			return i;
	}
	return TBG_METRIC_METHOD_OTHER;
}

/* One writer, many readers: needs no locked instruction. */
static void add(_Atomic uint64_t *to, uint64_t n)
{
	atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *from)
{
	return atomic_load_explicit((_Atomic uint64_t *)from, memory_order_relaxed);
}

void tbg_metrics_count(struct tbg_metrics *m, uint32_t vhost,
		       enum tbg_metric_method method, unsigned int status,
		       uint64_t body, uint64_t took_ns)
{
	unsigned int nr = TBG_METRIC_SITE(vhost);

	add(&m->bucket[tbg_metric_bucket(took_ns)], 1);
	add(&m->took_ns, took_ns);
	add(&m->method[method], 1);
	add(&m->code[TBG_METRIC_CODE(status)], 1);
	add(&m->site[nr].requests, 1);
	add(&m->site[nr].body, body);
	add(&m->site[nr].status[status / 100 % 6], 1);
}

void tbg_metrics_add(struct tbg_metric_sum *to, const struct tbg_metrics *m)
{
	for (int i = 0; i < TBG_METRIC_BUCKETS; i++)
		to->bucket[i] += get(&m->bucket[i]);
	to->took_ns += get(&m->took_ns);
	for (int i = 0; i < TBG_METRIC_METHOD_NR; i++)
		to->method[i] += get(&m->method[i]);
	for (int i = 0; i < TBG_METRIC_CODES; i++)
		to->code[i] += get(&m->code[i]);
	for (int i = 0; i < TBG_METRIC_SITES; i++) {
		to->site[i].requests += get(&m->site[i].requests);
		to->site[i].body += get(&m->site[i].body);
		for (int j = 0; j < 6; j++)
			to->site[i].status[j] += get(&m->site[i].status[j]);
	}
}

static int tier_add(struct tbg_metric_sum *to, const struct tbg_maps *maps,
		    uint32_t tier, int cpus)
{
	struct tbg_metric_tier *all = calloc(cpus, sizeof(*all));
	int err = all ? 0 : -ENOMEM;

	if (!err && bpf_map_lookup_elem(maps->tier_hits_fd, &tier, all))
		err = -errno;
	for (int c = 0; c < cpus && !err; c++) {
		for (int i = 0; i < TBG_METRIC_BUCKETS; i++)
			to->bucket[i] += all[c].bucket[i];
		to->took_ns += all[c].took_ns;
		for (int i = 0; i < TBG_METRIC_CODES; i++) {
			to->code[i] += all[c].code[0][i] + all[c].code[1][i];
			to->method[TBG_METRIC_GET] += all[c].code[0][i];
			to->method[TBG_METRIC_HEAD] += all[c].code[1][i];
		}
	}
	free(all);
	return err;
}

static int site_add(struct tbg_metric_site *to, const struct tbg_maps *maps,
		    uint32_t index, struct tbg_metric_site *all, int cpus)
{
	if (bpf_map_lookup_elem(maps->site_hits_fd, &index, all))
		return -errno;
	for (int c = 0; c < cpus; c++) {
		to->requests += all[c].requests;
		to->body += all[c].body;
		for (int j = 0; j < 6; j++)
			to->status[j] += all[c].status[j];
	}
	return 0;
}

int tbg_metrics_add_kernel(struct tbg_metric_sum *to, const struct tbg_maps *maps,
			   enum tbg_tier tier, unsigned int sites_nr)
{
	int cpus = libbpf_num_possible_cpus(), err;
	struct tbg_metric_site *all;

	if (cpus < 0)
		return cpus;
	all = calloc(cpus, sizeof(*all));
	err = all ? tier_add(to, maps, tier, cpus) : -ENOMEM;
	for (unsigned int i = 0; i < sites_nr && !err; i++)
		err = site_add(&to->site[i], maps, TBG_METRIC_INDEX(tier, i), all, cpus);
	if (sites_nr <= TBG_METRIC_OTHER)
		err = err ?: site_add(&to->site[TBG_METRIC_OTHER], maps,
				      TBG_METRIC_INDEX(tier, TBG_METRIC_OTHER), all, cpus);
	free(all);
	return err;
}
