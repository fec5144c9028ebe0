// SPDX-License-Identifier: GPL-2.0
/*
 * The map of hosts, and the members of the knob that belong to it. While names
 * are replaced, the mode is SOME: unknown names are passed up. The upper bits
 * of the mode are a number that changes with every replacement, so that a
 * program which reads it before and after knows that it has seen one state.
 */
#include "tiers/hosts.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>

#include "core/key.h"
#include "site/site.h"
#include "tiers/wire.h"

static void key_of(const uint64_t secret[2], const struct tbg_host_name *h,
		   struct tbg_key *ret)
{
	struct tbg_path words = { 0 };

	memcpy(words.w, h->name, h->len);
	tbg_key_make((const __u64 *)secret, TBG_VHOST_NAMES, &words, h->len, ret);
}

static int name_update(const struct tbg_maps *maps, const uint64_t secret[2],
		       const struct tbg_host_name *h)
{
	struct tbg_host host = { .vhost = h->site->id, .len = h->len };
	struct tbg_key key;

	key_of(secret, h, &key);
	host.seal = tbg_host_seal(&key, host.vhost);
	memcpy(host.name, h->name, h->len);
	return bpf_map_update_elem(maps->hosts_fd, &key, &host, BPF_ANY);
}

static void names_forget(const struct tbg_maps *maps, const uint64_t secret[2],
			 const struct tbg_sites *s, const struct tbg_sites *old)
{
	struct tbg_key key;

	for (unsigned int i = 0; old && i < old->hosts_nr; i++) {
		const struct tbg_host_name *h = &old->hosts[i];

		if (h->wild || tbg_site_whole(s, h->name, h->len))
			continue;
		key_of(secret, h, &key);
		bpf_map_delete_elem(maps->hosts_fd, &key);
	}
}

static void mode_set(struct tbg_knob *knob, unsigned int mode)
{
	unsigned int number = knob->hosts / TBG_HOSTS_MODES + 1;

	__atomic_store_n(&knob->hosts, number * TBG_HOSTS_MODES + mode,
			 __ATOMIC_SEQ_CST);
}

void tbg_hosts_update(const struct tbg_maps *maps, const uint64_t key[2],
		      const struct tbg_sites *s, const struct tbg_sites *old)
{
	unsigned int mode = s->nr == 1 ? TBG_HOSTS_NONE :
			    s->wild ? TBG_HOSTS_SOME : TBG_HOSTS_ALL;

	if (!maps)
		return;
	mode_set(maps->knob, TBG_HOSTS_SOME);
	names_forget(maps, key, s, old);
	for (unsigned int i = 0; i < s->hosts_nr && mode; i++)
		if (!s->hosts[i].wild && name_update(maps, key, &s->hosts[i]))
			mode = TBG_HOSTS_SOME;
	__atomic_store_n(&maps->knob->vhost, s->fallback->id, __ATOMIC_SEQ_CST);
	mode_set(maps->knob, mode);
	__atomic_fetch_add(&maps->knob->published, 1, __ATOMIC_SEQ_CST);
}
